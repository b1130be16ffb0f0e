//! Two hubs behind one address, with the rules of docs/hubs.md between.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::clean_up::path;
use crate::common::as_each_user;
use crate::inside::{Gateway, Mirror, assert_reset, connect_carried_until, exchange};
use crate::lossless;
use crate::operate::{Sockets, status, wait_for};

const PORT: u16 = 4000;
/// The address that terminals know, and those of the hubs: the first one on the server's host, the
/// second one on the router's.
const ADDRESS: &str = "10.9.0.2";
const HUBS: [&str; 2] = ["10.2.0.2", "10.2.0.1"];
/// Source ports that the terminal gets one after the other.
const PORTS: std::ops::Range<u16> = 40_001..40_007;

fn nft(node: Node, rules: &str) {
    let mut nft = find_netns(node).unwrap().command(path("nft").unwrap());
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

/// The rules of the page, with these addresses of hubs.
fn balance(hubs: [&str; 2]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hubs.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rules) = page.split_once("```nft\n").unwrap();
    let (rules, _) = rules.split_once("```").unwrap();
    let defined = |name: &str, value: &str, rules: String| {
        let line =
            rules.lines().find(|line| line.starts_with(&format!("define {name} ="))).unwrap();
        rules.replace(line, &format!("define {name} = {value}"))
    };
    let rules = defined("address", ADDRESS, rules.to_owned());
    let rules = defined("hub_1", hubs[0], defined("hub_2", hubs[1], rules));
    nft(Node::Hub, &format!("table ip skyhop_hubs {{}}\ndelete table ip skyhop_hubs\n{rules}"));
}

/// Gives the terminal another source port, as a translator does that has forgotten its mapping.
fn translate(from: u16, to: u16) {
    nft(
        Node::Terminal,
        &format!(
            "table ip translator {{}}\ndelete table ip translator\ntable ip translator {{
                chain out {{
                    type filter hook postrouting priority raw; policy accept;
                    udp sport {from} udp dport 5900 udp sport set {to}
                }}
                chain back {{
                    type filter hook prerouting priority raw; policy accept;
                    udp sport 5900 udp dport {to} notrack udp dport set {from} accept
                    udp sport 5900 drop
                }}
            }}"
        ),
    );
}

#[test]
fn hubs_behind_one_address_keep_their_sessions() {
    as_each_user(|runner| runner.inside(lossless(), "one_address::inside_two_hubs_share_it"));
}

pub(crate) fn inside_two_hubs_share_it() {
    let (mirror, sockets) = (Mirror::start(PORT), Sockets::new());
    let [hub, terminal] = [(), ()].map(|()| PrivateKey::generate().unwrap());
    balance(HUBS);
    let start = |number: usize| {
        let config = format!(
            "private_key = \"{}\"\nlisten = \"{}:5900\"\nshared_address = \"{} of 2\"\n\
             rate = \"100 Mbit/s\"\n{}\n[egress]\nreach = [\"10.2.0.2\"]\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
            hub.to_base64(),
            HUBS[number],
            number + 1,
            sockets.key(NAMES[number]),
            format_public_key(&terminal.public())
        );
        let mut hub = Gateway::start([Node::Server, Node::Hub][number], "hub", &config);
        hub.wait_for("ready");
        hub
    };
    let mut hubs = [0, 1].map(|number| Some(start(number)));
    let config = format!(
        "private_key = \"{}\"\nhub = \"{ADDRESS}:5900\"\nhub_key = \"{}\"\nrate = \"50 Mbit/s\"\n{}\n\
         [intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
        terminal.to_base64(),
        format_public_key(&hub.public()),
        sockets.key("terminal"),
    );
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    terminal.wait_for("ready");
    let addresses = |number: usize| -> Vec<SocketAddr> {
        let status = status(&sockets.path(NAMES[number]));
        let sessions = status["sessions"].as_array().unwrap().iter();
        sessions.map(|session| session["address"].as_str().unwrap().parse().unwrap()).collect()
    };
    let mut held = mirror.connect_carried();
    let (here, other) = if addresses(0).is_empty() { (1, 0) } else { (0, 1) };
    let port = addresses(here)[0].port();
    for next in PORTS {
        translate(port, next);
        exchange(&mut held);
        wait_for(&sockets.path(NAMES[here]), "the hub follows the terminal", |status| {
            status["sessions"][0]["address"] == format!("10.9.0.1:{next}")
        });
        assert_eq!(addresses(other), [], "the other hub gets none of its packets");
    }

    // The hub's share goes to the other, which tells the terminal that it has no such session.
    hubs[here].take().unwrap().end_by(Signal::SIGKILL);
    balance([HUBS[other]; 2]);
    assert_reset(&held);
    exchange(&mut connect_carried_until(&mirror));
    assert_eq!(addresses(other).len(), 1);
    terminal.end_by(Signal::SIGTERM);
    hubs[other].take().unwrap().end_by(Signal::SIGTERM);
}

const NAMES: [&str; 2] = ["hub-1", "hub-2"];
