//! `skyhop meter` over loopback, as typed by a user.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A running `skyhop meter serve`, stopped when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut child = skyhop()
            .args(["meter", "serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let stderr = child.stderr.take().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("says where it listens");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, address }
    }

    /// Runs `skyhop meter COMMAND HOST ARGS`.
    fn meter(&self, command: &str, args: &str) -> Output {
        meter(&[&[command, &self.address], &words(args)[..]].concat())
    }

    /// Runs a command that must succeed; returns its output.
    fn text(&self, command: &str, args: &str) -> String {
        text(&self.meter(command, args))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn skyhop() -> Command {
    Command::new(env!("CARGO_BIN_EXE_skyhop"))
}

fn meter(args: &[&str]) -> Output {
    skyhop().arg("meter").args(args).output().expect("runs")
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The single line printed for a wrong command line.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    text
}

/// All fields of all lines after the head, by name.
fn csv(text: &str) -> Vec<std::collections::BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), head.len(), "{line}");
            head.iter().copied().zip(fields).collect()
        })
        .collect()
}

#[test]
fn bulk_prints_a_line_per_flow_and_sums() {
    let server = Server::start();
    let text = server.text("bulk", "--both --flows 2 --bytes 100kB --spacing 10ms");
    assert!(text.contains("4 of 4 flows complete: 400.00 kB in"), "{text}");
    assert_eq!(text.matches("complete, verified").count(), 4, "{text}");
    assert_eq!(text.matches("Jain's index").count(), 2, "{text}");
    assert!(text.contains("\ndown: 200.00 kB in") && text.contains("\nup: 200.00 kB in"), "{text}");
}

#[test]
fn bulk_gives_json_and_csv_of_the_same() {
    let server = Server::start();
    let json = server.text("bulk", "--up --bytes 50kB --json --cc reno");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["meter"], "bulk");
    assert_eq!(json["flows"][0]["moved_bytes"], 50_000);
    assert!(json["flows"][0]["sender"]["retransmitted_segments"].is_u64());

    let text = server.text("bulk", "--flows 3 --bytes 50kB --csv --runs 2");
    let lines = csv(&text);
    assert_eq!(lines.len(), 6, "{text}");
    for line in &lines {
        assert_eq!((line["moved_bytes"], line["state"]), ("50000", "complete"), "{text}");
        assert!(line["min_rtt_seconds"].parse::<f64>().unwrap() > 0.0, "{text}");
    }
    assert!(lines.iter().map(|line| line["run"]).eq(["1", "1", "1", "2", "2", "2"]));
}

#[test]
fn rr_gives_a_line_per_request() {
    let server = Server::start();
    let text = server.text("rr", "--connections 2 --count 5 --csv");
    assert_eq!(csv(&text).len(), 5, "{text}");
}

#[test]
fn pages_load_in_every_mode() {
    let server = Server::start();
    for http in ["1.0", "1.0-keep-alive", "1.1", "1.1-pipelined"] {
        let args = format!("--http {http} --objects 20kB,4x5kB --connections 2");
        let shown = server.text("page", &args);
        assert!(shown.contains("5 of 5 objects complete; page load time"), "{shown}");
    }
    let text = server.text("page", "--objects 3x5kB --csv");
    assert!(csv(&text).iter().all(|line| line["bytes"] == "5000" && line["state"] == "complete"));
    let told = complaint(&server.meter("page", "--objects 5kB,quark"));
    assert!(told.contains("quark"), "{told}");
}

#[test]
fn datagrams_are_counted() {
    let server = Server::start();
    let shown = server.text("udp", "--both --rate 1Mbit/s --length 500 --time 100ms");
    assert!(shown.contains("\ndown") && shown.contains("\nup"), "{shown}");
    let text = server.text("udp", "--up --rate 1Mbit/s --length 500 --time 100ms --csv");
    let lines = csv(&text);
    assert_eq!((lines[0]["sent"], lines[0]["direction"]), ("25", "up"), "{text}");
    let told = complaint(&meter(&words("udp 127.0.0.1 --rate 100Gbit/s --time 1000s")));
    assert!(told.contains("more than 10000000"), "{told}");
}

#[test]
fn runs_are_compared() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (a, b, rr, foreign) = (path("a.json"), path("b.json"), path("rr.json"), path("x.json"));
    for file in [&a, &b] {
        let runs = server.text("bulk", "--bytes 100kB --runs 4 --json");
        std::fs::write(file, runs).expect("writes");
    }
    std::fs::write(&rr, server.text("rr", "--count 4 --json")).expect("writes");
    std::fs::write(&foreign, "{\"some\": \"thing\"}").expect("writes");

    let shown = text(&meter(&["compare", &a, &b]));
    assert!(shown.starts_with("1 downloads of 100 kB each\n"), "{shown}");
    assert_eq!(shown.matches("  gain ").count(), 2, "{shown}");
    let json = text(&meter(&["compare", &a, &b, "--json", "--seed", "5"]));
    assert_eq!(json, text(&meter(&["compare", &a, &b, "--json", "--seed", "5"])));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["metrics"][0]["metric"], "goodput_bits_per_second");
    assert_eq!(json["metrics"][0]["files"][1]["summary"]["count"], 4);
    assert!(json["metrics"][0]["files"][1]["gain"]["bootstrap"]["ci98"]["low"].is_f64());

    let told = complaint(&meter(&["compare", &a, &rr]));
    assert!(told.contains("cannot compare") && told.contains("4 requests of 1 kB"), "{told}");
    let told = complaint(&meter(&["compare", &a, &foreign]));
    assert!(told.contains("x.json is not the output of `skyhop meter"), "{told}");
    let told = complaint(&meter(&["compare", &path("none.json")]));
    assert!(told.contains("cannot read"), "{told}");
}

#[test]
fn wrong_arguments_get_one_line() {
    for (args, told) in [
        ("bulk 127.0.0.1 --rate 0bit/s", "more than zero"),
        ("bulk 127.0.0.1 --bytes 1MB --time 3s", "cannot be used with"),
        ("bulk 127.0.0.1 --up --both", "cannot be used with"),
        ("bulk 127.0.0.1 --json --csv", "cannot be used with"),
        ("bulk 127.0.0.1:port", "cannot resolve"),
        ("bulk 127.0.0.1 --receive-buffer 0B", "more than zero"),
    ] {
        let line = complaint(&meter(&words(args)));
        assert!(line.contains(told), "{args}: {line}");
    }
}

#[test]
fn incomplete_transfers_are_reported_and_counted() {
    // Nothing listens on port 1 of loopback.
    let output = meter(&words("bulk 127.0.0.1:1 --bytes 1kB"));
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("failed: cannot connect to 127.0.0.1:1"), "{text}");
}

/// A hub on loopback that serves a swarm's terminals, stopped when dropped.
struct Hub {
    child: Child,
    address: String,
    key: String,
    folder: TempDir,
}

impl Hub {
    fn start(sections: &str) -> Self {
        Self::with("10 Gbit/s", sections)
    }

    fn with(rate: &str, sections: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let key =
            text(&skyhop().arg("keygen").arg(folder.path().join("hub.key")).output().unwrap());
        let control = folder.path().join("control");
        let own = format!(
            "private_key_file = \"hub.key\"\nlisten = \"127.0.0.1:0\"\nrate = \"{rate}\"\n\
             control = {control:?}\nstate = \"state\"\n"
        );
        std::fs::write(folder.path().join("hub.toml"), own + sections).unwrap();
        Self::run(folder, key.trim().to_owned())
    }

    fn run(folder: TempDir, key: String) -> Self {
        let file = folder.path().join("hub.toml");
        let mut command = skyhop();
        command.arg("hub").arg(&file).env("SKYHOP_LOG", "info").stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut lines = log.lines().map(Result::unwrap);
        let serving = lines.find(|line| line.contains("terminals on UDP")).expect("it serves");
        let address = serving.rsplit(' ').next().unwrap().to_owned();
        // What it logs later must not block it.
        thread::spawn(move || lines.for_each(drop));
        Self { child, address, key, folder }
    }

    /// Stops it in order and starts it again.
    fn restart(mut self) -> Self {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, TempDir::new().unwrap());
        Self::run(folder, self.key.clone())
    }

    /// The accounts of its terminals.
    fn accounts(&self) -> Vec<Value> {
        let control = self.folder.path().join("control");
        let mut command = skyhop();
        command.args(["accounting", "--json", "--control"]).arg(control);
        let lines = text(&command.output().unwrap());
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SWARM: &str = "--terminals 60 --seed 9";

/// The report of a swarm that is to be complete.
fn swarm(hub: &Hub, options: &str) -> Value {
    let command = ["swarm", &hub.address, "--hub-key", &hub.key, "--json"];
    let words = [&command[..], &words(SWARM)[..], &words(options)[..]].concat();
    serde_json::from_str(&text(&meter(&words))).expect("JSON")
}

#[test]
fn a_swarm_comes_up_and_its_busy_terminals_get_verified_data() {
    let server = Server::start();
    let print = format!("swarm {SWARM} --print-hub-config --server {}", server.address);
    let hub = Hub::start(&text(&meter(&words(&print))));
    let pid = hub.child.id();
    let traffic = format!("--server {} --busy 5 --bytes 3MB --hub-pid {pid}", server.address);
    // The terminals of the first have left by then, so the second finds the hub as it was.
    for _ in 0..2 {
        let report = swarm(&hub, &traffic);
        assert_eq!((&report["up"], &report["lost_sessions"]), (&60.into(), &0.into()), "{report}");
        let moved = &report["traffic"];
        assert_eq!((&moved["complete"], &moved["moved_bytes"]), (&5.into(), &15_000_000.into()));
        let figure = |name: &str| report["hub"][name].as_u64().unwrap();
        let [up, peak] = ["resident_up_bytes", "resident_peak_bytes"].map(figure);
        assert!(up > 0 && peak >= up, "{report}");
        assert!(report["hub"]["cpu_seconds_per_gigabyte"].is_f64(), "{report}");
    }
}

#[test]
fn a_swarm_that_is_interrupted_reports_what_it_has() {
    let server = Server::start();
    let print = format!("swarm {SWARM} --print-hub-config --server {}", server.address);
    let hub = Hub::with("20 Mbit/s", &text(&meter(&words(&print))));
    let traffic = format!("{SWARM} --server {} --busy 2 --time 1min --json", server.address);
    let mut command = skyhop();
    command.args(["meter", "swarm", &hub.address, "--hub-key", &hub.key]).args(words(&traffic));
    let running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let moved = |account: &Value| {
        account["classes"].as_object().is_some_and(|classes| {
            classes.values().any(|class| class["bytes_to"].as_u64() > Some(1_000_000))
        })
    };
    let began = Instant::now();
    while !hub.accounts().iter().any(moved) {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is moved");
        thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(running.id() as i32), Signal::SIGINT).unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["up"], &report["traffic"]["complete"]),
        (&60.into(), &0.into()),
        "{report}"
    );
    assert!(report["traffic"]["moved_bytes"].as_u64() > Some(500_000), "{report}");
    assert!(report["errors"].to_string().contains("interrupted"), "{report}");
}

#[test]
fn a_swarm_that_is_not_served_says_so() {
    let hub = Hub::start(&text(&meter(&words("swarm --terminals 2 --print-hub-config"))));
    let command = ["swarm", &hub.address, "--hub-key", &hub.key, "--seed", "9"];
    let output = meter(&[&command[..], &words("--terminals 3 --limit 1s")[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.starts_with("0 of 3 sessions are up"), "{report}");
    let complained = complaint(&meter(&words("swarm 127.0.0.1")));
    assert!(complained.contains("--hub-key"), "{complained}");
}

#[test]
fn a_quota_that_is_used_up_leaves_a_rate_or_a_class() {
    const LEFT: f64 = 2e6;
    let rate = ("quota_then = \"2 Mbit/s\"", "", "default");
    let class = (
        "quota_then = \"rest\"",
        "[[class]]\nname = \"rest\"\nports = [\"9\"]\nmaximum = \"2 Mbit/s\"\n",
        "rest",
    );
    let server = Server::start();
    let print = format!("swarm {SWARM} --print-hub-config --server {}", server.address);
    let terminals = text(&meter(&words(&print)));
    for (then, classes, used) in [rate, class] {
        let limits = format!("[limits]\nquota = \"1 MB\"\nquota_period = \"month\"\n{then}\n");
        let hub = Hub::with("40 Mbit/s", &format!("{limits}\n{classes}\n{terminals}"));
        let download = |amount: &str| {
            let traffic = format!("--server {} --busy 1 {amount}", server.address);
            swarm(&hub, &traffic)["traffic"].clone()
        };
        assert_eq!(download("--bytes 2MB")["moved_bytes"], 2_000_000, "{then}");
        // From here on the quota is used up, whatever the first download took beyond it.
        let goodput = download("--time 1.5s")["goodput_bits_per_second"].as_f64().unwrap();
        assert!((LEFT * 0.6..LEFT).contains(&goodput), "{then}: {goodput}");
        let accounts = hub.accounts();
        let [account] = &accounts[..] else { panic!("one has used anything: {accounts:?}") };
        let moved = account["classes"][used]["bytes_to"].as_u64().unwrap();
        assert!(moved > 0 && account["exhausted"].is_string(), "{account}");
    }
}

#[test]
fn a_quota_that_is_used_up_blocks_its_terminal_across_a_restart() {
    const QUOTA: &str = "[limits]\nquota = \"1 MB\"\nquota_period = \"month\"\n\n";
    let server = Server::start();
    let print = format!("swarm {SWARM} --print-hub-config --server {}", server.address);
    let sections = QUOTA.to_owned() + &text(&meter(&words(&print)));
    let mut hub = Hub::with("40 Mbit/s", &sections);
    // Two downloads that take two seconds, and longer than the quota lasts.
    let traffic = format!("{SWARM} --json --server {} --busy 2 --bytes 5MB", server.address);
    let run = |hub: &Hub| {
        let command = ["swarm", &hub.address, "--hub-key", &hub.key];
        let output = meter(&[&command[..], &words(&traffic)[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let report = run(&hub);
    assert_eq!((&report["up"], &report["traffic"]["complete"]), (&60.into(), &0.into()));
    assert!(report["errors"].to_string().contains("Prohibited"), "{report}");
    let used = |hub: &Hub| -> Vec<(u64, u64, String)> {
        let row = |account: &Value| {
            let default = &account["classes"]["default"];
            let bytes = default["bytes_to"].as_u64().unwrap();
            assert_eq!(account["exhausted"], "block", "{account}");
            let used = account["quota_used_bytes"].as_u64().unwrap();
            (used, bytes, default["connections"].to_string())
        };
        hub.accounts().iter().map(row).collect()
    };
    let before = used(&hub);
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|it| it.0 >= 1_000_000 && it.0 >= it.1 && it.1 < 5_000_000));
    hub = hub.restart();
    let report = run(&hub);
    assert_eq!((&report["up"], &report["traffic"]["moved_bytes"]), (&60.into(), &0.into()));
    let after = used(&hub);
    let volume = |all: &[(u64, u64, String)]| all.iter().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(volume(&after), volume(&before), "nothing is lost or counted twice");
    let page = text(
        &skyhop()
            .args(["accounting", "--control"])
            .arg(hub.folder.path().join("control"))
            .output()
            .unwrap(),
    );
    assert!(page.contains("swarm-9-1") && page.contains("per month, used up: block"), "{page}");
}
