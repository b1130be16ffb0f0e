//! `--print-rules` shows what a running gateway installs.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::bare;
use crate::clean_up::{path, traces};
use crate::common::{as_each_user, skip, text};
use crate::gateways::Keys;
use crate::inside::{Gateway, PATIENCE};

/// Every kind of rule.
const POLICIES: &str = "[[policy]]\nports = [22, \"udp/443\"]\nto = [\"198.51.100.0/24\"]\n\
                        from = [\"10.1.0.0/16\"]\ndscp = [\"EF\", 10]\naction = \"bypass\"\n\
                        [[policy]]\nports = [\"tcp/5000-5010\"]\naction = \"split\"\n";
const INTERCEPT: &str = "own_traffic = true\nbypass = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n";

#[test]
fn the_rules_shown_are_those_that_are_set() {
    if !["nft", "ip"].into_iter().all(|program| path(program).is_some()) {
        return skip("nft or ip is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "shown::inside_rules"));
}

pub(crate) fn inside_rules() {
    let keys = Keys::new(1);
    let tunnelled = "[[policy]]\nports = [25]\naction = \"tunnel\"\n[tunnel]\ndevice = \"veth\"\n";
    let names = "[dns]\nanswer = \"instant\"\nbypass = [\"192.0.2.53/32\", \"2001:db8::/32\"]\n\
                 listen = [\"127.0.0.53:53\"]\n";
    for (answer, names) in [("early", ""), ("deferred", names)] {
        let section = format!("{INTERCEPT}answer = \"{answer}\"\n{POLICIES}");
        let whole = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n{section}{tunnelled}");
        let of_hub = keys.hub_config("transparent = true", &format!("{whole}[dns]\n"));
        let of_terminal = keys.terminal_config(1, "", &format!("{section}{tunnelled}{names}"));
        let mut hub = Gateway::start(Node::Hub, "hub", &of_hub);
        hub.wait_for("ready");
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &of_terminal);
        terminal.wait_for("ready");
        assert_shown(Node::Hub, "hub", &of_hub);
        assert_shown(Node::Terminal, "terminal", &of_terminal);
        terminal.end_by(Signal::SIGTERM);
        hub.end_by(Signal::SIGTERM);

        let alone = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n{section}");
        let stack = format!("[wan]\nstack = \"skyhop\"\ninterfaces = [\"{HOP_DEVICE}\"]\n");
        for alone in [alone.clone(), format!("{alone}{stack}")] {
            let mut solo = Gateway::start(Node::Terminal, "solo", &alone);
            solo.wait_for("ready");
            assert_shown(Node::Terminal, "solo", &alone);
            solo.end_by(Signal::SIGTERM);
        }
    }
}

/// The printed rules, loaded elsewhere, list the same as the installed ones; and every printed rule
/// and route exists. Chains fill once the peer is found.
fn assert_shown(node: Node, role: &str, config: &str) {
    let skyhop = std::env::var_os("SKYHOP").unwrap();
    let mut command = find_netns(node).unwrap().command(skyhop);
    let shown = with_input(command.args([role, "--print-rules", "/dev/stdin"]), config);
    nft(Node::Server, &["-f", "-"], &shown);
    let expected = tables(Node::Server);
    nft(Node::Server, &["flush", "ruleset"], "");
    assert!(expected.len() > 20, "{shown}");
    let began = Instant::now();
    while tables(node) != expected {
        let late = began.elapsed() > PATIENCE;
        assert!(!late, "{role}: shown {expected:#?}, set {:#?}", tables(node));
        thread::sleep(Duration::from_millis(50));
    }
    let there = traces(node);
    let named = shown.lines().filter_map(|line| line.strip_prefix("# ip "));
    let named: Vec<&str> = named.filter_map(|it| it.split_once(" add ")).map(|it| it.1).collect();
    assert!(named.len() >= 4, "{shown}");
    for line in named {
        let line = line.split_once(" fwmark").map_or(line, |(_, rest)| rest.trim());
        assert!(there.contains(line), "{line} is not in {there}");
    }
}

/// The tables of a host, without owners, comments and listener ports, which differ between processes.
fn tables(node: Node) -> Vec<String> {
    let listed = nft(node, &["-s", "list", "ruleset"], "");
    let lines = listed.lines().map(|line| line.split(" # progname").next().unwrap_or_default());
    let is_own = |line: &str| line == "flags owner" || line.starts_with("comment ");
    let lines = lines.filter(|line| !line.trim().is_empty() && !is_own(line.trim()));
    let port = |word: &str| match word.rsplit_once(':') {
        Some((host @ ("127.0.0.1" | "[::1]"), _)) => host.to_owned(),
        _ => word.to_owned(),
    };
    lines.map(|line| line.split(' ').map(port).collect::<Vec<_>>().join(" ")).collect()
}

fn nft(node: Node, arguments: &[&str], input: &str) -> String {
    let mut nft = find_netns(node).unwrap().command(path("nft").unwrap());
    with_input(nft.args(arguments), input)
}

fn with_input(command: &mut Command, input: &str) -> String {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = piped.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
