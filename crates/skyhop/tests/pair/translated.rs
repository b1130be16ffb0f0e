//! The tunnel without any plan of networks: the hub gives terminals addresses, and both sides translate.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::clean_up::{path, traces};
use crate::common::{as_each_user, as_myself, skip};
use crate::gateways::Keys;
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, addresses, assert_reset, connect, exchange};
use crate::links::run;
use crate::protocols::assert_pings_answered;
use crate::tunnel::{LOSSY, PORT, RTT, client, count};

/// Where a server mirrors TCP that a policy tunnels.
const TCP_PORT: u16 = 4002;
const TUNNELLED: &str = "[[policy]]\nports = [\"tcp/4002\"]\naction = \"tunnel\"\n";
/// Time within which a new packet of a flow gets its answer after the gateway was killed.
const FAIL_OPEN: Duration = Duration::from_secs(2);
/// What a terminal says of its address.
const TRANSLATES: &str = "translates clients' IPv4 traffic to ";

fn check(test: &str, check: impl Fn(&str)) {
    if !["nft", "ip"].into_iter().all(|program| path(program).is_some()) {
        return skip("nft or ip is missing");
    }
    check(&format!("translated::{test}"));
}

/// Makes the server answer each datagram with the address that it came from, and the datagram.
fn reflect() {
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    let socket = find_netns(Node::Server).unwrap().run(bind);
    thread::spawn(move || {
        let mut datagram = [0; 100];
        loop {
            let (length, from) = socket.recv_from(&mut datagram).unwrap();
            let seen = from.ip().to_canonical().to_string();
            let _ = socket.send_to(&[seen.as_bytes(), b"|", &datagram[..length]].concat(), from);
        }
    });
}

/// A flow of datagrams to the server.
struct Flow {
    socket: UdpSocket,
    number: u32,
}

impl Flow {
    fn begin() -> Self {
        Self { socket: client(addresses(PORT)[0]), number: 0 }
    }

    /// The client's address as the server sees it; `None` without an answer within three round trips.
    fn seen(&mut self) -> Option<IpAddr> {
        self.number += 1;
        let sent = self.number.to_string();
        self.socket.send(sent.as_bytes()).ok()?;
        self.socket.set_read_timeout(Some(RTT * 3)).unwrap();
        let mut answer = [0; 200];
        loop {
            let length = self.socket.recv(&mut answer).ok()?;
            let (seen, number) =
                str::from_utf8(&answer[..length]).unwrap().split_once('|').unwrap();
            // An earlier answer may come late.
            if number == sent {
                return Some(seen.parse().unwrap());
            }
        }
    }

    /// Goes on until the server sees this address.
    fn until_seen_as(&mut self, address: IpAddr, patience: Duration) {
        let began = Instant::now();
        let mut last = None;
        while last != Some(address) {
            assert!(began.elapsed() < patience, "seen as {last:?} instead of {address}");
            last = self.seen();
        }
    }
}

/// The address by which the hub reaches the server, which sees translated clients by it.
fn hub() -> IpAddr {
    let [server, _] = addresses(PORT);
    find_netns(Node::Hub).unwrap().run(|| client(server).local_addr().unwrap().ip())
}

fn terminal_of(pair: &Pair, policies: &str) -> Gateway {
    let intercept = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    let mut terminal = pair.terminal_with(&format!("[tunnel]\n{intercept}\n{policies}"));
    terminal.wait_for("ready");
    terminal
}

#[test]
fn packets_cross_without_a_plan_of_networks_and_nothing_stays_behind() {
    check("inside_no_plan", |program| as_each_user(|runner| runner.inside(&LOSSY[..6], program)));
}

pub(crate) fn inside_no_plan() {
    reflect();
    let hosts = [Node::Terminal, Node::Hub];
    let before = hosts.map(traces);
    let pair = Pair::new();
    let hub_gateway = pair.hub_with("[tunnel]\n");
    let mut terminal = terminal_of(&pair, "");
    let line = terminal.line_with(TRANSLATES);
    let own: Ipv4Addr = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(own.octets()[..2], [10, 213]);
    Flow::begin().until_seen_as(hub(), PATIENCE);
    assert_pings_answered(addresses(0)[0]);
    // IPv6 is not translated: it passes as without skyhop.
    let mut v6 = Flow { socket: client(addresses(PORT)[1]), number: 0 };
    v6.until_seen_as(Node::Client.address6().into(), PATIENCE);
    let [at_terminal, at_hub] = hosts.map(traces);
    assert!(at_terminal.contains("masquerade") && at_hub.contains("ip saddr 10.213.0.0/16"));
    let sent = terminal.end_with(Signal::SIGTERM);
    assert!(count(&sent, "to hop") >= 2 && count(&sent, "foreign") == 0, "{sent}");
    let received = hub_gateway.end_with(Signal::SIGTERM);
    assert_eq!(count(&received, "foreign"), 0, "{received}");
    // The kernel removes a virtual device after a moment.
    let began = Instant::now();
    while hosts.map(traces) != before && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(hosts.map(traces), before);
}

#[test]
fn flows_go_on_when_session_and_gateways_come_and_go() {
    check("inside_flows", |program| as_each_user(|runner| runner.inside(&LOSSY[..6], program)));
}

/// Flows that begin through the hop and outside of it, on a terminal that translates nothing itself, and on one that
/// translates what leaves by the link.
pub(crate) fn inside_flows() {
    reflect();
    let mirror = Mirror::start(TCP_PORT);
    flows(&mirror, Node::Client.address4().into());
    run(Node::Terminal, "nft", "add table ip operator");
    let hook = "{ type nat hook postrouting priority srcnat ; }";
    run(Node::Terminal, "nft", &format!("add chain ip operator out {hook}"));
    run(
        Node::Terminal,
        "nft",
        &format!("add rule ip operator out oifname {HOP_DEVICE} masquerade"),
    );
    let [server, _] = addresses(PORT);
    let outside = || client(server).local_addr().unwrap().ip();
    flows(&mirror, find_netns(Node::Terminal).unwrap().run(outside));
}

/// `outside`: the client as the server sees it past the hop.
fn flows(mirror: &Mirror, outside: IpAddr) {
    let pair = Pair::new();
    let hub_address = hub();
    let mut early = Flow::begin();
    early.until_seen_as(outside, PATIENCE);
    let hub = pair.hub_with("[tunnel]\n");
    let mut terminal = terminal_of(&pair, TUNNELLED);
    early.until_seen_as(hub_address, PATIENCE);
    let mut late = Flow::begin();
    late.until_seen_as(hub_address, PATIENCE);
    let both = |early: &mut Flow, late: &mut Flow, address, patience| {
        [early, late].into_iter().for_each(|flow| flow.until_seen_as(address, patience));
    };

    // The hub dies, which the terminal notices in two seconds, and comes back.
    hub.end_by(Signal::SIGKILL);
    both(&mut early, &mut late, outside, PATIENCE);
    terminal.wait_for("hub unreachable");
    let mut between = Flow::begin();
    between.until_seen_as(outside, PATIENCE);
    let hub = pair.hub_with("[tunnel]\n");
    terminal.wait_for("session up with the hub");
    both(&mut early, &mut late, hub_address, PATIENCE);
    between.until_seen_as(hub_address, PATIENCE);

    // The hub stops, and comes back.
    hub.end_by(Signal::SIGTERM);
    both(&mut early, &mut late, outside, FAIL_OPEN);
    let hub = pair.hub_with("[tunnel]\n");
    both(&mut early, &mut late, hub_address, PATIENCE);

    // The terminal is killed. What cannot go on, because its server knows another address, ends at once.
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    terminal.end_by(Signal::SIGKILL);
    both(&mut early, &mut late, outside, FAIL_OPEN);
    assert_ends(held);
    exchange(&mut mirror.connect().0);
    let terminal = terminal_of(&pair, "");
    both(&mut early, &mut late, hub_address, PATIENCE);
    terminal.end_by(Signal::SIGTERM);
    both(&mut early, &mut late, outside, FAIL_OPEN);
    hub.end_by(Signal::SIGTERM);
}

/// Expects a connection to be reset at the next attempt to use it.
fn assert_ends(mut socket: TcpStream) {
    let began = Instant::now();
    let written = socket.write_all(b"more").and_then(|()| socket.read(&mut [0; 10]));
    assert_eq!(written.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert!(began.elapsed() < FAIL_OPEN, "it ended after {:?}", began.elapsed());
}

#[test]
fn terminals_have_addresses_of_their_own_keep_them_and_do_not_reach_each_other() {
    let options: Vec<&str> = LOSSY[..6].iter().copied().chain(["--terminals", "2"]).collect();
    check("inside_two_terminals", |program| as_myself(|runner| runner.inside(&options, program)));
}

pub(crate) fn inside_two_terminals() {
    reflect();
    let keys = Keys::new(2);
    let state = tempfile::tempdir().unwrap();
    let config = keys.hub_config(&format!("state = {:?}", state.path()), "[tunnel]");
    let plan = |line: &&str| !line.starts_with("networks");
    let config: String = config.lines().filter(plan).flat_map(|line| [line, "\n"]).collect();
    let start = || {
        let mut hub = Gateway::start(Node::Hub, "hub", &config);
        hub.wait_for("ready");
        let mut terminals = [1, 2].map(|number| keys.terminal(number, "", "[tunnel]"));
        let own = terminals.each_mut().map(|terminal| {
            let line = terminal.line_with(TRANSLATES);
            line.rsplit(' ').next().unwrap().parse::<Ipv4Addr>().unwrap()
        });
        (hub, terminals, own)
    };
    let (hub_gateway, terminals, own) = start();
    assert_ne!(own[0], own[1]);
    for number in [1, 2] {
        let netns = find_netns(Node::client(number).unwrap()).unwrap();
        netns.run(|| Flow::begin().until_seen_as(hub(), PATIENCE));
    }
    // By packets, and by a connection that the hub would make. Hosts of the lab have no default route.
    let router = Ipv4Addr::from_bits(Node::Client.address4().to_bits() & !0xff | 1);
    run(Node::Client, "ip", &format!("route add 10.213.0.0/16 via {router}"));
    let other = SocketAddr::new(own[1].into(), PORT);
    let stray = client(other);
    stray.set_read_timeout(Some(RTT * 3)).unwrap();
    stray.send(b"to another terminal").unwrap();
    assert!(stray.recv(&mut [0; 10]).is_err());
    assert_reset(&connect(SocketAddr::new(own[1].into(), 80)));
    terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    let told = hub_gateway.end_with(Signal::SIGTERM);
    assert_eq!(count(&told, "foreign"), 1, "{told}");

    let (hub_gateway, terminals, again) = start();
    assert_eq!(again, own);
    terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    hub_gateway.end_by(Signal::SIGTERM);
}
