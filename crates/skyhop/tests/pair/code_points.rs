//! The DSCP of a client's SYN along the path: how each side classifies the connection, and what the
//! server's network sees.

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use lab::{HOP_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::packet::Tap;
use os::socket::{save_syns, saved_syn};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::common::as_myself;
use crate::inside::{Gateway, PATIENCE, Pair, accept, addresses, payload};
use crate::lossless;
use crate::operate::{Sockets, wait_for};

/// No class has a rule for this port.
const PORT: u16 = 4000;
const EXPEDITED: u32 = 46;
/// CS6.
const CONTROL: u32 = 48;
const BYTES: usize = 100_000;

#[test]
fn code_points_cross_the_hop() {
    as_myself(|runner| runner.inside(lossless(), "code_points::inside_they_cross"));
}

pub(crate) fn inside_they_cross() {
    let (pair, sockets, listener) = (Pair::new(), Sockets::new(), listen_and_keep_syns());
    let hub = pair.hub_with_keys(&sockets.key("hub"), "");
    for answer in ["early", "deferred"] {
        let intercept = format!("[intercept]\ninterfaces = [\"lan0\"]\nanswer = {answer:?}");
        let control = sockets.key("terminal");
        let mut terminal = pair.terminal_with(&format!("{control}\n{intercept}"));
        terminal.wait_for("ready");
        for address in addresses(PORT) {
            for (dscp, class) in [(0, "default"), (EXPEDITED, "interactive"), (8, "bulk")] {
                let before = ["terminal", "hub"].map(|side| sent(&sockets, side, class));
                assert_eq!(exchange(address, dscp, &listener), dscp, "{answer} {address}");
                let after = ["terminal", "hub"].map(|side| sent(&sockets, side, class));
                let grown = |side: usize| after[side] - before[side];
                assert!(grown(0) >= BYTES as u64, "{class} at the terminal: {before:?} {after:?}");
                assert!(grown(1) >= BYTES as u64, "{class} at the hub: {before:?} {after:?}");
            }
        }
        terminal.end_by(Signal::SIGTERM);
    }
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_gateway_alone_keeps_code_points() {
    as_myself(|runner| runner.inside(lossless(), "code_points::inside_alone"));
}

pub(crate) fn inside_alone() {
    let listener = listen_and_keep_syns();
    let mut solo = Gateway::start(Node::Terminal, "solo", "[intercept]\ninterfaces = [\"lan0\"]\n");
    solo.wait_for("ready");
    for address in addresses(PORT) {
        for dscp in [0, EXPEDITED] {
            assert_eq!(exchange(address, dscp, &listener), dscp, "{address}");
        }
    }
    solo.end_by(Signal::SIGTERM);
}

#[test]
fn packets_on_the_hop_carry_the_mark_of_their_class() {
    as_myself(|runner| runner.inside(lossless(), "code_points::inside_marks"));
}

pub(crate) fn inside_marks() {
    let (pair, listener) = (Pair::new(), listen_and_keep_syns());
    let hub = pair.hub_with_keys("", "");
    let mut terminal = pair.terminal_with(
        "[intercept]\ninterfaces = [\"lan0\"]\n\
         [[class]]\nname = \"voice\"\ndscp = [\"EF\"]\nmark = \"EF\"\n",
    );
    terminal.wait_for("ready");
    let tap = find_netns(Node::Hub).unwrap().run(|| Tap::open(HOP_DEVICE, 1500));
    let mut seen = Seen { tap: tap.unwrap(), bytes: [[0; 64]; 2] };
    for address in addresses(PORT) {
        for dscp in [0, EXPEDITED] {
            let before = seen.look();
            assert_eq!(exchange(address, dscp, &listener), dscp, "{address}");
            let grown = |now: [[u64; 64]; 2], up: usize, mark: u32| {
                now[up][mark as usize] - before[up][mark as usize]
            };
            let (now, other) = (seen.look(), EXPEDITED - dscp);
            // From the terminal, whose class is marked, and from the hub, which marks nothing.
            assert!(grown(now, 1, dscp) >= BYTES as u64, "{address} {dscp}");
            assert!(grown(now, 1, other) < 10_000, "{address} {dscp}");
            assert!(grown(now, 1, CONTROL) > 0, "{address} {dscp}");
            assert!(grown(now, 0, 0) >= BYTES as u64, "{address} {dscp}");
            assert_eq!((grown(now, 0, EXPEDITED), grown(now, 0, CONTROL)), (0, 0));
        }
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Bytes that the hub's device has sent and received, by code point.
struct Seen {
    tap: Tap,
    bytes: [[u64; 64]; 2],
}

impl Seen {
    fn look(&mut self) -> [[u64; 64]; 2] {
        let bytes = &mut self.bytes;
        self.tap.drain(|frame| {
            let [first, second, ..] = *frame.bytes else { return };
            let mark = if first >> 4 == 4 { second >> 2 } else { (first & 15) << 2 | second >> 6 };
            bytes[usize::from(!frame.outgoing)][usize::from(mark)] += frame.bytes.len() as u64;
        });
        self.bytes
    }
}

/// Sends data with this DSCP and receives it back; returns the DSCP that arrived.
fn exchange(server: SocketAddr, dscp: u32, listener: &TcpListener) -> u32 {
    let mut client = connect(server, dscp).unwrap();
    let sent = payload(BYTES);
    let (mut back, mut heard) = (vec![0; BYTES], vec![0; BYTES]);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut socket = accept(listener);
            let seen = code_point(&socket).unwrap();
            socket.read_exact(&mut heard).unwrap();
            socket.write_all(&heard).unwrap();
            seen
        });
        client.write_all(&sent).unwrap();
        client.read_exact(&mut back).unwrap();
        assert!(back == sent);
        serving.join().unwrap()
    })
}

fn connect(server: SocketAddr, dscp: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    if server.is_ipv4() {
        socket.set_tos_v4(dscp << 2)?;
    } else {
        socket.set_tclass_v6(dscp << 2)?;
    }
    socket.connect_timeout(&server.into(), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// Bytes of this class sent by a side.
fn sent(sockets: &Sockets, side: &str, class: &str) -> u64 {
    // The hub learns of a session slightly later than the terminal.
    let is_up = |status: &Value| status["sessions"][0]["classes"].is_array();
    let status = wait_for(&sockets.path(side), "no session", is_up);
    let classes = status["sessions"][0]["classes"].as_array().unwrap();
    let row = classes.iter().find(|row| row["name"] == class).unwrap();
    row["sent_bytes"].as_u64().unwrap()
}

fn listen_and_keep_syns() -> TcpListener {
    let listener = find_netns(Node::Server)
        .unwrap()
        .run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap());
    save_syns(&listener).unwrap();
    listener
}

/// DSCP of an accepted connection's SYN.
fn code_point(socket: &TcpStream) -> io::Result<u32> {
    let syn = saved_syn(socket)?;
    assert!(syn.len() >= 20, "no SYN was kept");
    let first = u32::from_be_bytes([syn[0], syn[1], syn[2], syn[3]]);
    Ok(if first >> 28 == 4 { first >> 18 & 0x3f } else { first >> 22 & 0x3f })
}
