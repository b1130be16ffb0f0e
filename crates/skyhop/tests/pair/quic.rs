//! QUIC cannot be split, and crosses the hop through the packet channel.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{as_each_user, text};
use crate::gateways::both;
use crate::inside::{Gateway, Pair, assert_same, payload};
use crate::operate::{Sockets, get, skyhop, status};
use crate::policy::tunnelled;
use crate::quic_hosts::{Control, fetch, serve};
use crate::tunnel::{LOSSY, NETWORKS};

const PORT: u16 = 4433;
const BYTES: usize = 1_000_000;

#[test]
fn quic_goes_through_the_packet_channel() {
    as_each_user(|runner| runner.inside(&LOSSY, "quic::inside_quic_is_fetched"));
}

pub(crate) fn inside_quic_is_fetched() {
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let (hub, terminal) = start(&pair, &sockets);
    for server in both(Node::Server, PORT) {
        let content: Arc<[u8]> = payload(BYTES).into();
        let bind = || UdpSocket::bind(server).unwrap();
        let listening = find_netns(Node::Server).unwrap().run(bind);
        let sent = content.clone();
        thread::spawn(move || serve(listening, Control::Cubic, &sent));
        let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let before = tunnelled();
        let got = fetch(UdpSocket::bind(any).unwrap(), server, Control::Cubic, BYTES).unwrap();
        assert_same(&got.content, &content);
        let through = tunnelled() - before;
        assert!(through > BYTES as u64, "{server}: {through} bytes through the tunnel");
    }
    assert_told(&sockets);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A pair with tunnels and control sockets; the hub also serves metrics.
fn start(pair: &Pair, sockets: &Sockets) -> (Gateway, Gateway) {
    let metrics = "[metrics]\nlisten = \"127.0.0.1:9590\"\n";
    let sections = format!("{NETWORKS}\n[tunnel]\n{metrics}");
    let hub = pair.hub_with_keys(&sockets.key("hub"), &sections);
    let intercept = format!("[tunnel]\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    let mut terminal = pair.terminal_with(&format!("{}\n{intercept}", sockets.key("terminal")));
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    (hub, terminal)
}

/// Both sides report both downloads as packets of the default class.
fn assert_told(sockets: &Sockets) {
    let at_hub = &status(&sockets.path("hub"))["sessions"][0];
    let class = at_hub["classes"].as_array().unwrap().last().unwrap();
    let channel = &at_hub["channels"][0];
    assert_eq!((&class["name"], &channel["class"]), (&"default".into(), &"default".into()));
    let told = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let all = 2 * BYTES as u64;
    assert!(told(channel, "sent_bytes") > all && told(class, "sent_bytes") > all, "{at_hub:#}");
    let at_terminal = &status(&sockets.path("terminal"))["sessions"][0]["channels"][0];
    assert!(told(at_terminal, "received_bytes") > all, "{at_terminal:#}");
    // 2 % of at least 1,400 packets are lost.
    assert!(told(at_terminal, "recovered") > 0, "{at_terminal:#}");
    let metrics = get(Node::Hub, "/metrics");
    let name = "skyhop_channel_sent_bytes_total{peer=\"ship\",channel=\"0\",class=\"default\"} ";
    let figure = metrics.lines().find_map(|line| line.strip_prefix(name));
    assert!(figure.is_some_and(|bytes| bytes.parse::<u64>().unwrap() > all), "{metrics}");
    let table = skyhop(&["status"], &sockets.path("hub"));
    assert!(text(&table.stdout).contains("channel  0 (default): "), "{table:?}");
}
