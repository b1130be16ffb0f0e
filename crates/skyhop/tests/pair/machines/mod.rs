//! Real-world machines: shared by several users, or lacking something.

pub(crate) mod missing;
mod places;
mod shared;
pub(crate) mod without_ipv6;

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use lab::Node;

use crate::gateways::{both, listen_on};
use crate::inside::{accept, assert_same, connect, payload, read_all};

/// Exceeds the initial size of every buffer on the path.
const TRANSFER: usize = 300_000;

/// Sends data both ways over IPv4, through a gateway, and expects every byte.
fn assert_transfer(port: u16) {
    let address = both(Node::Server, port)[0];
    let listener = listen_on(Node::Server, address);
    let client = connect(address);
    let server = accept(&listener);
    let sent = payload(TRANSFER);
    for (mut from, to) in [(&client, &server), (&server, &client)] {
        thread::scope(|scope| {
            scope.spawn(|| {
                from.write_all(&sent).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            assert_same(&read_all(to), &sent);
        });
    }
}
