//! Runs policies through seeded days: `cargo run --release -p plimsoll-tests --bin sim -- --help`.

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use plimsoll_tests::sim::fleet::{Fleet, Line, SeedScores};
use plimsoll_tests::sim::ours::Ours;
use plimsoll_tests::sim::policies::{ALL, Named};
use plimsoll_tests::sim::record::{self, Log, Recorder};
use plimsoll_tests::sim::run::Run;
use plimsoll_tests::sim::score::DayScore;
use plimsoll_tests::sim::world::{NAMES, World};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Policies over seeded days of virtual machines; the last lines are one for each policy.
///
/// Seeds under 3,000,000 are for tuning; acceptance is measured on days that nobody has looked at, from there on.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many days.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Hours of a day.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=240))]
    hours: u32,
    /// One policy alone, by name; without it all of them.
    #[arg(long)]
    policy: Option<String>,
    /// One world, by name or file; without it seeds go through all of them.
    #[arg(long)]
    world: Option<String>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from_seed: u64,
    /// Lines as JSON.
    #[arg(long)]
    json: bool,
    /// Tells each event of the days; for one seed and one policy.
    #[arg(long)]
    story: bool,
    /// Writes all that `ours` was shown and decided in one day to a file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["story", "json"])]
    record: Option<PathBuf>,
    /// Shows a recorded day to `ours` again and compares its decisions.
    #[arg(long, value_name = "FILE", exclusive = true)]
    replay: Option<PathBuf>,
}

fn main() -> Result<()> {
    match run(&Arguments::parse()) {
        // Whoever reads has read enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            Ok(())
        }
        result => result,
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.replay {
        return replay(&mut io::stdout().lock(), file);
    }
    let policies = policies(arguments.policy.as_deref())?;
    let worlds: Result<Vec<World>, String> = match &arguments.world {
        Some(name) => World::load(name).map(|world| vec![world]),
        None => NAMES.iter().map(|name| World::load(name)).collect(),
    };
    let fleet = Fleet {
        worlds: worlds.map_err(|words| anyhow!(words))?,
        from_seed: arguments.from_seed,
        n_seeds: arguments.seeds,
        hours: arguments.hours,
        policies,
    };
    let mut out = io::stdout().lock();
    if arguments.story {
        return tell(&mut out, &fleet);
    }
    if let Some(file) = &arguments.record {
        return record(&mut out, &fleet, file);
    }
    let seeds = fleet.run();
    let lines = fleet.lines(&seeds);
    for (index, line) in lines.iter().enumerate() {
        // Programs read the lines alone; a person reads how to run a day again all the same.
        match arguments.json {
            true => failures(&mut io::stderr(), &fleet, line, index, &seeds, arguments)?,
            false => failures(&mut out, &fleet, line, index, &seeds, arguments)?,
        }
    }
    if arguments.json {
        lines.iter().try_for_each(|line| writeln!(out, "{}", as_json(line)))?;
    } else {
        table(&mut out, &lines)?;
    }
    match lines.iter().find(|line| line.policy == "ours" && !line.failing_seeds.is_empty()) {
        Some(line) => bail!("ours fails on {} of {} days", line.failing_seeds.len(), line.seeds),
        None => Ok(()),
    }
}

fn policies(name: Option<&str>) -> Result<Vec<Named>> {
    let Some(name) = name else { return Ok(ALL.to_vec()) };
    let names: Vec<&str> = ALL.iter().map(|named| named.name).collect();
    let found = ALL.iter().find(|named| named.name == name);
    let found = found.with_context(|| format!("no policy `{name}`: they are {}", names.join(", ")))?;
    Ok(vec![*found])
}

/// The command that runs one day of one policy again, with its story.
fn again(seed: u64, policy: &str, arguments: &Arguments) -> String {
    let world = arguments.world.as_ref().map_or(String::new(), |world| format!(" --world {world}"));
    let hours = arguments.hours;
    format!(
        "cargo run --release -p plimsoll-tests --bin sim -- --seeds 1 --from-seed {seed} --hours {hours} --policy {policy}{world} --story"
    )
}

/// Failing seeds of a policy, each with its first broken rules, and the worst day.
fn failures(
    out: &mut impl Write,
    fleet: &Fleet,
    line: &Line,
    index: usize,
    seeds: &[SeedScores],
    arguments: &Arguments,
) -> io::Result<()> {
    const SHOWN_SEEDS: usize = 5;
    const SHOWN_RULES: usize = 3;
    let failing = seeds.iter().filter(|seed| line.failing_seeds.contains(&seed.seed));
    for seed in failing.take(SHOWN_SEEDS) {
        writeln!(out, "FAILED  {} seed {} ({}):", line.policy, seed.seed, seed.world)?;
        for words in seed.scores[index].violations.iter().take(SHOWN_RULES) {
            writeln!(out, "  {words}")?;
        }
        writeln!(out, "  {}", again(seed.seed, line.policy, arguments))?;
    }
    let (seed, share) = line.worst;
    let world = &fleet.world(seed).name;
    writeln!(out, "worst day of {}: seed {seed} ({world}), {share:.3} of the oracle's tokens", line.policy)?;
    writeln!(out, "  {}", again(seed, line.policy, arguments))
}

fn as_json(line: &Line) -> serde_json::Value {
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    serde_json::json!({
        "policy": line.policy,
        "seeds": line.seeds,
        "hours": line.hours,
        "oom": line.oom,
        "oom_preventable": line.oom_preventable,
        "lost_answers": line.lost_answers,
        "refusals": line.refusals,
        "downgrades": line.downgrades,
        "undone_recoveries_per_hour_p99": line.undone_recoveries_per_hour_p99,
        "tokens_vs_oracle_mean": rounded(line.tokens_vs_oracle_mean),
        "tokens_vs_oracle_p5": rounded(line.tokens_vs_oracle_p5),
        "failing_seeds": line.failing_seeds,
    })
}

/// An aligned table: the keys of the JSON are its heads.
fn table(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    let cell = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(seeds) => seeds.len().to_string(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<(String, String)>> = lines
        .iter()
        .map(|line| {
            let json = as_json(line);
            let entries = json.as_object().into_iter().flatten();
            entries.map(|(key, value)| (key.clone(), cell(value))).collect()
        })
        .collect();
    let Some(first) = rows.first() else { return Ok(()) };
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].1.len());
        cells.chain([first[column].0.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..first.len()).map(width).collect();
    let heads: Vec<String> = first.iter().zip(&widths).map(|((head, _), width)| format!("{head:>width$}")).collect();
    writeln!(out, "{}", heads.join("  "))?;
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|((_, cell), width)| format!("{cell:>width$}")).collect();
        writeln!(out, "{}", cells.join("  "))?;
    }
    Ok(())
}

fn tell(out: &mut impl Write, fleet: &Fleet) -> Result<()> {
    if fleet.n_seeds != 1 || fleet.policies.len() != 1 {
        bail!("--story tells one day of one policy: give --seeds 1 and --policy");
    }
    let (day, named) = (fleet.day(fleet.from_seed), fleet.policies[0]);
    let score = Run::new(&day, (named.make)(&day), true).play();
    writeln!(out, "{} on seed {} of {}, {} hours", named.name, day.seed, day.world.name, fleet.hours)?;
    score.story.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    for words in &score.violations {
        writeln!(out, "RULE BROKEN  {words}")?;
    }
    summary(out, &score)?;
    Ok(())
}

/// Plays one day of `ours` and writes it down.
fn record(out: &mut impl Write, fleet: &Fleet, file: &Path) -> Result<()> {
    if fleet.n_seeds != 1 || fleet.policies.len() != 1 || fleet.policies[0].name != "ours" {
        bail!(
            "--record writes one day of one policy that can be made again from its log: give --seeds 1 and --policy ours"
        );
    }
    let (day, named) = (fleet.day(fleet.from_seed), fleet.policies[0]);
    let about = || format!("{}: the log can't be written", file.display());
    let to = BufWriter::new(File::create(file).with_context(about)?);
    let log = RefCell::new(Log::new(to, &day.world.facts()).with_context(about)?);
    let score = Run::new(&day, Box::new(Recorder::new((named.make)(&day), &log)), false).play();
    log.into_inner().finish().with_context(about)?;
    Ok(summary(out, &score)?)
}

fn replay(out: &mut impl Write, file: &Path) -> Result<()> {
    let log = File::open(file).with_context(|| format!("{}: the log can't be read", file.display()))?;
    let n_steps = record::replay(BufReader::new(log), |facts| Box::new(Ours::new(facts)))
        .with_context(|| format!("{} does not replay", file.display()))?;
    Ok(writeln!(out, "{n_steps} steps, each decided as recorded")?)
}

fn summary(out: &mut impl Write, score: &DayScore) -> io::Result<()> {
    writeln!(
        out,
        "oom {} host + {} vram, crashes {}, lost {}, refused {}, of {} asked {} finished and {} cancelled, {} begun short of \
         VRAM, {} tokens, serving {} min, {} moves down, {} raises undone",
        score.oom_host,
        score.oom_vram,
        score.crashes,
        score.lost_answers,
        score.refusals,
        score.offered,
        score.finished,
        score.cancelled,
        score.short_starts,
        score.tokens,
        score.serving_ms / 60_000,
        score.downgrades,
        score.undone_per_hour.iter().sum::<u32>(),
    )
}
