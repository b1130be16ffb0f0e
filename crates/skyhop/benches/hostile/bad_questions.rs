//! A client sends DNS questions of which the library for DNS logs a warning each. They must not write a line each.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::Node;

use super::scene::{Attack, Case};
use crate::gateways::Keys;

pub(crate) const CASE: Case =
    Case { name: "bad questions", keys: "", hub: "[dns]\n", terminal: "[dns]\n", attack };

/// A header with one question and one additional record (RFC 1035 §4.1.1), a question for an address, and an
/// OPT record that ends within its option (RFC 6891 §6.1.2). One whose option is longer than the whole record is
/// refused without a word.
const QUESTION: [u8; 35] = [
    0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, // header
    1, b'a', 0, 0, 1, 0, 1, // question
    0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 5, 0, 10, 0, 5, 1, // OPT
];
/// 27,690 questions in 5 s filled a log once.
const AT_ONCE: usize = 60;
const PAUSE: Duration = Duration::from_millis(10);

fn attack(_: &Keys, attack: &Attack) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    let resolver = SocketAddr::from((Node::Server.address4(), 53));
    socket.connect(resolver).expect("an address");
    socket.set_nonblocking(true).expect("a socket");
    loop {
        // Questions that the socket refuses count as lost on the way.
        let sent = (0..AT_ONCE).filter_map(|_| socket.send(&QUESTION).ok()).sum();
        while socket.recv(&mut [0; 512]).is_ok() {}
        if !attack.sent(sent) {
            return;
        }
        thread::sleep(PAUSE);
    }
}
