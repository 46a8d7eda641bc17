//! `perplexity`: how surprised the model is by a text. exp of the mean negative log-likelihood.
//!
//! The text is cut into windows of `--ctx` tokens without overlap; what is left over at the end is not used. A model that
//! wants a BOS token gets it at the head of each window, in place of the window's first token. Of each window the second half
//! is scored: tokens `ctx/2 + 1` to `ctx − 1`, each given all before it in its window. llama.cpp's own tool also puts a BOS
//! before the whole text, which shifts the windows by one token: on Gemma that is 0.3 %.

use super::{OfflineError, load, session_of};
use crate::cli::PerplexityArgs;
use crate::engine::{Engine, Flow, Segment};
use crate::sampler::{Params, log_sum_exp};
use crate::start::OpenModel;
use plimsoll_kernels::cpu::Cpu;
use serde::Serialize;

/// What `perplexity` says.
#[derive(Debug, Serialize)]
pub struct Perplexity {
    /// The perplexity.
    pub ppl: f64,
    /// Tokens scored.
    pub tokens: usize,
    /// Windows used.
    pub windows: usize,
}

/// # Errors
/// [`OfflineError`].
pub fn run(args: &PerplexityArgs) -> Result<Perplexity, OfflineError> {
    let model = OpenModel::open(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let text =
        std::fs::read_to_string(&args.file).map_err(|error| OfflineError::Input { path: args.file.clone(), error })?;
    let ids = tokenizer.encode(&text, false);
    let n_ctx = args.ctx as usize;
    if n_ctx < 4 || ids.len() < n_ctx {
        let why = format!("the text has {} tokens; a window has --ctx {n_ctx}, and needs at least 4", ids.len());
        return Err(OfflineError::Usage(why));
    }
    let bos = if tokenizer.adds_bos() { tokenizer.bos() } else { None };
    let mut engine = load(&model, &args.model, &args.engine, args.ctx)?;
    let (mut nll, mut tokens, mut windows) = (0.0_f64, 0, 0);
    for window in ids.chunks_exact(n_ctx) {
        let mut window = window.to_vec();
        if let Some(bos) = bos {
            window[0] = bos;
        }
        nll += score(&mut engine, &window, args.engine.chunk as usize)?;
        tokens += n_ctx - n_ctx / 2 - 1;
        windows += 1;
    }
    Ok(Perplexity { ppl: (nll / tokens as f64).exp(), tokens, windows })
}

/// Negative log-likelihood of the second half of a window.
fn score(engine: &mut Engine<Cpu>, window: &[u32], chunk: usize) -> Result<f64, OfflineError> {
    let mut session = session_of(engine, Params::greedy(), window)?;
    let mut nll = 0.0_f64;
    while !session.pending().is_empty() {
        let first = session.n_cached();
        let n_tokens = session.pending().len().min(chunk);
        // Row r stands at position first + r and predicts the token after it.
        let wanted = first.max(window.len() / 2)..(first + n_tokens).min(window.len() - 1);
        let logits = wanted.start.min(wanted.end) - first.min(wanted.end)..wanted.end - first;
        let segment = Segment { session: &mut session, n_tokens, logits };
        engine.forward(&mut [segment], &mut |_| Flow::Continue, &mut |logits| {
            let next = window[first + logits.row + 1] as usize;
            nll += f64::from(log_sum_exp(logits.values)) - f64::from(logits.values[next]);
        })?;
    }
    Ok(nll)
}
