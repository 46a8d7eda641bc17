//! The smallest HTTP client that tests need: HTTP/1.0 over loopback, where a body ends with the connection.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest silence of a connection.
const SILENCE: Duration = Duration::from_secs(120);

/// An answer that came whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: String,
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is something else.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.body))
    }
}

/// An answer whose body is being read.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    body: BufReader<TcpStream>,
}

impl Answer {
    /// The next `data:` of an event stream, or `None` at its end. Comments are passed over.
    ///
    /// # Errors
    /// The connection's.
    pub fn next_event(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        while self.body.read_line(&mut line)? > 0 {
            if let Some(data) = line.trim_end().strip_prefix("data:") {
                return Ok(Some(data.trim_start().to_owned()));
            }
            line.clear();
        }
        Ok(None)
    }

    /// The whole body.
    ///
    /// # Errors
    /// The connection's.
    pub fn whole(mut self) -> io::Result<Reply> {
        let mut body = String::new();
        self.body.read_to_string(&mut body)?;
        Ok(Reply { status: self.status, body })
    }
}

/// Sends a request and reads the head of its answer.
///
/// # Errors
/// The connection's; `InvalidData` for an answer without a status.
pub fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let head = "Host: localhost\r\nContent-Type: application/json";
    write!(stream, "{method} {path} HTTP/1.0\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no status in {line:?}")))?;
    while line.trim_end() != "" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            break;
        }
    }
    Ok(Answer { status, body: reader })
}

/// GETs a path.
///
/// # Panics
/// When the connection fails.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, "GET", path, "").and_then(Answer::whole).unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

/// POSTs JSON.
///
/// # Panics
/// When the connection fails.
#[must_use]
pub fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    send(address, "POST", path, &body.to_string())
        .and_then(Answer::whole)
        .unwrap_or_else(|error| panic!("POST {path}: {error}"))
}
