//! Whether client and server reach each other over the hop.

use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;

use super::ReachReport;
use crate::{Lab, Node};

/// The echo service's port.
const ECHO: u16 = 7;

/// Asks the echo service in both families at once, for at most `patience` in
/// each step.
pub(crate) fn reach(lab: &Lab, patience: Duration) -> Vec<ReachReport> {
    let families: [(&str, IpAddr); 2] =
        [("IPv4", lab.address4(Node::Server).into()), ("IPv6", lab.address6(Node::Server).into())];
    let ask =
        |address| lab.node(Node::Client).run(|| echo(SocketAddr::new(address, ECHO), patience));
    thread::scope(|scope| {
        let asked = families.map(|(family, address)| (family, scope.spawn(move || ask(address))));
        asked
            .map(|(family, answer)| {
                let answer = answer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                let error = answer.err().map(|error| error.to_string());
                ReachReport { family, within: error.is_none(), error }
            })
            .into()
    })
}

/// Sends some bytes and the end, and expects both back.
fn echo(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let said = b"Is there anybody out there?";
    let mut connection = TcpStream::connect_timeout(&address, patience)?;
    connection.set_read_timeout(Some(patience))?;
    connection.write_all(said)?;
    connection.shutdown(Shutdown::Write)?;
    let mut heard = Vec::new();
    connection.read_to_end(&mut heard)?;
    if heard == said { Ok(()) } else { Err(io::Error::other("the echo is not what was said")) }
}
