//! A session over two links at once: both carry it, either may be lost, and either may go over TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::thread;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::skip;

use crate::clean_up::path;
use crate::common::as_each_user;
use crate::inside::{Gateway, accept, addresses, assert_same, connect, listen, payload, read_all};
use crate::lossless;
use crate::operate::{Sockets, wait_for};

const PORT: u16 = 4000;
const SIZE: usize = 10_000_000;
/// The second link, beside that of the lab.
pub(crate) const LEO_DEVICE: &str = "leo0";

/// Runs a command in a node's namespace.
pub(crate) fn run(node: Node, program: &str, arguments: &str) {
    let mut command = find_netns(node).unwrap().command(path(program).unwrap());
    let status = command.args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}

/// Joins terminal and hub by a second link.
pub(crate) fn add_link() {
    join(LEO_DEVICE, [(Node::Terminal, "10.10.0.1"), (Node::Hub, "10.10.0.2")]);
}

/// Joins two nodes by a veth pair, whose ends have this name and these addresses of a /24 subnet.
pub(crate) fn join(device: &str, ends: [(Node, &str); 2]) {
    let [(near, _), (far, _)] = ends;
    // A process by which the far namespace is named.
    let cat = find_netns(far).unwrap().command("cat").stdin(Stdio::piped()).spawn();
    let mut cat: Child = cat.unwrap();
    let pair = format!("link add {device} type veth peer name {device} netns {}", cat.id());
    run(near, "ip", &pair);
    drop(cat.stdin.take());
    cat.wait().unwrap();
    for (node, address) in ends {
        run(node, "ip", &format!("address add {address}/24 dev {device}"));
        run(node, "ip", &format!("link set {device} up"));
    }
}

/// Drops the session's datagrams at the hub that come or go by these devices, and no others.
fn block_udp(devices: &[&str]) {
    let devices = devices.join(", ");
    feed(
        Node::Hub,
        &format!(
            "table inet firewall {{}}
             delete table inet firewall
             table inet firewall {{
                chain input {{
                    type filter hook input priority filter; policy accept;
                    iifname {{ {devices} }} udp dport 5900 drop
                }}
                chain output {{
                    type filter hook output priority filter; policy accept;
                    oifname {{ {devices} }} udp sport 5900 drop
                }}
             }}"
        ),
    );
}

fn feed(node: Node, rules: &str) {
    let mut nft = find_netns(node).unwrap().command(path("nft").unwrap());
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

/// Cuts the hop's packets on a device of the terminal, or lets them pass again.
fn cut(device: &str, is_cut: bool) {
    let rules = format!(
        "table inet cut {{}}
         delete table inet cut
         table inet cut {{
            chain in {{
                type filter hook input priority filter; policy accept;
                iifname {device} udp sport 5900 drop
            }}
            chain out {{
                type filter hook postrouting priority filter; policy accept;
                oifname {device} udp dport 5900 drop
            }}
         }}"
    );
    let rules = if is_cut { rules } else { "delete table inet cut".to_owned() };
    feed(Node::Terminal, &rules);
}

/// A hub and a terminal with two links between them.
pub(crate) struct Linked {
    sockets: Sockets,
    hub: Gateway,
    pub(crate) terminal: Gateway,
}

impl Linked {
    fn start(of_hub: &str, of_terminal: &str) -> Self {
        add_link();
        Self::join(of_hub, of_terminal)
    }

    /// The same with the second link or without.
    pub(crate) fn join(of_hub: &str, of_terminal: &str) -> Self {
        let sockets = Sockets::new();
        let [hub, terminal] = [(), ()].map(|()| PrivateKey::generate().unwrap());
        let config = format!(
            "private_key = \"{}\"\nlisten = \"0.0.0.0:5900\"\nrate = \"100 Mbit/s\"\n{}\n{of_hub}\n\
             [[link]]\nname = \"geo\"\n[[link]]\nname = \"leo\"\nrate = \"30 Mbit/s\"\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
            hub.to_base64(),
            sockets.key("hub"),
            format_public_key(&terminal.public())
        );
        let mut hub_gateway = Gateway::start(Node::Hub, "hub", &config);
        hub_gateway.wait_for("ready");
        let config = format!(
            "private_key = \"{}\"\nhub = \"10.9.0.2:5900\"\nhub_key = \"{}\"\n\
             rate = \"30 Mbit/s\"\n{}\n{of_terminal}\n\
             [[link]]\nname = \"geo\"\ninterface = \"{HOP_DEVICE}\"\n\
             [[link]]\nname = \"leo\"\ninterface = \"{LEO_DEVICE}\"\n\
             [intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
            terminal.to_base64(),
            format_public_key(&hub.public()),
            sockets.key("terminal"),
        );
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
        terminal.wait_for("ready");
        Self { sockets, hub: hub_gateway, terminal }
    }

    /// The hub's status once this is so of its links.
    fn links_are(&self, what: &str, is_so: impl Fn(&[serde_json::Value]) -> bool) -> [u64; 2] {
        let status = wait_for(&self.sockets.path("hub"), what, |status| {
            let links = status["sessions"][0]["links"].as_array();
            links.is_some_and(|links| links.len() == 2 && is_so(links))
        });
        [0, 1].map(|link| status["sessions"][0]["links"][link]["sent_bytes"].as_u64().unwrap())
    }

    /// Bytes that the hub has sent on each link, once these work.
    pub(crate) fn carried(&self, works: [bool; 2]) -> [u64; 2] {
        self.links_are("links as expected", |links| {
            links.iter().zip(works).all(|(link, works)| link["works"].as_bool() == Some(works))
        })
    }

    pub(crate) fn end(self) {
        self.terminal.end_by(Signal::SIGTERM);
        self.hub.end_by(Signal::SIGTERM);
    }
}

#[test]
fn a_session_uses_two_links_and_survives_the_loss_of_either() {
    if path("nft").is_none() || path("ip").is_none() {
        return skip("ip or nft is missing");
    }
    as_each_user(|runner| runner.inside(lossless(), "links::inside_two_links"));
}

pub(crate) fn inside_two_links() {
    let pair = Linked::start("", "");
    let sent = payload(SIZE);
    for (number, device) in [HOP_DEVICE, LEO_DEVICE].into_iter().enumerate() {
        let before = pair.carried([true; 2]);
        let mut download = Download::begin(PORT + number as u16, &sent);
        download.read(SIZE / 3);
        let after = pair.carried([true; 2]);
        assert!((0..2).all(|link| after[link] > before[link] + 500_000), "{before:?} {after:?}");
        cut(device, true);
        download.finish(&sent);
        let mut left = [true; 2];
        left[number] = false;
        pair.carried(left);
        cut(device, false);
    }
    pair.end();
}

/// A transfer from a server to a client through the pair.
pub(crate) struct Download {
    client: TcpStream,
    received: Vec<u8>,
    server: thread::JoinHandle<()>,
}

impl Download {
    pub(crate) fn begin(port: u16, bytes: &[u8]) -> Self {
        let listener = listen(port);
        let client = connect(addresses(port)[0]);
        let (mut server, bytes) = (accept(&listener), bytes.to_vec());
        let server = thread::spawn(move || {
            server.write_all(&bytes).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        });
        Self { client, received: Vec::new(), server }
    }

    /// Reads so many bytes.
    pub(crate) fn read(&mut self, count: usize) {
        let start = self.received.len();
        self.received.resize(start + count, 0);
        self.client.read_exact(&mut self.received[start..]).unwrap();
    }

    /// Reads the rest, and compares all of it.
    pub(crate) fn finish(mut self, sent: &[u8]) {
        self.received.extend(read_all(&self.client));
        self.server.join().unwrap();
        assert_same(&self.received, sent);
    }
}

#[test]
fn each_link_goes_over_tcp_while_udp_is_blocked_on_it() {
    if path("nft").is_none() || path("ip").is_none() {
        return skip("ip or nft is missing");
    }
    as_each_user(|runner| runner.inside(lossless(), "links::inside_links_over_tcp"));
}

pub(crate) fn inside_links_over_tcp() {
    let mut pair = Linked::start("listen_tcp = \"0.0.0.0:443\"", "hub_tcp = \"10.9.0.2:443\"");
    let over = |which: [bool; 2]| {
        move |links: &[serde_json::Value]| {
            let is = |(link, over): (&serde_json::Value, bool)| {
                link["over_tcp"].as_bool() == Some(over) && link["works"].as_bool() == Some(true)
            };
            links.iter().zip(which).all(is)
        }
    };
    pair.links_are("both over UDP", over([false, false]));
    let sent = payload(SIZE);
    // UDP ceases to pass on one link, in the middle of a transfer.
    let mut download = Download::begin(PORT, &sent);
    download.read(SIZE / 3);
    block_udp(&[LEO_DEVICE]);
    pair.terminal.wait_for("over UDP on leo: going on over TCP");
    download.finish(&sent);
    let before = pair.links_are("one over TCP", over([false, true]));
    let download = Download::begin(PORT + 1, &sent);
    download.finish(&sent);
    let after = pair.links_are("one over TCP", over([false, true]));
    assert!((0..2).all(|link| after[link] > before[link] + 500_000), "{before:?} {after:?}");
    // On the other, too: the connection is the same.
    let mut download = Download::begin(PORT + 2, &sent);
    download.read(SIZE / 3);
    block_udp(&[HOP_DEVICE, LEO_DEVICE]);
    download.finish(&sent);
    pair.links_are("both over TCP", over([true, true]));
    // And back, each by itself.
    block_udp(&[HOP_DEVICE]);
    pair.terminal.wait_for("sending over UDP again on leo");
    pair.links_are("one over TCP", over([true, false]));
    Download::begin(PORT + 3, &sent).finish(&sent);
    assert!(!pair.terminal.has_said("session with the hub lost"));
    pair.end();
}
