//! What policies refuse is answered in the name of its destination: QUIC, so that browsers use TCP, and whatever
//! else an operator lists. Everything else passes, and so does all without the gateway or its hub.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use pep::traffic::quic::samples::{FirstDatagram, OTHERS, QUIC};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{as_each_user, as_myself, text};
use crate::gateways::both;
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, addresses, exchange, wait_until};
use crate::lossless;
use crate::operate::{Sockets, skyhop, status, wait_for, write_secret};
use crate::policy::tunnelled;
use crate::tunnel::{NETWORKS, client};

/// The port of HTTP/3, where the server echoes datagrams.
const WEB: u16 = 443;
const TCP_ONLY: &str = "quic = \"tcp\"";
/// Hosts of a page, by each address family.
const HOSTS: u32 = 40;
/// More datagrams than a client's limit of 400, by a margin for the time that they take.
const FLOOD: u64 = 1000;

/// A hub and a terminal with a tunnel and with `key`, both in service.
fn start(pair: &Pair, sockets: &Sockets, key: &str, sections: &str) -> (Gateway, Gateway) {
    let hub = pair.hub_with(&format!("{NETWORKS}\n[tunnel]\n"));
    let terminal =
        Gateway::start(Node::Terminal, "terminal", &config(pair, sockets, key, sections));
    (hub, in_service(terminal))
}

fn config(pair: &Pair, sockets: &Sockets, key: &str, sections: &str) -> String {
    let intercept = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    let control = sockets.key("terminal");
    pair.terminal_config(&format!("{control}\n{key}\n[tunnel]\n{intercept}\n{sections}"))
}

fn in_service(mut terminal: Gateway) -> Gateway {
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    terminal
}

/// Makes the server echo the datagrams to a port.
fn echo(port: u16) {
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    let socket = find_netns(Node::Server).unwrap().run(bind);
    thread::spawn(move || {
        let mut datagram = [0; 2000];
        loop {
            let (length, from) = socket.recv_from(&mut datagram).unwrap();
            let _ = socket.send_to(&datagram[..length], from);
        }
    });
}

/// Sends a datagram, and returns whether it comes back. The other answer is *port unreachable*.
fn passes(socket: &UdpSocket, datagram: &[u8]) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(datagram).unwrap();
    is_echoed(socket)
}

fn is_echoed(socket: &UdpSocket) -> bool {
    let mut back = [0; 2000];
    match socket.recv(&mut back) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
        Err(error) => panic!("neither echoed nor refused: {error}"),
    }
}

/// Counts of the terminal: packets that its last policy refused, and packets answered and over the limit.
fn counts(sockets: &Sockets) -> [u64; 3] {
    counts_in(&status(&sockets.path("terminal")))
}

fn counts_in(status: &Value) -> [u64; 3] {
    let policy = status["policies"].as_array().unwrap().last().unwrap();
    let refusals = &status["interception"]["refusals"];
    [&policy["packets"], &refusals["answered"], &refusals["limited"]]
        .map(|count| count.as_u64().unwrap_or_else(|| panic!("{status:#}")))
}

#[test]
fn a_page_of_forty_hosts_is_refused_by_each_of_them() {
    as_each_user(|runner| runner.inside(lossless(), "refused::inside_a_page_is_refused"));
}

pub(crate) fn inside_a_page_is_refused() {
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = start(&pair, &sockets, TCP_ONLY, "");
    let errors = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    errors.set_read_timeout(Some(PATIENCE)).unwrap();
    // Nobody has these addresses of the server's LAN.
    let v4 = |host: u32| IpAddr::V4((Node::Server.address4().to_bits() + 100 + host).into());
    let v6 =
        |host: u32| IpAddr::V6((Node::Server.address6().to_bits() + 100 + u128::from(host)).into());
    let hosts = (0..HOSTS).flat_map(|host| [v4(host), v6(host)]);
    let clients: Vec<UdpSocket> = hosts.map(|host| client((host, WEB).into())).collect();
    for (socket, sample) in clients.iter().zip(QUIC.iter().cycle()) {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(&sample.payload()).unwrap();
    }
    let refused = clients.iter().filter(|socket| !is_echoed(socket)).count();
    assert_eq!(refused, 2 * HOSTS as usize);
    let mut sources: Vec<IpAddr> = (0..HOSTS).map(|_| source_of_error(&errors)).collect();
    sources.sort_unstable();
    assert_eq!(sources, (0..HOSTS).map(v4).collect::<Vec<_>>());
    let told =
        wait_for(&sockets.path("terminal"), "refused", |status| counts_in(status) == [80, 80, 0]);
    assert_eq!(told["policies"][0]["action"], "refuse");
    let table = text(&skyhop(&["status"], &sockets.path("terminal")).stdout);
    assert!(table.contains("refusals 80 packets answered"), "{table}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Source of the next *port unreachable* (type 3, code 3).
fn source_of_error(mut errors: &Socket) -> IpAddr {
    let mut packet = [0; 600];
    let length = errors.read(&mut packet).unwrap();
    let header = usize::from(packet[0] & 0xf) * 4;
    assert!(length > header + 8 && packet[header..header + 2] == [3, 3], "{packet:?}");
    Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]).into()
}

#[test]
fn only_quic_is_refused_on_its_port() {
    as_each_user(|runner| runner.inside(lossless(), "refused::inside_others_pass"));
}

pub(crate) fn inside_others_pass() {
    echo(WEB);
    echo(WEB + 1);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = start(&pair, &sockets, TCP_ONLY, "");
    let is_refused = |server: SocketAddr, sample: &FirstDatagram| {
        let socket = client(server);
        let refused = !passes(&socket, &sample.payload());
        // Whatever it was, what follows in the same flow passes.
        assert!(passes(&socket, b"a later datagram"), "{}", sample.name);
        refused
    };
    for server in addresses(WEB) {
        for sample in OTHERS {
            assert!(!is_refused(server, sample), "{}", sample.name);
        }
        for sample in QUIC {
            assert!(is_refused(server, sample), "{}", sample.name);
        }
    }
    for server in addresses(WEB + 1) {
        assert!(!is_refused(server, &QUIC[0]), "another port may be QUIC's only one");
    }
    assert_eq!(counts(&sockets), [2 * QUIC.len() as u64, 2 * QUIC.len() as u64, 0]);
    terminal.end_by(Signal::SIGTERM);

    // An earlier policy decides.
    let exempt =
        format!("[[policy]]\nto = [\"{}\"]\naction = \"tunnel\"\n", Node::Server.address6());
    let exempting = config(&pair, &sockets, TCP_ONLY, &exempt);
    let terminal = in_service(Gateway::start(Node::Terminal, "terminal", &exempting));
    let [v4, v6] = addresses(WEB);
    assert!(is_refused(v4, &QUIC[0]) && !is_refused(v6, &QUIC[0]));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn flows_that_run_go_on_and_so_does_quic_that_is_left_alone() {
    as_myself(|runner| runner.inside(lossless(), "refused::inside_flows_run"));
}

pub(crate) fn inside_flows_run() {
    echo(WEB);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (file, control) = (sockets.path("terminal.toml"), sockets.path("terminal"));
    let hub = pair.hub_with(&format!("{NETWORKS}\n[tunnel]\n"));
    write_secret(&file, &config(&pair, &sockets, "", ""));
    let terminal = in_service(Gateway::start_from(Node::Terminal, "terminal", &file));
    let first = QUIC[0].payload();
    let mut running = Vec::new();
    // Whether new flows pass, and whether they do so through the tunnel.
    for (key, is_passed, is_carried) in [
        ("", true, true),
        ("quic = \"pass\"", true, false),
        ("quic = \"carry\"", true, true),
        (TCP_ONLY, false, false),
    ] {
        write_secret(&file, &config(&pair, &sockets, key, ""));
        let reloaded = skyhop(&["reload"], &control);
        assert!(text(&reloaded.stdout).contains("reloaded"), "{reloaded:?}");
        for server in addresses(WEB) {
            let socket = client(server);
            assert_eq!(passes(&socket, &first), is_passed, "{key}");
            if is_passed {
                running.push((socket, is_carried));
            }
        }
        for (socket, is_carried) in &running {
            let before = tunnelled();
            // A long header again, as until the end of the handshake, and then a short one.
            assert!(passes(socket, &first) && passes(socket, &[0x41; 1200]), "{key}");
            assert_eq!(tunnelled() - before > 4 * 1200, *is_carried, "{key}");
        }
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn connections_and_datagrams_are_refused_as_policies_say() {
    as_each_user(|runner| runner.inside(lossless(), "refused::inside_policies_refuse"));
}

pub(crate) fn inside_policies_refuse() {
    const REFUSE: &str =
        "[[policy]]\nname = \"mail\"\nports = [25, \"udp/53\"]\naction = \"refuse\"\n";
    let (mirror, pair, sockets) = (Mirror::start(25), Pair::new(), Sockets::new());
    let _open = Mirror::start(26);
    echo(53);
    let (hub, terminal) = start(&pair, &sockets, "", REFUSE);
    for server in both(Node::Server, 25) {
        let refused = TcpStream::connect_timeout(&server, PATIENCE).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
    }
    for server in addresses(26) {
        exchange_behind(server);
    }
    for server in addresses(53) {
        assert!(!passes(&client(server), b"a question"));
    }
    let told = status(&sockets.path("terminal"));
    assert_eq!(told["policies"][0]["connections"], 2, "{told:#}");
    assert_eq!(counts_in(&told), [2, 4, 0]);
    terminal.end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
    hub.end_by(Signal::SIGTERM);
}

/// Exchanges data with a mirror, after its first byte.
fn exchange_behind(server: SocketAddr) {
    let mut socket = TcpStream::connect_timeout(&server, PATIENCE).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    exchange(&mut socket);
}

#[test]
fn a_client_that_floods_is_refused_up_to_its_limit() {
    as_myself(|runner| runner.inside(lossless(), "refused::inside_a_flood"));
}

pub(crate) fn inside_a_flood() {
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = start(&pair, &sockets, TCP_ONLY, "");
    let [v4, v6] = addresses(WEB);
    let first = QUIC[0].payload();
    for _ in 0..FLOOD {
        // Each is the first of its flow.
        client(v4).send(&first).unwrap();
    }
    let told = wait_for(&sockets.path("terminal"), "all are counted", |status| {
        let [_, answered, limited] = counts_in(status);
        answered + limited == FLOOD
    });
    let [packets, answered, _] = counts_in(&told);
    assert!(packets == FLOOD && (400..FLOOD).contains(&answered), "{told:#}");
    // Another client, which the same machine is by its other address.
    assert!(!passes(&client(v6), &first));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn without_gateway_or_hub_nothing_is_refused() {
    as_each_user(|runner| runner.inside(lossless(), "refused::inside_gateways_die"));
}

pub(crate) fn inside_gateways_die() {
    const REFUSE: &str = "[[policy]]\nports = [25]\naction = \"refuse\"\n";
    echo(WEB);
    let (mirror, pair, sockets) = (Mirror::start(25), Pair::new(), Sockets::new());
    let first = QUIC[0].payload();
    let [server, _] = addresses(WEB);
    let (hub, mut terminal) = start(&pair, &sockets, TCP_ONLY, REFUSE);
    assert!(!passes(&client(server), &first));
    hub.end_by(Signal::SIGKILL);
    terminal.wait_for("hub unreachable: new connections pass unaccelerated");
    // The rules change just after that line.
    wait_until(PATIENCE, || passes(&client(server), &first));
    mirror.assert_passes_by();

    let hub = pair.hub_with(&format!("{NETWORKS}\n[tunnel]\n"));
    terminal.wait_for("session up with the hub");
    wait_until(PATIENCE, || !passes(&client(server), &first));
    terminal.end_by(Signal::SIGKILL);
    assert!(passes(&client(server), &first));
    mirror.assert_passes_by();
    hub.end_by(Signal::SIGTERM);
}
