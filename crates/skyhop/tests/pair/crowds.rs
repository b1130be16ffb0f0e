//! Gateways that hold connections of which nothing comes, and serve honest clients beside them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use os::netlink::RouteSocket;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use crate::common::{as_myself, text};
use crate::gateways::Keys;
use crate::hostile::peer::Peer;
use crate::hostile::scene::{Attack, certify};
use crate::http::tls::{Identity, TlsServer, answer, ask, site};
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, addresses, connect, exchange, wait_until};
use crate::lossless;
use crate::names::question;
use crate::names::server::DnsServer;
use crate::operate::{Sockets, connections, skyhop, status, wait_for, write_secret};

/// What one says who then says no more: nothing, the beginning of a ClientHello (RFC 8446 §4.1.2), of a request,
/// and of a contact header (RFC 9174 §4.2).
const BEGINNINGS: [&[u8]; 4] =
    [b"", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7], b"GET / HTTP/1.1\r\nHost: a", b"dtn!\x04"];

/// Connections that have said something, and are never heard of again.
struct Crowd(Vec<TcpStream>);

impl Crowd {
    /// Opens so many from each of these addresses. Those that are refused are not in it.
    fn of(hosts: &[Ipv4Addr], each: usize, to: SocketAddr) -> Self {
        let all = hosts.iter().flat_map(|host| (0..each).map(move |number| (*host, number)));
        Self(all.filter_map(|(host, number)| begin(host, to, number).ok()).collect())
    }

    /// How many of them the other end has not closed.
    fn held(&self) -> usize {
        let is_held = |socket: &&TcpStream| {
            let peeked = socket.peek(&mut [0]);
            peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        self.0.iter().filter(is_held).count()
    }
}

fn begin(host: Ipv4Addr, to: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(host.into(), 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_millis(500))?;
    socket.send(BEGINNINGS[number % BEGINNINGS.len()])?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Further clients, on the client's host.
fn neighbours<const COUNT: usize>() -> [Ipv4Addr; COUNT] {
    let hosts = std::array::from_fn(|number| Ipv4Addr::new(10, 1, 0, 10 + number as u8));
    let add = |host: &Ipv4Addr| RouteSocket::open()?.add_address(LAN_DEVICE, IpAddr::V4(*host), 24);
    find_netns(Node::Client).unwrap().run(|| hosts.iter().try_for_each(add)).unwrap();
    hosts
}

const NAME: &str = "names.example";

#[test]
fn names_within_tls_are_answered_beside_a_crowd() {
    as_myself(|runner| runner.inside(lossless(), "crowds::inside_names"));
}

pub(crate) fn inside_names() {
    /// Connections with questions that a terminal holds.
    const MOST: usize = 1024;
    let (_server, pair, sockets) = (DnsServer::start(), Pair::new(), Sockets::new());
    let identity = Identity::new(&[NAME]);
    let (certificate, key) = (identity.file("certificate"), identity.file("key"));
    let hub = format!("[dns]\nservers = [\"{}\"]\n", Node::Server.address4());
    let hub = pair.hub_with_keys(&sockets.key("hub"), &hub);
    let [dot, doh] = [853, 8443].map(|port| SocketAddr::from((Ipv4Addr::new(10, 1, 0, 1), port)));
    let mut terminal = pair.terminal_with(&format!(
        "{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[dns]\ntls = [\"{dot}\"]\n\
         https = [\"{doh}\"]\nclients = [\"10.1.0.0/16\"]\ncertificate = {certificate:?}\nkey = {key:?}\n",
        sockets.key("terminal")
    ));
    terminal.wait_for("ready");
    let without = terminal.descriptors();

    // Half of what they say cannot become TLS, and is refused. Of the rest each has more than a client's share,
    // and all together more than there are slots.
    let hosts = neighbours::<9>();
    let crowds = [Crowd::of(&hosts[..5], 260, dot), Crowd::of(&hosts[5..], 260, doh)];
    assert_eq!(crowds.iter().map(|crowd| crowd.0.len()).sum::<usize>(), 9 * 260);
    let held = || crowds.iter().map(Crowd::held).sum::<usize>();
    wait_until(PATIENCE, || held() <= MOST);
    // Before the questions: the terminal closes those of the crowd that stay silent.
    assert!(held() > MOST / 2, "nothing was held: {}", held());
    assert!(terminal.descriptors() - without <= MOST + 10, "{}", terminal.descriptors());
    for number in 0..3 {
        let asked = question(&format!("a{number}.example."), RecordType::A);
        assert_eq!(over_tls(dot, &identity, &asked).answers.len(), 1);
        assert_eq!(over_https(doh, &identity, &asked).answers.len(), 1);
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

fn within_tls(to: SocketAddr, identity: &Identity) -> StreamOwned<ClientConnection, TcpStream> {
    let client = ClientConnection::new(identity.client(), NAME.try_into().unwrap());
    StreamOwned::new(client.unwrap(), connect(to))
}

/// RFC 7858.
fn over_tls(to: SocketAddr, identity: &Identity, asked: &Message) -> Message {
    let (mut tls, message) = (within_tls(to, identity), asked.to_vec().unwrap());
    let length = (message.len() as u16).to_be_bytes();
    tls.write_all(&[&length[..], &message].concat()).unwrap();
    let mut length = [0; 2];
    tls.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    tls.read_exact(&mut answer).unwrap();
    Message::from_vec(&answer).unwrap()
}

/// RFC 8484.
fn over_https(to: SocketAddr, identity: &Identity, asked: &Message) -> Message {
    let (mut tls, message) = (within_tls(to, identity), asked.to_vec().unwrap());
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/dns-message\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        message.len()
    );
    tls.write_all(&[head.as_bytes(), &message].concat()).unwrap();
    let mut said = Vec::new();
    tls.read_to_end(&mut said).unwrap();
    let end = said.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", text(&said[..end]));
    Message::from_vec(&said[end + 4..]).unwrap()
}

#[test]
fn sites_are_served_beside_a_crowd() {
    as_myself(|runner| runner.inside(lossless(), "crowds::inside_sites"));
}

pub(crate) fn inside_sites() {
    const TLS: u16 = 8443;
    const HOST: &str = "mirror.example";
    const MOST: usize = 64;
    let (far, near) = (Identity::new(&[HOST]), Identity::new(&[HOST]));
    let (_server, pair, sockets) = (TlsServer::start(TLS, &far), Pair::new(), Sockets::new());
    let authorities = far.file("certificate");
    let hub = pair.hub_with_keys(
        &sockets.key("hub"),
        &format!("[http]\ncache = true\nauthorities = {authorities:?}\n"),
    );
    let mut terminal = pair.terminal_with(&format!(
        "max_connections = {MOST}\n{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[http]\n\
         ports = [80]\ntls_ports = [{TLS}]\n{}",
        sockets.key("terminal"),
        site(&near, &authorities, &format!("{HOST:?}"))
    ));
    terminal.wait_for("ready");
    let (without, resident) = (terminal.descriptors(), terminal.resident());

    let [greedy] = neighbours();
    let servers = [TLS, 80].map(|port| addresses(port)[0]);
    let _crowds = servers.map(|to| Crowd::of(&[greedy], 100, to));
    for round in 0..3 {
        let request = format!("GET /{round} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let asked = ask((servers[0], HOST), &near, &request);
        let (head, body) = asked
            .unwrap_or_else(|error| panic!("{error}: {:#}", status(&sockets.path("terminal"))));
        // By the terminal's own certificate.
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(body, answer(&format!("GET /{round}")));
    }
    let carried = connections(&status(&sockets.path("terminal"))).len();
    assert!((MOST / 2..=MOST).contains(&carried), "{carried}");
    // A connection has two ends, and may have a duplicate of one.
    assert!(terminal.descriptors() - without <= 3 * MOST, "{}", terminal.descriptors());
    let grown = terminal.resident().saturating_sub(resident);
    assert!(grown <= MOST as u64 * 512 * 1024, "{grown} bytes");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A short link, on which a crowd gathers fast.
const NEAR: [&str; 8] =
    ["--rate", "50Mbit/s", "--return-rate", "50Mbit/s", "--delay", "5ms", "--terminals", "2"];
const TCP_HOP: u16 = 443;
const BUNDLES: u16 = 4556;
const PORT: u16 = 4000;

#[test]
fn a_hub_is_upgraded_while_it_is_attacked() {
    as_myself(|runner| runner.inside(&NEAR, "crowds::inside_an_upgrade"));
}

pub(crate) fn inside_an_upgrade() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(2), Sockets::new());
    let (control, files) = (sockets.path("hub"), tempfile::tempdir().unwrap());
    certify(files.path()).unwrap();
    let at = |name: &str| files.path().join(name);
    let own = format!(
        "{}\nstate = {:?}\nlisten_tcp = \"[::]:{TCP_HOP}\"\nlisten_tcp_certificate = {:?}\nlisten_tcp_key = {:?}",
        sockets.key("hub"),
        files.path(),
        at("certificate.pem"),
        at("key.pem")
    );
    let bundles = format!(
        "[bundles]\nnode = \"ipn:1.0\"\nstore = {:?}\nlisten = \"0.0.0.0:{BUNDLES}\"\n\
         clients = [\"0.0.0.0/0\"]\n[[bundles.peer]]\nnode = \"ipn:9.0\"\n",
        at("bundles")
    );
    write_secret(&at("hub.toml"), &keys.hub_config(&own, &bundles));
    let mut hub = Gateway::start_from(Node::Hub, "hub", &at("hub.toml"));
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", "");
    let mut held = mirror.connect_carried();

    let (attack, begun, ends) = (Attack::default(), AtomicUsize::new(0), AtomicBool::new(false));
    let again = || {
        while !ends.load(Ordering::Relaxed) {
            begun.fetch_add(besiege().0.len(), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let _crowd = besiege();
        scope.spawn(|| ask_again_and_again(&keys, &attack));
        scope.spawn(|| steal(&keys, &attack));
        scope.spawn(again);
        // However this ends, they do.
        let _end = Ending(&attack, &ends);
        wait_until(PATIENCE, || begun.load(Ordering::Relaxed) > 100);
        let before = status(&control)["pid"].clone();
        let upgraded = skyhop(&["upgrade", "--within", "1min"], &control);
        assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
        let now = wait_for(&control, "the terminal has come over", |status| {
            status["sessions"].as_array().unwrap().iter().any(|session| session["peer"] == "1")
        });
        assert!(now["pid"] != before && now["predecessor"] == before, "{now:#}");
        exchange(&mut held);
        exchange(&mut mirror.connect_carried());
        // Who attacks does not keep the former process.
        drop(held);
        hub.wait_for_end();
        exchange(&mut mirror.connect_carried());
    });
    terminal.end_by(Signal::SIGTERM);
    let pid = status(&control)["pid"].as_u64().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
    wait_until(PATIENCE, || !control.exists());
}

/// The second terminal asks for a session, vanishes, and asks again.
fn ask_again_and_again(keys: &Keys, attack: &Attack) {
    while ask_once(&mut Peer::begin(keys, 2), attack, Duration::from_millis(200), |_| false) {}
}

/// A second machine with the first terminal's key asks for a session again and again, and keeps one that it
/// gets.
fn steal(keys: &Keys, attack: &Attack) {
    while ask_once(&mut Peer::begin(keys, 1), attack, Duration::from_millis(60), is_served) {}
}

/// Whether the hub has sent anything in the peer's session. Before that the hub may serve another machine.
fn is_served(peer: &mut Peer) -> bool {
    peer.is_up()
        && peer.endpoint.stats(peer.session()).is_some_and(|stats| stats.packets_received > 0)
}

/// Asks for a session for a `time`, and then as long as `stays`. Returns whether the attack goes on.
fn ask_once(
    peer: &mut Peer,
    attack: &Attack,
    time: Duration,
    mut stays: impl FnMut(&mut Peer) -> bool,
) -> bool {
    let (begin, mut held) = (Instant::now(), false);
    while held || begin.elapsed() < time {
        if !attack.sent(peer.turn()) {
            return false;
        }
        held |= stays(peer);
    }
    true
}

/// Connections to all that the hub offers over TCP, from the second terminal's host.
fn besiege() -> Crowd {
    let from = find_netns(Node::terminal(2).unwrap()).unwrap();
    let to = |port| SocketAddr::from((Node::Hub.address4(), port));
    let any = [Ipv4Addr::UNSPECIFIED];
    let crowds = [TCP_HOP, BUNDLES].map(|port| from.run(|| Crowd::of(&any, 20, to(port))));
    Crowd(crowds.into_iter().flat_map(|crowd| crowd.0).collect())
}

/// Ends attacks when it is dropped.
struct Ending<'a>(&'a Attack, &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
        self.1.store(true, Ordering::Relaxed);
    }
}
