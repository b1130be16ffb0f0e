//! `skyhop lab` with the real binary and real kernels, as root (if the tests run as root) and as an
//! ordinary user.
//!
//! Functions named `inside_…` are [programs](common::program) that tests run in a lab.

mod common;

use core::time::Duration;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;

use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use self::common::program::{self, Program, programs, run};
use self::common::{
    OWN, Runner, Running, as_each_user, as_myself, assert_echo, assert_refused, assert_takes,
    connect_time, is_present, skip, text,
};

#[test]
fn the_exit_code_is_the_commands() {
    as_each_user(|runner| {
        for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("exec /no/such/program", 127)] {
            assert_eq!(runner.shell(&[], script).status().unwrap().code(), Some(code), "{script}");
        }
        let missing = runner.lab(&["run", "geo", "--", "/no/such/program"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    });
}

#[test]
fn a_connection_takes_one_round_trip() {
    as_each_user(|runner| runner.inside(&[], "inside_connections_take_600_ms"));
}

fn inside_connections_take_600_ms() {
    for address in [IpAddr::from(Node::Server.address4()), Node::Server.address6().into()] {
        assert_takes(Duration::from_millis(600), OWN, || connect_time((address, 7)));
    }
}

#[test]
fn the_echo_service_honours_a_half_close() {
    let fast = ["--delay", "5ms", "--rate", "1Gbit/s", "--return-rate", "1Gbit/s"];
    as_each_user(|runner| runner.inside(&fast, "inside_a_half_close_is_answered_with_the_rest"));
}

fn inside_a_half_close_is_answered_with_the_rest() {
    // By name: the lab's hosts are in /etc/hosts.
    assert_echo("server:7", 200_000, 0);
}

#[test]
fn test_objects_arrive_whole_in_both_directions() {
    if !is_present("curl") || !is_present("sha256sum") {
        return skip("curl or sha256sum is missing");
    }
    let fast = ["--delay", "5ms", "--rate", "500Mbit/s", "--return-rate", "500Mbit/s"];
    let script = "set -e; cd $(mktemp -d); trap 'rm -r $PWD' EXIT
        for family in -4 -6; do
          curl -sS $family -o object http://server/3MB
          sha256sum < object; curl -sS $family http://server/3MB.sha256
          curl -sS $family -T object http://server/upload
          curl -sS $family -I http://server/3MB | tr -d '\\r' | grep -i content-length
        done";
    as_each_user(|runner| {
        let output = runner.shell(&fast, script).output().unwrap();
        let lines = text(&output.stdout);
        let words: Vec<&str> = lines.split_whitespace().filter(|word| *word != "-").collect();
        let digest = *words.first().unwrap_or_else(|| panic!("{output:?}"));
        let length = ["3000000", digest, "content-length:", "3000000"];
        let family: Vec<&str> = [digest, digest].into_iter().chain(length).collect();
        assert_eq!(words, [&family[..], &family[..]].concat(), "{output:?}");
    });
}

#[test]
fn packets_are_lost_as_asked() {
    let lossy = ["--per", "10%", "--delay", "5ms", "--rate", "1Gbit/s", "--queue", "10MB"];
    as_each_user(|runner| runner.inside(&lossy, "inside_a_tenth_is_lost"));
}

fn inside_a_tenth_is_lost() {
    const SENT: u64 = 4000;
    const GROUP: u64 = 200;
    let (sender, receiver) = udp_pair(Node::Server, Node::Client);
    let before = packets_sent(Node::Hub, "sat0");
    let mut arrived = 0;
    // In groups, because the receiver's buffer is not under test.
    for _ in 0..SENT / GROUP {
        for _ in 0..GROUP {
            sender.send(&[0; 100]).unwrap();
        }
        arrived += drain(&receiver, Duration::from_millis(50));
    }
    arrived += drain(&receiver, Duration::from_secs(1));
    // The hop carries these packets and none of the kernel's own.
    assert_eq!(packets_sent(Node::Hub, "sat0") - before, SENT);
    // 3.9 standard deviations of 19 cover 99.99 % of such runs.
    let lost = SENT - arrived;
    assert!((326..=474).contains(&lost), "{lost} of {SENT} lost");
}

/// Receives until nothing arrives for `patience`; returns the number of datagrams.
fn drain(receiver: &UdpSocket, patience: Duration) -> u64 {
    receiver.set_read_timeout(Some(patience)).unwrap();
    core::iter::from_fn(|| receiver.recv(&mut [0; 100]).ok()).count() as u64
}

/// A connected sender on one host, and a receiver on another.
fn udp_pair(from: Node, to: Node) -> (UdpSocket, UdpSocket) {
    let bind = |node: Node| {
        let netns = find_netns(node).unwrap();
        netns.run(|| UdpSocket::bind((node.address4(), 0)).unwrap())
    };
    let (sender, receiver) = (bind(from), bind(to));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}

/// A device's counter of sent packets, from /proc/net/dev.
fn packets_sent(node: Node, device: &str) -> u64 {
    let netns = find_netns(node).unwrap();
    let table = netns.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = table.lines().find_map(|line| line.trim().strip_prefix(device)).unwrap();
    let columns = line.trim_start_matches(':').split_whitespace();
    columns.map(|column| column.parse().unwrap()).nth(9).unwrap()
}

#[test]
fn segmentation_offload_does_not_reach_the_hop() {
    let fast = ["--delay", "5ms", "--rate", "1Gbit/s"];
    as_each_user(|runner| runner.inside(&fast, "inside_one_large_send_becomes_packets"));
}

fn inside_one_large_send_becomes_packets() {
    let (sender, receiver) = udp_pair(Node::Terminal, Node::Hub);
    let before = packets_sent(Node::Terminal, "sat0");
    setsockopt(&sender, sockopt::UdpGsoSegment, &1200).unwrap();
    sender.send(&[7; 12_000]).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in 0..10 {
        assert_eq!(receiver.recv(&mut [0; 65_536]).unwrap(), 1200);
    }
    assert_eq!(packets_sent(Node::Terminal, "sat0") - before, 10);
}

#[test]
fn commands_run_on_the_host_that_is_asked_for() {
    as_each_user(|runner| {
        let inside = program::command("inside_this_is_server");
        let on = runner.shell(&["--on", "server"], &inside).output().unwrap();
        assert!(on.status.success(), "{on:?}");
        let exec = format!("\"$SKYHOP\" lab exec server -- {inside}; exit $((9 + $?))");
        let exec = runner.shell(&["--on", "client"], &exec).output().unwrap();
        assert_eq!(exec.status.code(), Some(9), "{exec:?}");
    });
}

fn inside_this_is_server() {
    assert_eq!(std::env::var(lab::LAB_VARIABLE).as_deref(), Ok("geo"));
    TcpListener::bind((Node::Server.address4(), 0)).unwrap();
    assert!(TcpListener::bind((Node::Client.address4(), 0)).is_err());
    // Nothing outside the lab is reachable.
    assert!(TcpStream::connect((Ipv4Addr::new(192, 0, 2, 1), 80)).is_err());
    assert!(TcpStream::connect((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 80)).is_err());
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let lab = |arguments: &[&str]| Runner::myself().lab(arguments).output().unwrap();
    let geo = |options: &[&str]| lab(&[&["run", "geo"], options, &["--", "true"]].concat());
    assert_refused(&lab(&["run", "mars", "--", "true"]), &["mars", "geo"]);
    assert_refused(&lab(&["run", "./no.toml", "--", "true"]), &["./no.toml", "No such file"]);
    assert_refused(&geo(&["--rate", "0 Mbit/s"]), &["--rate", "above 0"]);
    assert_refused(&geo(&["--rate", "5 Mbps"]), &["--rate", "Mbps", "Mbit/s"]);
    assert_refused(&geo(&["--mtu", "1200"]), &["--mtu", "1280"]);
    assert_refused(&geo(&["--delay", "2h"]), &["--delay", "60 s"]);
    assert_refused(&geo(&["--per", "1%", "--ber", "1e-6"]), &["--per", "--ber"]);
    assert_refused(&geo(&["--queue", "lots"]), &["--queue", "BDP"]);
    assert_refused(&geo(&["--burst", "bad"]), &["--burst", "medium, high or huge"]);
    assert_refused(&geo(&["--burst", "low", "--per", "1%"]), &["--per, --burst", "only one"]);
    assert_refused(&geo(&["--gilbert-elliott", "1%"]), &["--gilbert-elliott", "bad-to-good=P"]);
    assert_refused(&geo(&["--jitter", "2 min"]), &["--jitter", "60 s"]);
    assert_refused(&geo(&["--encapsulation", "atm"]), &["--encapsulation", "aal5 [llc]"]);
    assert_refused(&geo(&["--discipline", "fq"]), &["--discipline", "codel"]);
    assert_refused(&geo(&["--ecn"]), &["--ecn", "red or codel"]);
    assert_refused(&geo(&["--outage", "often"]), &["--outage", "AFTER+DURATION"]);
    assert_refused(&geo(&["--delay-trace", "no.trace"]), &["--delay-trace", "no.trace"]);
    assert_refused(&geo(&["--rate-trace", "/dev/null"]), &["--rate-trace", "the trace is empty"]);
    let both = ["--return-rate", "1Mbit/s", "--return-rate-trace", "x"];
    assert_refused(&geo(&both), &["--return-rate, --return-rate-trace", "only one"]);
    assert_refused(&geo(&["--on", "moon"]), &["moon", "terminal"]);
    assert_refused(&lab(&["exec", "server", "--", "true"]), &["not inside a lab"]);
    assert_refused(&lab(&["run", "geo"]), &["CMD"]);
}

#[test]
fn the_presets_are_listed() {
    let output = Runner::myself().lab(&["presets"]).output().unwrap();
    let list = text(&output.stdout);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    let expected = "geo geo-ka geo-fade geo-rain geo-burst vsat-dama-cra vsat-dama-rbdc vsat-dama-vbdc \
                    vsat-dama-cra-vbdc vsat-dama-voice star-one star-one-assigned t1 itu-45m atm-155m meo leo";
    assert_eq!(names.join(" "), expected, "{list}");
}

/// A preset with options, as a file.
fn show(preset: &str, options: &[&str]) -> String {
    let output = Runner::myself().lab(&[&["show", preset], options].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// The output is a valid preset, which prints the same again.
#[test]
fn a_shown_preset_is_one() {
    let mine = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let options =
        ["--burst", "low", "--outage", "9s+1s", "--discipline", "red", "--ecn", "--mtu", "1400"];
    let shown = show("geo", &options);
    fs::write(mine.path(), &shown).unwrap();
    assert_eq!(show(mine.path().to_str().unwrap(), &[]), shown);
    for line in ["mtu = 1400", "burst = \"low\"", "outages = [\"9s+1s\"]", "ecn = true"] {
        assert!(shown.contains(line), "{line} not in {shown}");
    }
}

#[test]
fn options_remove_what_a_preset_drops() {
    let mine = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let policer = "30 Mbit/s burst 9 kB";
    let shown = show("leo", &["--policer", policer, "--return-policer", policer]);
    assert_eq!([shown.matches("policer = ").count(), shown.matches("15s+30ms").count()], [2, 2]);
    fs::write(mine.path(), &shown).unwrap();
    let mine = mine.path().to_str().unwrap();
    let shown = show(mine, &["--policer", "none", "--outage", "none"]);
    assert_eq!([shown.matches("policer = ").count(), shown.matches("15s+30ms").count()], [1, 0]);
    let shown = show(mine, &["--return-policer", "none", "--outage", "9s+1s"]);
    assert_eq!([shown.matches("policer = ").count(), shown.matches("9s+1s").count()], [1, 2]);
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut command = Runner::myself().lab(&["presets"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn statistics_go_to_stderr_only() {
    as_myself(|runner| {
        for line in statistics(runner, "--stats") {
            assert!(line.contains("forward 0.00 Mbit/s, queue 0"), "{line}");
        }
        for line in statistics(runner, "--stats=json") {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            let forward = (&line["links"][0]["link"], &line["links"][0]["bit_s"]);
            assert_eq!(forward, (&"forward".into(), &0.0.into()));
        }
    });
}

/// What a lab with this option says on standard error, two lines or more. Its command prints `done`.
fn statistics(runner: &Runner, option: &str) -> Vec<String> {
    let mut command = runner.shell(&[option], "cat; echo done");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = command.spawn().unwrap();
    let mut errors = BufReader::new(lab.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut lines: Vec<_> = errors.by_ref().take(2).collect();
    drop(lab.stdin.take());
    lines.extend(errors);
    let output = lab.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done".to_owned()));
    assert!(lines.len() >= 2, "{lines:?}");
    lines
}

#[test]
fn both_sides_of_the_link_are_captured() {
    as_myself(|runner| {
        let directory = tempfile::tempdir().unwrap();
        let options = ["--delay", "5ms", "--pcap", directory.path().to_str().unwrap()];
        runner.inside(&options, "inside_one_large_send_becomes_packets");
        for (side, direction) in [("terminal", 2), ("hub", 1)] {
            let file = fs::read(directory.path().join(format!("{side}.pcapng"))).unwrap();
            // An enhanced packet block contains a packet of 1228 bytes and its direction.
            let block = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
            let (mut at, mut packets) = (0, 0);
            while at < file.len() {
                let length = block(at + 4) as usize;
                if block(at) == 6 && block(at + 20) == 1228 {
                    assert_eq!(block(at + 28 + 1228 + 4), direction, "{side}");
                    packets += 1;
                }
                at += length;
            }
            assert_eq!(packets, 10, "{side}");
        }
    });
}

#[test]
fn a_checked_link_is_as_asked() {
    as_myself(|runner| {
        let lossy = ["check", "geo", "--delay", "20ms", "--per", "2%", "--json"];
        let output = runner.lab(&lossy).output().unwrap();
        // A busy machine may miss the tail of the delay: exit code 1.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for direction in report["directions"].as_array().unwrap() {
            assert_eq!(direction["order"]["within"], true, "{direction:#}");
            assert!(direction["loss"]["lost"].as_u64().unwrap() > 0, "{direction:#}");
            let queue = ["asked_packets", "measured_packets"].map(|key| &direction["queue"][key]);
            // Exact on an idle machine; a busy one may be too slow to fill the queue.
            if let [Some(asked), Some(measured)] = queue.map(serde_json::Value::as_u64) {
                assert!(asked.abs_diff(measured) <= 3, "{direction:#}");
            }
            let delay = &direction["delay"];
            let error = delay["median_ms"].as_f64().unwrap() - delay["asked_ms"].as_f64().unwrap();
            assert!((0.0..0.5).contains(&error), "{direction:#}");
        }
        for reach in report["reach"].as_array().unwrap() {
            assert_eq!(reach["within"], true, "{reach:#}");
        }
    });
}

/// Survives SIGTERM and SIGHUP, and its parent's end.
const STUBBORN: &str = "trap '' HUP; (trap '' TERM HUP; sleep 1000 & wait) & echo ready; wait";

#[test]
fn the_end_of_the_command_ends_all_it_left_behind() {
    as_each_user(|runner| {
        let mut running =
            Running::start(runner, &[], "(sleep 1000 &); echo ready; read line; exit 3");
        drop(running.supervisor.stdin.take());
        assert_eq!(running.end(), Some(3));
    });
}

#[test]
fn killing_the_supervisor_leaves_nothing() {
    as_each_user(|runner| {
        let running = Running::start(runner, &[], STUBBORN);
        running.signal(Signal::SIGKILL);
        assert_eq!(running.end(), None);
    });
}

#[test]
fn sigterm_and_sighup_end_all_even_the_stubborn() {
    as_each_user(|runner| {
        for signal in [Signal::SIGTERM, Signal::SIGHUP] {
            let running = Running::start(runner, &[], STUBBORN);
            running.signal(signal);
            assert_eq!(running.end(), Some(128 + signal as i32));
        }
    });
}

#[test]
fn the_command_may_heed_a_signal_and_finish() {
    as_each_user(|runner| {
        for (signal, name) in [(Signal::SIGINT, "INT"), (Signal::SIGTERM, "TERM")] {
            let script = format!("trap 'exit 42' {name}; echo ready; sleep 1000 & wait");
            let running = Running::start(runner, &[], &script);
            running.signal(signal);
            assert_eq!(running.end(), Some(42), "{name}");
        }
    });
}

#[test]
fn a_meter_runs_on_server_and_client() {
    let fast = ["--delay", "5ms"];
    let script = "set -e; for host in server client; do
          \"$SKYHOP\" meter bulk $host --bytes 50kB --both --window 16KiB
          \"$SKYHOP\" meter udp $host --time 100ms --rate 1Mbit/s
        done; \"$SKYHOP\" meter rr 10.2.0.2 --count 4";
    as_each_user(|runner| {
        let output = runner.shell(&fast, script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}

/// Rec. ITU-R S.1711-1, Annex 2, 2.1.3: one connection with an 8 kbyte window gets at most 320
/// kbit/s at a round trip of 200 ms, and 91 kbit/s at 700 ms. The transfer is long enough for its
/// first and last round trips not to matter.
#[test]
fn a_window_of_8_kbytes_gives_the_itus_throughput() {
    let cases = [
        ("100ms", "390kB", "", 320e3),
        ("350ms", "195kB", "", 91e3),
        ("100ms", "780kB", "--up", 320e3),
        ("350ms", "195kB", "--up", 91e3),
    ];
    as_myself(|runner| {
        std::thread::scope(|scope| {
            for (delay, bytes, way, published) in cases {
                let load = format!("--bytes {bytes} {way}");
                scope.spawn(move || assert_window_limited(runner, delay, &load, published));
            }
        });
    });
}

/// Never above the published value. A busy machine lengthens the round trips, which lowers it;
/// without the window it would be many times higher.
fn assert_window_limited(runner: &Runner, delay: &str, load: &str, published: f64) {
    let ratio = || {
        let script = format!("\"$SKYHOP\" meter bulk server --cc reno --window 8KiB --json {load}");
        let output = runner.shell(&["--delay", delay], &script).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["flows"][0]["goodput_bits_per_second"].as_f64().unwrap() / published
    };
    let mut ratios = Vec::new();
    while ratios.len() < 3 && ratios.last().is_none_or(|ratio| *ratio < 0.95) {
        ratios.push(ratio());
    }
    let best = ratios.iter().copied().fold(0.0, f64::max);
    assert!((0.8..=1.05).contains(&best), "{delay} {load}: {ratios:?} of {published} bit/s");
}

const PROGRAMS: &[Program] = programs![
    inside_connections_take_600_ms,
    inside_a_half_close_is_answered_with_the_rest,
    inside_a_tenth_is_lost,
    inside_one_large_send_becomes_packets,
    inside_this_is_server
];

/// Runs the program that a test has started in a lab.
#[test]
fn program() {
    run(PROGRAMS);
}
