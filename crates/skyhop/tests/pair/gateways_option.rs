//! `skyhop lab run --gateways`.

use std::io::{BufRead, BufReader, read_to_string};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LOSSY;
use crate::common::{Running, as_each_user, as_myself, text};

/// A preset with a fade on its shared return link.
const FADE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pair/fade.toml");

/// Kills the gateway of that name, then runs until its input ends.
const KILL: &str = "
    for process in /proc/[0-9]*; do
        case $(tr '\\0' ' ' 2>/dev/null < $process/cmdline) in
            *' GATEWAY /dev/stdin ') kill -9 ${process#/proc/};;
        esac
    done
    read line
    exit 5";

#[test]
fn the_exit_code_is_the_commands() {
    as_myself(|runner| {
        let output = runner.shell(&LOSSY, "exit 7").output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(7), String::new()));
    });
}

#[test]
fn a_dead_gateway_is_reported_and_the_command_continues() {
    as_myself(|runner| {
        for gateway in ["hub", "terminal"] {
            let mut lab = runner.shell(&LOSSY, &KILL.replace("GATEWAY", gateway));
            let mut lab = lab.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut stderr = BufReader::new(lab.stderr.take().unwrap());
            let mut told = String::new();
            stderr.read_line(&mut told).unwrap();
            let why = "ended (signal: 9 (SIGKILL)): no message";
            assert_eq!(told, format!("skyhop: the {gateway} {why}\n"));
            drop(lab.stdin.take());
            assert_eq!(lab.wait().unwrap().code(), Some(5));
            assert_eq!(read_to_string(stderr).unwrap(), "");
        }
    });
}

#[test]
fn each_lab_has_control_sockets_of_its_own() {
    as_each_user(|runner| {
        let asks = "echo ready; read line; exec \"$SKYHOP\" status --json";
        let mut labs = [0, 1].map(|_| {
            let mut lab = runner.shell(&["--gateways", "--terminals", "2"], asks);
            lab.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        });
        let mut outputs = labs.each_mut().map(|lab| BufReader::new(lab.stdout.take().unwrap()));
        for output in &mut outputs {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
        }
        for (lab, output) in labs.iter_mut().zip(outputs) {
            drop(lab.stdin.take());
            let gateways: Vec<Value> = serde_json::from_reader(output).unwrap();
            let roles: Vec<&Value> = gateways.iter().map(|gateway| &gateway["role"]).collect();
            assert_eq!(roles, ["hub", "terminal", "terminal"]);
            assert!(lab.wait().unwrap().success());
        }
    });
}

/// On a shared return link each terminal has a modem, which grants what the gateway asks for.
#[test]
fn terminals_on_a_shared_return_link_follow_their_modems() {
    as_each_user(|runner| {
        let script = "\"$SKYHOP\" meter bulk server --up --bytes 30kB >&2 || exit 9
                      exec \"$SKYHOP\" status --json";
        let options = ["run", "vsat-dama-vbdc", "--gateways", "--", "sh", "-c", script];
        let output = runner.lab(&options).env("SKYHOP", &runner.skyhop).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let gateways: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let [hub, terminal] = &gateways[..] else { panic!("{gateways:?}") };
        assert_eq!(
            (&hub["dlep"], &hub["sessions"][0]["rate_source"]),
            (&Value::Null, &"fixed".into())
        );
        assert_eq!(terminal["dlep"]["state"], "up");
        let session = &terminal["sessions"][0];
        assert_eq!(
            (&session["rate_source"], &session["told_by_modem"]),
            (&"modem".into(), &true.into())
        );
        for key in ["told_bit_s", "told_age_s", "told_for_s"] {
            assert!(session[key].is_number(), "{key}: {session}");
        }
        assert_eq!(session["packets_lost"], 0, "nothing is lost in the modem");
        let demand = &terminal["demand"];
        let keys = ["waiting_bytes", "foreseen_bytes"].map(|key| demand[key].as_u64());
        assert_eq!(keys, [Some(0); 2], "nothing waits after the upload: {demand}");
    });
}

/// A return link that fades from 10 to 1 Mbit/s and comes back, with capacity on demand: the gateway
/// follows the grants, and nothing is lost in the modem's MAC buffer of a superframe.
#[test]
fn a_fade_of_a_shared_return_link_loses_nothing_at_the_modem() {
    as_myself(|runner| {
        let script = "\"$SKYHOP\" meter bulk server --up --flows 8 --time 10s";
        let options = ["run", FADE, "--gateways", "--stats", "--", "sh", "-c", script];
        let output = runner.lab(&options).env("SKYHOP", &runner.skyhop).output().unwrap();
        let lines = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{lines}");
        let returns: Vec<&str> =
            lines.lines().filter_map(|it| it.split("| return ").nth(1)).collect();
        let rate = |line: &&str| line.split(' ').next()?.parse::<f64>().ok();
        let rates: Vec<f64> = returns.iter().filter_map(rate).collect();
        // Fast, then slow, then fast again.
        let phases = rates.iter().fold(0, |phase, mbit| match phase {
            0 | 2 if *mbit > 3.0 => phase + 1,
            1 if *mbit < 1.1 => 2,
            _ => phase,
        });
        assert_eq!(phases, 3, "{lines}");
        assert!(returns.iter().all(|line| line.contains("lost 0, dropped 0, slots")), "{lines}");
    });
}

#[test]
fn a_signal_ends_command_and_gateways() {
    as_each_user(|runner| {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
            let running = Running::start(runner, &LOSSY, "echo ready; sleep 1000");
            running.signal(signal);
            let code = (signal != Signal::SIGKILL).then_some(128 + signal as i32);
            assert_eq!(running.end(), code, "{signal}");
        }
    });
}
