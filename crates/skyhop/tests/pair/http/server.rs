//! A web server on the far side, which remembers who asked for what.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::inside::listen;

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) target: String,
    pub(super) peer: IpAddr,
    /// The number of its connection.
    pub(super) connection: usize,
    pub(super) fields: Vec<String>,
}

impl Request {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ String| {
            line.split_once(": ").is_some_and(|(it, _)| it.eq_ignore_ascii_case(name))
        };
        self.fields.iter().find(|line| of(line)).and_then(|line| Some(line.split_once(": ")?.1))
    }
}

/// The server. What it answers depends on the first part of a path:
///
/// | path | answer |
/// |---|---|
/// | `/fresh…` | fresh for 100 s; `/fresh-large…` more than 100 kB |
/// | `/private…` | for one user |
/// | `/old…` | expired, with a tag that it confirms |
/// | `/chunks…` | fresh, in chunks |
/// | `/close…` | fresh, until it closes |
/// | `/cut…` | fresh, or for one user, and longer than what comes before it closes |
/// | `/mute…` | expired, with a tag; nothing to those who know that |
/// | `/upgrade` | another protocol, which echoes |
/// | `/strange/…` | with a head that no cache reads: `name`, a name with a space; `many`, many fields; `long`, much of one |
/// | others | no word about caching |
#[derive(Clone, Default)]
pub(super) struct Server {
    asked: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn start(port: u16) -> Self {
        let (server, listener) = (Self::default(), listen(port));
        let serving = server.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = serving.clone();
                thread::spawn(move || server.serve(client.unwrap()));
            }
        });
        server
    }

    /// Requests for this target.
    pub(super) fn asked(&self, target: &str) -> Vec<Request> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| it.target == target).cloned().collect()
    }

    fn serve(&self, socket: TcpStream) -> Option<()> {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let peer = socket.peer_addr().ok()?.ip().to_canonical();
        let (mut reader, mut writer) = (BufReader::new(socket.try_clone().ok()?), socket);
        loop {
            let lines: Vec<String> = (&mut reader)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let [first, fields @ ..] = &lines[..] else { return None };
            let target = first.split(' ').nth(1)?.to_owned();
            let request = Request { target, peer, connection, fields: fields.to_vec() };
            self.asked.lock().unwrap().push(request.clone());
            let length = request.field("content-length").and_then(|it| it.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).ok()?;
            if request.target == "/upgrade" {
                writer
                    .write_all(b"HTTP/1.1 101 x\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
                    .ok()?;
                std::io::copy(&mut reader, &mut writer).ok()?;
                return None;
            }
            if request.target.starts_with("/mute") && request.field("if-none-match").is_some() {
                continue;
            }
            writer.write_all(&answer(&request, &body)).ok()?;
            let is_last = request.field("connection") == Some("close") || first.ends_with("/1.0");
            if is_last || ["/close", "/cut"].iter().any(|it| request.target.starts_with(it)) {
                return None;
            }
        }
    }
}

fn answer(request: &Request, body: &[u8]) -> Vec<u8> {
    let target = &request.target;
    let text = match target.as_str() {
        _ if target.starts_with("/fresh-large") || target.starts_with("/cut") => {
            target.repeat(10_000)
        }
        _ if !body.is_empty() => format!("{target} {}", String::from_utf8_lossy(body)),
        _ => format!("{target} of {}", request.field("host").unwrap_or_default()),
    };
    let fields = match target[1..].split(['/', '?', '-']).next().unwrap() {
        "cut" if target.ends_with("private") => "Cache-Control: private, max-age=100\r\n",
        "fresh" | "chunks" | "close" | "cut" => "Cache-Control: max-age=100\r\n",
        "private" => "Cache-Control: private, max-age=100\r\n",
        "old" if request.field("if-none-match") == Some("\"1\"") => {
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n".to_vec();
        }
        "old" | "mute" => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
        _ => "",
    };
    if target.starts_with("/chunks") {
        let (a, b) = text.split_at(3);
        return format!(
            "HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n3\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n",
            b.len()
        )
        .into_bytes();
    }
    if target.starts_with("/close") {
        return format!("HTTP/1.1 200 OK\r\n{fields}\r\n{text}").into_bytes();
    }
    let strange = match target.as_str() {
        "/strange/name" => "X Bad: 1\r\n".to_owned(),
        "/strange/many" => (0..200).map(|n| format!("X-{n}: 1\r\n")).collect(),
        "/strange/long" => format!("X: {}\r\n", "a".repeat(70_000)),
        _ => String::new(),
    };
    let fields = format!("{fields}{strange}");
    let length = text.len() + if target.starts_with("/cut") { 1000 } else { 0 };
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{text}").into_bytes()
}
