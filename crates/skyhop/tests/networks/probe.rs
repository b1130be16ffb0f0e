//! What becomes of a client's connection.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use os::namespace::NetNs;

/// Longer than a client that is never answered needs to pass by, by the SYNs that it repeats.
const PATIENCE: Duration = Duration::from_secs(6);

/// The hub towards the server, and towards the terminal.
const HUB: [&str; 4] = ["10.2.0.1", "fd00:2::1", "10.9.0.2", "fd00:9::2"];

/// Connects from this host: who answered, and whether the hub had connected to it.
pub(crate) fn connect(from: &NetNs, to: SocketAddr) -> String {
    let attempt = || {
        let socket = TcpStream::connect_timeout(&to, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line)?;
        Ok(line)
    };
    match from.run(attempt) {
        Ok(line) => who(line.trim()),
        Err(error) => why(&error),
    }
}

fn who(line: &str) -> String {
    match line.split_once(' ') {
        Some((host, peer)) if HUB.contains(&peer) => format!("{host}, carried"),
        Some((host, _)) => host.to_owned(),
        None => "ended".to_owned(),
    }
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "refused",
        ErrorKind::ConnectionReset => "reset",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "silence",
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => "unreachable",
        _ => return error.to_string(),
    }
    .to_owned()
}
