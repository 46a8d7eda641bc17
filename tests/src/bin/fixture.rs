//! Writes model files for tests and experiments: `cargo run -p plimsoll-tests --bin fixture -- --help`.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_tests::fixture::experts::{Experts, Kind};
use plimsoll_tests::fixture::hollow::Hollow;
use plimsoll_tests::fixture::router;
use plimsoll_tests::fixture::source::Source;
use plimsoll_tests::fixture::tiny::{Tiny, Weights};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Writes model files, the same bytes for the same seed.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A Mixture of Experts that are permuted copies of a dense model's feed-forward: it writes the dense model's text.
    Moe {
        #[command(flatten)]
        common: Common,
        /// Use of the experts follows a Zipf law with this exponent; 0 = all alike.
        #[arg(long, default_value_t = 1.0)]
        zipf: f32,
    },
    /// A Mixture of Experts that are slices of a dense model's feed-forward: all of them together write its text.
    Slices {
        #[command(flatten)]
        common: Common,
        /// How experts are chosen.
        #[arg(long, value_enum, default_value_t = Router::Random)]
        router: Router,
    },
    /// A tiny model with random weights: llama, llama-moe, gemma3, qwen2, qwen3 or qwen3moe.
    Tiny {
        /// Which of them.
        #[arg(long, value_parser = tiny_of)]
        arch: Tiny,
        /// How its matrices are stored: every format in turn, or 32-bit floats.
        #[arg(long, value_parser = weights_of, default_value = "mixed")]
        weights: Weights,
        /// Other weights for another seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The file to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// A model of a real shape without its weights, for `plimsoll plan`: qwen3-30b-a3b, workstation-moe, llama-2-7b or
    /// gemma-3-12b.
    Hollow {
        /// Which of them.
        #[arg(long, value_parser = hollow_of)]
        shape: Hollow,
        /// The file to write.
        #[arg(long)]
        out: PathBuf,
    },
}

#[derive(Args)]
struct Common {
    /// A dense llama model.
    #[arg(long)]
    source: PathBuf,
    /// Experts of each layer.
    #[arg(long)]
    experts: usize,
    /// Experts used for a token.
    #[arg(long)]
    top_k: usize,
    /// Other permutations and routers for another seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file to write.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Router {
    /// All scores equal: the first ones are chosen, with equal weights.
    Zero,
    /// Random rows.
    Random,
}

fn weights_of(name: &str) -> Result<Weights, String> {
    let found = Weights::ALL.into_iter().find(|weights| weights.name() == name);
    found.ok_or_else(|| format!("unknown; weights are {}", Weights::ALL.map(Weights::name).join(" or ")))
}

fn tiny_of(name: &str) -> Result<Tiny, String> {
    let names = Tiny::ALL.map(Tiny::name).join(", ");
    Tiny::from_name(name).ok_or_else(|| format!("unknown; the tiny models are {names}"))
}

fn hollow_of(name: &str) -> Result<Hollow, String> {
    let names = Hollow::ALL.map(Hollow::name).join(", ");
    Hollow::from_name(name).ok_or_else(|| format!("unknown; the shapes are {names}"))
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Moe { common, zipf } => {
            let source = Source::open(&common.source)?;
            let routers = router::zipf(&common.source, common.experts, common.top_k, zipf, common.seed);
            common.write(&source, Kind::Copies, routers)
        }
        What::Slices { common, router } => {
            let source = Source::open(&common.source)?;
            let routers = match router {
                Router::Zero => router::zero(source.n_layers, common.experts, source.n_embd),
                Router::Random => router::random(source.n_layers, common.experts, source.n_embd, common.seed),
            };
            common.write(&source, Kind::Slices, routers)
        }
        What::Hollow { shape, out } => Ok(shape.write(create(&out)?)?),
        What::Tiny { arch, weights, seed, out } => Ok(arch.write(weights, seed, create(&out)?)?),
    }
}

impl Common {
    fn write(&self, source: &Source, kind: Kind, routers: router::RouterRows) -> Result<()> {
        let experts = Experts { kind, n_experts: self.experts, top_k: self.top_k, seed: self.seed, routers };
        Ok(experts.write(source, create(&self.out)?)?)
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("can't write {}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}
