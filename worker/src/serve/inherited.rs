//! Takes over the socket that the daemon left open across exec. The one `unsafe` edge of this crate: a number on the
//! command line becomes an owned file descriptor, and nothing in the type system can know that it is ours alone.

use nix::sys::socket::{SockType, getsockopt, sockopt};
use std::fmt;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why the number is not the daemon's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotASocket {
    fd: RawFd,
    why: String,
}

impl fmt::Display for NotASocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "file descriptor {} is not the daemon's socket ({}); `serve` is started by `plimsoll serve`",
            self.fd, self.why
        )
    }
}

impl std::error::Error for NotASocket {}

/// One descriptor has one owner: a second call is refused.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The stream behind descriptor `fd`. Works once per process.
///
/// # Errors
/// The descriptor is not open, is no stream socket, is one of the standard three, or was taken before.
#[allow(unsafe_code)]
pub fn take_socket(fd: RawFd) -> Result<UnixStream, NotASocket> {
    let no = |why: &str| NotASocket { fd, why: why.to_owned() };
    if fd <= 2 {
        return Err(no("it is one of stdin, stdout and stderr, or negative"));
    }
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(no("it was taken before"));
    }
    // SAFETY: borrowed only for the question below. If nothing is open under this number the system call answers EBADF;
    // the borrow promises no more than that nobody closes it meanwhile, and no other thread runs yet.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match getsockopt(&borrowed, sockopt::SockType) {
        Ok(SockType::Stream) => {}
        Ok(other) => return Err(no(&format!("it is a socket of type {other:?}"))),
        Err(e) => return Err(no(e.desc())),
    }
    // SAFETY: `fd` is an open stream socket. It is ours alone: the standard three are excluded, `TAKEN` lets no second call
    // through, and this is called at the start of `serve`, before this process has opened any descriptor of its own.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(UnixStream::from(owned))
}
