//! The smallest HTTP client that can show what the daemon sends: one request a connection, chunks as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No test waits longer than this for a byte. A hung worker is given up after a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// A response whose head has come.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
}

/// Sends a request and waits for the head.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Response {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    send_raw(address, &[head.as_bytes(), body].concat())
}

/// A POST with one more header line.
pub(crate) fn send_with(address: SocketAddr, path: &str, header: &str, body: &[u8]) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nHost: test\r\n{header}Content-Length: {}\r\n\r\n", body.len());
    send_raw(address, &[head.as_bytes(), body].concat())
}

/// Sends these bytes and waits for the head.
pub(crate) fn send_raw(address: SocketAddr, bytes: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A refusal may come, and the connection close, before everything was sent.
    drop(stream.write_all(bytes));
    Response::read(stream)
}

/// A GET, as (status, JSON).
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    send(address, "GET", path, b"").json()
}

/// A POST, as (status, JSON).
pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    send(address, "POST", path, body.to_string().as_bytes()).json()
}

impl Response {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status =
            line.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("no status: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        Self { status, headers, reader }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The whole body as JSON, with the status.
    pub(crate) fn json(mut self) -> (u16, Value) {
        let n_bytes = self.header("content-length").map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; n_bytes];
        self.reader.read_exact(&mut body).unwrap();
        let json = serde_json::from_slice(&body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {:?}", String::from_utf8_lossy(&body)));
        (self.status, json)
    }

    /// The next chunk of a chunked body; `None` at its proper end.
    ///
    /// # Errors
    /// The connection ended before the body did.
    pub(crate) fn chunk(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(|e| e.to_string())?;
        let n_bytes = usize::from_str_radix(line.trim_end(), 16).map_err(|e| format!("{line:?}: {e}"))?;
        let mut data = vec![0; n_bytes + 2];
        self.reader.read_exact(&mut data).map_err(|e| e.to_string())?;
        data.truncate(n_bytes);
        Ok((n_bytes > 0).then(|| String::from_utf8(data).unwrap()))
    }

    /// The events that follow, comments left out, until the end of the body.
    pub(crate) fn events(mut self) -> Vec<String> {
        let mut text = String::new();
        while let Some(chunk) = self.chunk().unwrap() {
            text.push_str(&chunk);
        }
        text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// Waits for an event with this in it.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        loop {
            let chunk = self.chunk().unwrap().unwrap_or_else(|| panic!("the stream ended without {part:?}"));
            if chunk.contains(part) {
                return chunk;
            }
        }
    }
}
