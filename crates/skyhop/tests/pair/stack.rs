//! Solo gateways whose TCP on the satellite is skyhop's own: two of them, and one with Linux at the
//! far end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use lab::{HOP_DEVICE, LAN_DEVICE, Node};
use nix::sys::signal::Signal;

use crate::clean_up::{path, traces};
use crate::common::{as_each_user, skip};
use crate::gateways::{accept_any, both, connect_from, listen_on};
use crate::inside::{Gateway, assert_reset, assert_same, payload, read_all, reset};
use crate::operate::{Sockets, status};
use crate::{bare, lossless};

const PORT: u16 = 4000;
/// Nothing listens on this port.
const CLOSED: u16 = 4001;
const LENGTH: usize = 1_000_000;

/// A gateway with our own TCP towards the satellite, in service.
fn solo(node: Node, keys: &str, tcp: &str) -> Gateway {
    let config = format!(
        "{keys}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\nanswer = \"deferred\"\n\
         [wan]\nstack = \"skyhop\"\ninterfaces = [\"{HOP_DEVICE}\"]\n[wan.tcp]\n{tcp}\n"
    );
    let mut solo = Gateway::start(node, "solo", &config);
    solo.wait_for("ready");
    solo
}

/// From the client to the server and back.
const WAYS: [[Node; 2]; 2] = [[Node::Client, Node::Server], [Node::Server, Node::Client]];

/// Everything that ends a connection, each way, over IPv4 and IPv6. A reset that is lost is not sent
/// again, so a link with losses has none.
fn assert_tcp_is_tcp(with_resets: bool) {
    thread::scope(|scope| {
        for [from, to] in WAYS {
            for address in both(to, PORT) {
                scope.spawn(move || assert_endings([from, to], address, with_resets));
            }
            for address in both(to, CLOSED) {
                scope.spawn(move || assert_refused(from, address));
            }
        }
    });
}

fn assert_endings([from, to]: [Node; 2], address: SocketAddr, with_resets: bool) {
    let listener = listen_on(to, address);
    let open = || (connect_from(from, address), accept_any(&listener).0);
    // The callee answers after the caller's end.
    let (mut caller, mut callee) = open();
    let sent = payload(LENGTH);
    thread::scope(|scope| {
        scope.spawn(move || {
            let received = read_all(&callee);
            callee.write_all(&received).unwrap();
        });
        caller.write_all(&sent).unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&caller), &sent);
    });
    // The callee ends first.
    let (mut caller, callee) = open();
    callee.shutdown(Shutdown::Write).unwrap();
    assert_same(&read_all(&caller), b"");
    caller.write_all(&sent).unwrap();
    drop(caller);
    assert_same(&read_all(&callee), &sent);
    if !with_resets {
        return;
    }
    let (caller, callee) = open();
    reset(caller);
    assert_reset(&callee);
    let (mut caller, mut callee) = open();
    // The handshake on the satellite ends after the caller's own.
    caller.write_all(b"x").unwrap();
    callee.read_exact(&mut [0]).unwrap();
    reset(callee);
    assert_reset(&caller);
}

fn assert_refused(from: Node, address: SocketAddr) {
    let connected = lab::find_netns(from).unwrap().run(|| TcpStream::connect(address));
    assert_eq!(connected.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
}

#[test]
fn two_of_them_speak_scps_tp() {
    as_each_user(|runner| runner.inside(lossless(), "stack::inside_two"));
}

#[test]
fn losses_cost_nothing_but_time() {
    as_each_user(|runner| runner.inside(bare(), "stack::inside_losses"));
}

pub(crate) fn inside_losses() {
    let _one = solo(Node::Terminal, "", "profile = \"scps\"\nmax-rate = \"50 Mbit/s\"");
    assert_tcp_is_tcp(false);
    let _two = solo(Node::Hub, "", "profile = \"scps\"\nmax-rate = \"100 Mbit/s\"");
    assert_tcp_is_tcp(false);
}

pub(crate) fn inside_two() {
    let sockets = Sockets::new();
    let hosts = [Node::Terminal, Node::Hub];
    let before = path("nft").and_then(|_| path("ip")).map(|_| hosts.map(traces));
    let tcp = "cc = \"hybla\"";
    let gateways = [("terminal", Node::Terminal), ("hub", Node::Hub)]
        .map(|(name, node)| solo(node, &sockets.key(name), tcp));
    assert_tcp_is_tcp(true);
    for name in ["terminal", "hub"] {
        let stack = status(&sockets.path(name))["stack"].clone();
        let count = |key: &str| stack[key].as_u64().unwrap();
        // Each way, over both versions: four connections, and none that was refused.
        assert_eq!((count("opened"), count("accepted")), (8, 8), "{stack}");
        assert_eq!((count("snack"), count("sack")), (16, 16), "{stack}");
        assert_eq!(stack["controller"], "hybla");
    }
    gateways.into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
    match before {
        Some(before) => assert_eq!(hosts.map(traces), before),
        None => skip("nft or ip is missing"),
    }
}

#[test]
fn one_of_them_falls_back_to_what_linux_has() {
    as_each_user(|runner| runner.inside(lossless(), "stack::inside_one"));
}

pub(crate) fn inside_one() {
    let sockets = Sockets::new();
    for transparent in [false, true] {
        let keys = format!("{}\ntransparent = {transparent}", sockets.key("terminal"));
        let gateway = solo(Node::Terminal, &keys, "profile = \"linux\"\nsnack = true");
        assert_tcp_is_tcp(true);
        let stack = status(&sockets.path("terminal"))["stack"].clone();
        let count = |key: &str| stack[key].as_u64().unwrap();
        assert_eq!((count("opened"), count("accepted")), (8, 8), "{stack}");
        assert_eq!((count("snack"), count("sack")), (0, 16), "{stack}");
        let listener = listen_on(Node::Server, both(Node::Server, PORT)[0]);
        let _caller = connect_from(Node::Client, both(Node::Server, PORT)[0]);
        let (_, seen) = accept_any(&listener);
        let client = both(Node::Client, 0)[0].ip();
        assert_eq!(seen.ip() == client, transparent, "{seen}");
        gateway.end_by(Signal::SIGTERM);
    }
}

#[test]
fn the_far_gateway_needs_no_clients_of_its_own() {
    as_each_user(|runner| runner.inside(lossless(), "stack::inside_far"));
}

pub(crate) fn inside_far() {
    let near = solo(Node::Terminal, "transparent = true", "");
    let config =
        format!("transparent = true\n[wan]\nstack = \"skyhop\"\ninterfaces = [\"{HOP_DEVICE}\"]\n");
    let mut far = Gateway::start(Node::Hub, "solo", &config);
    far.wait_for("ready");
    for address in both(Node::Server, PORT) {
        let listener = listen_on(Node::Server, address);
        let mut caller = connect_from(Node::Client, address);
        let (callee, seen) = accept_any(&listener);
        assert_eq!(seen.ip(), caller.local_addr().unwrap().ip());
        caller.write_all(b"question").unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&callee), b"question");
        drop(callee);
        assert_same(&read_all(&caller), b"");
    }
    near.end_by(Signal::SIGTERM);
    let counted = far.end_with(Signal::SIGTERM);
    assert!(counted.contains("connections 2 (closed 2,"), "{counted}");
}

#[test]
fn a_narrow_satellite_is_no_black_hole() {
    let narrow = [lossless(), &["--mtu", "1300"]].concat();
    as_each_user(|runner| runner.inside(&narrow, "stack::inside_narrow"));
}

/// The stack's device has an MTU of 1500 bytes; routers, here the gateways' own kernels, say that the
/// satellite takes less.
pub(crate) fn inside_narrow() {
    for transparent in [false, true] {
        let keys = format!("transparent = {transparent}\ncontrol = \"none\"");
        let one = solo(Node::Terminal, &keys, "");
        // Linux at the far end tells a smaller segment size by itself: it has the device.
        assert_tcp_is_tcp(false);
        let two = solo(Node::Hub, &keys, "");
        assert_tcp_is_tcp(false);
        [one, two].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
    }
}

#[test]
fn a_slow_reader_stops_the_sender() {
    as_each_user(|runner| runner.inside(lossless(), "stack::inside_slow"));
}

pub(crate) fn inside_slow() {
    const MUCH: usize = 30_000_000;
    let sockets = Sockets::new();
    let tcp = "receive-buffer = \"256 kB\"\nsend-buffer = \"256 kB\"";
    let _gateways = [("terminal", Node::Terminal), ("hub", Node::Hub)]
        .map(|(name, node)| solo(node, &sockets.key(name), tcp));
    let address = both(Node::Server, PORT)[0];
    let listener = listen_on(Node::Server, address);
    let caller = connect_from(Node::Client, address);
    let (callee, _) = accept_any(&listener);
    let sent = payload(MUCH);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            (&caller).write_all(&sent).unwrap();
            caller.shutdown(Shutdown::Write).unwrap();
        });
        // Longer than everything would take to fill up.
        thread::sleep(Duration::from_secs(3));
        assert!(!sending.is_finished(), "30 MB were taken for a reader that takes nothing");
        for name in ["terminal", "hub"] {
            let held = status(&sockets.path(name))["stack"]["held_bytes"].as_u64().unwrap();
            assert!(held <= 512_000, "{name} holds {held} bytes");
        }
        assert_same(&read_all(&callee), &sent);
    });
}
