//! A session over two links at once: both carry it, and either may be lost.

use std::io::{Read, Write};
use std::net::Shutdown;
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
const LEO_DEVICE: &str = "leo0";

/// Runs a command in a node's namespace.
fn run(node: Node, program: &str, arguments: &str) {
    let mut command = find_netns(node).unwrap().command(path(program).unwrap());
    let status = command.args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}

/// Joins terminal and hub by a second link.
fn add_link() {
    // A process by which the hub's namespace is named.
    let cat = find_netns(Node::Hub).unwrap().command("cat").stdin(Stdio::piped()).spawn();
    let mut cat: Child = cat.unwrap();
    let ends = format!("link add {LEO_DEVICE} type veth peer name {LEO_DEVICE} netns {}", cat.id());
    run(Node::Terminal, "ip", &ends);
    drop(cat.stdin.take());
    cat.wait().unwrap();
    for (node, address) in [(Node::Terminal, "10.10.0.1/24"), (Node::Hub, "10.10.0.2/24")] {
        run(node, "ip", &format!("address add {address} dev {LEO_DEVICE}"));
        run(node, "ip", &format!("link set {LEO_DEVICE} up"));
    }
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
    let mut nft = find_netns(Node::Terminal).unwrap().command(path("nft").unwrap());
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

#[test]
fn a_session_uses_two_links_and_survives_the_loss_of_either() {
    if path("nft").is_none() || path("ip").is_none() {
        return skip("ip or nft is missing");
    }
    as_each_user(|runner| runner.inside(lossless(), "links::inside_two_links"));
}

pub(crate) fn inside_two_links() {
    add_link();
    let sockets = Sockets::new();
    let [hub, terminal] = [(), ()].map(|()| PrivateKey::generate().unwrap());
    let config = format!(
        "private_key = \"{}\"\nlisten = \"0.0.0.0:5900\"\nrate = \"100 Mbit/s\"\n{}\n\
         [[link]]\nname = \"geo\"\n[[link]]\nname = \"leo\"\nrate = \"30 Mbit/s\"\n\
         [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
        hub.to_base64(),
        sockets.key("hub"),
        format_public_key(&terminal.public())
    );
    let mut hub_gateway = Gateway::start(Node::Hub, "hub", &config);
    hub_gateway.wait_for("ready");
    let config = format!(
        "private_key = \"{}\"\nhub = \"10.9.0.2:5900\"\nhub_key = \"{}\"\nrate = \"30 Mbit/s\"\n{}\n\
         [[link]]\nname = \"geo\"\ninterface = \"{HOP_DEVICE}\"\n\
         [[link]]\nname = \"leo\"\ninterface = \"{LEO_DEVICE}\"\n\
         [intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
        terminal.to_base64(),
        format_public_key(&hub.public()),
        sockets.key("terminal"),
    );
    let mut terminal_gateway = Gateway::start(Node::Terminal, "terminal", &config);
    terminal_gateway.wait_for("ready");
    let sent = payload(SIZE);
    for (number, device) in [HOP_DEVICE, LEO_DEVICE].into_iter().enumerate() {
        let works = |which: [bool; 2]| {
            wait_for(&sockets.path("hub"), "links as expected", |status| {
                let works = |number: usize| &status["sessions"][0]["links"][number]["works"];
                (0..2).all(|number| works(number).as_bool() == Some(which[number]))
            })
        };
        let carried = |status: serde_json::Value| {
            [0, 1].map(|number| {
                status["sessions"][0]["links"][number]["sent_bytes"].as_u64().unwrap()
            })
        };
        let before = carried(works([true; 2]));
        let listener = listen(PORT + number as u16);
        let mut client = connect(addresses(PORT + number as u16)[0]);
        let mut server = accept(&listener);
        let mut received = vec![0; SIZE / 3];
        thread::scope(|scope| {
            scope.spawn(|| {
                server.write_all(&sent).unwrap();
                server.shutdown(Shutdown::Write).unwrap();
            });
            client.read_exact(&mut received).unwrap();
            let after = carried(works([true; 2]));
            assert!(
                (0..2).all(|link| after[link] > before[link] + 500_000),
                "{before:?} {after:?}"
            );
            cut(device, true);
            received.extend(read_all(&client));
        });
        assert_same(&received, &sent);
        let mut left = [true; 2];
        left[number] = false;
        works(left);
        cut(device, false);
    }
    terminal_gateway.end_by(Signal::SIGTERM);
    hub_gateway.end_by(Signal::SIGTERM);
}
