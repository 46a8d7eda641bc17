//! The command line of `plimsoll-worker`: what a user may type.

use crate::sampler::Params;
use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_config::limits::{DEFAULT_PREFILL_CHUNK, MAX_PREFILL_CHUNK, MAX_THREADS};
use plimsoll_kernels::cpu::Simd;
use std::path::PathBuf;

/// The engine of Plimsoll, in its own process.
#[derive(Debug, Parser)]
#[command(name = "plimsoll-worker", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Work for the daemon at the other end of an inherited socket. Started by `plimsoll serve`.
    Serve(ServeArgs),
    /// Text to token ids.
    Tokenize(TokenizeArgs),
    /// Continue raw text, without a chat template.
    Generate(GenerateArgs),
    /// Measure prefill and decode speed.
    Bench(BenchArgs),
    /// Perplexity of a text file.
    Perplexity(PerplexityArgs),
}

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Number of the file descriptor of the socket.
    #[arg(long)]
    pub fd: i32,
}

/// How to compute.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Compute threads; all that the process may use by default.
    #[arg(long, short = 't', value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub threads: Option<u32>,
    /// Prompt tokens in one step. Changes speed and memory, never a bit of the result.
    #[arg(long, default_value_t = DEFAULT_PREFILL_CHUNK, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PREFILL_CHUNK)))]
    pub chunk: u32,
    /// Storage of K and V: f16, q8_0 or q4_0.
    #[arg(long, default_value = "f16")]
    pub kv_type: String,
    /// Kernels. Changes speed, never a bit of the result.
    #[arg(long, value_enum, default_value_t = SimdArg::Auto)]
    pub simd: SimdArg,
}

impl EngineArgs {
    /// Threads to use.
    pub fn n_threads(&self) -> u32 {
        let available = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        self.threads.unwrap_or_else(|| available().min(MAX_THREADS))
    }
}

/// Kernels to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimdArg {
    /// The best that the machine has.
    Auto,
    /// Plain code, slow: for comparing.
    Portable,
}

impl From<SimdArg> for Simd {
    fn from(arg: SimdArg) -> Self {
        match arg {
            SimdArg::Auto => Self::Auto,
            SimdArg::Portable => Self::Portable,
        }
    }
}

/// `tokenize`.
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// The model file, or the first part of a split one.
    #[arg(long, short = 'm')]
    pub model: PathBuf,
    /// The text. Special tokens in it are parsed.
    #[arg(long, allow_hyphen_values = true)]
    pub text: String,
    /// Add BOS and EOS as the model asks.
    #[arg(long)]
    pub add_special: bool,
    /// One line of JSON: `ids`.
    #[arg(long)]
    pub json: bool,
}

/// `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The model file, or the first part of a split one.
    #[arg(long, short = 'm')]
    pub model: PathBuf,
    /// The text to continue. BOS is added if the model asks; special tokens in it are parsed.
    #[arg(long, allow_hyphen_values = true)]
    pub prompt: String,
    /// Most tokens to generate.
    #[arg(long, short = 'n', default_value_t = 128)]
    pub n_predict: u32,
    /// Temperature; 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    pub temp: f32,
    /// Keep the k likeliest; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    pub top_k: u32,
    /// Keep the smallest set with this probability; 0 keeps the likeliest, 1 keeps all.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f32,
    /// Keep tokens this likely relative to the best; 0 keeps all.
    #[arg(long, default_value_t = 0.0)]
    pub min_p: f32,
    /// Penalty on recent tokens; 1 is off.
    #[arg(long, default_value_t = 1.0)]
    pub repeat_penalty: f32,
    /// How many tokens are recent.
    #[arg(long, default_value_t = 64)]
    pub repeat_last_n: u32,
    /// Seed. The same seed gives the same text.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Go on after an end-of-answer token.
    #[arg(long)]
    pub ignore_eos: bool,
    /// With --json: the N likeliest ids of each step with their log-probabilities.
    #[arg(long, default_value_t = 0)]
    pub top: usize,
    /// One line of JSON: `ids`, `text`, `finish` (and `top`).
    #[arg(long)]
    pub json: bool,
    /// How to compute.
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl GenerateArgs {
    /// The sampler's parameters.
    pub fn params(&self) -> Params {
        Params {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            seed: self.seed,
        }
    }
}

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The model file, or the first part of a split one.
    #[arg(long, short = 'm')]
    pub model: PathBuf,
    /// Tokens of the prompt; 0 measures decoding only.
    #[arg(long, short = 'p', default_value_t = 128)]
    pub n_prompt: u32,
    /// Tokens to decode; 0 measures prefill only.
    #[arg(long, short = 'n', default_value_t = 64)]
    pub n_decode: u32,
    /// Repetitions.
    #[arg(long, short = 'r', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub reps: u32,
    /// One line of JSON: `prefill_tok_s` and `decode_tok_s` as {min, median, max}, `peak_rss_bytes`, `backend`.
    #[arg(long)]
    pub json: bool,
    /// How to compute.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// The model file, or the first part of a split one.
    #[arg(long, short = 'm')]
    pub model: PathBuf,
    /// The text, in UTF-8.
    #[arg(long, short = 'f')]
    pub file: PathBuf,
    /// Tokens of one window.
    #[arg(long, short = 'c', default_value_t = 512)]
    pub ctx: u32,
    /// One line of JSON: `ppl`, `tokens`, `windows`.
    #[arg(long)]
    pub json: bool,
    /// How to compute.
    #[command(flatten)]
    pub engine: EngineArgs,
}
