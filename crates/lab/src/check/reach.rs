//! Checks whether clients and server reach each other.

use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;

use super::ReachReport;
use crate::{Lab, Node};

/// TCP port of the echo service (RFC 862).
const ECHO: u16 = 7;

/// Contacts the echo service from all clients at once, in each available address family. Each step
/// may take up to `patience`.
pub(crate) fn reach(lab: &Lab, patience: Duration) -> Vec<ReachReport> {
    let is_client = |node: &Node| node.site().is_some_and(|site| *node == site.client());
    let v6 = os::has_ipv6().then(|| ("IPv6", IpAddr::from(lab.address6(Node::Server))));
    let v4 = ("IPv4", IpAddr::from(lab.address4(Node::Server)));
    let families = || [v4].into_iter().chain(v6);
    let ask = |client: Node, address| {
        lab.node(client).run(|| echo(SocketAddr::new(address, ECHO), patience))
    };
    // At once, so that their time-outs do not add up.
    thread::scope(|scope| {
        let clients = lab.nodes().filter(is_client);
        let asked: Vec<_> = clients
            .flat_map(|client| families().map(move |(family, address)| (client, family, address)))
            .map(|(client, family, address)| {
                (client, family, scope.spawn(move || ask(client, address)))
            })
            .collect();
        let report = |(client, family, answer): (Node, _, thread::ScopedJoinHandle<'_, _>)| {
            let answer = answer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            let error = answer.err().map(|error: io::Error| error.to_string());
            let client = client.to_string();
            ReachReport { client, family, within: error.is_none(), error }
        };
        asked.into_iter().map(report).collect()
    })
}

/// Sends some bytes and the end of the stream, and expects both back.
fn echo(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let sent = b"Is there anybody out there?";
    let mut connection = TcpStream::connect_timeout(&address, patience)?;
    connection.set_read_timeout(Some(patience))?;
    connection.write_all(sent)?;
    connection.shutdown(Shutdown::Write)?;
    let mut received = Vec::new();
    connection.read_to_end(&mut received)?;
    if received == sent {
        Ok(())
    } else {
        Err(io::Error::other("the echo differs from what was sent"))
    }
}
