//! What `decide` is built from can't read a file, a clock or a socket.

use std::process::Command;

/// The crates that `decide` may be built from, and why each one is harmless.
const ALLOWED: [(&str, &str); 2] = [
    ("plimsoll-decide", "itself; its clippy.toml forbids what the standard library has of clocks, files and threads"),
    ("plimsoll-config", "units and bounds; the parser is behind its feature `yaml`, which only the daemon turns on"),
];

/// `cargo tree` and not `cargo metadata`: the latter joins the features of the whole workspace, and the daemon's would
/// hide whether `decide` itself asks for the parser.
#[test]
fn the_dependencies_can_do_no_io() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "plimsoll-decide", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("names are text");
    let mut crates: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    crates.sort_unstable();
    crates.dedup();
    let mut allowed = ALLOWED.map(|(name, _)| name);
    allowed.sort_unstable();
    assert_eq!(crates, allowed, "a new dependency of decide must be pure: name it here with the reason");
}
