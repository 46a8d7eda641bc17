//! The worker's process on its socket, with the daemon's end in the test's hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{some_ids, tiny_path};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_tests::fixture::tiny::Tiny;
use plimsoll_tests::places::Model;
use plimsoll_wire::{
    Decoder, Finish, FromWorker, LoadErrorClass, Sampling, Start, Submit, ToWorker, WIRE_VERSION, encode,
};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// Far longer than anything here takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// While the child's end is inheritable, no other child may start.
static SPAWN: Mutex<()> = Mutex::new(());

struct Worker {
    child: Child,
    /// `None` once the daemon's end is closed.
    socket: Option<UnixStream>,
    decoder: Decoder,
}

impl Worker {
    fn spawn() -> Self {
        let _alone = SPAWN.lock().unwrap();
        let (socket, theirs) = UnixStream::pair().unwrap();
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll-worker"))
            .args(["serve", "--fd", &theirs.as_raw_fd().to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        drop(theirs);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { child, socket: Some(socket), decoder: Decoder::default() }
    }

    fn started(path: &Path) -> Self {
        let mut worker = Self::spawn();
        worker.send(&ToWorker::Start(start(path)));
        worker.until(|m| matches!(m, FromWorker::Ready(_)));
        worker
    }

    fn send(&mut self, message: &ToWorker) {
        self.socket.as_mut().unwrap().write_all(&encode(message).unwrap()).unwrap();
    }

    fn next(&mut self) -> FromWorker {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return message;
            }
            let n = self.socket.as_mut().unwrap().read(&mut bytes).unwrap();
            assert!(n > 0, "the worker closed its socket");
            self.decoder.push(&bytes[..n]);
        }
    }

    /// All messages up to the first that `is_last` accepts, that one included.
    fn until(&mut self, is_last: impl Fn(&FromWorker) -> bool) -> Vec<FromWorker> {
        let mut seen = Vec::new();
        loop {
            seen.push(self.next());
            if is_last(&seen[seen.len() - 1]) {
                return seen;
            }
        }
    }

    /// The ids and the end of one request.
    fn answer(&mut self, submit: &Submit) -> (Vec<u32>, Finish) {
        self.send(&ToWorker::Submit(submit.clone()));
        let seen = self.until(|m| matches!(m, FromWorker::Done { .. } | FromWorker::Failed { .. }));
        let ids = seen.iter().flat_map(|m| match m {
            FromWorker::Tokens { ids, .. } => ids.clone(),
            _ => Vec::new(),
        });
        match &seen[seen.len() - 1] {
            FromWorker::Done { finish, .. } => (ids.collect(), *finish),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the process to end; its exit code.
    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

fn start(path: &Path) -> Start {
    Start {
        wire_version: WIRE_VERSION,
        model_path: path.to_str().unwrap().to_owned(),
        n_ctx_tokens: 256,
        max_sessions: 2,
        kv_type: "f16".to_owned(),
        n_threads: 2,
        prefill_chunk_tokens: 64,
    }
}

fn submit(request: u64, n_prompt: usize, max_tokens: u32) -> Submit {
    Submit {
        request,
        prompt: some_ids(n_prompt, 256, 1),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 0,
            seed: 5,
        },
        max_tokens,
    }
}

#[test]
fn a_life_in_order() {
    let mut worker = Worker::spawn();
    let pid = worker.child.id();
    assert_eq!(worker.next(), FromWorker::Hello { wire_version: WIRE_VERSION, pid });
    worker.send(&ToWorker::Start(start(&tiny_path(Tiny::Qwen3Moe))));
    let seen = worker.until(|m| matches!(m, FromWorker::Ready(_)));
    let loaded: Vec<(u64, u64)> = seen
        .iter()
        .filter_map(|m| match m {
            FromWorker::Loading { done_bytes, total_bytes } => Some((*done_bytes, *total_bytes)),
            _ => None,
        })
        .collect();
    assert!(loaded.is_sorted() && loaded.last().is_some_and(|(done, total)| done == total), "{loaded:?}");
    let (ids, finish) = worker.answer(&submit(1, 100, 20));
    assert!(ids.len() == 20 && finish == Finish::Length || finish == Finish::Stop);
    worker.until(|m| matches!(m, FromWorker::Heartbeat(_)));
    worker.send(&ToWorker::Stop);
    assert_eq!(worker.exit_code(), Some(0));
}

#[test]
fn a_death_is_a_pause_not_another_answer() {
    let path = Model::SmolLm2.path();
    let whole = submit(1, 40, 24);
    let mut first = Worker::started(&path);
    let (answer, finish) = first.answer(&whole);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    for n_kept in [1, answer.len() / 2, answer.len() - 1] {
        let mut second = Worker::started(&path);
        let rest = second.answer(&Submit { generated: answer[..n_kept].to_vec(), ..whole.clone() });
        assert_eq!(rest, (answer[n_kept..].to_vec(), finish), "after {n_kept} tokens");
    }
}

#[test]
fn cancel_ends_one_request_and_not_the_other() {
    let mut worker = Worker::started(&Model::SmolLm2.path());
    worker.send(&ToWorker::Submit(submit(1, 100, 100)));
    worker.send(&ToWorker::Submit(submit(2, 10, 5)));
    worker.send(&ToWorker::Cancel { request: 1 });
    worker.send(&ToWorker::Cancel { request: 77 });
    let mut ends = Vec::new();
    while ends.len() < 2 {
        if let FromWorker::Done { request, finish, .. } = worker.next() {
            ends.push((request, finish));
        }
    }
    ends.sort_by_key(|end| end.0);
    assert_eq!(ends[0], (1, Finish::Cancelled));
    assert_ne!(ends[1].1, Finish::Cancelled);
}

#[test]
fn the_end_of_the_socket_is_the_end_of_the_worker() {
    // Before the start, while idle, and in the middle of a step: a prompt of one chunk that takes a while.
    let mut early = Worker::spawn();
    early.socket = None;
    assert_eq!(early.exit_code(), Some(5));

    let mut idle = Worker::started(&tiny_path(Tiny::Llama));
    idle.socket = None;
    assert_eq!(idle.exit_code(), Some(5));

    let mut busy = Worker::started(&Model::SmolLm2.path());
    busy.send(&ToWorker::Submit(submit(1, 200, 40)));
    busy.until(|m| matches!(m, FromWorker::Progress { .. }));
    busy.socket = None;
    assert_eq!(busy.exit_code(), Some(5));

    let mut loading = Worker::spawn();
    loading.send(&ToWorker::Start(start(&Model::SmolLm2.path())));
    loading.socket = None;
    assert_eq!(loading.exit_code(), Some(5));
}

#[test]
fn signals_end_it_cleanly_idle_or_busy() {
    for (signal, is_busy) in [(Signal::SIGTERM, false), (Signal::SIGINT, true), (Signal::SIGTERM, true)] {
        let mut worker = Worker::started(&Model::SmolLm2.path());
        if is_busy {
            worker.send(&ToWorker::Submit(submit(1, 200, 40)));
            worker.until(|m| matches!(m, FromWorker::Progress { .. }));
        }
        // Our own child, not collected yet: the pid is still its.
        kill(Pid::from_raw(worker.child.id() as i32), signal).unwrap();
        assert_eq!(worker.exit_code(), Some(0), "{signal:?}, busy: {is_busy}");
    }
}

#[test]
fn a_start_that_is_impossible_says_why() {
    let path = tiny_path(Tiny::Llama);
    let junk = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(junk.path(), b"GGUF but not for long").unwrap();
    let rows = [
        (Start { kv_type: "q3".to_owned(), ..start(&path) }, LoadErrorClass::BadPlan, "f16, q8_0 or q4_0", 64),
        (Start { n_ctx_tokens: 1 << 20, ..start(&path) }, LoadErrorClass::BadPlan, "was trained for", 64),
        (Start { n_threads: 0, ..start(&path) }, LoadErrorClass::BadPlan, "n_threads is 0", 64),
        (Start { max_sessions: 0, ..start(&path) }, LoadErrorClass::BadPlan, "max_sessions is 0", 64),
        (Start { prefill_chunk_tokens: 1 << 20, ..start(&path) }, LoadErrorClass::BadPlan, "prefill_chunk_tokens", 64),
        (start(Path::new("/no/such/model.gguf")), LoadErrorClass::ModelMissing, "/no/such/model.gguf", 66),
        (start(junk.path()), LoadErrorClass::BadModel, junk.path().to_str().unwrap(), 6),
        (Start { wire_version: 99, ..start(&path) }, LoadErrorClass::BadPlan, "version 99", 1),
    ];
    for (start, want_class, words, want_code) in rows {
        let mut worker = Worker::spawn();
        worker.send(&ToWorker::Start(start));
        let seen = worker.until(|m| matches!(m, FromWorker::LoadFailed { .. } | FromWorker::Ready(_)));
        match &seen[seen.len() - 1] {
            FromWorker::LoadFailed { class, message } => {
                assert_eq!(*class, want_class);
                assert!(message.contains(words), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(worker.exit_code(), Some(want_code), "{words}");
    }
}

#[test]
fn bytes_that_are_no_frames_end_it() {
    let mut worker = Worker::started(&tiny_path(Tiny::Llama));
    worker.socket.as_mut().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(worker.exit_code(), Some(1));
}

#[test]
fn serve_by_hand_says_what_it_is_for() {
    for fd in ["0", "1", "2", "77", "-1"] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll-worker"))
            .args(["serve", &format!("--fd={fd}")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "fd {fd}");
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(words.contains("started by `plimsoll serve`"), "{words}");
    }
}
