//! A node for bundles, without TLS, sends messages of one byte. It is a host on the hub's own LAN: over the link its
//! bytes would wait in the same queue as an honest terminal's, whatever the hub does.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Node, find_netns};

use super::scene::{Attack, Case};
use crate::gateways::Keys;

pub(crate) const CASE: Case = Case {
    name: "keepalives",
    keys: "",
    hub: "[bundles]\nnode = \"ipn:1.0\"\nstore = \"{store}/bundles\"\nlisten = \"0.0.0.0:4556\"\n\
          clients = [\"0.0.0.0/0\"]\n[[bundles.peer]]\nnode = \"ipn:9.0\"\n",
    terminal: "",
    attack,
};

const PORT: u16 = 4556;
/// Contact header (RFC 9174 §4.2), and SESS_INIT (§4.6) of `ipn:9.0`.
const CONTACT: [u8; 6] = *b"dtn!\x04\0";
const NODE: &[u8] = b"ipn:9.0";
const KEEPALIVE: u8 = 4;
/// Messages written at once, and how often: 50 Mbit/s, as much as the link of the other cases carries.
const AT_ONCE: usize = 6250;
const EVERY: Duration = Duration::from_millis(1);

fn attack(_: &Keys, attack: &Attack) {
    let hub = SocketAddr::from((Node::Hub.address4(), PORT));
    let connect = || TcpStream::connect(hub).expect("the hub listens");
    let mut socket = find_netns(Node::Server).expect("a lab").run(connect);
    let mut begin = [&CONTACT[..], &[7, 0, 30]].concat();
    begin.extend([[0, 0, 0, 0, 0, 1, 0, 0]; 2].concat());
    begin.extend([0, NODE.len() as u8]);
    begin.extend(NODE);
    begin.extend([0; 4]);
    socket.write_all(&begin).expect("it is taken");
    let mut next = Instant::now();
    while attack.sent(AT_ONCE) {
        socket.write_all(&[KEEPALIVE; AT_ONCE]).expect("the session goes on");
        next += EVERY;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
