//! A terminal on machines that lack or forbid something: either it carries connections, or it exits
//! with code 2 and one line that names the refusal and a fix. `skyhop doctor` reports the same,
//! with exit code 1 where the gateway would not start.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::NoSockets;

use super::assert_transfer;
use crate::bare;
use crate::clean_up::path;
use crate::common::{as_each_user, assert_refused, is_present, skip, text};
use crate::gateways::{Keys, both};
use crate::inside::Gateway;

/// Peculiarities of a machine.
struct Machine {
    name: &'static str,
    /// Sysctls of the terminal's network namespace, below `/proc/sys/net`.
    settings: &'static [(&'static str, &'static str)],
    /// Command to run before the gateway starts: `ip` or `nft` with these arguments.
    before: &'static str,
    filter: Option<NoSockets>,
    /// Shell script to run instead of the gateway, which is `"$@"`.
    wrapper: &'static str,
    /// Configuration after the terminal's interfaces; then further sections.
    config: &'static str,
    outcome: Outcome,
    /// Expected output of the doctor.
    doctor: &'static [&'static str],
}

enum Outcome {
    /// Connections are carried; these lines are printed.
    Carries(&'static [&'static str]),
    /// Only one line with these parts is printed.
    Refused(&'static [&'static str]),
}

use Outcome::{Carries, Refused};

const USUAL: Machine = Machine {
    name: "",
    settings: &[],
    before: "",
    filter: None,
    wrapper: "exec \"$@\"",
    config: "",
    outcome: Carries(&[]),
    doctor: &[],
};

/// As in a container with only this capability.
const NET_ADMIN_ALONE: &str = "exec setpriv --bounding-set=-all,+net_admin --inh-caps=-all \"$@\"";
/// Everything except what is handed to the gateway is read-only.
const READ_ONLY: &str = "
    unset SKYHOP_RUN_DIR
    HOME=/nonexistent
    mount -t tmpfs -o ro tmpfs /run && mount -o remount,bind,ro / && exec \"$@\"";
const NET_ADMIN_WITHOUT_TUN: &str = "
    if [ -d /dev/net ]; then mount -t tmpfs tmpfs /dev/net; fi
    exec setpriv --bounding-set=-all,+net_admin --inh-caps=-all \"$@\"";

const MACHINES: [Machine; 12] = [
    Machine {
        name: "IPv6 switched off",
        settings: &[("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")],
        config: "[tunnel]",
        outcome: Carries(&[
            "IPv6 connections are not intercepted: the IPv6 route: EACCES: ",
            "carries only IPv4: the IPv6 route: EACCES: ",
        ]),
        doctor: &[
            "IPv6 connections are not intercepted: the IPv6 route: EACCES: ",
            "disable_ipv6=0",
        ],
        ..USUAL
    },
    Machine {
        name: "no nftables",
        filter: Some(NoSockets::NFTABLES),
        outcome: Refused(&["the nftables table: EPROTONOSUPPORT: ", "modprobe nf_tables"]),
        doctor: &["the nftables table: EPROTONOSUPPORT: ", "modprobe nf_tables"],
        ..USUAL
    },
    Machine {
        name: "strict reverse path",
        settings: &[
            ("ipv4/conf/all/rp_filter", "1"),
            ("ipv4/conf/lan0/rp_filter", "1"),
            ("ipv4/conf/sat0/rp_filter", "1"),
        ],
        doctor: &["strict on"],
        ..USUAL
    },
    Machine {
        name: "nothing is forwarded",
        settings: &[("ipv4/ip_forward", "0")],
        doctor: &["packets are not forwarded", "sysctl -w net.ipv4.ip_forward=1"],
        ..USUAL
    },
    Machine {
        name: "loopback down",
        before: "ip link set lo down",
        outcome: Carries(&["IPv6 connections are not intercepted: the IPv6 route: ENETDOWN: "]),
        doctor: &["the IPv6 route: ENETDOWN: ", "ip link set lo up"],
        ..USUAL
    },
    Machine {
        name: "loopback down, and answers are deferred",
        before: "ip link set lo down",
        config: "answer = \"deferred\"",
        outcome: Refused(&["the loopback device: ENETDOWN: ", "ip link set lo up"]),
        doctor: &["the loopback device: ENETDOWN", "ip link set lo up"],
        ..USUAL
    },
    Machine {
        name: "nothing can be written",
        wrapper: READ_ONLY,
        config: "control",
        outcome: Carries(&["no control socket: no private directory ("]),
        doctor: &["no control socket: no private directory (", "set SKYHOP_RUN_DIR"],
        ..USUAL
    },
    Machine { name: "CAP_NET_ADMIN alone", wrapper: NET_ADMIN_ALONE, ..USUAL },
    Machine {
        name: "CAP_NET_ADMIN alone, and answers are deferred",
        wrapper: NET_ADMIN_ALONE,
        config: "answer = \"deferred\"",
        outcome: Refused(&["the raw packet sockets: EPERM: ", "CAP_NET_RAW in addition"]),
        doctor: &["the raw packet sockets: EPERM", "CAP_NET_RAW in addition"],
        ..USUAL
    },
    Machine {
        name: "CAP_NET_ADMIN alone, and no TUN device",
        wrapper: NET_ADMIN_WITHOUT_TUN,
        config: "[tunnel]",
        outcome: Refused(&["virtual devices (veth): EPERM: ", "CAP_SYS_ADMIN", "modprobe tun"]),
        doctor: &["virtual devices (veth): EPERM", "CAP_NET_RAW in addition", "modprobe tun"],
        ..USUAL
    },
    Machine {
        name: "no TUN device",
        wrapper: "if [ -d /dev/net ]; then mount -t tmpfs tmpfs /dev/net; fi; exec \"$@\"",
        config: "[tunnel]",
        outcome: Carries(&["veth, MTU"]),
        doctor: &["/dev/net/tun cannot be opened", "modprobe tun"],
        ..USUAL
    },
    Machine {
        name: "a TUN device is asked for and not there",
        wrapper: "if [ -d /dev/net ]; then mount -t tmpfs tmpfs /dev/net; fi; exec \"$@\"",
        config: "[tunnel]\ndevice = \"tun\"",
        outcome: Refused(&["/dev/net/tun: ENOENT: ", "modprobe tun"]),
        doctor: &["/dev/net/tun: ENOENT", "modprobe tun"],
        ..USUAL
    },
];

impl Machine {
    /// `skyhop` on such a machine's terminal.
    fn skyhop(&self, arguments: &[&str]) -> Command {
        let mut command = find_netns(Node::Terminal).unwrap().command("unshare");
        command.args(["--mount", "sh", "-c", self.wrapper, "sh"]);
        command.arg(std::env::var_os("SKYHOP").unwrap()).args(arguments);
        command.env_remove("SKYHOP_LOG").env_remove("XDG_RUNTIME_DIR");
        if let Some(filter) = self.filter {
            filter.apply_to(&mut command);
        }
        command
    }

    fn prepare(&self) {
        let netns = find_netns(Node::Terminal).unwrap();
        for (name, value) in self.settings {
            netns.run(|| fs::write(format!("/proc/sys/net/{name}"), value)).unwrap();
        }
        let mut words = self.before.split_whitespace();
        if let Some(program) = words.next() {
            let status = netns.command(path(program).unwrap()).args(words).status().unwrap();
            assert!(status.success(), "{}", self.before);
        }
    }

    fn config(&self, keys: &Keys) -> String {
        let (control, config) = match self.config {
            "control" => ("", ""),
            config => ("control = \"none\"", config),
        };
        keys.terminal_config(1, control, config)
    }

    fn check(&self) {
        self.prepare();
        let keys = Keys::new(1);
        let _hub = keys.hub("", if self.config.contains("[tunnel]") { "[tunnel]" } else { "" });
        match self.outcome {
            Carries(told) => self.assert_carries(&keys, told),
            Refused(parts) => assert_refused(&self.run("terminal", &keys), parts),
        }
        let doctor = self.run("doctor", &keys);
        for part in self.doctor {
            assert!(text(&doctor.stdout).contains(part), "{part} not in {doctor:?}");
        }
        let unwell = matches!(self.outcome, Refused(_));
        assert_eq!(doctor.status.code(), Some(unwell.into()), "{}", text(&doctor.stdout));
    }

    fn assert_carries(&self, keys: &Keys, told: &[&str]) {
        let mut terminal =
            Gateway::run(self.skyhop(&["terminal", "/dev/stdin"]), &self.config(keys));
        terminal.wait_for("ready");
        told.iter().for_each(|part| terminal.wait_for(part));
        assert_transfer(4000);
        terminal.end_by(Signal::SIGTERM);
    }

    /// Output of a command that takes the configuration and exits by itself.
    fn run(&self, command: &str, keys: &Keys) -> Output {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), self.config(keys)).unwrap();
        let mut command = self.skyhop(&[command, "/dev/stdin"]);
        command.stdin(fs::File::open(file.path()).unwrap()).stdout(Stdio::piped());
        command.output().unwrap()
    }
}

#[test]
fn a_machine_that_lacks_something_carries_connections_or_says_what_to_mend() {
    if path("ip").is_none() || !is_present("setpriv") || !is_present("unshare") {
        return skip("ip, setpriv or unshare is missing");
    }
    as_each_user(|runner| {
        for (index, machine) in MACHINES.iter().enumerate() {
            println!("{:?}: {}", runner.user, machine.name);
            let program = "machines::missing::inside_such_a_machine";
            runner.inside_with(bare(), program, &format!("MACHINE={index}"));
        }
    });
}

pub(crate) fn inside_such_a_machine() {
    let index: usize = std::env::var("MACHINE").unwrap().parse().unwrap();
    MACHINES[index].check();
}

/// Connections fail, the log names the missing rule, and with that rule they work.
#[test]
fn behind_a_firewall_that_drops_the_missing_rule_is_named() {
    if path("nft").is_none() {
        return skip("nft is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "machines::missing::inside_behind_a_firewall"));
}

const FIREWALL: &str = "table inet operators { chain incoming {
    type filter hook input priority filter; policy drop;
    iif lo accept
    ct state established,related accept
    meta l4proto { icmp, ipv6-icmp } accept
  }
  chain passing { type filter hook forward priority filter; policy drop; }
}";

/// Longer than a round trip to the terminal, which answers at once.
const DROPPED: Duration = Duration::from_millis(500);

pub(crate) fn inside_behind_a_firewall() {
    const TOLD: &str = "a firewall drops by default (nftables: inet operators incoming)";
    let nft = |rules: &str| {
        let mut command = find_netns(Node::Terminal).unwrap().command(path("nft").unwrap());
        let status = command.args(["--", rules]).status().unwrap();
        assert!(status.success(), "{rules}");
    };
    nft(FIREWALL);
    let keys = Keys::new(1);
    let _hub = keys.hub("", "");
    let terminal = || Gateway::start(Node::Terminal, "terminal", &keys.terminal_config(1, "", ""));
    let mut terminal = terminal();
    terminal.wait_for("ready");
    let told = terminal.line_with(TOLD);
    let doctor = USUAL.skyhop(&["doctor"]).output().unwrap();
    assert!(text(&doctor.stdout).contains(TOLD), "{doctor:?}");
    let rule = told.split('`').nth(1).unwrap_or_else(|| panic!("no rule in {told}"));
    assert!(doctor.stdout.windows(rule.len()).any(|part| part == rule.as_bytes()), "{rule}");
    let to = both(Node::Server, 4000)[0];
    assert!(TcpStream::connect_timeout(&to, DROPPED).is_err(), "the firewall drops nothing");
    nft(rule.strip_prefix("nft ").unwrap());
    assert_transfer(4000);
    terminal.end_by(Signal::SIGTERM);
}
