//! From the file's rotary facts to the angles of one kind of layer.

use crate::load::{LoadError, Loader};
use plimsoll_kernels::backend::Backend;
use plimsoll_kernels::rope::{RopeSpec, Yarn};
use plimsoll_model::facts::RopeScaling;

/// How positions turn in layer `i` and in all of its kind.
///
/// # Errors
/// [`LoadError`] when the frequency factors do not fit, or the dimension is odd or longer than a head.
pub fn rope_spec<B: Backend>(loader: &mut Loader<'_, B>, i: usize) -> Result<RopeSpec, LoadError> {
    let facts = loader.facts();
    let (rope, layer) = (&facts.rope, &facts.layers[i]);
    if rope.dim == 0 || !rope.dim.is_multiple_of(2) || rope.dim > layer.k_dim {
        return Err(LoadError::Unsupported(format!(
            "rope.dimension_count is {}; it must be even and at most the head's {}",
            rope.dim, layer.k_dim
        )));
    }
    let mut spec = RopeSpec::plain(rope.dim as usize, layer.rope_base);
    if rope.has_freq_factors {
        spec.freq_factors = Some(loader.host_vector("rope_freqs.weight", rope.dim as usize / 2)?);
    }
    if layer.rope_scaled {
        match rope.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => spec.freq_scale = 1.0 / factor,
            RopeScaling::Yarn { factor, original_context_tokens, attn_factor, beta_fast, beta_slow } => {
                spec.freq_scale = 1.0 / factor;
                spec.yarn = Some(Yarn {
                    original_context: original_context_tokens,
                    ext_factor: 1.0,
                    attn_factor,
                    beta_fast,
                    beta_slow,
                });
            }
        }
    }
    Ok(spec)
}
