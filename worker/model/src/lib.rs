//! GGUF header, tokenizer, chat template and the sizes of everything.
//!
//! Used by both sides. The daemon reads a header ([`file::ModelFile::open_header`]), plans with its [`facts::ModelFacts`], counts
//! tokens with its [`tokenizer::Tokenizer`] and renders its [`template::ChatTemplate`]; the worker maps the whole file
//! ([`file::ModelFile::open`]). Nothing here computes with a weight, logs, or reads a clock.
//!
//! ```text
//! file ──► gguf::Header ──┬─► facts::ModelFacts       sizes, for plans
//!                         ├─► tokenizer::Tokenizer    text ⇄ ids
//!                         └─► template::ChatTemplate  messages → pieces → ids
//! ```

pub mod facts;
pub mod file;
pub mod gguf;
mod map;
pub mod split;
pub mod template;
pub mod tokenizer;
