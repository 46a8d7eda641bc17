#!/usr/bin/env python3
"""A worker without an engine: speaks the wire, and answers as the prompt tells it to.

The tests' model has one token for each byte (id = byte), so a prompt is text here and so is an answer. The last line of the
prompt that begins with `!` says what to do, else the answer is `hello`:

    !say TEXT       answers TEXT
    !slow TEXT      answers TEXT, one token for each heartbeat
    !ids 1,2,3      answers these ids
    !flood          answers `a` until max_tokens
    !wait           never answers
    !die N TEXT     answers TEXT, but dies after N tokens where none were generated before
    !crash          dies of a fault whenever it gets the request
    !hang           stops doing anything at all
    !fail CLASS     fails with this class
    !too-many       sends more tokens than were asked for

`PLIMSOLL_FAKE_LOAD` says how the load goes: `ok` (default), `never`, `bad_model`, `oom`, `die`, `version`, `garbage`.
Each frame it gets is printed to stderr as `fake got JSON`; the daemon copies it into its log, where the tests wait for it.
`PLIMSOLL_FAKE_FIFO` names a FIFO that is held open for writing: its end of file is this process's death.
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import time


class Daemon:
    """The socket, as frames."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.buffer = b""

    def send(self, kind, **fields):
        body = json.dumps({"kind": kind, **fields}).encode()
        self.socket.sendall(struct.pack("<I", len(body)) + body)

    def receive(self, timeout_s):
        """All whole frames that are there; ends the process at the end of file."""
        frames = []
        if select.select([self.socket], [], [], timeout_s)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                say("end of file")
                sys.exit(0)
            self.buffer += data
        while len(self.buffer) >= 4:
            (length,) = struct.unpack("<I", self.buffer[:4])
            if len(self.buffer) < 4 + length:
                break
            frames.append(json.loads(self.buffer[4 : 4 + length]))
            self.buffer = self.buffer[4 + length :]
        for frame in frames:
            say("got " + json.dumps(frame, sort_keys=True))
        return frames


def say(text):
    print("fake " + text, file=sys.stderr, flush=True)


class Request:
    """One request and the rest of its answer."""

    def __init__(self, frame):
        self.id = frame["request"]
        self.n_generated = len(frame["generated"])
        self.max_tokens = frame["max_tokens"]
        text = bytes(i for i in frame["prompt"] if i < 256).decode("utf-8", "replace")
        order = next((line for line in reversed(text.splitlines()) if line.startswith("!")), "!say hello")
        self.verb, _, rest = order[1:].partition(" ")
        self.die_after = None
        if self.verb == "die":
            n, _, rest = rest.partition(" ")
            if self.n_generated == 0:
                self.die_after = int(n)
        if self.verb == "ids":
            self.answer = [int(i) for i in rest.split(",")]
        elif self.verb in ("flood", "too-many"):
            self.answer = [ord("a")] * (self.max_tokens + 1)
        else:
            self.answer = list(rest.encode())
        self.argument = rest

    def step(self, daemon):
        """Sends what is next; true when the request has ended."""
        if self.verb == "wait":
            return False
        if self.verb == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.die_after == self.n_generated:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.verb == "hang":
            while True:
                signal.pause()
        if self.verb == "fail":
            daemon.send("failed", request=self.id, **{"class": self.argument}, message="it was told to fail")
            return True
        left = self.answer[self.n_generated :]
        room = self.max_tokens - self.n_generated
        if self.verb == "too-many":
            daemon.send("tokens", request=self.id, ids=left)
            return True
        if not left or room <= 0:
            timing = {"n_prefilled": 1, "prefill_us": 1, "n_generated": self.n_generated, "decode_us": 1}
            daemon.send("done", request=self.id, finish="length" if left else "stop", timing=timing)
            return True
        n = min(10, room) if self.verb == "flood" else 1
        daemon.send("tokens", request=self.id, ids=left[:n])
        self.n_generated += n
        return False


def load(daemon):
    """Says hello and loads, or not, as told."""
    how = os.environ.get("PLIMSOLL_FAKE_LOAD", "ok")
    if how == "garbage":
        daemon.socket.sendall(b"\xff\xff\xff\xff not a frame")
        return
    daemon.send("hello", wire_version=99 if how == "version" else 1, pid=os.getpid())
    if how == "version":
        return
    while not any(frame["kind"] == "start" for frame in daemon.receive(None)):
        pass
    daemon.send("loading", done_bytes=1, total_bytes=2)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how in ("bad_model", "oom"):
        name = {"bad_model": "bad_model", "oom": "out_of_memory"}[how]
        daemon.send("load_failed", **{"class": name}, message="the fake was told to refuse")
        sys.exit(6 if how == "bad_model" else 3)
    if how != "never":
        daemon.send("ready", backend="fake", weight_bytes=2, load_ms=1)


def held_files():
    """What the open descriptors are."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # the folder that was being listed
    return names


def main():
    if fifo := os.environ.get("PLIMSOLL_FAKE_FIFO"):
        os.open(fifo, os.O_RDWR)  # for reading too: it must not wait for a reader
    assert sys.argv[1:3] == ["serve", "--fd"], sys.argv
    daemon = Daemon(int(sys.argv[3]))
    held = held_files()
    n_sockets = sum(name.startswith("socket:") for name in held)
    n_anonymous = sum(name.startswith("anon_inode:") for name in held)
    say(f"started pid {os.getpid()} sockets {n_sockets} anonymous {n_anonymous} env {sorted(os.environ)}")
    print("a line on stdout", flush=True)
    load(daemon)
    running = {}
    beat = time.monotonic()
    while True:
        is_busy = any(request.verb not in ("wait", "slow") for request in running.values())
        for frame in daemon.receive(0 if is_busy else 0.05):
            if frame["kind"] == "submit":
                running[frame["request"]] = Request(frame)
            elif frame["kind"] == "cancel" and running.pop(frame["request"], None):
                timing = {"n_prefilled": 0, "prefill_us": 0, "n_generated": 0, "decode_us": 0}
                daemon.send("done", request=frame["request"], finish="cancelled", timing=timing)
            elif frame["kind"] == "stop":
                sys.exit(0)
        is_beat = time.monotonic() - beat > 0.05
        for request in list(running.values()):
            if (request.verb != "slow" or is_beat) and request.step(daemon):
                del running[request.id]
        if is_beat:
            beat = time.monotonic()
            daemon.send(
                "heartbeat", n_steps=0, n_requests=len(running), kv_bytes=0, activation_bytes=0
            )


main()
