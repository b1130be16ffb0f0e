//! Connections from the hub's side to clients of a terminal, and between clients of two terminals.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{Node, find_netns};
use nix::sys::signal::Signal;

use crate::bare;
use crate::common::{as_each_user, as_myself};
use crate::gateways::{Keys, accept_any, both, connect_from, listen_on};
use crate::inside::{Gateway, PATIENCE, assert_reset, assert_same, payload};
use crate::operate::{Sockets, status, wait_for};

const PORT: u16 = 4100;
/// Large enough to need more than one round trip.
const MUCH: usize = 500_000;
const LITTLE: usize = 1000;

/// Sends `length` bytes and a FIN, and gets them all back. Returns whether the listener sees
/// another address than the connecting host's.
fn is_carried(from: Node, to: Node, address: SocketAddr, length: usize) -> io::Result<bool> {
    let listener = listen_on(to, address);
    let client = connect_from(from, address);
    let sent = payload(length);
    let (mut server, peer) = accept_any(&listener);
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut received = Vec::new();
            // The client sees any failure.
            let _ = server.read_to_end(&mut received).and_then(|_| server.write_all(&received));
        });
        (&client).write_all(&sent)?;
        client.shutdown(Shutdown::Write)?;
        (&client).read_to_end(&mut back)
    })?;
    assert_same(&back, &sent);
    Ok(peer.ip() != client.local_addr()?.ip())
}

/// A gateway in service may not know its peer yet, and one whose peer has gone may just have
/// intercepted a connection.
pub(crate) fn wait_until(from: Node, to: Node, address: SocketAddr, carried: bool) {
    let began = Instant::now();
    while is_carried(from, to, address, LITTLE).ok() != Some(carried) {
        assert!(began.elapsed() < PATIENCE, "{address}: carried is not {carried}");
    }
    if carried {
        assert!(is_carried(from, to, address, MUCH).unwrap());
    }
}

#[test]
fn the_hub_carries_connections_to_networks_behind_terminals() {
    as_each_user(|runner| runner.inside(bare(), "directions::inside_the_hub_takes_over"));
}

pub(crate) fn inside_the_hub_takes_over() {
    let keys = Keys::new(1);
    let mut hub = keys.intercepting_hub("", "");
    let wait = |carried| {
        for address in both(Node::Client, PORT) {
            wait_until(Node::Server, Node::Client, address, carried);
        }
    };
    wait(false);
    let terminal = keys.terminal(1, "", "");
    wait(true);
    for address in both(Node::Terminal, PORT) {
        let carried = is_carried(Node::Server, Node::Terminal, address, LITTLE).unwrap();
        assert!(!carried, "{address} is in no terminal's networks");
    }
    for address in both(Node::Server, PORT) {
        assert!(is_carried(Node::Client, Node::Server, address, MUCH).unwrap());
    }
    terminal.end_by(Signal::SIGTERM);
    hub.wait_for("session with 1 over");
    wait(false);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn terminals_reach_each_other_if_the_hub_allows_it() {
    let options: Vec<&str> = bare().iter().copied().chain(["--terminals", "2"]).collect();
    as_myself(|runner| runner.inside(&options, "directions::inside_terminals_meet"));
}

pub(crate) fn inside_terminals_meet() {
    let keys = Keys::new(2);
    let client2 = Node::client(2).unwrap();
    let failure = |address| {
        let socket = find_netns(Node::Client).unwrap().run(|| TcpStream::connect(address));
        socket.expect_err("the answer is deferred").kind()
    };
    for (mesh, setting) in [(true, "mesh = true"), (false, "")] {
        let mut hub = keys.hub(setting, "");
        let terminals = [1, 2].map(|number| keys.terminal(number, "", "answer = \"deferred\""));
        [1, 2].iter().for_each(|number| hub.wait_for(&format!("session up with {number}")));
        for (address, nobody) in both(client2, PORT).into_iter().zip(both(client2, PORT + 1)) {
            if mesh {
                assert!(is_carried(Node::Client, client2, address, MUCH).unwrap());
                assert_eq!(failure(nobody), io::ErrorKind::ConnectionRefused);
            } else if address.is_ipv4() {
                assert_eq!(failure(address), io::ErrorKind::HostUnreachable);
            } else {
                assert_eq!(failure(address), io::ErrorKind::PermissionDenied);
            }
        }
        terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
        hub.end_by(Signal::SIGTERM);
    }
}

#[test]
fn the_hop_may_be_of_ipv6() {
    as_myself(|runner| runner.inside(bare(), "directions::inside_a_hop_of_ipv6"));
}

pub(crate) fn inside_a_hop_of_ipv6() {
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let at = IpAddr::from(Node::Hub.address6());
    let config = keys.terminal_config(1, &sockets.key("terminal"), "");
    let config = config.replace("hub:5900", &SocketAddr::new(at, 5900).to_string());
    let hub = keys.intercepting_hub("", "");
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    terminal.wait_for("ready");
    for (from, to) in [(Node::Client, Node::Server), (Node::Server, Node::Client)] {
        both(to, PORT).into_iter().for_each(|address| wait_until(from, to, address, true));
    }
    let session = status(&sockets.path("terminal"))["sessions"][0].clone();
    assert_eq!(session["address"], SocketAddr::new(at, 5900).to_string());
    assert_eq!(session["packet_bytes"], 1500, "the hop's packets, with its longer header");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_with_a_wrong_key_gets_nothing() {
    let options: Vec<&str> = bare().iter().copied().chain(["--terminals", "2"]).collect();
    as_myself(|runner| runner.inside(&options, "directions::inside_a_stranger"));
}

pub(crate) fn inside_a_stranger() {
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let mut hub = keys.hub(&sockets.key("hub"), "");
    let terminal = keys.terminal(1, "", "");
    hub.wait_for("session up with 1");
    let held = Mirrored::new(Node::Client, Node::Server);
    let server = both(Node::Server, PORT);
    let [node, client] = [Node::terminal(2).unwrap(), Node::client(2).unwrap()];
    let known = keys.terminal_config(1, "", "");
    let ignored = || status(&sockets.path("hub"))["traffic"]["datagrams_ignored"].as_u64().unwrap();
    for key in ["private_key", "hub_key"] {
        let other = PrivateKey::generate().unwrap();
        let other = match key {
            "private_key" => other.to_base64(),
            _ => format_public_key(&other.public()),
        };
        let is_replaced = |line: &&str| line.starts_with(&format!("{key} ="));
        let line = known.lines().find(is_replaced).unwrap();
        let config = known.replace(line, &format!("{key} = \"{other}\""));
        let before = ignored();
        let mut stranger = Gateway::start(node, "terminal", &config);
        stranger.wait_for("looking for the hub");
        // It has asked, and asked again.
        wait_for(&sockets.path("hub"), key, |_| ignored() >= before + 2);
        for address in server {
            assert!(!is_carried(client, Node::Server, address, LITTLE).unwrap(), "{key}");
            assert!(is_carried(Node::Client, Node::Server, address, LITTLE).unwrap());
        }
        held.exchange();
        let sessions = status(&sockets.path("hub"))["sessions"].as_array().unwrap().len();
        assert_eq!(sessions, 1, "{key}");
        stranger.end_by(Signal::SIGTERM);
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_gateway_takes_over_the_connections_of_its_own_machine() {
    as_each_user(|runner| runner.inside(bare(), "directions::inside_own_connections"));
}

pub(crate) fn inside_own_connections() {
    let keys = Keys::new(1);
    for answer in ["early", "deferred"] {
        let setting = format!("own_traffic = true\nanswer = \"{answer}\"");
        let before = Mirrored::new(Node::Terminal, Node::Server);
        let hub = keys.intercepting_hub("", &setting);
        let terminal = keys.terminal(1, "", &setting);
        for (from, to) in [
            (Node::Terminal, Node::Server),
            (Node::Hub, Node::Client),
            (Node::Client, Node::Server),
            (Node::Server, Node::Client),
        ] {
            both(to, PORT).into_iter().for_each(|address| wait_until(from, to, address, true));
        }
        // There is no hop between these hosts.
        for (from, to) in [(Node::Terminal, Node::Client), (Node::Hub, Node::Server)] {
            for address in both(to, PORT) {
                assert!(!is_carried(from, to, address, LITTLE).unwrap(), "{from} to {to}");
            }
        }
        for address in both(Node::Server, PORT + 1) {
            let refused = find_netns(Node::Terminal).unwrap().run(|| TcpStream::connect(address));
            match refused {
                Ok(early) => assert_reset(&early),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
            }
        }
        before.exchange();
        let held = Mirrored::new(Node::Terminal, Node::Server);
        held.exchange();
        terminal.end_by(Signal::SIGTERM);
        before.exchange();
        assert_reset(&held.caller);
        for address in both(Node::Server, PORT) {
            assert!(!is_carried(Node::Terminal, Node::Server, address, LITTLE).unwrap());
        }
        hub.end_by(Signal::SIGTERM);
    }
}

/// Both ends of a connection.
struct Mirrored {
    caller: TcpStream,
    listening: TcpStream,
}

impl Mirrored {
    fn new(from: Node, to: Node) -> Self {
        let address = both(to, PORT)[0];
        let listener = listen_on(to, address);
        let caller = connect_from(from, address);
        Self { caller, listening: accept_any(&listener).0 }
    }

    fn exchange(&self) {
        for (mut from, mut to) in [(&self.caller, &self.listening), (&self.listening, &self.caller)]
        {
            from.write_all(b"ping").unwrap();
            let mut heard = [0; 4];
            to.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"ping");
        }
    }
}
