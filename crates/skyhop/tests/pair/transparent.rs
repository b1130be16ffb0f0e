//! Servers see the client's address, even behind the hub's own firewall, and no terminal can use an
//! address that is not behind it.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;
use std::thread;

use lab::{Node, find_netns};
use nix::sys::signal::Signal;

use crate::bare;
use crate::clean_up::path;
use crate::common::{as_each_user, as_myself, skip};
use crate::gateways::{Keys, accept_any, both, connect_from, listen_on};
use crate::inside::{assert_reset, assert_same, payload, read_all};

const PORT: u16 = 4200;
const LENGTH: usize = 500_000;
/// A typical router's firewall: only replies may come in from outside; everything else is counted
/// and dropped.
const FIREWALL: &str = "table inet firewall {
    chain input {
        type filter hook input priority filter; policy accept;
        ct state invalid counter drop
        ct state established,related accept
        iifname lan0 meta l4proto tcp drop
    }
    chain forward {
        type filter hook forward priority filter; policy accept;
        ct state invalid counter drop
        ct state established,related accept
        iifname lan0 meta l4proto tcp drop
    }
}";

/// Output of nft on the hub, given `input`.
fn nft(arguments: &[&str], input: &str) -> String {
    let mut nft = find_netns(Node::Hub).unwrap().command(path("nft").unwrap());
    let nft = nft.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut nft = nft.spawn().unwrap();
    nft.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = nft.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn servers_see_the_client() {
    if path("nft").is_none() {
        return skip("no nft");
    }
    as_each_user(|runner| runner.inside(bare(), "transparent::inside_servers_see_the_client"));
}

pub(crate) fn inside_servers_see_the_client() {
    nft(&["-f", "-"], FIREWALL);
    let before = nft(&["-s", "list", "ruleset"], "");
    let keys = Keys::new(1);
    let hub = keys.hub("transparent = true", "");
    let terminal = keys.terminal(1, "", "");
    for address in both(Node::Server, PORT) {
        let listener = listen_on(Node::Server, address);
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| upload(connect_from(Node::Client, address)));
            }
            for _ in 0..5 {
                let (server, peer) = accept_any(&listener);
                scope.spawn(move || answer(server, peer));
            }
        });
    }
    let listed = nft(&["list", "table", "inet", "firewall"], "");
    assert_eq!(listed.matches("counter packets 0 bytes 0 drop").count(), 2, "{listed}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    assert_eq!(nft(&["-s", "list", "ruleset"], ""), before, "the operator's rules");
}

/// Uploads data, and receives its own address and port.
fn upload(mut client: TcpStream) {
    client.write_all(&payload(LENGTH)).unwrap();
    assert!(established(Node::Terminal) > 0, "the connection passed the pair by");
    client.shutdown(Shutdown::Write).unwrap();
    let own = client.local_addr().unwrap().to_string();
    assert_eq!(String::from_utf8(read_all(&client)).unwrap(), own);
}

fn answer(mut server: TcpStream, peer: SocketAddr) {
    assert_same(&read_all(&server), &payload(LENGTH));
    server.write_all(peer.to_string().as_bytes()).unwrap();
}

/// Number of TCP connections on a host.
fn established(node: Node) -> usize {
    let count = |family: &str| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{family}")).unwrap();
        let states = table.lines().filter_map(|line| line.split_whitespace().nth(3));
        states.filter(|state| *state == "01").count()
    };
    find_netns(node).unwrap().run(|| ["tcp", "tcp6"].map(count)).iter().sum()
}

#[test]
fn no_terminal_connects_in_another_s_name() {
    as_myself(|runner| runner.inside(bare(), "transparent::inside_a_terminal_forges"));
}

pub(crate) fn inside_a_terminal_forges() {
    let keys = Keys::new(2);
    let hub = keys.hub("transparent = true", "");
    // The second terminal replaces the first, so the client's address is not behind it.
    let terminal = keys.terminal_on(Node::Terminal, 2, "", "");
    for address in both(Node::Server, PORT) {
        let _listener = listen_on(Node::Server, address);
        assert_reset(&connect_from(Node::Client, address));
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
