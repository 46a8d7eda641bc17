//! `bench`: how fast this machine prefills and decodes.

use super::{OfflineError, load, prefill, session_of};
use crate::cli::BenchArgs;
use crate::sampler::Params;
use crate::start::OpenModel;
use plimsoll_config::units::Bytes;
use serde::Serialize;
use std::fmt;
use std::time::Instant;

/// The spread of one figure over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Lowest.
    pub min: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Highest.
    pub max: f64,
}

impl Spread {
    /// `None` without figures.
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let n = figures.len();
        Some(Self { min, median: (figures[(n - 1) / 2] + figures[n / 2]) / 2.0, max })
    }
}

/// What `bench` says.
#[derive(Debug, Serialize)]
pub struct Bench {
    /// Tokens per second of a prompt; absent with `-p 0`.
    pub prefill_tok_s: Option<Spread>,
    /// Tokens per second of an answer, one at a time; absent with `-n 0`.
    pub decode_tok_s: Option<Spread>,
    /// Most memory held at once, mapped weights that were touched included.
    pub peak_rss_bytes: u64,
    /// Device, instruction set and threads.
    pub backend: String,
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, spread) in [("prefill", self.prefill_tok_s), ("decode", self.decode_tok_s)] {
            if let Some(Spread { min, median, max }) = spread {
                writeln!(f, "{name:8} {median:.1} tok/s (median; {min:.1} to {max:.1})")?;
            }
        }
        write!(f, "peak     {} resident · {}", Bytes(self.peak_rss_bytes), self.backend)
    }
}

/// Prefills `-p` tokens and decodes `-n` more, `-r` times, each in a session of its own. One unmeasured decode before
/// brings the weights in.
///
/// # Errors
/// [`OfflineError`].
pub fn run(args: &BenchArgs) -> Result<Bench, OfflineError> {
    let model = OpenModel::open(&args.model)?;
    let n_ctx_tokens = args.n_prompt.max(1).saturating_add(args.n_decode);
    let mut engine = load(&model, &args.model, &args.engine, n_ctx_tokens)?;
    // Any ids do: no operation's time depends on them, but for the experts they choose. Spread over the vocabulary.
    let n_vocab = model.facts.n_vocab;
    let ids: Vec<u32> = (0..args.n_prompt.max(1)).map(|i| i.wrapping_mul(7919).wrapping_add(101) % n_vocab).collect();

    let mut warm_up = session_of(&mut engine, Params::greedy(), &ids[..1])?;
    prefill(&mut engine, &mut warm_up, args.engine.chunk)?;
    let (mut prefill_tok_s, mut decode_tok_s) = (Vec::new(), Vec::new());
    for _ in 0..args.reps {
        let mut session = session_of(&mut engine, Params::greedy(), &ids)?;
        let began = Instant::now();
        let mut logits = prefill(&mut engine, &mut session, args.engine.chunk)?;
        if args.n_prompt > 0 {
            prefill_tok_s.push(f64::from(args.n_prompt) / began.elapsed().as_secs_f64());
        }
        let began = Instant::now();
        for _ in 0..args.n_decode {
            let id = session.choose(&logits)?;
            session.extend(&[id]);
            logits = prefill(&mut engine, &mut session, args.engine.chunk)?;
        }
        if args.n_decode > 0 {
            decode_tok_s.push(f64::from(args.n_decode) / began.elapsed().as_secs_f64());
        }
    }
    Ok(Bench {
        prefill_tok_s: Spread::of(prefill_tok_s),
        decode_tok_s: Spread::of(decode_tok_s),
        peak_rss_bytes: peak_rss_bytes(),
        backend: engine.describe(),
    })
}

/// `VmHWM` of /proc/self/status, which the kernel gives in KiB; 0 where there is no /proc. Not `getrusage`: its peak is
/// inherited from the process before exec.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
        assert_eq!(Spread::of(vec![]), None);
    }
}
