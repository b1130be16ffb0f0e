//! A terminal with several hubs: one that dies or drains is left for the next, and a fade moves
//! nothing.

use std::fmt::Write as _;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::skip;

use crate::clean_up::path;
use crate::common::{as_each_user, text};
use crate::inside::{Gateway, Mirror, assert_reset, connect_carried_until, exchange};
use crate::lossless;
use crate::operate::{Sockets, skyhop, status, wait_for};

const PORT: u16 = 4000;
/// Nothing reaches any of the hubs.
const FADE: &str = "table inet fade {
    chain input {
        type filter hook input priority filter; policy accept;
        udp dport 5900-5909 drop
    }
}";

/// Hubs on one machine, and a terminal that knows them in this order.
struct Site {
    hubs: Vec<PrivateKey>,
    terminal: PrivateKey,
    sockets: Sockets,
}

impl Site {
    fn new(hubs: usize) -> Self {
        let key = || PrivateKey::generate().unwrap();
        Self { hubs: (0..hubs).map(|_| key()).collect(), terminal: key(), sockets: Sockets::new() }
    }

    fn hub(&self, number: usize) -> Gateway {
        let config = format!(
            "private_key = \"{}\"\nlisten = \"[::]:{}\"\nrate = \"100 Mbit/s\"\n{}\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
            self.hubs[number].to_base64(),
            5900 + number,
            self.sockets.key(&name(number)),
            format_public_key(&self.terminal.public())
        );
        let mut hub = Gateway::start(Node::Hub, "hub", &config);
        hub.wait_for("ready");
        hub
    }

    /// A terminal in service.
    fn terminal(&self) -> Gateway {
        let key = |number: usize| format_public_key(&self.hubs[number].public());
        let mut config = format!(
            "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nhub_order = \"listed\"\n\
             rate = \"50 Mbit/s\"\n{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
            self.terminal.to_base64(),
            key(0),
            self.sockets.key("terminal"),
        );
        for number in 1..self.hubs.len() {
            let (port, key) = (5900 + number, key(number));
            let _ = writeln!(config, "[[other_hub]]\naddress = \"hub:{port}\"\nkey = \"{key}\"");
        }
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
        terminal.wait_for("ready");
        terminal
    }

    /// What the terminal's status says of each hub.
    fn states(&self) -> Vec<String> {
        let status = status(&self.sockets.path("terminal"));
        let hubs = status["hubs"].as_array().unwrap().iter();
        hubs.map(|hub| hub["state"].as_str().unwrap().to_owned()).collect()
    }
}

fn name(number: usize) -> String {
    format!("hub-{number}")
}

#[test]
fn a_dead_hub_is_left_for_the_next() {
    as_each_user(|runner| runner.inside(lossless(), "hubs::inside_a_hub_dies"));
}

pub(crate) fn inside_a_hub_dies() {
    let (mirror, site) = (Mirror::start(PORT), Site::new(3));
    let hubs = [0, 1, 2].map(|number| site.hub(number));
    let mut terminal = site.terminal();
    assert_eq!(site.states(), ["in use", "not needed", "not needed"]);
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    let [first, second, third] = hubs;
    first.end_by(Signal::SIGKILL);
    terminal.wait_for("using hub-2");
    assert_reset(&held);
    let mut next = connect_carried_until(&mirror);
    exchange(&mut next);

    // One that stops in order says so, and nobody waits for it.
    second.end_by(Signal::SIGTERM);
    terminal.wait_for("using hub-3");
    assert_reset(&next);
    exchange(&mut connect_carried_until(&mirror));
    terminal.end_by(Signal::SIGTERM);
    third.end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
}

#[test]
fn a_draining_hub_keeps_its_connections_and_gets_no_new_ones() {
    as_each_user(|runner| runner.inside(lossless(), "hubs::inside_a_hub_drains"));
}

pub(crate) fn inside_a_hub_drains() {
    let (mirror, site) = (Mirror::start(PORT), Site::new(2));
    let [first, second] = [0, 1].map(|number| site.hub(number));
    let mut terminal = site.terminal();
    let mut held = mirror.connect_carried();
    let drained = skyhop(&["drain", "--within", "1min"], &site.sockets.path(&name(0)));
    assert!(text(&drained.stdout).contains("1 left"), "{drained:?}");
    terminal.wait_for("using hub-2");
    assert_eq!(site.states(), ["draining", "in use"]);
    exchange(&mut mirror.connect_carried());
    exchange(&mut held);
    // It stops with its last connection.
    drop(held);
    first.wait_for_end();
    wait_for(&site.sockets.path("terminal"), "the first is gone", |status| {
        status["hubs"][0]["state"] == "not needed" && status["hubs"][1]["state"] == "in use"
    });
    exchange(&mut mirror.connect_carried());
    terminal.end_by(Signal::SIGTERM);
    second.end_by(Signal::SIGTERM);
}

#[test]
fn a_fade_moves_nothing() {
    if path("nft").is_none() {
        return skip("no nft");
    }
    as_each_user(|runner| runner.inside(lossless(), "hubs::inside_a_fade"));
}

pub(crate) fn inside_a_fade() {
    let (mirror, site) = (Mirror::start(PORT), Site::new(3));
    let hubs = [0, 1, 2].map(|number| site.hub(number));
    let mut terminal = site.terminal();
    let mut held = mirror.connect_carried();
    let nft = |arguments: &[&str]| {
        let mut nft = find_netns(Node::Hub).unwrap().command(path("nft").unwrap());
        assert!(nft.args(arguments).status().unwrap().success(), "nft {arguments:?}");
    };
    nft(&[FADE]);
    terminal.wait_for("hub unreachable");
    terminal.wait_for("asking hub-2");
    terminal.wait_for("asking hub-3");
    assert_eq!(site.states(), ["silent", "asked", "asked"]);
    nft(&["delete", "table", "inet", "fade"]);
    terminal.wait_for("hub reachable again");
    exchange(&mut held);
    exchange(&mut connect_carried_until(&mirror));
    assert!(!terminal.has_said("using hub-"));
    wait_for(&site.sockets.path("terminal"), "the others are not needed", |status| {
        status["hubs"][1]["state"] == "not needed" && status["hubs"][2]["state"] == "not needed"
    });
    terminal.end_by(Signal::SIGTERM);
    hubs.into_iter().for_each(|hub| hub.end_by(Signal::SIGTERM));
}
