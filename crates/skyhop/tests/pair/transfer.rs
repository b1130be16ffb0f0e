//! Real programs through the pair: their data arrives complete, and the pair carries it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lab::{Node, find_netns};
use serde_json::Value;

use crate::LOSSY;
use crate::common::{Runner, as_each_user, as_myself, is_present, skip, text};

/// A temporary directory for the test objects and their copies.
const PREPARE: &str = "set -e; cd $(mktemp -d); trap 'rm -r \"$PWD\"' EXIT\n";
/// Round-trip times of [`LOSSY`] and of the preset, in seconds. A connect that takes less was
/// answered by the pair.
const RTT: f64 = 0.1;
const GEO_RTT: f64 = 0.6;

/// Output of the script, by line.
fn lines(runner: &Runner, options: &[&str], script: &str) -> Vec<String> {
    let output = runner.shell(options, &format!("{PREPARE}{script}")).output().unwrap();
    assert!(output.status.success(), "as {:?}: {output:?}", runner.user);
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn all_present(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_present(program));
    missing.map(|program| skip(format!("{program} is missing"))).is_none()
}

#[test]
fn curl_moves_files_whole_in_both_directions() {
    if !all_present(&["curl", "sha256sum"]) {
        return;
    }
    as_each_user(|runner| {
        for family in ["-4", "-6"] {
            assert_moved(runner, &LOSSY, RTT, family);
        }
    });
}

#[test]
fn curl_moves_files_whole_over_a_lossy_geo_hop() {
    if !all_present(&["curl", "sha256sum"]) {
        return;
    }
    as_myself(|runner| assert_moved(runner, &["--gateways", "--per", "1%"], GEO_RTT, "-6"));
}

/// Moves 20 MB down and up again.
fn assert_moved(runner: &Runner, options: &[&str], rtt: f64, family: &str) {
    let script = "
        curl='curl -sS --max-time 60 FAMILY'
        $curl -o object -w '%{time_connect}\\n' http://server/20MB
        $curl http://server/20MB.sha256
        sha256sum < object
        $curl -T object -o answer -w '%{time_connect}\\n' http://server/upload
        cat answer";
    let lines = lines(runner, options, &script.replace("FAMILY", family));
    let [down, digest, downloaded, up, uploaded] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(digest.len(), 64);
    assert_eq!(*downloaded, format!("{digest}  -"));
    assert_eq!(*uploaded, format!("20000000 {digest}"));
    // A busy machine slows every try.
    assert!(number(down).min(number(up)) < rtt, "{lines:?}");
}

#[test]
fn the_first_byte_comes_after_one_round_trip() {
    if !all_present(&["curl"]) {
        return;
    }
    as_each_user(|runner| {
        for family in ["-4", "-6"] {
            assert_prompt(runner, family);
        }
    });
}

/// The first byte arrives after one RTT plus at most 30 ms, and a connect takes much less. A busy
/// machine slows every try, so the best one counts, and more follow if none is good.
fn assert_prompt(runner: &Runner, family: &str) {
    let script = "for try in 1 2 3 4 5; do
            curl -sS FAMILY -o object -w '%{time_connect} %{time_starttransfer}\n' http://server/1kB
        done";
    let mut tries = Vec::new();
    for _ in 0..4 {
        tries.extend(lines(runner, &["--gateways"], &script.replace("FAMILY", family)));
        let split = |line: &String| line.split_once(' ').map(|(c, f)| (number(c), number(f)));
        let (connect, first): (Vec<f64>, Vec<f64>) = tries.iter().filter_map(split).unzip();
        assert!(least(&first) >= GEO_RTT, "faster than light: {tries:?}");
        if least(&connect) < 0.03 && least(&first) <= GEO_RTT + 0.03 {
            return;
        }
    }
    panic!("{tries:?}");
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn fifty_downloads_at_once_do_not_mix() {
    if !all_present(&["curl", "sha256sum"]) {
        return;
    }
    // Objects of different sizes have different contents.
    let script = "
        curl -sS --max-time 60 -Z --parallel-max 50 --parallel-immediate \
            -w '%{time_connect}\\n' -o 'object#1' 'http://server/[200-249]kB'
        curl -sS --max-time 60 -Z --parallel-max 50 --parallel-immediate \
            -o 'digest#1' 'http://server/[200-249]kB.sha256'
        for size in $(seq 200 249); do
            echo \"$(sha256sum < object$size)\" \"$(cat digest$size)\"
        done";
    as_myself(|runner| {
        // A busy machine delays some of so many connections, but not in every try.
        let mut tries = Vec::new();
        for _ in 0..4 {
            let lines = lines(runner, &LOSSY, script);
            let (connects, digests) = lines.split_at(50);
            assert_eq!(digests.len(), 50);
            for line in digests {
                let (downloaded, right) = line.split_once("  - ").unwrap();
                assert_eq!(downloaded, right);
            }
            if connects.iter().all(|time| number(time) < RTT) {
                return;
            }
            tries.push(connects.to_vec());
        }
        panic!("connections waited for the hop: {tries:?}");
    });
}

#[test]
fn netcat_hears_the_answer_after_it_has_ended_its_side() {
    let usage = Command::new("nc").arg("-h").output();
    if !usage.is_ok_and(|usage| text(&usage.stderr).contains("-N")) {
        return skip("there is no nc with the option -N");
    }
    let script = "
        head -c 5000000 /dev/urandom > sent
        for family in -4 -6; do
            nc $family -N -w 30 server 7 < sent > back
            cmp sent back
        done";
    as_each_user(|runner| assert!(lines(runner, &LOSSY, script).is_empty()));
}

#[test]
fn iperf3_runs_in_both_directions() {
    if !all_present(&["iperf3"]) {
        return;
    }
    as_each_user(|runner| runner.inside(&LOSSY, "transfer::inside_iperf3_measures"));
}

pub(crate) fn inside_iperf3_measures() {
    for options in [&["-4"][..], &["-4", "-R"], &["-6"], &["-6", "-R"]] {
        let mut server = find_netns(Node::Server).unwrap().command("iperf3");
        server.args(["--server", "--one-off", "--forceflush"]).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut said = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.contains("Server listening")));

        let mut client = Command::new("iperf3");
        let output = client.args(["-J", "-t", "1", "-c", "server"]).args(options).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{options:?}: {report}");
        let received = &report["end"]["sum_received"]["bytes"];
        assert!(received.as_u64().is_some_and(|bytes| bytes > 1_000_000), "{options:?}: {report}");

        assert!(server.wait().unwrap().success());
        let accepted = said.find(|line| line.contains("Accepted connection from")).unwrap();
        let [v4, v6] = [Node::Client.address4().to_string(), Node::Client.address6().to_string()];
        let by_client = [v4, v6].iter().any(|client| accepted.contains(&format!("{client},")));
        assert!(!by_client, "not through the pair: {accepted}");
    }
}
