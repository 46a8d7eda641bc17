//! What chats are written as when a file brings no template: turns whose control tokens the vocabulary has.
//!
//! A vocabulary without a format's tokens would read its markup as words: the model then writes markup as text and never
//! ends its turn. So a format is used only when all of its tokens are there, and a file that has none of them gets no
//! format at all rather than a wrong one.

use crate::gguf::{Header, MetadataError};

/// A way to write turns.
#[derive(Debug)]
pub(super) struct Fallback {
    /// For a person.
    pub(super) name: &'static str,
    /// Control tokens that it writes, and that the vocabulary must therefore have; one of them ends a turn.
    tokens: &'static [&'static str],
    /// The template.
    pub(super) source: &'static str,
}

/// The formats, the likeliest first: a vocabulary may have the tokens of more than one.
static FALLBACKS: [Fallback; 3] = [
    Fallback {
        name: "ChatML",
        tokens: &["<|im_start|>", "<|im_end|>"],
        source: "{% for message in messages %}\
                 {{ '<|im_start|>' ~ message.role ~ '\n' ~ (message.content or '') ~ '<|im_end|>\n' }}\
                 {% endfor %}\
                 {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    },
    // These models know two roles. What the system says stands before the next thing that the user says, or is a turn of
    // its own when the user says nothing more.
    Fallback {
        name: "Gemma's turns",
        tokens: &["<start_of_turn>", "<end_of_turn>"],
        source: "{{ bos_token }}{% set held = namespace(text='') %}\
                 {% for message in messages %}{% set text = (message.content or '') | trim %}\
                 {% if message.role in ['system', 'developer'] %}{% set held.text = held.text ~ text ~ '\n\n' %}\
                 {% elif message.role == 'assistant' %}{{ '<start_of_turn>model\n' ~ text ~ '<end_of_turn>\n' }}\
                 {% else %}{{ '<start_of_turn>user\n' ~ held.text ~ text ~ '<end_of_turn>\n' }}\
                 {% set held.text = '' %}{% endif %}{% endfor %}\
                 {% if held.text %}{{ '<start_of_turn>user\n' ~ (held.text | trim) ~ '<end_of_turn>\n' }}{% endif %}\
                 {% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    },
    Fallback {
        name: "Llama 3's headers",
        tokens: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        source: "{{ bos_token }}{% for message in messages %}\
                 {{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}\
                 {{ ((message.content or '') | trim) ~ '<|eot_id|>' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    },
];

/// The first format all of whose tokens are control tokens of the vocabulary.
///
/// # Errors
/// The vocabulary's keys hold something else than a vocabulary.
pub(super) fn of_vocabulary(header: &Header) -> Result<Option<&'static Fallback>, MetadataError> {
    let texts = header.metadata.opt_strings("tokenizer.ggml.tokens")?;
    let kinds = header.metadata.opt_numbers("tokenizer.ggml.token_type")?;
    let (Some(texts), Some(kinds)) = (texts, kinds) else { return Ok(None) };
    // One walk: the tokenizer, with its look-up by text, is not built for this.
    let wanted = |text: &[u8]| FALLBACKS.iter().flat_map(|f| f.tokens).any(|token| token.as_bytes() == text);
    let found: Vec<&[u8]> = texts
        .iter()
        .zip(kinds.iter())
        .filter(|(text, kind)| kind.as_u64() == Some(CONTROL) && wanted(text))
        .map(|(text, _)| text)
        .collect();
    Ok(FALLBACKS.iter().find(|f| f.tokens.iter().all(|token| found.contains(&token.as_bytes()))))
}

/// GGUF's number for a token that only a template writes.
const CONTROL: u64 = 3;
