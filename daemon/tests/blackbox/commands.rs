//! The commands that end by themselves.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daemon::{PLIMSOLL, run};
use crate::model;

#[test]
fn plan_fits_or_exits_3_with_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let model = model::write(folder.path());
    let plan =
        |args: &[&str]| run(Command::new(PLIMSOLL).args(["plan", "--model", model.to_str().unwrap()]).args(args));
    let (code, stdout, stderr) = plan(&[]);
    assert_eq!(code, 0, "{stderr}");
    for word in ["HOST", "dense_weights", "kv", "activations", "service", "foreign", "FITS"] {
        assert!(stdout.contains(word), "{word} is missing:\n{stdout}");
    }
    let (_, stdout, _) = plan(&["--json"]);
    assert_eq!(stdout.lines().count(), 1);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&json["verdict"], &json["knobs"]["n_ctx"]), (&"fits".into(), &(model::N_CTX as u64).into()));
    let kv = json["accounts"][0]["objects"].as_array().unwrap().iter().find(|object| object["object"] == "kv").unwrap();
    assert!(kv["bytes"].as_u64().unwrap() > 0 && kv["basis"] == "planned", "{kv}");

    let config = folder.path().join("small.yaml");
    std::fs::write(&config, "host:\n  line: 256MiB\ncontext:\n  tokens: 2000000\n").unwrap();
    let (code, stdout, _) = plan(&["--config", config.to_str().unwrap()]);
    assert_eq!(code, 3);
    assert!(stdout.contains("DOES NOT FIT") && stdout.contains("context 2,000,000"), "{stdout}");
    let (code, stdout, _) = plan(&["--json", "--config", config.to_str().unwrap()]);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &json["verdict"]), (3, &"does_not_fit".into()));
    let short = &json["shortfalls"][0];
    assert!(short["account"] == "host" && short["bytes"].as_u64().unwrap() > 0, "{json}");
    assert!(!json["offers"].as_array().unwrap().is_empty());
}

#[test]
fn plan_needs_only_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("header.gguf");
    let bytes = model::bytes();
    std::fs::write(&path, &bytes[..bytes.len() - 1000]).unwrap();
    let plan = |args: &[&str]| run(Command::new(PLIMSOLL).args(["plan", "--model", path.to_str().unwrap()]).args(args));
    let (code, stdout, stderr) = plan(&[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("note: the file is cut: ") && stdout.contains("serve would refuse it"), "{stdout}");
    let json: Value = serde_json::from_str(&plan(&["--json"]).1).unwrap();
    let bytes_of = |name: &str| json["file_cut"][name].as_u64().unwrap();
    assert!(bytes_of("there_bytes") < bytes_of("needed_bytes"), "{json}");
    std::fs::write(&path, &bytes).unwrap();
    assert!(!plan(&[]).1.contains("is cut"));
}

#[test]
fn a_result_that_can_t_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let model = model::write(folder.path());
    for more in [&[][..], &["--json"]] {
        let mut command = Command::new(PLIMSOLL);
        command.args(["plan", "--model", model.to_str().unwrap()]).args(more);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(command.stdout(writer).output().unwrap().status.code(), Some(0), "nobody reads on");
    }
}

#[test]
fn every_example_configuration_is_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/examples");
    for name in ["12g-workstation", "24g-dense", "8g-box", "cpu-only", "benchmark"] {
        let path = folder.join(format!("{name}.yaml"));
        let (code, stdout, stderr) = run(Command::new(PLIMSOLL).args(["check-config", path.to_str().unwrap()]));
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains("ok"), "{stdout}");
    }
}

#[test]
fn check_config_lists_every_problem_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.yaml");
    std::fs::write(&path, "srver: {}\nqueue:\n  max_waiting: -1\n").unwrap();
    let (code, stdout, stderr) = run(Command::new(PLIMSOLL).args(["check-config", path.to_str().unwrap()]));
    assert_eq!((code, stdout.as_str()), (64, ""));
    assert!(stderr.contains("bad.yaml:1:") && stderr.contains("bad.yaml:3:"), "{stderr}");
    let (code, _, stderr) = run(Command::new(PLIMSOLL).args(["check-config", "/nowhere.yaml"]));
    assert_eq!(code, 64, "{stderr}");
}

#[test]
fn the_worker_s_commands_get_the_same_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("echo-worker");
    std::fs::write(&program, "#!/bin/sh\nfor word in \"$@\"; do echo \"[$word]\"; done\nexit 9\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for command in ["tokenize", "generate", "bench", "perplexity"] {
        let args = ["--text", "two words", "--help", "-n", "3", "--", "x"];
        let (code, stdout, stderr) =
            run(Command::new(PLIMSOLL).env("PLIMSOLL_WORKER", &program).arg(command).args(args));
        let expected: String = [command].iter().chain(&args).map(|word| format!("[{word}]\n")).collect();
        assert_eq!((code, stdout), (9, expected), "{stderr}");
    }
    let (code, _, stderr) = run(Command::new(PLIMSOLL).env("PLIMSOLL_WORKER", "/nowhere").arg("bench"));
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
}

#[test]
fn help_lists_the_exit_codes() {
    let (code, stdout, _) = run(Command::new(PLIMSOLL).arg("--help"));
    assert_eq!(code, 0);
    assert!(stdout.contains("66 model missing"), "{stdout}");
}
