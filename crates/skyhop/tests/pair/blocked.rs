//! Where a network drops UDP, the pair goes on over TCP, and comes back to UDP.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::clean_up::path;
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::skip;

use crate::common::{as_each_user, as_myself};
use crate::inside::{Mirror, Pair, assert_same, exchange, payload, read_all};
use crate::lossless;

const PORT: u16 = 4000;
/// What the hub needs to serve such terminals.
const HUB: &str = "listen_tcp = \"[::]:443\"";
/// Drops the session's datagrams in front of the hub.
const FIREWALL: &str = "table inet firewall {
    chain input {
        type filter hook input priority filter; policy accept;
        udp dport 5900 drop
    }
}";

/// Runs nft on the hub.
fn nft(arguments: &[&str]) {
    let mut nft = find_netns(Node::Hub).unwrap().command(path("nft").unwrap());
    assert!(nft.args(arguments).status().unwrap().success(), "nft {arguments:?}");
}

pub(crate) fn block() {
    nft(&[FIREWALL]);
}

fn unblock() {
    nft(&["delete", "table", "inet", "firewall"]);
}

/// A terminal that knows the hub's TCP port.
fn terminal() -> String {
    format!("hub_tcp = \"hub:443\"\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]")
}

#[test]
fn the_pair_goes_on_over_tcp() {
    if path("nft").is_none() {
        return skip("no nft");
    }
    as_each_user(|runner| runner.inside(lossless(), "blocked::inside_the_pair_goes_on_over_tcp"));
}

pub(crate) fn inside_the_pair_goes_on_over_tcp() {
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    block();
    let hub = pair.hub_with_keys(HUB, "");
    let mut terminal = pair.terminal_with(&terminal());
    terminal.wait_for("going on over TCP");
    terminal.wait_for("ready");
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    echo_much(&mirror.connect_carried());

    // The session and its connections survive each change.
    unblock();
    terminal.wait_for("sending over UDP again");
    exchange(&mut held);
    echo_much(&mirror.connect_carried());
    block();
    terminal.wait_for("going on over TCP");
    exchange(&mut held);
    echo_much(&mirror.connect_carried());
    assert!(!terminal.has_said("session with the hub lost"));

    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
}

/// Sends more than any buffer of the hop holds, and receives it back.
fn echo_much(socket: &TcpStream) {
    let sent = payload(5_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = socket;
            to.write_all(&sent).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        });
        assert_same(&read_all(socket), &sent);
    });
}

#[test]
fn strangers_on_the_tcp_port_are_turned_away() {
    as_each_user(|runner| runner.inside(lossless(), "blocked::inside_strangers_are_turned_away"));
}

pub(crate) fn inside_strangers_are_turned_away() {
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    let hub = pair.hub_with_keys(HUB, "");
    let connect = || TcpStream::connect((Node::Hub.address4(), 443)).unwrap();
    // Another protocol, no datagram, one that is too long, and what is no packet of a session.
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SLACP\0\0\x01\0\0", b"SLACP\0\0\x01\xff\xff"] {
        let mut socket = connect();
        socket.write_all(said).unwrap();
        // A reset, if the hub has not read all of it.
        let end = std::io::copy(&mut socket, &mut std::io::sink());
        assert!(end.is_err() || end.is_ok_and(|count| count == 0), "{said:?}");
    }
    let mut noise = connect();
    noise.write_all(b"SLACP\0\0\x01\0\x04abcd").unwrap();
    let mut terminal = pair.terminal_with(&terminal());
    terminal.wait_for("ready");
    exchange(&mut mirror.connect_carried());
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Drops what begins like SLACP on the TCP port, as firewalls do that look for TLS. A header with
/// time stamps has 32 bytes.
const INSPECTION: &str = "table inet inspection {
    chain input {
        type filter hook input priority filter; policy accept;
        tcp dport 443 @th,256,32 0x534c4143 drop
    }
}";

#[test]
fn tls_passes_where_only_that_is_let_through() {
    if path("nft").is_none() {
        return skip("no nft");
    }
    as_myself(|runner| runner.inside(lossless(), "blocked::inside_tls_passes"));
}

pub(crate) fn inside_tls_passes() {
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    let made = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let certificate = write("hub.pem", made.cert.pem());
    let key = write("hub-key.pem", made.signing_key.serialize_pem());
    block();
    nft(&[INSPECTION]);
    let own = format!("{HUB}\nlisten_tcp_certificate = {certificate:?}\nlisten_tcp_key = {key:?}");
    let hub = pair.hub_with_keys(&own, "");
    let mut terminal = pair.terminal_with(&terminal().replace("hub:443", "tls://hub:443"));
    terminal.wait_for("going on over TCP");
    terminal.wait_for("ready");
    echo_much(&mirror.connect_carried());
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
