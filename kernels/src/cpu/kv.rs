//! K and V of one session: pages of 64 absolute positions per layer, allocated as they are reached.
//!
//! A page holds, per key/value head, 64 key rows and then 64 value rows. A layer with a window frees a page when no position
//! of it can be seen by a position yet to come. Values are stored by one fixed rule per type and widened exactly:
//!
//! - f16: rounded to nearest even.
//! - q8_0, per 32: `d = f16(amax/127)`, `q = clamp(round_to_even(x · (1/d)), ±127)`; value `d · q`.
//! - q4_0, per 32: `d = f16(v/−8)` where v is the first of the elements with the largest |x|, `q = clamp(round_to_even(x · (1/d)) + 8,
//!   0, 15)`; value `d · (q − 8)`.
//!
//! A scale of 0 stores all q as 0 (q4_0: 8); a scale over f16's range is stored as its largest number.

use super::Level;
use super::tensor::try_vec;
use crate::KV_PAGE_TOKENS;
use crate::backend::{BackendError, KvLayer, KvType};
use crate::dequant::{INT_BLOCK, dequantize_row};
use crate::format::Format;
use half::f16;

/// Positions per page.
pub(super) const PAGE: usize = KV_PAGE_TOKENS as usize;

/// The format that a K/V type is stored in.
pub(super) const fn storage(kv_type: KvType) -> Format {
    match kv_type {
        KvType::F16 => Format::F16,
        KvType::Q8_0 => Format::Q8_0,
        KvType::Q4_0 => Format::Q4_0,
    }
}

/// One layer's pages.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) shape: KvLayer,
    pub(super) k_row_bytes: usize,
    pub(super) v_row_bytes: usize,
    /// Page i holds positions 64·i..64·(i+1); `None` is not reached yet, or no longer seen.
    pages: Vec<Option<Vec<u8>>>,
    /// Positions below this one are no longer held.
    first: u32,
}

impl Layer {
    fn page_bytes(&self) -> usize {
        self.shape.n_kv_heads * PAGE * (self.k_row_bytes + self.v_row_bytes)
    }

    /// Bytes of 64 key rows and 64 value rows of `head` in page `page`.
    ///
    /// # Panics
    /// If the page is not held: reserving and appending come first.
    pub(super) fn head(&self, page: usize, head: usize) -> (&[u8], &[u8]) {
        let bytes = self.pages[page].as_deref().unwrap_or_default();
        let stride = PAGE * (self.k_row_bytes + self.v_row_bytes);
        bytes[head * stride..][..stride].split_at(PAGE * self.k_row_bytes)
    }

    /// Pages below `n_pages` that would have to be allocated.
    fn missing(&self, n_pages: usize) -> impl Iterator<Item = usize> + '_ {
        let held_from = (self.first as usize / PAGE).min(n_pages);
        (held_from..n_pages).filter(|i| self.pages.get(*i).is_none_or(Option::is_none))
    }

    /// First position that a query at `pos` can see.
    pub(super) fn first_seen(&self, pos: u32) -> u32 {
        self.shape.window.map_or(0, |window| (pos + 1).saturating_sub(window))
    }

    /// Frees pages whose positions no query from `pos` on can see.
    fn forget_before(&mut self, pos: u32) {
        let first_page = self.first_seen(pos) / KV_PAGE_TOKENS;
        for page in &mut self.pages[(self.first / KV_PAGE_TOKENS) as usize..first_page as usize] {
            *page = None;
        }
        self.first = self.first.max(first_page * KV_PAGE_TOKENS);
    }
}

/// K and V of one session, all layers.
#[derive(Debug)]
pub struct CpuKv {
    layers: Vec<Layer>,
    kv_type: KvType,
}

impl CpuKv {
    pub(super) fn new(layers: &[KvLayer], kv_type: KvType) -> Result<Self, BackendError> {
        let format = storage(kv_type);
        let layer = |shape: &KvLayer| {
            let row = |dim: usize| {
                let whole_blocks = format.row_bytes(dim).filter(|bytes| *bytes > 0);
                whole_blocks.ok_or_else(|| {
                    let block = format.block_elements();
                    BackendError::Shape(format!("a head of {dim} elements is not whole {format} blocks of {block}"))
                })
            };
            let (k_row_bytes, v_row_bytes) = (row(shape.k_dim)?, row(shape.v_dim)?);
            if shape.n_kv_heads == 0 || shape.window == Some(0) {
                return Err(BackendError::Shape("a layer without key/value heads, or with a window of 0".to_owned()));
            }
            Ok(Layer { shape: *shape, k_row_bytes, v_row_bytes, pages: Vec::new(), first: 0 })
        };
        Ok(Self { layers: layers.iter().map(layer).collect::<Result<_, _>>()?, kv_type })
    }

    /// How values are stored.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }

    pub(super) fn layer(&self, layer: usize) -> &Layer {
        &self.layers[layer]
    }

    /// Makes room for positions up to `n_tokens`; on failure nothing has changed.
    pub(super) fn reserve(&mut self, n_tokens: u32) -> Result<(), BackendError> {
        let n_pages = (n_tokens as usize).div_ceil(PAGE);
        if self.layers.iter().all(|layer| layer.missing(n_pages).next().is_none()) {
            return Ok(());
        }
        let fresh =
            |layer: &Layer| layer.missing(n_pages).map(|page| Ok((page, try_vec(layer.page_bytes())?))).collect();
        let fresh: Vec<Vec<(usize, Vec<u8>)>> = self.layers.iter().map(fresh).collect::<Result<_, _>>()?;
        for (layer, fresh) in self.layers.iter_mut().zip(fresh) {
            if layer.pages.len() < n_pages {
                layer.pages.resize(n_pages, None);
            }
            for (page, bytes) in fresh {
                layer.pages[page] = Some(bytes);
            }
        }
        Ok(())
    }

    /// Forgets positions from `n_tokens` on.
    pub(super) fn truncate(&mut self, n_tokens: u32) {
        for layer in &mut self.layers {
            layer.pages.truncate((n_tokens as usize).div_ceil(PAGE));
            layer.first = if n_tokens == 0 { 0 } else { layer.first };
        }
    }

    /// Whether all that positions from `n_tokens` on can see is still held, so that a session may go on from there.
    pub(super) fn can_resume_at(&self, n_tokens: u32) -> bool {
        self.layers.iter().all(|layer| layer.first <= layer.first_seen(n_tokens))
    }

    /// Bytes of all pages held.
    pub(super) fn bytes(&self) -> u64 {
        let held = |layer: &Layer| layer.pages.iter().flatten().count() as u64 * layer.page_bytes() as u64;
        self.layers.iter().map(held).sum()
    }

    /// Frees pages of `layer` whose positions no query from `pos` on can see.
    pub(super) fn forget_before(&mut self, layer: usize, pos: u32) {
        self.layers[layer].forget_before(pos);
    }

    /// Stores one position of `layer`: `k` and `v` are all heads of one token.
    pub(super) fn append(&mut self, level: Level, layer: usize, pos: u32, k: &[f32], v: &[f32]) {
        let kv_type = self.kv_type;
        let layer = &mut self.layers[layer];
        let KvLayer { n_kv_heads, k_dim, v_dim, window: _ } = layer.shape;
        assert_eq!((k.len(), v.len()), (n_kv_heads * k_dim, n_kv_heads * v_dim), "widths of k and v");
        let (k_row, v_row) = (layer.k_row_bytes, layer.v_row_bytes);
        let (page, slot) = (pos as usize / PAGE, pos as usize % PAGE);
        let page = layer.pages.get_mut(page).and_then(Option::as_mut);
        assert!(page.is_some(), "position {pos} is not reserved");
        let page = page.map_or(&mut [][..], Vec::as_mut_slice);
        let heads = page.chunks_exact_mut(PAGE * (k_row + v_row));
        for ((head, k), v) in heads.zip(k.chunks_exact(k_dim)).zip(v.chunks_exact(v_dim)) {
            let (keys, values) = head.split_at_mut(PAGE * k_row);
            store(level, kv_type, k, &mut keys[slot * k_row..][..k_row]);
            store(level, kv_type, v, &mut values[slot * v_row..][..v_row]);
        }
    }
}

/// Stores values by the type's rule.
fn store(level: Level, kv_type: KvType, x: &[f32], out: &mut [u8]) {
    match kv_type {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "a vector kernel")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        KvType::F16 if level == Level::Avx2 => unsafe { super::avx2::attention::store_f16(x, out) },
        KvType::F16 => {
            for (out, x) in out.chunks_exact_mut(2).zip(x) {
                out.copy_from_slice(&f16::from_f32(*x).to_le_bytes());
            }
        }
        KvType::Q8_0 => {
            for (out, x) in out.chunks_exact_mut(34).zip(x.chunks_exact(INT_BLOCK)) {
                let (d, inverse) = scale(largest(x).abs() / 127.0);
                out[..2].copy_from_slice(&d.to_le_bytes());
                for (out, x) in out[2..].iter_mut().zip(x) {
                    *out = ((x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned();
                }
            }
        }
        KvType::Q4_0 => {
            for (out, x) in out.chunks_exact_mut(18).zip(x.chunks_exact(INT_BLOCK)) {
                let (d, inverse) = scale(largest(x) / -8.0);
                out[..2].copy_from_slice(&d.to_le_bytes());
                let q = |x: f32| ((x * inverse).round_ties_even() + 8.0).clamp(0.0, 15.0) as u8;
                for (i, out) in out[2..].iter_mut().enumerate() {
                    *out = q(x[i]) | (q(x[i + 16]) << 4);
                }
            }
        }
    }
}

/// The first of the elements with the largest magnitude; a NaN counts as larger than any number.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0_f32, |best, &x| if x.abs().to_bits() > best.abs().to_bits() { x } else { best })
}

/// A block's scale as stored, and its inverse (0 for a scale of 0). NaN and infinity are kept: the values become NaN.
fn scale(d: f32) -> (f16, f32) {
    let stored = f16::from_f32(if d.is_finite() { d.clamp(-65_504.0, 65_504.0) } else { f32::NAN });
    let wide = stored.to_f32();
    (stored, if wide == 0.0 { 0.0 } else { 1.0 / wide })
}

/// Widens `out.len() / dim` stored rows exactly.
pub(super) fn widen(kv_type: KvType, bytes: &[u8], out: &mut [f32]) {
    dequantize_row(storage(kv_type), bytes, out);
}
