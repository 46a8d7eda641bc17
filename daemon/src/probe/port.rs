//! Who listens at an address, for the message that says why the daemon can't.

use std::fmt;
use std::net::SocketAddr;

use plimsoll_config::limits::MAX_SHOWN_COMMAND_CHARS;
use procfs::process::{FDTarget, Process, all_processes};

/// A process that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its process id.
    pub(crate) pid: i32,
    /// Its command line, or its name where that is hidden.
    pub(crate) command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.command, self.pid)
    }
}

/// The holder of a listening socket that keeps `address` from us; `None` when its process is not to be seen (another user's,
/// another namespace's).
pub(crate) fn holder(address: SocketAddr) -> Option<Holder> {
    let inode = listening_inode(address)?;
    all_processes().ok()?.flatten().find_map(|process| {
        let holds =
            process.fd().ok()?.flatten().any(|fd| matches!(fd.target, FDTarget::Socket(found) if found == inode));
        holds.then(|| Holder { pid: process.pid, command: command(&process) })
    })
}

/// For a terminal: one short line, whatever the process calls itself.
fn command(process: &Process) -> String {
    let line = process.cmdline().ok().filter(|words| !words.is_empty()).map(|words| words.join(" "));
    let name =
        line.or_else(|| process.stat().ok().map(|stat| stat.comm)).unwrap_or_else(|| "a process without a name".into());
    name.chars().take(MAX_SHOWN_COMMAND_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Sockets at the same address, or at the unspecified one of either family, which covers ours.
fn listening_inode(address: SocketAddr) -> Option<u64> {
    let tcp = procfs::net::tcp().unwrap_or_default();
    let tcp6 = procfs::net::tcp6().unwrap_or_default();
    tcp.iter()
        .chain(&tcp6)
        .find(|entry| {
            entry.state == procfs::net::TcpState::Listen
                && entry.local_address.port() == address.port()
                && (entry.local_address.ip() == address.ip() || entry.local_address.ip().is_unspecified())
        })
        .map(|entry| entry.inode)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::holder;

    #[test]
    fn our_own_listening_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = holder(listener.local_addr().unwrap()).expect("the socket is in /proc");
        assert_eq!(found.pid, std::process::id() as i32);
        assert!(!found.command.is_empty());
    }
}
