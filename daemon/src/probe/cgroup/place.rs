//! From the words of the kernel to folders: the group of a process and all above it, as far as they are to be seen.

use std::path::{Component, Path};

use plimsoll_config::limits::MAX_CGROUP_DEPTH;

use super::group::{Group, Version};
use super::membership::Membership;
use super::mounts::{Mount, Mounts};
use crate::probe::source::{ParseError, ProbeError, Why};

/// # Errors
/// They are nested deeper than the bound.
pub(super) fn groups(membership: &Membership, mounts: &Mounts) -> Result<Vec<Group>, ProbeError> {
    let mut groups = Vec::new();
    for (version, path, mount) in [(Version::V1, &membership.v1, &mounts.v1), (Version::V2, &membership.v2, &mounts.v2)]
    {
        if let (Some(path), Some(mount)) = (path, mount) {
            chain(version, path, mount, &mut groups)?;
        }
    }
    Ok(groups)
}

fn chain(version: Version, path: &str, mount: &Mount, groups: &mut Vec<Group>) -> Result<(), ProbeError> {
    let below = below_mount(path, &mount.root);
    let n_ancestors = below.ancestors().count();
    if n_ancestors > MAX_CGROUP_DEPTH {
        let too_many = ParseError::TooMany { what: "groups one in the other", max: MAX_CGROUP_DEPTH };
        return Err(ProbeError::new(&mount.folder, Why::Malformed(too_many)));
    }
    groups.extend(below.ancestors().map(|path| Group { folder: mount.folder.join(path), version }));
    Ok(())
}

/// The path of a group below its mount. Where it is outside of what is mounted (a container whose `/proc` tells the host's
/// path, or a namespace's that begins with `..`) only the mount's top is known to be above us.
fn below_mount<'a>(path: &'a str, root: &str) -> &'a Path {
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain { below } else { Path::new("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(version: Version, path: &str, root: &str) -> Vec<String> {
        let mount = Mount { root: root.into(), folder: "/c".into() };
        let mut groups = Vec::new();
        chain(version, path, &mount, &mut groups).unwrap();
        groups.iter().map(|group| group.folder.display().to_string()).collect()
    }

    #[test]
    fn every_ancestor_that_can_be_seen_is_looked_at() {
        let cases: [(&str, &str, &[&str]); 8] = [
            ("/a/b", "/", &["/c/a/b", "/c/a", "/c/"]),
            ("/", "/", &["/c/"]),
            ("/docker/x/y", "/docker/x", &["/c/y", "/c/"]), // a mount that shows the container's part
            ("/docker/x", "/docker/x", &["/c/"]),
            ("/docker/z", "/docker/x", &["/c/"]),
            ("/../../b", "/", &["/c/"]), // a namespace that we are outside of
            ("", "/", &["/c/"]),
            ("/a (deleted)", "/", &["/c/a (deleted)", "/c/"]),
        ];
        for (path, root, expect) in cases {
            assert_eq!(folders(Version::V2, path, root), expect, "{path} in {root}");
        }
    }

    #[test]
    fn groups_that_are_nested_too_deep_are_an_error() {
        let mount = Mount { root: "/".into(), folder: "/c".into() };
        let deep = |n: usize| chain(Version::V1, &"/a".repeat(n), &mount, &mut Vec::new());
        assert!(deep(MAX_CGROUP_DEPTH - 1).is_ok());
        let words = deep(MAX_CGROUP_DEPTH).unwrap_err().to_string();
        assert_eq!(words, format!("/c: has more than {MAX_CGROUP_DEPTH} groups one in the other"));
        assert!(deep(100_000).is_err());
    }

    #[test]
    fn a_hybrid_machine_has_both_and_version_1_comes_first() {
        let mount = |folder: &str| Some(Mount { root: "/".into(), folder: folder.into() });
        let membership = Membership { v1: Some("/one".into()), v2: Some("/two".into()) };
        let of = |mounts: &Mounts| -> Vec<String> {
            let groups = groups(&membership, mounts).unwrap();
            groups.iter().map(|group| format!("{:?} {}", group.version, group.folder.display())).collect()
        };
        let both = Mounts { v1: mount("/m"), v2: mount("/u") };
        assert_eq!(of(&both), ["V1 /m/one", "V1 /m/", "V2 /u/two", "V2 /u/"]);
        assert_eq!(of(&Mounts { v1: None, ..both }), ["V2 /u/two", "V2 /u/"]);
        assert!(of(&Mounts::default()).is_empty());
    }
}
