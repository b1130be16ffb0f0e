//! Two terminals on one machine.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::clean_up::{path, traces};
use crate::common::{as_each_user, skip};
use crate::inside::{Gateway, Mirror, Pair, assert_reset, connect_carried_until, exchange};
use crate::links::{join, run};
use crate::lossless;
use crate::operate::{Sockets, connections, examine, status, write_secret};

const PORT: u16 = 4000;
/// The second LAN of the terminals' machine, and the addresses on it.
const OTHER_LAN: &str = "lan1";
const ROUTER: &str = "10.77.0.1";
const NEIGHBOUR: &str = "10.77.0.2";
/// The hubs' names and ports.
const HUBS: [(&str, u16); 2] = [("hub-1", 5900), ("hub-2", 5901)];

fn check(options: &[&str], program: &str) {
    if !["nft", "ip"].into_iter().all(|program| path(program).is_some()) {
        return skip("nft or ip is missing");
    }
    as_each_user(|runner| runner.inside(options, &format!("two_terminals::{program}")));
}

/// Two hubs on one machine, and a terminal of each on another.
struct Site {
    pairs: [Pair; 2],
    sockets: Sockets,
}

impl Site {
    fn new() -> Self {
        Self { pairs: [Pair::new(), Pair::new()], sockets: Sockets::new() }
    }

    fn hubs(&self) -> [Gateway; 2] {
        [0, 1].map(|number| {
            let (name, port) = HUBS[number];
            let keys = format!("listen = \"[::]:{port}\"\n{}", self.sockets.key(name));
            self.pairs[number].hub_with_keys(&keys, "")
        })
    }

    /// The terminal of a hub, in service for the clients of a LAN. Its control socket is the default one.
    fn terminal(&self, number: usize, lan: &str) -> Gateway {
        self.terminal_with(number, lan, "")
    }

    /// The same, with further keys.
    fn terminal_with(&self, number: usize, lan: &str, keys: &str) -> Gateway {
        let config = self.config(number, lan, keys);
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
        terminal.wait_for("ready");
        terminal
    }

    fn config(&self, number: usize, lan: &str, keys: &str) -> String {
        let sections = format!("{keys}\n[intercept]\ninterfaces = [\"{lan}\"]");
        let config = self.pairs[number].terminal_config(&sections);
        config.replace("hub:5900", &format!("hub:{}", HUBS[number].1))
    }

    /// Addresses of the clients whose connections a hub carries.
    fn clients(&self, number: usize) -> Vec<IpAddr> {
        let status = status(&self.sockets.path(HUBS[number].0));
        let client = |connection: &serde_json::Value| {
            connection["client"].as_str().unwrap().parse::<SocketAddr>().unwrap().ip()
        };
        connections(&status).iter().map(client).collect()
    }
}

/// Puts the client of the lab's second site on a second LAN of the first terminal's machine. The server has no
/// route to this LAN: what the terminals do not carry gets no answer.
fn add_lan() -> Node {
    let neighbour = Node::client(2).unwrap();
    join(OTHER_LAN, [(Node::Terminal, ROUTER), (neighbour, NEIGHBOUR)]);
    // Its other route leads to the server by a terminal that does not run.
    run(neighbour, "ip", &format!("route add {} via {ROUTER}", Node::Server.address4()));
    neighbour
}

#[test]
fn two_terminals_on_one_machine_serve_a_lan_each_and_end_alone() {
    let options: Vec<&str> = lossless().iter().copied().chain(["--terminals", "2"]).collect();
    check(&options, "inside_two_lans");
}

pub(crate) fn inside_two_lans() {
    let (mirror, site, neighbour) = (Mirror::start(PORT), Site::new(), add_lan());
    let hubs = site.hubs();
    let from_neighbour = || find_netns(neighbour).unwrap().run(|| connect_carried_until(&mirror));
    let first = site.terminal(0, LAN_DEVICE);
    let second = site.terminal(1, OTHER_LAN);
    assert!(
        second.has_said("no control socket: ") && second.has_said("belongs to a running gateway")
    );
    let mut clients = [mirror.connect_carried(), from_neighbour()];
    clients.iter_mut().for_each(exchange);
    let [own, others] = [IpAddr::from(Node::Client.address4()), NEIGHBOUR.parse().unwrap()];
    assert_eq!([0, 1].map(|hub| site.clients(hub)), [vec![own], vec![others]]);

    // The first one ends: its clients pass, and those of the other notice nothing.
    first.end_by(Signal::SIGTERM);
    let [client, mut held] = clients;
    assert_reset(&client);
    mirror.assert_passes_by();
    exchange(&mut held);
    exchange(&mut from_neighbour());

    // It comes back, and the other one is killed.
    let first = site.terminal(0, LAN_DEVICE);
    let mut client = connect_carried_until(&mirror);
    second.end_by(Signal::SIGKILL);
    assert_reset(&held);
    exchange(&mut client);
    exchange(&mut mirror.connect_carried());

    // The start after that removes the remains, beside the first one.
    let second = site.terminal(1, OTHER_LAN);
    exchange(&mut from_neighbour());
    [first, second].into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    let left = traces(Node::Terminal);
    for ours in ["skyhop", "lookup 590", "table 590"] {
        assert!(!left.contains(ours), "{ours} in {left}");
    }
    hubs.into_iter().for_each(|hub| hub.end_by(Signal::SIGTERM));
}

/// Process and table of the other gateway that intercepts an interface of this one; empty without.
fn shared(control: &Path) -> String {
    let status = status(control);
    let shared = status["interception"]["shared"].as_array();
    shared.map_or(String::new(), |all| {
        let [shared] = &all[..] else { panic!("{all:?}") };
        format!("{} {}", shared["process"], shared["table"].as_str().unwrap())
    })
}

#[test]
fn of_two_terminals_on_one_lan_one_carries_and_the_other_when_that_has_ended() {
    check(lossless(), "inside_one_lan");
}

pub(crate) fn inside_one_lan() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    let hubs = site.hubs();
    let client = IpAddr::from(Node::Client.address4());
    let names = ["terminal-1", "terminal-2"];
    let mut terminals =
        Vec::from([0, 1].map(|number| {
            site.terminal_with(number, LAN_DEVICE, &site.sockets.key(names[number]))
        }));
    let said = |terminal: &Gateway| terminal.has_said("also intercepts connections from lan0");
    assert!(!said(&terminals[0]) && said(&terminals[1]), "the second one finds the first");
    let [first, second] = names.map(|name| shared(&site.sockets.path(name)));
    assert!(first.ends_with(" skyhop-1") && second.ends_with(" skyhop-0"), "{first}; {second}");
    for (number, other) in [(0, &first), (1, &second)] {
        let file = site.sockets.path("terminal.toml");
        let config = site.config(number, LAN_DEVICE, &site.sockets.key(names[number]));
        write_secret(&file, &config);
        let (_, findings) = examine(&file);
        let all = findings.as_array().unwrap().iter();
        let found: Vec<_> = all.filter(|finding| finding["check"] == "shared").collect();
        let [found] = found[..] else { panic!("{findings:#}") };
        let (process, _) = other.split_once(' ').unwrap();
        let of_other = found["text"].as_str().unwrap().starts_with(&format!("process {process} ("));
        assert!(of_other && found["verdict"] == "warn", "{findings:#}");
    }
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    // The tables of both redirect a SYN: one of them has the last word.
    let carrying = [0, 1].map(|hub| site.clients(hub) == [client]);
    assert!(carrying[0] != carrying[1], "{carrying:?}");
    let (carrier, other) = if carrying[0] { (0, 1) } else { (1, 0) };
    terminals.remove(carrier).end_by(Signal::SIGTERM);
    assert_reset(&held);
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    assert_eq!(site.clients(other), [client]);
    drop(held);
    assert_eq!(shared(&site.sockets.path(names[other])), "");
    terminals.remove(0).end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
    hubs.into_iter().for_each(|hub| hub.end_by(Signal::SIGTERM));
}

#[test]
fn a_terminal_that_is_started_twice_keeps_its_session_and_the_hub_names_the_second() {
    check(lossless(), "inside_started_twice");
}

pub(crate) fn inside_started_twice() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    let mut hubs = site.hubs();
    let first = site.terminal(0, LAN_DEVICE);
    let mut held = mirror.connect_carried();
    let second = site.pairs[0].terminal();
    hubs[0].wait_for("two terminals use the key");
    exchange(&mut held);
    exchange(&mut mirror.connect_carried());
    // Once the first one has ended, the second is a terminal like any other.
    first.end_by(Signal::SIGTERM);
    assert_reset(&held);
    exchange(&mut connect_carried_until(&mirror));
    second.end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
    hubs.into_iter().for_each(|hub| hub.end_by(Signal::SIGTERM));
}
