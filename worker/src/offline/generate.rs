//! `generate`: raw text continued, without a chat template.

use super::{OfflineError, load, prefill, session_of};
use crate::cli::GenerateArgs;
use crate::sampler::top_log_probs;
use crate::start::OpenModel;
use plimsoll_model::tokenizer::Detokenizer;
use serde::Serialize;

/// What `generate` says.
#[derive(Debug, Serialize)]
pub struct Generated {
    /// Ids of the continuation; an id that ended it is not among them.
    pub ids: Vec<u32>,
    /// Their text.
    pub text: String,
    /// `stop` when the model ended it, `length` when `-n` or the context did.
    pub finish: &'static str,
    /// With `--top N`: at each step the N likeliest ids with their log-probabilities, before any filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<Vec<Vec<(u32, f32)>>>,
}

/// # Errors
/// [`OfflineError`].
pub fn run(args: &GenerateArgs) -> Result<Generated, OfflineError> {
    let params = args.params();
    params.check()?;
    let model = OpenModel::open(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let prompt = tokenizer.encode_prompt(&args.prompt, true, true);
    if prompt.is_empty() {
        return Err(OfflineError::Usage("the prompt has no tokens: give some text with --prompt".to_owned()));
    }
    let n_ctx_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX).saturating_add(args.n_predict);
    let mut engine = load(&model, &args.model, &args.engine, n_ctx_tokens)?;
    let mut session = session_of(&mut engine, params, &prompt)?;

    let mut ids = Vec::new();
    let mut finish = "length";
    let mut top = (args.top > 0).then(Vec::new);
    while ids.len() < args.n_predict as usize {
        let logits = prefill(&mut engine, &mut session, args.engine.chunk)?;
        let id = session.choose(&logits)?;
        if !args.ignore_eos && tokenizer.is_end_of_generation(id) {
            finish = "stop";
            break;
        }
        if let Some(top) = &mut top {
            top.push(top_log_probs(&logits, args.top)?);
        }
        ids.push(id);
        session.extend(&[id]);
    }
    let mut detokenizer = Detokenizer::continuing();
    let mut text: String = ids.iter().map(|&id| detokenizer.push(&tokenizer, id)).collect();
    text.push_str(&detokenizer.finish());
    Ok(Generated { ids, text, finish, top })
}
