//! What a terminal's clients reach through the hub, and the hub's side behind a terminal: only what
//! the operator has opened.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::common::{as_each_user, as_myself, is_present, skip, text};
use crate::gateways::{ACCEPT, Keys, accept_any, both, connect_from, listen_on};
use crate::inside::{Gateway, PATIENCE, Pair, wait_until};
use crate::lossless;
use crate::operate::{Sockets, status};
use crate::tunnel::{self, NETWORKS, RTT, client, echo_on, round_trip, wait_for_answer};

const PORT: u16 = 4300;

/// The error of a client with deferred answers; `None` if it connects.
fn failure(from: Node, to: SocketAddr) -> Option<ErrorKind> {
    find_netns(from).unwrap().run(|| TcpStream::connect(to)).err().map(|error| error.kind())
}

/// A denied destination is reported as ICMP "communication prohibited".
fn is_prohibition(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::HostUnreachable | ErrorKind::PermissionDenied)
}

fn assert_untouched(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
}

/// A terminal that intercepts and has a proxy, both with deferred answers.
fn terminal(pair: &Pair) -> Gateway {
    let sections = format!(
        "[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\nanswer = \"deferred\"\n\
         [proxy]\nlisten = \"[::]:1080\"\nclients = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
         answer = \"deferred\"\n"
    );
    let mut terminal = pair.terminal_with(&sections);
    terminal.wait_for("ready");
    terminal
}

#[test]
fn a_client_does_not_reach_the_hub_s_own_services_by_any_address_or_name() {
    if !is_present("curl") {
        return skip("curl is missing");
    }
    as_each_user(|runner| runner.inside(lossless(), "egress::inside_own_services"));
}

pub(crate) fn inside_own_services() {
    let (pair, own) = (Pair::new(), both(Node::Hub, PORT));
    let listeners = own.map(|address| listen_on(Node::Hub, address));
    let (hub, gate) = (pair.hub(), terminal(&pair));
    for address in own {
        assert!(failure(Node::Client, address).is_some_and(is_prohibition), "{address}");
    }
    for host in ["hub".to_owned(), own[0].ip().to_string(), format!("[{}]", own[1].ip())] {
        for (dialect, told) in [("socks5h", "(2)"), ("http", "403")] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--globoff", "--max-time", "20", "--proxytunnel", "-x"]);
            curl.arg(format!("{dialect}://terminal:1080")).arg(format!("http://{host}:{PORT}/"));
            let said = text(&curl.output().unwrap().stderr);
            assert!(said.contains(told), "{host} by {dialect}: {said}");
        }
    }
    listeners.iter().for_each(assert_untouched);
    [gate, hub].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));

    // Once listed, each is an ordinary destination.
    let listed = own.map(|address| address.to_string());
    let hub = pair
        .hub_with(&format!("reach = [\"0.0.0.0/0\", \"::/0\", {:?}, {:?}]", listed[0], listed[1]));
    let gate = terminal(&pair);
    for (listener, address) in listeners.iter().zip(own) {
        let mut socket = connect_from(Node::Client, address);
        let (_server, peer) = accept_any(listener);
        assert_ne!(peer.ip(), socket.local_addr().unwrap().ip(), "the hub connects");
        socket.write_all(b"hello").unwrap();
    }
    [gate, hub].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
}

#[test]
fn a_terminal_accepts_from_the_hub_s_side_only_what_its_own_file_lists() {
    as_each_user(|runner| runner.inside(lossless(), "egress::inside_a_terminal_accepts"));
}

pub(crate) fn inside_a_terminal_accepts() {
    let keys = Keys::new(1);
    let [v4, v6] = both(Node::Client, PORT);
    let hub = keys.intercepting_hub("", "answer = \"deferred\"");
    let usual = keys.terminal_config(1, "", "");
    let start = |config: &str| {
        let mut terminal = Gateway::start(Node::Terminal, "terminal", config);
        terminal.wait_for("ready");
        terminal
    };
    let terminal = start(&usual.replace(ACCEPT, ""));
    [v4, v6].into_iter().for_each(wait_until_prohibited);
    terminal.end_by(Signal::SIGTERM);

    let listed = format!("[accept]\nto = [\"{}:{PORT}\"]\n", v4.ip());
    let terminal = start(&usual.replace(ACCEPT, &listed));
    wait_until_prohibited(v6);
    let listener = listen_on(Node::Client, v4);
    let socket = connect_from(Node::Server, v4);
    let (_server, peer) = listener.accept().unwrap();
    assert_ne!(peer.ip(), socket.local_addr().unwrap().ip(), "the terminal connects");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Until the hub knows its terminal, connections pass unaccelerated, and are refused because
/// nothing listens.
fn wait_until_prohibited(address: SocketAddr) {
    let began = Instant::now();
    while !failure(Node::Server, address).is_some_and(is_prohibition) {
        assert!(began.elapsed() < PATIENCE, "{address} is reached");
    }
}

#[test]
fn packets_of_the_tunnel_go_where_connections_may_go() {
    as_each_user(|runner| runner.inside(lossless(), "egress::inside_packets"));
}

pub(crate) fn inside_packets() {
    [Node::Server, Node::Hub, Node::Client].into_iter().for_each(echo_on);
    let [server, hub_itself, clients] =
        [Node::Server, Node::Hub, Node::Client].map(|node| both(node, tunnel::PORT));
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let keys = ["hub", "terminal"].map(|side| sockets.key(side));
    let (hub, terminal) = tunnel::both_with(&pair, keys.each_ref().map(String::as_str), NETWORKS);
    server.map(client).iter().for_each(wait_for_answer);
    for address in hub_itself {
        assert_eq!(round_trip(&client(address), 1, RTT * 3), None, "{address}");
    }
    let from_server = |address| find_netns(Node::Server).unwrap().run(|| client(address));
    for address in clients {
        assert_eq!(round_trip(&from_server(address), 1, RTT * 3), None, "{address}");
    }
    for side in ["hub", "terminal"] {
        // A busy machine takes longer than packets were waited for.
        let seen = || status(&sockets.path(side))["tunnel"]["prohibited"].as_u64().unwrap();
        wait_until(PATIENCE, || seen() >= 2);
        assert_eq!(seen(), 2, "one of each version at the {side}");
    }
    [terminal, hub].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));

    let [own, other] = hub_itself.map(|address| address.to_string().replace("]:", "]:udp/"));
    let own = own.replace(':', ":udp/");
    let lists = format!("{NETWORKS}\nreach = [\"0.0.0.0/0\", {own:?}, {other:?}]");
    let hub = pair.hub_with(&format!("{lists}\n[tunnel]\n"));
    let accept = format!("[accept]\nto = [\"{}\"]\n", clients[0].ip());
    let intercept = format!("[tunnel]\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    let mut terminal = pair.terminal_with(&format!("{accept}{intercept}"));
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    wait_for_answer(&client(server[0]));
    hub_itself.map(client).iter().for_each(wait_for_answer);
    wait_for_answer(&from_server(clients[0]));
    assert_eq!(round_trip(&client(server[1]), 1, RTT * 3), None, "IPv6 is not listed");
    assert_eq!(round_trip(&from_server(clients[1]), 1, RTT * 3), None, "nor is it there");
    [terminal, hub].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
}

#[test]
fn terminals_meet_only_where_the_hub_lets_the_one_and_the_other_accepts() {
    let options: Vec<&str> = lossless().iter().copied().chain(["--terminals", "2"]).collect();
    as_myself(|runner| runner.inside(&options, "egress::inside_a_mesh"));
}

pub(crate) fn inside_a_mesh() {
    let keys = Keys::new(2);
    let client2 = Node::client(2).unwrap();
    let [v4, v6] = both(client2, PORT);
    let listeners = [v4, v6].map(|address| listen_on(client2, address));
    let mut hub = keys.hub("mesh = true", &format!("[egress]\ndeny = [\"{}\"]", v6.ip()));
    let first = keys.terminal(1, "", "answer = \"deferred\"");
    let second = Node::terminal(2).unwrap();
    let closed = keys.terminal_config(2, "", "").replace(ACCEPT, "");
    for (config, meet) in [(closed, false), (keys.terminal_config(2, "", ""), true)] {
        let mut other = Gateway::start(second, "terminal", &config);
        other.wait_for("ready");
        hub.wait_for("session up with 2");
        assert!(failure(Node::Client, v6).is_some_and(is_prohibition), "the hub denies it");
        if meet {
            let _socket = connect_from(Node::Client, v4);
            listeners[0].accept().unwrap();
        } else {
            assert!(failure(Node::Client, v4).is_some_and(is_prohibition), "nothing is listed");
        }
        other.end_by(Signal::SIGTERM);
        hub.wait_for("session with 2 over");
    }
    first.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_gets_no_more_connections_than_its_hub_grants() {
    as_myself(|runner| runner.inside(lossless(), "egress::inside_a_limit"));
}

pub(crate) fn inside_a_limit() {
    let pair = Pair::new();
    let hub = pair.hub_with("max_connections = 2\n");
    let section = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\nanswer = \"deferred\"\n");
    let mut terminal = pair.terminal_with(&section);
    terminal.wait_for("ready");
    let address = both(Node::Server, PORT)[0];
    let listener = listen_on(Node::Server, address);
    let is_carried = || {
        let socket = TcpStream::connect(address).ok()?;
        let (server, peer) = accept_any(&listener);
        let carried = peer.ip() != socket.local_addr().unwrap().ip();
        Some((carried, socket, server))
    };
    let mut held: Vec<_> = [(); 2].into_iter().filter_map(|()| is_carried()).collect();
    assert!(held.len() == 2 && held.iter().all(|(carried, ..)| *carried), "both are carried");
    assert!(is_carried().is_none_or(|(carried, ..)| !carried), "there is no room for a third");
    terminal.wait_for("the hub has no room");
    held.clear();
    let began = Instant::now();
    while !is_carried().is_some_and(|(carried, ..)| carried) {
        assert!(began.elapsed() < PATIENCE, "there is room again");
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_client_does_not_reach_its_terminal_s_services_through_the_hub() {
    if !is_present("curl") {
        return skip("curl is missing");
    }
    as_myself(|runner| runner.inside(lossless(), "egress::inside_a_terminal_s_services"));
}

pub(crate) fn inside_a_terminal_s_services() {
    let [v4, v6] = both(Node::Terminal, PORT);
    let listeners = [v4, v6].map(|address| listen_on(Node::Terminal, address));
    let (pair, hosts) = (Pair::new(), [v4.ip().to_string(), format!("[{}]", v6.ip())]);
    let mut hub = pair.hub();
    let gate = terminal(&pair);
    hub.wait_for("session up");
    for host in &hosts {
        for (dialect, told) in [("socks5h", "(2)"), ("http", "403")] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--globoff", "--max-time", "20", "--proxytunnel", "-x"]);
            curl.arg(format!("{dialect}://terminal:1080")).arg(format!("http://{host}:{PORT}/"));
            let said = text(&curl.output().unwrap().stderr);
            assert!(said.contains(told), "{host} by {dialect}: {said}");
        }
    }
    listeners.iter().for_each(assert_untouched);
    [gate, hub].into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
}
