//! `tokenize`: text to ids.

use super::OfflineError;
use crate::cli::TokenizeArgs;
use crate::start::OpenModel;
use serde::Serialize;

/// What `tokenize` says.
#[derive(Debug, Serialize)]
pub struct Tokenized {
    /// Token ids.
    pub ids: Vec<u32>,
}

/// Special tokens written in the text are parsed: this is a tool for looking at a tokenizer, not a chat message.
///
/// # Errors
/// [`OfflineError`].
pub fn run(args: &TokenizeArgs) -> Result<Tokenized, OfflineError> {
    let tokenizer = OpenModel::open(&args.model)?.tokenizer()?;
    Ok(Tokenized { ids: tokenizer.encode_prompt(&args.text, true, args.add_special) })
}
