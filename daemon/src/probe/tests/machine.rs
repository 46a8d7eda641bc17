//! Machines from `tests/data/proc`: one text each, whose parts are the files of `/proc` and `/sys`.

use std::path::Path;

use tempfile::TempDir;

/// The text of a machine.
fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/proc").join(format!("{name}.txtar"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The files of a machine: path and text.
fn files(machine: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for line in text(machine).lines() {
        match line.strip_prefix("-- ").and_then(|line| line.strip_suffix(" --")) {
            Some(path) => files.push((path.to_owned(), String::new())),
            None => {
                let (_, text) = files.last_mut().expect("a machine begins with the name of a file");
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    files
}

/// One file of a machine.
pub(in crate::probe) fn file(machine: &str, path: &str) -> Vec<u8> {
    let found = files(machine).into_iter().find(|(name, _)| name == path);
    found.unwrap_or_else(|| panic!("{machine} has no {path}")).1.into_bytes()
}

/// All files of a machine below a folder.
pub(in crate::probe) fn unpack(machine: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files(machine) {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}
