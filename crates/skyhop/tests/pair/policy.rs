//! What policies say happens: connections that are split, that cross the hop whole
//! through the tunnel, and that pass by, from either side and of the gateway itself.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::path::Path;
use std::thread;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::common::as_each_user;
use crate::gateways::{accept_any, both, connect_from, listen_on};
use crate::inside::{Gateway, Pair, assert_same, payload, read_all};
use crate::lossless;
use crate::operate::{Sockets, skyhop, status};

const SPLIT: u16 = 4001;
const WHOLE: u16 = 4002;
const PAST: u16 = 4003;
const POLICIES: &str = "[[policy]]\nname = \"whole\"\nports = [4002]\naction = \"tunnel\"\n\
                        [[policy]]\nname = \"past\"\nports = [4003]\naction = \"bypass\"\n";
/// Sent each way.
const BYTES: usize = 200_000;

#[test]
fn policies_decide_what_is_split_tunnelled_and_bypassed() {
    as_each_user(|runner| runner.inside(lossless(), "policy::inside_policies_decide"));
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_policies_decide() {
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
    // IPv4 and IPv6, of the client and of the terminal itself.
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
    let intercept = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n");
    // The clients' addresses, and the terminal's own on the hop.
    let own = [Node::Terminal.address4().to_string(), Node::Terminal.address6().to_string()];
    let networks =
        format!("networks = [\"10.1.0.0/24\", \"fd00:1::/64\", {:?}, {:?}]", own[0], own[1]);
    let sections = format!("{networks}\n[tunnel]\n{intercept}{POLICIES}");
    let hub = pair.hub_with_keys(&sockets.key("hub"), &sections);
    let sections =
        format!("{}\n[tunnel]\n{intercept}own_traffic = true\n{POLICIES}", sockets.key("terminal"));
    let mut terminal = pair.terminal_with(&sections);
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    (hub, terminal)
}

/// A connection, with data both ways: whom the server sees, and which way it went.
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

/// Takes one connection, answers in kind, and tells who it was.
fn serve(listener: &TcpListener) -> std::net::IpAddr {
    let (socket, peer) = accept_any(listener);
    assert_same(&read_all(&socket), &payload(BYTES));
    (&socket).write_all(&payload(BYTES)).unwrap();
    peer.ip()
}

/// Bytes that the terminal's tunnel has carried, either way.
pub(crate) fn tunnelled() -> u64 {
    let read = || fs::read_to_string(Path::new("/proc/thread-self/net/dev")).unwrap();
    let devices = find_netns(Node::Terminal).unwrap().run(read);
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("skyhop0:")).unwrap();
    let figures: Vec<u64> = line.split_whitespace().map(|text| text.parse().unwrap()).collect();
    figures[0] + figures[8]
}
