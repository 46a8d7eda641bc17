//! GGUF header, tokenizer, chat template and the sizes of everything.
