//! Damaged and absurd model files: a clear error with its own exit code, never a panic, never memory beyond bounds.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plimsoll_tests::engine;
use plimsoll_tests::fixture::hostile::{self, Hostile};
use plimsoll_tests::places::target_folder;
use plimsoll_tests::process::{Running, SOON, plimsoll, plimsoll_worker};
use plimsoll_worker::Engine;
use plimsoll_worker::engine::{EngineOptions, Flow, Segment};
use plimsoll_worker::sampler::Params;
use plimsoll_worker::start::OpenModel;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

/// Address space that a file of 2 MiB may cost on top of what the test has already.
const MORE_BYTES: u64 = 1 << 30;

/// From the file to the first two tokens, as `generate` goes; the sentence of the error where it ends before.
fn use_file(path: &Path) -> Result<(), String> {
    let model = OpenModel::open(path).map_err(|error| error.to_string())?;
    let tokenizer = model.tokenizer().map_err(|error| error.to_string())?;
    let mut ids = tokenizer.encode_prompt("The ship <|im_end|>", true, true);
    let options = EngineOptions {
        n_ctx_tokens: 64.min(model.facts.n_ctx_train),
        max_step_tokens: 16,
        kv_type: plimsoll_kernels::backend::KvType::F16,
    };
    let loaded = Engine::load(engine::cpu(), &model.file, &model.facts, options, &mut |_, _| Flow::Continue);
    let mut engine = loaded.map_err(|error| error.to_string())?;
    let mut session = engine.session(Params::greedy()).map_err(|error| error.to_string())?;
    for _ in 0..2 {
        session.extend(&ids);
        while !session.pending().is_empty() {
            let n_tokens = session.pending().len().min(16);
            let mut last = Vec::new();
            let step =
                engine.forward(&mut [Segment::next(&mut session, n_tokens)], &mut |_| Flow::Continue, &mut |logits| {
                    last = logits.values.to_vec();
                });
            step.map_err(|error| error.to_string())?;
            if session.pending().is_empty() {
                ids = vec![session.choose(&last).map_err(|error| error.to_string())?];
            }
        }
    }
    Ok(())
}

/// The process's address space, in bytes.
fn address_space_bytes() -> u64 {
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    status.ok().and_then(|status| status.vmsize).expect("a Linux /proc") * 1024
}

#[test]
fn every_bad_file_gets_a_clear_error_or_works() {
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).expect("a limit can be read");
    setrlimit(Resource::RLIMIT_AS, address_space_bytes() + MORE_BYTES, hard).expect("a limit can be lowered");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("hostile.gguf");
    let (mut n_files, mut n_refused, mut wrong) = (0, 0, Vec::new());
    hostile::for_each(1, |Hostile { name, bytes, must_fail }| {
        fs::write(&path, bytes).expect("room for a file");
        n_files += 1;
        match catch_unwind(AssertUnwindSafe(|| use_file(&path))) {
            Err(_) => wrong.push(format!("{name}: panicked")),
            Ok(Ok(())) if must_fail => wrong.push(format!("{name}: accepted")),
            Ok(Ok(())) => {}
            Ok(Err(words)) if words.len() < 10 || words.len() > 2_000 => wrong.push(format!("{name}: says {words:?}")),
            Ok(Err(_)) => n_refused += 1,
        }
    });
    println!("{n_files} files, {n_refused} refused");
    assert!(wrong.is_empty(), "{} of {n_files}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n_files >= 400 && n_refused >= 200, "{n_files} files, {n_refused} refused");
}

/// A program under a limit on its address space, in bytes: a huge allocation ends it with a signal, and so fails the test.
fn limited(program: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new("/bin/sh");
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", 3 * MORE_BYTES / 1024);
    command.arg("-c").arg(script).arg(program).args(arguments);
    Running::start(command)
}

#[test]
fn the_commands_exit_with_the_code_of_a_bad_model() {
    let folder = tempfile::tempdir_in(target_folder()).expect("a temporary folder");
    let mut files = Vec::new();
    let mut index = 0;
    hostile::for_each(2, |file| {
        index += 1;
        // A few of each kind.
        if file.must_fail && index % 17 == 0 {
            files.push(file);
        }
    });
    assert!(files.len() >= 20, "{}", files.len());
    for (index, file) in files.iter().enumerate() {
        let path = folder.path().join(format!("hostile-{index}.gguf"));
        fs::write(&path, &file.bytes).expect("room for a file");
        let model = path.to_str().expect("a plain path");
        let generate = ["generate", "--prompt", "x", "-n", "1", "--model", model];
        for (program, arguments) in [(plimsoll(), &["plan", "--model", model][..]), (plimsoll_worker(), &generate[..])]
        {
            let mut process = limited(&program, arguments);
            let code = process.wait(SOON).code();
            let said = process.said();
            // A plan reads the header alone: what is wrong with the data behind it, the worker finds.
            let is_fine = code == Some(6) || (code == Some(0) && arguments[0] == "plan");
            assert!(is_fine && !said.contains("panicked"), "{} {}: {code:?}\n{said}", arguments[0], file.name);
            assert!(code == Some(0) || process.stderr().contains(model), "names the file: {}: {said}", file.name);
        }
    }
}
