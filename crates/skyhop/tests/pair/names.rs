//! Names: a client asks a resolver on the far side, and the pair answers.

pub(crate) mod server;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::netlink::RouteSocket;

use self::server::{DnsServer, LONG, SHORT};
use crate::common::{as_each_user, assert_takes, is_present, skip, text};
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, assert_reset, connect, wait_until};
use crate::operate::{Sockets, skyhop, status};

/// A geostationary hop without losses.
const LINK: [&str; 6] = ["--rate", "100Mbit/s", "--return-rate", "50Mbit/s", "--delay", "300ms"];
const RTT: Duration = Duration::from_millis(600);
/// What a new name may cost beyond its round trip.
const BEYOND: Duration = Duration::from_millis(20);
/// What an answer from the cache may take.
const HIT: Duration = Duration::from_millis(5);
const PORT: u16 = 4600;
/// Names of a page.
const PAGE: u32 = 18;

/// The resolver that clients ask: on the far side, as if it were anywhere.
fn resolver() -> SocketAddr {
    (Node::Server.address4(), 53).into()
}

pub(crate) fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// The answer over UDP, if it comes within `patience`.
fn try_ask(message: &Message, patience: Duration) -> Option<Message> {
    try_ask_at(resolver(), message, patience)
}

fn try_ask_at(resolver: SocketAddr, message: &Message, patience: Duration) -> Option<Message> {
    let any = if resolver.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(resolver).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(&message.to_vec().unwrap()).unwrap();
    let mut answer = [0; 4096];
    let length = socket.recv(&mut answer).ok()?;
    let answer = Message::from_vec(&answer[..length]).unwrap();
    assert_eq!((answer.metadata.id, &answer.queries), (message.metadata.id, &message.queries));
    Some(answer)
}

pub(crate) fn ask(name: &str, kind: RecordType) -> Message {
    try_ask(&question(name, kind), PATIENCE).expect("an answer")
}

fn ask_over_tcp(message: &Message) -> Message {
    ask_over_tcp_at(resolver(), message)
}

fn ask_over_tcp_at(resolver: SocketAddr, message: &Message) -> Message {
    let mut socket = connect(resolver);
    let bytes = message.to_vec().unwrap();
    socket.write_all(&[&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat()).unwrap();
    let mut length = [0; 2];
    socket.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    socket.read_exact(&mut answer).unwrap();
    Message::from_vec(&answer).unwrap()
}

pub(crate) fn address(answer: &Message) -> IpAddr {
    match answer.answers.last().map(|record| &record.data) {
        Some(RData::A(address)) => address.0.into(),
        Some(RData::AAAA(address)) => address.0.into(),
        other => panic!("{other:?}"),
    }
}

/// Resolves a name, connects, and reads the server's first byte.
fn first_byte(name: &str) -> Duration {
    let began = Instant::now();
    let to = SocketAddr::new(address(&ask(name, RecordType::A)), PORT);
    let mut byte = [0];
    connect(to).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"c", "not through the pair");
    began.elapsed()
}

/// A hub that resolves at the far side's server, with its status at `control`.
fn hub(pair: &Pair, sockets: &Sockets) -> Gateway {
    let server = Node::Server.address4();
    let section = format!("[dns]\nservers = [\"{server}\"]\n");
    pair.hub_with_keys(&sockets.key("hub"), &section)
}

fn terminal(pair: &Pair, sockets: &Sockets, dns: &str) -> Gateway {
    let sections = format!(
        "{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[dns]\n{dns}",
        sockets.key("terminal")
    );
    let mut terminal = pair.terminal_with(&sections);
    terminal.wait_for("ready");
    terminal
}

fn count(sockets: &Sockets, side: &str, key: &str) -> u64 {
    status(&sockets.path(side))["dns"][key].as_u64().unwrap()
}

#[test]
fn a_name_is_asked_for_once_and_then_known() {
    as_each_user(|runner| runner.inside(&LINK, "names::inside_names_are_cached"));
}

pub(crate) fn inside_names_are_cached() {
    let (server, _mirror) = (DnsServer::start(), Mirror::start(PORT));
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = (hub(&pair, &sockets), terminal(&pair, &sockets, ""));
    let mut number = 0;
    let mut new_name = || {
        number += 1;
        format!("n{number}.example.")
    };
    assert_takes(RTT, BEYOND, || {
        let (name, began) = (new_name(), Instant::now());
        assert_eq!(address(&ask(&name, RecordType::A)), IpAddr::V4(Node::Server.address4()));
        began.elapsed()
    });
    assert_takes(Duration::ZERO, HIT, || {
        let began = Instant::now();
        ask("N1.example.", RecordType::A);
        began.elapsed()
    });
    assert_takes(2 * RTT, BEYOND, || first_byte(&new_name()));
    assert_eq!(server.asked("n1.example."), 1);
    assert_eq!(ask("none.example.", RecordType::A).metadata.response_code, ResponseCode::NXDomain);

    every_way_to_ask();
    the_server_itself_answers(&server);
    assert!(count(&sockets, "terminal", "hits") >= 2);
    let crossed = count(&sockets, "terminal", "crossed");
    assert_eq!(count(&sockets, "hub", "questions"), crossed);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    // Nothing is redirected any more.
    assert!(ask("last.example.", RecordType::A).metadata.authoritative);
}

fn every_way_to_ask() {
    // Nobody listens there, and yet it answers.
    let resolver6 = SocketAddr::new(Node::Server.address6().into(), 53);
    let known = question("n1.example.", RecordType::A);
    assert_eq!(try_ask_at(resolver6, &known, PATIENCE).unwrap().answers.len(), 1);
    assert_eq!(ask_over_tcp_at(resolver6, &known).answers.len(), 1);

    let cut_off = ask(LONG, RecordType::TXT);
    assert!(cut_off.metadata.truncation && cut_off.answers.is_empty());
    let whole = ask_over_tcp(&question(LONG, RecordType::TXT));
    assert_eq!(whole.answers.len(), server::LONG_RECORDS);
}

fn the_server_itself_answers(server: &DnsServer) {
    // Without recursion only the server itself can answer, and it does: its own client asks.
    let mut iterative = question("itself.example.", RecordType::A);
    iterative.metadata.recursion_desired = false;
    assert!(try_ask(&iterative, PATIENCE).unwrap().metadata.authoritative);
    assert!(ask_over_tcp(&iterative).metadata.authoritative);
    assert!(!ask("n1.example.", RecordType::A).metadata.authoritative);
    let client: IpAddr = Node::Client.address4().into();
    assert!(server.askers("itself.example.").contains(&client));
    assert!(!server.askers("n1.example.").contains(&client));
}

#[test]
fn a_new_name_costs_no_round_trip_of_its_own() {
    as_each_user(|runner| runner.inside(&LINK, "names::inside_new_names_cost_nothing"));
}

pub(crate) fn inside_new_names_cost_nothing() {
    let (server, _mirror) = (DnsServer::start(), Mirror::start(PORT));
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = hub(&pair, &sockets);
    let terminal = terminal(&pair, &sockets, "answer = \"instant\"\nreal = [\"real.example\"]\n");
    route_the_pool();
    let mut number = 0;
    assert_takes(RTT, BEYOND, || {
        number += 1;
        first_byte(&format!("n{number}.example."))
    });
    a_page_of_names();
    an_address_of_ipv6();
    the_real_address_follows();
    a_name_that_does_not_exist();
    others_than_tcp_are_refused();
    for real in [question("a.real.example.", RecordType::A), validating("dnssec.example.")] {
        let answer = try_ask(&real, PATIENCE).unwrap();
        assert_eq!(address(&answer), IpAddr::V4(Node::Server.address4()));
    }
    assert!(count(&sockets, "terminal", "instant") >= 20);
    let shown = text(&skyhop(&["status"], &sockets.path("terminal")).stdout);
    println!("{shown}");
    assert!(shown.contains("round trips saved"), "{shown}");
    assert!(server.asked("n1.example.") > 0);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A lab's hosts have no default route, which would lead to the terminal as well.
pub(crate) fn route_the_pool() {
    let mut routes = RouteSocket::open().unwrap();
    for (server, pool, prefix) in [
        (IpAddr::from(Node::Server.address4()), [198, 18, 0, 0].into(), 15),
        (Node::Server.address6().into(), "fd7a:5be2:91c4:53::".parse().unwrap(), 64),
    ] {
        let terminal = routes.next_hop(server).unwrap();
        routes.add_route(pool, prefix, terminal).unwrap();
    }
}

/// All names of a page at once, each to its first byte.
fn a_page_of_names() {
    let mut page = 0;
    assert_takes(RTT, BEYOND, || {
        page += 1;
        let began = Instant::now();
        thread::scope(|scope| {
            for number in 0..PAGE {
                scope.spawn(move || first_byte(&format!("host{number}.page{page}.example.")));
            }
        });
        began.elapsed()
    });
}

/// Where clients have IPv6, they may take that.
fn an_address_of_ipv6() {
    let address = address(&ask("six.example.", RecordType::AAAA));
    assert!(address.to_string().starts_with("fd7a:5be2:91c4:53:"), "{address}");
    let mut byte = [0];
    connect(SocketAddr::new(address, PORT)).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"c");
    let to = SocketAddr::new(address, 443);
    let socket = UdpSocket::bind("[::]:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(b"initial").unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn is_of_pool(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 198 && (18..20).contains(&v4.octets()[1]))
}

fn the_real_address_follows() {
    let first = address(&ask("follows.example.", RecordType::A));
    assert!(is_of_pool(first), "{first}");
    let began = Instant::now();
    while is_of_pool(address(&ask("follows.example.", RecordType::A))) {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() >= RTT - Duration::from_millis(50));
    // The address still stands for the name.
    let mut byte = [0];
    connect(SocketAddr::new(first, PORT)).read_exact(&mut byte).unwrap();
}

fn a_name_that_does_not_exist() {
    let stands_for = address(&ask("none.example.", RecordType::A));
    assert_reset(&connect(SocketAddr::new(stands_for, PORT)));
    let again = ask("none.example.", RecordType::A);
    assert_eq!(again.metadata.response_code, ResponseCode::NXDomain);
    // An address of the pool that stands for nothing.
    let nothing = SocketAddr::from(([198, 19, 9, 9], PORT));
    let refused = TcpStream::connect_timeout(&nothing, PATIENCE)
        .and_then(|mut socket| socket.read(&mut [0]))
        .unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused),
        "{refused}"
    );
}

/// QUIC to an address of the pool fails at once, so that a browser takes TCP.
fn others_than_tcp_are_refused() {
    let to = SocketAddr::new(address(&ask("quic.example.", RecordType::A)), 443);
    assert!(is_of_pool(to.ip()));
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_takes(Duration::ZERO, BEYOND, || {
        let began = Instant::now();
        socket.send(b"initial").unwrap();
        let error = socket.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        began.elapsed()
    });
}

/// A question by one who checks signatures.
fn validating(name: &str) -> Message {
    let mut message = question(name, RecordType::A);
    let mut edns = Edns::new();
    edns.set_max_payload(1232).set_dnssec_ok(true);
    message.set_edns(edns);
    message
}

#[test]
fn a_program_with_the_systems_resolver_gets_there() {
    if !is_present("curl") {
        return skip("curl is missing");
    }
    as_each_user(|runner| runner.inside(&LINK, "names::inside_curl_asks"));
}

pub(crate) fn inside_curl_asks() {
    let _server = DnsServer::start();
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = hub(&pair, &sockets);
    let terminal = terminal(&pair, &sockets, "answer = \"instant\"");
    route_the_pool();
    let [mut resolvers, mut order] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    writeln!(resolvers, "nameserver {}", resolver().ip()).unwrap();
    // Programs in a lab look in files only.
    writeln!(order, "hosts: files dns").unwrap();
    let cover = "mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/nsswitch.conf && \
                 exec curl -sS --max-time 20 -o /dev/null \
                 -w '%{size_download} %{remote_ip}' http://www.example/1MB";
    let mut curl = Command::new("unshare");
    curl.args(["--mount", "sh", "-c", cover, "sh"]).arg(resolvers.path()).arg(order.path());
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let (bytes, from) = said.split_once(' ').unwrap();
    assert_eq!(bytes, "1000000");
    assert!(is_of_pool(from.parse().unwrap()), "{from}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_resolver_at_an_address_answers_those_who_may_ask() {
    as_each_user(|runner| runner.inside(&LINK, "names::inside_a_resolver_listens"));
}

pub(crate) fn inside_a_resolver_listens() {
    let (server, far) = (DnsServer::start(), Node::Server.address4());
    let (pair, sockets) = (Pair::new(), Sockets::new());
    // As the machine's resolvers are found.
    let mut resolvers = tempfile::NamedTempFile::new().unwrap();
    writeln!(resolvers, "nameserver {far}").unwrap();
    let files: [(&Path, &str); 1] = [(resolvers.path(), "/etc/resolv.conf")];
    let hub = pair.hub_with_files(&files, &sockets.key("hub"), "[dns]\n");
    let here = gateway_address();
    let dns = format!(
        "intercept = false\nlisten = [\"{here}\"]\nclients = [\"{}/32\"]\nservers = [\"{far}\"]",
        Node::Client.address4()
    );
    let mut terminal = terminal(&pair, &sockets, &dns);
    let mut number = 0;
    assert_takes(RTT, BEYOND, || {
        number += 1;
        let message = question(&format!("n{number}.example."), RecordType::A);
        let began = Instant::now();
        assert_eq!(address(&try_ask_at(here, &message, PATIENCE).unwrap()), IpAddr::V4(far));
        began.elapsed()
    });
    assert_eq!(address(&ask_over_tcp_at(here, &question("n1.example.", RecordType::A))), far);
    let mut iterative = question("n1.example.", RecordType::A);
    iterative.metadata.recursion_desired = false;
    let refused = try_ask_at(here, &iterative, PATIENCE).unwrap();
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    let stranger = question("stranger.example.", RecordType::A);
    let silence = || try_ask_at(here, &stranger, 2 * RTT);
    assert_eq!(find_netns(Node::Hub).unwrap().run(silence), None);
    // Questions to others pass.
    assert!(ask("passes.example.", RecordType::A).metadata.authoritative);
    assert_eq!(server.asked("stranger.example."), 0);

    hub.end_by(Signal::SIGKILL);
    // Asked of a hub that is gone, and then straight.
    let message = question("straight.example.", RecordType::A);
    assert_eq!(address(&try_ask_at(here, &message, PATIENCE).unwrap()), IpAddr::V4(far));
    terminal.wait_for("hub unreachable");
    terminal.end_by(Signal::SIGTERM);
}

/// The terminal's address in the client's network, with the port of DNS.
fn gateway_address() -> SocketAddr {
    let mut routes = RouteSocket::open().unwrap();
    SocketAddr::new(routes.next_hop(Node::Server.address4().into()).unwrap(), 53)
}

#[test]
fn without_a_hub_names_are_known_still_or_asked_for_straight() {
    as_each_user(|runner| runner.inside(&LINK, "names::inside_the_hub_is_gone"));
}

pub(crate) fn inside_the_hub_is_gone() {
    let server = DnsServer::start();
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = hub(&pair, &sockets);
    let mut terminal = terminal(&pair, &sockets, "answer = \"instant\"\nreal = [\"example\"]\n");
    assert_eq!(ask(SHORT, RecordType::A).answers[0].ttl, 1);
    hub.end_by(Signal::SIGKILL);
    // Asked of a hub that is gone, and then of the server without the hop.
    assert_eq!(address(&ask("other.example.", RecordType::A)), IpAddr::V4(Node::Server.address4()));
    terminal.wait_for("hub unreachable");
    let before = server.asked(SHORT);
    wait_until(PATIENCE, || {
        ask(SHORT, RecordType::A).answers[0].ttl <= 1 && server.asked(SHORT) > before
    });

    server.silent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let stale = ask(SHORT, RecordType::A);
    assert_eq!((stale.answers[0].ttl, address(&stale)), (30, Node::Server.address4().into()));
    assert!(began.elapsed() >= Duration::from_millis(1800), "{:?}", began.elapsed());
    assert_takes(Duration::ZERO, HIT, || {
        let began = Instant::now();
        assert_eq!(ask(SHORT, RecordType::A).answers[0].ttl, 30);
        began.elapsed()
    });
    let unknown = ask("unknown.example.", RecordType::A);
    assert_eq!(unknown.metadata.response_code, ResponseCode::ServFail);
    assert!(count(&sockets, "terminal", "stale") >= 2);

    // Whatever ends the terminal, questions pass.
    server.silent.store(false, Ordering::Relaxed);
    terminal.end_by(Signal::SIGKILL);
    assert!(ask("passes.example.", RecordType::A).metadata.authoritative);
    let client: IpAddr = Node::Client.address4().into();
    assert_eq!(server.askers("passes.example."), [client]);
}
