//! Policies take effect: connections are split, tunnelled or bypassed, from either side and from
//! the gateway itself.

use std::fs;
use std::io::Write;
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;

use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use socket2::SockRef;

use crate::common::{as_each_user, as_myself, text};
use crate::gateways::{ACCEPT, accept_any, both, connect_from, listen_on};
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, assert_same, exchange, payload, read_all};
use crate::lossless;
use crate::operate::{Sockets, skyhop, status, write_secret};

const SPLIT: u16 = 4001;
const WHOLE: u16 = 4002;
const PAST: u16 = 4003;
const POLICIES: &str = "[[policy]]\nname = \"whole\"\nports = [4002]\naction = \"tunnel\"\n\
                        [[policy]]\nname = \"past\"\nports = [4003]\naction = \"bypass\"\n";
const INTERCEPT: &str = "[intercept]\ninterfaces = [\"lan0\"]\n";
/// Bytes sent each way.
const BYTES: usize = 200_000;

#[test]
fn policies_choose_between_split_tunnel_and_bypass() {
    as_each_user(|runner| runner.inside(lossless(), "policy::inside_policies_decide"));
}

pub(crate) fn inside_policies_decide() {
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = start(&pair, &sockets);
    for (client, server) in
        [(Node::Client, Node::Server), (Node::Server, Node::Client), (Node::Terminal, Node::Server)]
    {
        for port in [SPLIT, WHOLE, PAST] {
            for address in both(server, port) {
                check(client, server, address);
            }
        }
    }
    let told = |policy: usize| status(&sockets.path("terminal"))["policies"][policy].clone();
    // IPv4 and IPv6, from the client and from the terminal itself.
    for (policy, name, action) in [(0, "whole", "tunnel"), (1, "past", "bypass")] {
        let row = told(policy);
        assert_eq!((&row["name"], &row["action"]), (&name.into(), &action.into()));
        assert!(row["connections"].as_u64().is_some_and(|count| count >= 4), "{row}");
    }
    let at_hub = status(&sockets.path("hub"));
    assert!(at_hub["policies"][0]["connections"].as_u64().is_some_and(|n| n >= 2), "{at_hub:#}");
    let table = skyhop(&["status"], &sockets.path("terminal"));
    assert!(String::from_utf8_lossy(&table.stdout).contains("whole"), "{table:?}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A pair with the same policies on both sides.
fn start(pair: &Pair, sockets: &Sockets) -> (Gateway, Gateway) {
    let hub = hub(pair, sockets, POLICIES);
    let sections = sections(sockets, &format!("own_traffic = true\n{POLICIES}"));
    (hub, in_service(pair.terminal_with(&sections)))
}

/// A hub that knows the clients' addresses, and the terminal's own on the hop.
fn hub(pair: &Pair, sockets: &Sockets, policies: &str) -> Gateway {
    let own = [Node::Terminal.address4().to_string(), Node::Terminal.address6().to_string()];
    let networks =
        format!("networks = [\"10.1.0.0/24\", \"fd00:1::/64\", {:?}, {:?}]", own[0], own[1]);
    let sections = format!("{networks}\n[tunnel]\n{INTERCEPT}{policies}");
    pair.hub_with_keys(&sockets.key("hub"), &sections)
}

/// Sections of a terminal's configuration.
fn sections(sockets: &Sockets, more: &str) -> String {
    format!("{}\n[tunnel]\n{ACCEPT}{INTERCEPT}{more}", sockets.key("terminal"))
}

fn in_service(mut terminal: Gateway) -> Gateway {
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    terminal
}

#[test]
fn other_policies_are_for_connections_to_come() {
    as_myself(|runner| runner.inside(lossless(), "policy::inside_policies_change"));
}

pub(crate) fn inside_policies_change() {
    let (pair, sockets, mirror) = (Pair::new(), Sockets::new(), Mirror::start(SPLIT));
    let (file, control) = (sockets.path("terminal.toml"), sockets.path("terminal"));
    let write = |action: &str| {
        let policy = format!("[[policy]]\nname = \"it\"\nports = [4001]\naction = \"{action}\"\n");
        write_secret(&file, &pair.terminal_config(&sections(&sockets, &policy)));
    };
    write("split");
    let hub = hub(&pair, &sockets, "");
    let terminal = in_service(Gateway::start_from(Node::Terminal, "terminal", &file));
    let mut held = Vec::new();
    // Action, whether the server sees the gateway, whether packets go through the tunnel.
    let ways = [("split", true, false), ("tunnel", false, true), ("bypass", false, false)];
    for (action, is_split, is_whole) in ways.into_iter().chain(ways) {
        write(action);
        let reloaded = skyhop(&["reload"], &control);
        assert!(text(&reloaded.stdout).contains("reloaded"), "{reloaded:?}");
        let (mut socket, carried) = mirror.connect();
        assert_eq!(carried, is_split, "{action}");
        assert_eq!(status(&control)["policies"][0]["action"], action);
        assert_way(&mut socket, is_whole, action);
        held.push((socket, is_whole, action));
        // Existing connections keep their action.
        held.iter_mut().for_each(|(socket, is_whole, began)| assert_way(socket, *is_whole, began));
    }
    drop(held);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Asserts that a connection works, and whether its packets go through the tunnel.
fn assert_way(socket: &mut TcpStream, is_whole: bool, began: &str) {
    let before = tunnelled();
    (0..4).for_each(|_| exchange(socket));
    let through = tunnelled() - before;
    assert_eq!(through > 4 * 2 * 40, is_whole, "{began}: {through} bytes through the tunnel");
}

#[test]
fn datagrams_go_as_policies_say() {
    as_myself(|runner| runner.inside(lossless(), "policy::inside_datagrams"));
}

pub(crate) fn inside_datagrams() {
    const POLICIES: &str = "[[policy]]\nports = [\"udp/4101\"]\naction = \"bypass\"\n\
                            [[policy]]\nports = [\"udp/4102\"]\naction = \"tunnel\"\n\
                            [[policy]]\ndscp = [\"CS1\"]\naction = \"split\"\n\
                            [[policy]]\ndscp = [\"EF\"]\naction = \"bypass\"\n";
    // Port, DSCP (CS1 is 8, EF 46), whether it goes through the tunnel.
    let cases = [
        (4101, 0, false),
        (4102, 0, true),
        (4103, 0, true),
        (4103, 8, true),
        (4103, 46, false),
        // The first match decides.
        (4102, 46, true),
    ];
    (4101..=4103).for_each(echo);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = hub(&pair, &sockets, "");
    let terminal = in_service(pair.terminal_with(&sections(&sockets, POLICIES)));
    for (port, dscp, is_whole) in cases {
        for server in both(Node::Server, port) {
            let before = tunnelled();
            ask(server, dscp);
            let through = tunnelled() - before;
            let what = format!("{server}, code point {dscp}: {through} bytes through the tunnel");
            assert_eq!(through > QUESTIONS * QUESTION, is_whole, "{what}");
        }
    }
    // Each matches two address families, the last one once.
    let told = status(&sockets.path("terminal"))["policies"].clone();
    let counts = (0..4).map(|policy| told[policy]["packets"].as_u64().unwrap());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 4, 2, 2].map(|times| times * QUESTIONS), "{told}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Number of datagrams to each server, and their length.
const QUESTIONS: u64 = 5;
const QUESTION: u64 = 400;

/// A server that echoes every datagram.
fn echo(port: u16) {
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    let socket = find_netns(Node::Server).unwrap().run(bind);
    thread::spawn(move || {
        let mut datagram = [0; 2000];
        loop {
            let (length, from) = socket.recv_from(&mut datagram).unwrap();
            socket.send_to(&datagram[..length], from).unwrap();
        }
    });
}

/// Sends requests and expects every reply; this link loses nothing.
fn ask(server: SocketAddr, dscp: u32) {
    let any: SocketAddr = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = UdpSocket::bind(any).unwrap();
    let options = SockRef::from(&socket);
    if server.is_ipv4() {
        options.set_tos_v4(dscp << 2).unwrap();
    } else {
        options.set_tclass_v6(dscp << 2).unwrap();
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..QUESTIONS {
        let sent = [number as u8; QUESTION as usize];
        socket.send_to(&sent, server).unwrap();
        let mut back = [0; QUESTION as usize];
        socket.recv_from(&mut back).unwrap();
        assert_eq!(back, sent);
    }
}

/// Sends data both ways; checks the address the server sees, and the path taken.
fn check(client: Node, server: Node, address: SocketAddr) {
    let before = tunnelled();
    let listener = listen_on(server, address);
    let seen = thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener));
        let socket = connect_from(client, address);
        let own = socket.local_addr().unwrap().ip();
        thread::scope(|scope| {
            scope.spawn(|| {
                (&socket).write_all(&payload(BYTES)).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
            });
            assert_same(&read_all(&socket), &payload(BYTES));
        });
        (own, server.join().unwrap())
    });
    let what = format!("{client} to {address}");
    let through = tunnelled() - before;
    let is_whole = address.port() != SPLIT;
    assert_eq!(seen.0 == seen.1, is_whole, "{what}: {seen:?}");
    if address.port() == WHOLE {
        assert!(through > 2 * BYTES as u64, "{what}: {through} bytes through the tunnel");
    } else {
        assert!(through < 10_000, "{what}: {through} bytes through the tunnel");
    }
}

/// Serves one connection; returns the client's address.
fn serve(listener: &TcpListener) -> std::net::IpAddr {
    let (socket, peer) = accept_any(listener);
    assert_same(&read_all(&socket), &payload(BYTES));
    (&socket).write_all(&payload(BYTES)).unwrap();
    peer.ip()
}

/// Bytes through the terminal's tunnel, in both directions.
pub(crate) fn tunnelled() -> u64 {
    let read = || fs::read_to_string(Path::new("/proc/thread-self/net/dev")).unwrap();
    let devices = find_netns(Node::Terminal).unwrap().run(read);
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("skyhop0:")).unwrap();
    let figures: Vec<u64> = line.split_whitespace().map(|text| text.parse().unwrap()).collect();
    figures[0] + figures[8]
}
