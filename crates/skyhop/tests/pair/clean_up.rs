//! Gateways leave nothing behind, however they end.

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::bare;
use crate::common::{as_each_user, is_present, skip};
use crate::gateways::Keys;
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, assert_reset, exchange};

const PORT: u16 = 4000;
/// Commands that show everything a gateway could leave behind.
const LISTS: [(&str, &[&str]); 6] = [
    ("nft", &["list", "ruleset"]),
    ("ip", &["rule"]),
    ("ip", &["-6", "rule"]),
    ("ip", &["route", "show", "table", "all"]),
    ("ip", &["-6", "route", "show", "table", "all"]),
    ("ip", &["-o", "address"]),
];

/// Three round trips to the server, to allow for a lost packet.
const NO_ANSWER: Duration = Duration::from_millis(500);

fn check(test: &str) {
    if !["nft", "ip"].into_iter().all(|program| path(program).is_some()) {
        return skip("nft or ip is missing");
    }
    as_each_user(|runner| runner.inside(bare(), &format!("clean_up::{test}")));
}

/// The PATH of ordinary users lacks sbin.
pub(crate) fn path(program: &str) -> Option<String> {
    let places = [program.to_owned(), format!("/usr/sbin/{program}"), format!("/sbin/{program}")];
    places.into_iter().find(|place| is_present(place))
}

/// The network configuration of a host, ours and everything else.
pub(crate) fn traces(node: Node) -> String {
    let netns = find_netns(node).unwrap();
    let mut traces = String::new();
    for (program, arguments) in LISTS {
        let output = netns.command(path(program).unwrap()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let _ = writeln!(traces, "{program} {}", arguments.join(" "));
        // The kernel adds link-local addresses, and notices that a link is up, asynchronously.
        let listed = String::from_utf8(output.stdout).unwrap().replace(" linkdown", "");
        for line in listed.lines().filter(|line| !line.contains("fe80:")) {
            let _ = writeln!(traces, "{line}");
        }
    }
    // Includes sockets that wait for the hop or carry it.
    traces + &netns.run(|| ["udp", "udp6"].map(udp_sockets).concat())
}

/// Local addresses of the UDP sockets in the calling thread's namespace.
fn udp_sockets(family: &str) -> String {
    let table = fs::read_to_string(format!("/proc/thread-self/net/{family}")).unwrap();
    let sockets = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    sockets.map(|socket| format!("{family} {socket}\n")).collect()
}

/// Adds rules and routes of the operator, which must stay untouched.
fn set_operators_own(node: Node) {
    let netns = find_netns(node).unwrap();
    let run = |program: &str, arguments: &str| {
        let mut command = netns.command(path(program).unwrap());
        let output = command.args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
    };
    for family in ["ip", "ip6", "inet"] {
        run("nft", &format!("add table {family} firewall"));
        let hook = "{ type filter hook prerouting priority mangle ; policy accept ; }";
        run("nft", &format!("add chain {family} firewall first {hook}"));
        run("nft", &format!("add rule {family} firewall first tcp dport 9 drop"));
    }
    for family in ["-4", "-6"] {
        run("ip", &format!("{family} rule add fwmark 0x7 lookup 77"));
        run("ip", &format!("{family} route add local default dev lo table 77"));
    }
}

#[test]
fn signals_that_end_a_gateway_leave_nothing() {
    check("inside_signals_leave_nothing");
}

pub(crate) fn inside_signals_leave_nothing() {
    [Node::Terminal, Node::Hub].into_iter().for_each(set_operators_own);
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let hosts = [Node::Terminal, Node::Hub];
        let before = hosts.map(traces);
        let (hub, terminal) = pair.both();
        let mut client = mirror.connect_carried();
        exchange(&mut client);
        let [on_terminal, on_hub] = hosts.map(traces);
        for ours in ["table inet skyhop-0", "lookup 5900", "table 5900"] {
            assert!(on_terminal.contains(ours), "{ours} not in {on_terminal}");
        }
        assert_ne!(on_hub, before[1]);

        terminal.end_by(signal);
        assert_eq!(traces(Node::Terminal), before[0]);
        assert_reset(&client);
        mirror.assert_passes_by();
        hub.end_by(signal);
        assert_eq!(traces(Node::Hub), before[1]);
    }
}

#[test]
fn a_killed_terminal_blocks_no_connection() {
    check("inside_a_terminal_is_killed");
}

pub(crate) fn inside_a_terminal_is_killed() {
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    let before = traces(Node::Terminal);
    let (hub, terminal) = pair.both();
    let mut client = mirror.connect_carried();
    exchange(&mut client);
    terminal.end_by(Signal::SIGKILL);
    assert_reset(&client);

    // The kernel removes the table, without which rules and routes do nothing.
    let after = traces(Node::Terminal);
    assert!(!after.contains("skyhop"), "{after}");
    assert!(after.contains("lookup 5900"), "nothing to be cleaned: {after}");
    mirror.assert_passes_by();

    let mut terminal = pair.terminal();
    terminal.wait_for("ready");
    mirror.connect_carried();
    terminal.end_by(Signal::SIGTERM);
    assert_eq!(traces(Node::Terminal), before);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn killed_gateways_block_no_connection() {
    check("inside_each_is_killed");
}

/// The remains of a killed gateway are harmless, and the next start removes them.
pub(crate) fn inside_each_is_killed() {
    [Node::Terminal, Node::Hub].into_iter().for_each(set_operators_own);
    let (mirror, keys) = (Mirror::start(PORT), Keys::new(1));
    let before = [Node::Terminal, Node::Hub].map(traces);
    for answer in ["early", "deferred"] {
        let all = format!("own_traffic = true\nanswer = \"{answer}\"\n[tunnel]");
        for killed in [Node::Hub, Node::Terminal] {
            let (hub, terminal) = (keys.intercepting_hub("", &all), keys.terminal(1, "", &all));
            assert_carried(&mirror, true);
            let [killed, other] = match killed {
                Node::Hub => [(Node::Hub, hub), (Node::Terminal, terminal)],
                _ => [(Node::Terminal, terminal), (Node::Hub, hub)],
            };
            assert_killed_does_no_harm(&mirror, killed.0, killed.1);
            other.1.end_by(Signal::SIGTERM);
        }
        let solo = |stack: &str| {
            let config = format!(
                "[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\nown_traffic = true\n\
                 answer = \"{answer}\"\n{stack}"
            );
            let mut solo = Gateway::start(Node::Terminal, "solo", &config);
            solo.wait_for("ready");
            solo
        };
        for stack in ["", "[wan]\nstack = \"skyhop\"\n"] {
            let gateway = solo(stack);
            assert_carried(&mirror, true);
            assert_killed_does_no_harm(&mirror, Node::Terminal, gateway);
            solo(stack).end_by(Signal::SIGTERM);
        }
        // The next start of the pair, on either side, removes the pair's remains.
        let (hub, terminal) = (keys.intercepting_hub("", &all), keys.terminal(1, "", &all));
        assert_carried(&mirror, true);
        terminal.end_by(Signal::SIGTERM);
        hub.end_by(Signal::SIGTERM);
        // The kernel removes a virtual device after a moment.
        let began = Instant::now();
        while [Node::Terminal, Node::Hub].map(traces) != before && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!([Node::Terminal, Node::Hub].map(traces), before, "{answer}");
    }
}

fn assert_killed_does_no_harm(mirror: &Mirror, node: Node, gateway: Gateway) {
    gateway.end_by(Signal::SIGKILL);
    let after = traces(node);
    assert!(!after.contains("table inet skyhop"), "{after}");
    assert_carried(mirror, false);
}

/// Connects from the client and the terminal until connections are, or are not, carried. It can
/// take two seconds to notice that the hub is silent.
fn assert_carried(mirror: &Mirror, carried: bool) {
    let began = Instant::now();
    while mirror.try_connect(NO_ANSWER).is_none_or(|(_, is)| is != carried) {
        assert!(began.elapsed() < PATIENCE, "carried is not {carried}");
    }
    let own = || mirror.try_connect(PATIENCE);
    assert!(find_netns(Node::Terminal).unwrap().run(own).is_some(), "the terminal's own");
}
