//! `skyhop lab up`, `down`, `status`, `set`, and `exec` from outside.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stays::Stays;
use crate::common::{
    OWN, Runner, as_each_user, as_myself, assert_refused, assert_takes, connect_time, program, text,
};

const FAST: [&str; 6] = ["--delay", "5ms", "--rate", "200Mbit/s", "--return-rate", "200Mbit/s"];

#[test]
fn a_standing_lab_runs_until_it_is_ended() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        let remains = stays.up("one", &["--delay", "50ms", "--seed", "7"]);
        assert_refused(&stays.output(&["up", "geo", "--name", "one"]), &["one is already up"]);
        let status = stays.status("one");
        assert_eq!((&status["preset"], &status["seed"]), (&"geo".into(), &7.into()), "{status:#}");
        assert_eq!(status["links"].as_array().unwrap().len(), 2, "{status:#}");
        let program = program::command("up::inside_server_is_100_ms_away");
        let script = format!("{program} >&2; exit $((7 + $?))");
        let output = stays.shell("one", "client", &script).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        // The only lab need not be named.
        assert_eq!(stays.ok(&["exec", "hub", "--", "echo", "here"]), "here");
        assert!(stays.link("one", "forward")["delivered"]["packets"].as_u64() > Some(0));
        stays.ok(&["down", "one"]);
        remains.assert_gone();
        assert!(stays.remembered().is_empty(), "{:?}", stays.remembered());
        assert_refused(&stays.output(&["down", "one"]), &["no lab named one is up"]);
    });
}

pub(crate) fn inside_server_is_100_ms_away() {
    assert_takes(Duration::from_millis(100), OWN, || connect_time("server:7"));
    assert_eq!(std::env::var(lab::LAB_VARIABLE).as_deref(), Ok("geo"));
    // Other hosts are found from here, as from inside any lab.
    lab::find_netns(lab::Node::Hub).unwrap();
}

#[test]
fn a_killed_lab_is_swept_by_whatever_comes_next() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        for next in [&["down", "one"][..], &["status"], &["up", "geo", "--name", "one"]] {
            let remains = stays.up("one", &[]);
            kill(Pid::from_raw(stays.supervisor("one") as i32), Signal::SIGKILL).unwrap();
            remains.assert_gone();
            assert_eq!(stays.remembered(), ["one"]);
            stays.ok(next);
            assert_eq!(stays.remembered().is_empty(), next[0] != "up", "{next:?}");
        }
        stays.ok(&["down", "one"]);
        assert!(stays.remembered().is_empty());
    });
}

#[test]
fn a_lab_that_is_killed_this_moment_goes_down_too() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        let remains = stays.up("one", &[]);
        kill(Pid::from_raw(stays.supervisor("one") as i32), Signal::SIGKILL).unwrap();
        stays.ok(&["down", "one"]);
        remains.assert_gone();
        assert!(stays.remembered().is_empty());
    });
}

#[test]
fn sigterm_ends_a_lab_and_frees_its_name() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        let remains = stays.up("one", &[]);
        kill(Pid::from_raw(stays.supervisor("one") as i32), Signal::SIGTERM).unwrap();
        remains.assert_gone();
        assert!(stays.remembered().is_empty());
    });
}

#[test]
fn a_stopped_lab_is_killed() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        let remains = stays.up("one", &[]);
        // Neither the lab nor its supervisor answers.
        remains.signal(Signal::SIGSTOP);
        stays.ok(&["down", "one"]);
        remains.assert_gone();
        assert!(stays.remembered().is_empty());
    });
}

#[test]
fn the_end_of_a_lab_ends_what_runs_in_it() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &[]);
        let mut running = ready(&stays, "trap '' TERM HUP; echo ready; sleep 1000 & wait");
        stays.ok(&["down", "one"]);
        assert_eq!(running.wait().unwrap().code(), Some(137));
    });
}

#[test]
fn a_command_from_outside_heeds_signals_and_ends_with_its_caller() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &[]);
        let mut heeding = ready(&stays, "trap 'exit 42' TERM; echo ready; sleep 1000 & wait");
        signal(&heeding, Signal::SIGTERM);
        assert_eq!(heeding.wait().unwrap().code(), Some(42));
        let mut hung_up = ready(&stays, "echo ready; exec sleep 1000");
        signal(&hung_up, Signal::SIGHUP);
        assert_eq!(hung_up.wait().unwrap().code(), Some(129));
        // Its stdout closes once the command has ended too.
        let mut killed = ready(&stays, "echo ready; exec sleep 1000");
        signal(&killed, Signal::SIGKILL);
        killed.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        killed.wait().unwrap();
    });
}

/// A script on the client that has printed `ready`.
fn ready(stays: &Stays<'_>, script: &str) -> Child {
    let mut child = stays.shell("one", "client", script).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn two_labs_at_once_do_not_disturb_each_other() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        let slow = ["--delay", "5ms", "--rate", "20Mbit/s", "--return-rate", "20Mbit/s"];
        stays.up("fast", &FAST);
        stays.up("slow", &slow);
        // Alone: none of its packets are in the other lab.
        let forward = stays.link("slow", "forward")["offered"]["packets"].clone();
        bulk(&stays, "fast", "2MB");
        assert_eq!(stays.link("slow", "forward")["offered"]["packets"], forward);
        assert!(stays.link("fast", "forward")["delivered"]["bytes"].as_u64() > Some(2_000_000));
        // At once: every byte verified by the receivers, none faster than its link.
        let goodputs = std::thread::scope(|scope| {
            let both = ["fast", "slow"].map(|lab| scope.spawn(|| bulk(&stays, lab, "4MB")));
            both.map(|one| one.join().unwrap())
        });
        assert!(goodputs[0] > goodputs[1] && goodputs[1] < 20e6, "{goodputs:?}");
        for lab in ["fast", "slow"] {
            let status = stays.status(lab);
            for fault in ["missed", "oversized", "refused", "astray"] {
                assert_eq!(status["faults"][fault], 0, "{status:#}");
            }
        }
        stays.ok(&["down", "fast"]);
        bulk(&stays, "slow", "100kB");
    });
}

/// A verified download in a lab; returns the goodput in bit/s.
fn bulk(stays: &Stays<'_>, lab: &str, bytes: &str) -> f64 {
    let script = format!("exec \"$SKYHOP\" meter bulk server --bytes {bytes} --json");
    let output = stays.shell(lab, "client", &script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["sums"][0]["goodput_bits_per_second"].as_f64().unwrap()
}

#[test]
fn links_change_while_the_lab_runs() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &FAST);
        stays.ok(&["set", "one", "--rate", "2Mbit/s", "--delay", "40ms", "--queue", "100 packets"]);
        let forward = stays.link("one", "forward");
        let settings = ["rate", "delay", "queue"].map(|key| forward[key].as_str().unwrap());
        assert_eq!(settings, ["2 Mbit/s", "40 ms", "100 packets"]);
        // Not faster than the new rate, without headers.
        assert!(bulk(&stays, "one", "500kB") < 2e6);
        let refused = |options: &[&str], parts: &[&str]| {
            assert_refused(&stays.output(&[&["set", "one"], options].concat()), parts);
        };
        refused(&["--rate", "0 Mbit/s"], &["--rate", "above 0"]);
        refused(&["--terrestrial-delay", "5ms"], &["terrestrial", "cannot change"]);
        refused(&[], &["nothing to set"]);
        assert_eq!(stays.link("one", "forward")["rate"], "2 Mbit/s", "a refusal changes nothing");
        // A trace is read by the command that changes the link, relative to its working directory.
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rates"), "0s 3 Mbit/s\n10s 4 Mbit/s\n").unwrap();
        let mut set = stays.lab(&["set", "one", "--rate-trace", "rates"]);
        let set = set.current_dir(directory.path()).output().unwrap();
        assert!(set.status.success(), "{set:?}");
        assert_eq!(stays.link("one", "forward")["rate"], "3 Mbit/s to 4 Mbit/s");
    });
}

#[test]
fn a_shared_return_link_can_fade_while_the_lab_runs() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        stays.ok(&["up", "vsat-dama-vbdc", "--name", "one"]);
        stays.ok(&["set", "one", "--return-rate", "64kbit/s"]);
        assert_eq!(stays.link("one", "return")["rate"], "64 kbit/s");
        let refused = |options: &[&str], parts: &[&str]| {
            assert_refused(&stays.output(&[&["set", "one"], options].concat()), parts);
        };
        refused(&["--return-rate", "256kbit/s"], &["DAMA", "start", "cannot change"]);
        refused(&["--delay", "300ms"], &["DAMA", "cannot change"]);
        stays.ok(&["set", "one", "--return-rate", "128kbit/s"]);
    });
}

#[test]
fn an_outage_can_be_announced_and_ended() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &["--delay", "5ms"]);
        let reachable = || {
            let script = program::command("up::inside_server_answers");
            stays.shell("one", "client", &script).output().unwrap().status.success()
        };
        assert!(reachable());
        for end in [&["--end-outages"][..], &["--outage", "none"]] {
            stays.ok(&["set", "one", "--outage", "0s+1000s"]);
            assert!(!reachable());
            stays.ok(&[&["set", "one"], end].concat());
            assert!(reachable());
        }
    });
}

pub(crate) fn inside_server_answers() {
    let server = (lab::Node::Server.address4(), 7).into();
    std::net::TcpStream::connect_timeout(&server, Duration::from_secs(2)).unwrap();
}

#[test]
fn a_lab_that_cannot_start_says_why_and_leaves_nothing() {
    as_myself(|runner| {
        let stays = Stays::new(runner);
        let into_a_file = ["up", "geo", "--name", "one", "--pcap", "/dev/null/captures"];
        assert_refused(&stays.output(&into_a_file), &["/dev/null/captures"]);
        assert!(stays.remembered().is_empty());
        assert_refused(
            &stays.output(&["up", "geo", "--name", "a/b"]),
            &["a/b", "not a valid lab name"],
        );
        assert_refused(&stays.output(&["exec", "client"]), &["not inside a lab", "lab up"]);
        stays.up("one", &[]);
        stays.up("two", &[]);
        let nameless = stays.output(&["exec", "client", "--", "true"]);
        assert_refused(&nameless, &["several labs", "one, two"]);
        let missing = stays.output(&["exec", "--lab", "one", "client2", "--", "true"]);
        assert_refused(&missing, &["client2", "expected one of client, terminal"]);
        stays.ok(&["down", "--all"]);
        assert!(stays.remembered().is_empty());
    });
}

#[test]
fn lab_up_returns_when_the_lab_is_ready() {
    // A reader of `up`'s output sees its end: the lab does not keep it open.
    as_myself(|runner: &Runner| {
        let stays = Stays::new(runner);
        let script = "exec 3>&1; \"$SKYHOP\" lab up geo --name one >/dev/null; echo over";
        let up = stays.lab(&["presets"]);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", script])
            .envs(up.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = shell.output().unwrap();
        assert_eq!(text(&output.stdout), "over", "{output:?}");
        stays.ok(&["status", "one"]);
    });
}
