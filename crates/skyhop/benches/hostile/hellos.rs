//! Somebody without any key begins TLS with the hub as often as he can: each answer takes a key exchange and a
//! signature.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use lab::{Node, find_netns};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::scene::{Attack, Case};
use crate::gateways::Keys;

pub(crate) const CASE: Case = Case {
    name: "hellos",
    keys: "listen_tcp = \"[::]:443\"\nlisten_tcp_certificate = \"{store}/certificate.pem\"\n\
           listen_tcp_key = \"{store}/key.pem\"\n",
    hub: "",
    terminal: "",
    attack,
};

const PORT: u16 = 443;
/// Connections at once: fewer than the hub keeps from one network.
const CONNECTIONS: usize = 48;
const PATIENCE: Duration = Duration::from_secs(5);

fn attack(_: &Keys, attack: &Attack) {
    let hub = SocketAddr::from((Node::Hub.address4(), PORT));
    let (node, hello) = (Node::terminal(2).expect("there are two"), hello());
    let again = || while attack.sent(begin(hub, &hello).expect("the hub answers")) {};
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| find_netns(node).expect("a lab").run(again));
        }
    });
}

/// A ClientHello.
fn hello() -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    let (config, name) = (Arc::new(config.with_no_client_auth()), "hub".try_into());
    let client = ClientConnection::new(config, name.expect("a name"));
    let mut hello = Vec::new();
    client.expect("a client").write_tls(&mut hello).expect("it is written");
    hello
}

/// Makes the hub answer once, and leaves. Returns the bytes sent.
fn begin(hub: SocketAddr, hello: &[u8]) -> io::Result<usize> {
    let mut socket = TcpStream::connect(hub)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(hello)?;
    socket.read_exact(&mut [0])?;
    Ok(hello.len())
}
