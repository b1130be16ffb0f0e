//! Operating a running pair.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bare;
use crate::common::{as_each_user, as_myself, text};
use crate::gateways::Keys;
use crate::inside::{Gateway, Mirror, PATIENCE, addresses, assert_reset, connect, exchange};

const PORT: u16 = 4000;

/// Directory for the control sockets of a pair.
pub(crate) struct Sockets(tempfile::TempDir);

impl Sockets {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, side: &str) -> PathBuf {
        self.0.path().join(side)
    }

    pub(crate) fn key(&self, side: &str) -> String {
        format!("control = {:?}", self.path(side))
    }
}

pub(crate) fn skyhop(arguments: &[&str], control: &Path) -> Output {
    let mut command = Command::new(std::env::var_os("SKYHOP").unwrap());
    command.args(arguments).arg("--control").arg(control).output().unwrap()
}

/// A gateway's status.
pub(crate) fn status(control: &Path) -> Value {
    let output = skyhop(&["status", "--json", "--connections"], control);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take()
}

/// Polls the status until it satisfies the condition.
pub(crate) fn wait_for(control: &Path, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let status = status(control);
        if is_so(&status) {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {status:#}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn connections(status: &Value) -> &Vec<Value> {
    status["connections"].as_array().unwrap()
}

#[test]
fn a_running_pair_tells_how_it_is() {
    as_each_user(|runner| runner.inside(bare(), "operate::inside_a_pair_is_asked"));
}

pub(crate) fn inside_a_pair_is_asked() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let hub = keys.hub(&sockets.key("hub"), "");
    let modem =
        format!("rate = \"modem\"\ninitial_rate = \"50 Mbit/s\"\n{}", sockets.key("terminal"));
    let terminal = keys.terminal(1, &modem, "");
    let (at_hub, at_terminal) = (sockets.path("hub"), sockets.path("terminal"));

    let mut client = mirror.connect_carried();
    exchange(&mut client);
    let seen = status(&at_terminal);
    assert_eq!((&seen["role"], &seen["interception"]["on"]), (&"terminal".into(), &true.into()));
    let session = &seen["sessions"][0];
    assert_eq!((&session["peer"], &session["reachable"]), (&"hub".into(), &true.into()));
    let rtt = session["rtt_ms"].as_f64().unwrap();
    assert!((100.0..1000.0).contains(&rtt), "{rtt}");
    let one = &connections(&seen)[0];
    let address = client.local_addr().unwrap().to_string();
    assert_eq!(one["client"], address.as_str());
    // "ping" one way, 'c' and "ping" the other.
    assert_eq!((&one["to_hop_bytes"], &one["from_hop_bytes"]), (&4.into(), &5.into()));
    assert!(one["lan_rtt_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{one}");

    let seen = status(&at_hub);
    assert_eq!((&seen["role"], &seen["sessions"][0]["peer"]), (&"hub".into(), &"1".into()));
    assert_eq!(connections(&seen)[0]["client"], address.as_str());

    a_modem_tells_rates(&at_terminal, &at_hub);
    events_are_followed(&at_terminal, &mut client);
    drop(client);
    let over = wait_for(&at_terminal, "over", |status| connections(status).is_empty());
    assert_eq!(
        (&over["traffic"]["connections"], &over["traffic"]["closed"]),
        (&1.into(), &1.into())
    );
    let table = skyhop(&["status"], &at_terminal);
    assert!(text(&table.stdout).contains("1 connections: 0 alive, 1 closed"), "{table:?}");

    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    assert!(!at_hub.exists() && !at_terminal.exists());
    let nobody = skyhop(&["status"], &at_hub);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("no gateway answers"), "{nobody:?}");
}

#[test]
fn a_client_known_only_from_its_terminal_is_marked_as_claimed() {
    as_myself(|runner| runner.inside(bare(), "operate::inside_clients_are_claimed"));
}

pub(crate) fn inside_clients_are_claimed() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let known = keys.hub_config(&sockets.key("hub"), "");
    let lines = known.lines().filter(|line| !line.starts_with("networks ="));
    let unknown = lines.collect::<Vec<_>>().join("\n");
    let (at_hub, at_terminal) = (sockets.path("hub"), sockets.path("terminal"));
    for (config, claimed) in [(known, false), (unknown, true)] {
        let mut hub = Gateway::start(Node::Hub, "hub", &config);
        hub.wait_for("ready");
        let terminal = keys.terminal(1, &sockets.key("terminal"), "");
        let mut client = mirror.connect_carried();
        exchange(&mut client);
        let is_claimed = |control| connections(&status(control))[0]["client_claimed"].clone();
        assert_eq!((is_claimed(&at_hub), is_claimed(&at_terminal)), (claimed.into(), false.into()));
        let table = text(&skyhop(&["status", "--connections"], &at_hub).stdout);
        assert_eq!(table.contains("(claimed)"), claimed, "{table}");
        terminal.end_by(Signal::SIGTERM);
        hub.end_by(Signal::SIGTERM);
    }
}

fn events_are_followed(at_terminal: &Path, client: &mut TcpStream) {
    let mut command = Command::new(std::env::var_os("SKYHOP").unwrap());
    command.args(["events", "--peer", "hub", "--control"]).arg(at_terminal);
    let mut reader = command.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(reader.stdout.take().unwrap());
    let (sender, heard) = channel();
    let listening = thread::spawn(move || {
        for line in stdout.lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(event["peer"], "hub", "{event}");
            let _ = sender.send(event["event"].as_str().unwrap().to_owned());
        }
    });
    let began = Instant::now();
    let mut missing = BTreeSet::from(["placed", "sent", "acknowledged", "received"]);
    while !missing.is_empty() {
        assert!(began.elapsed() < PATIENCE, "no {missing:?}");
        exchange(client);
        heard.try_iter().for_each(|event| _ = missing.remove(event.as_str()));
    }
    let other = skyhop(&["events"], at_terminal);
    assert!(text(&other.stderr).contains("another reader"), "{other:?}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    listening.join().unwrap();
    let nobody = skyhop(&["events", "--peer", "nobody"], at_terminal);
    assert!(!nobody.status.success(), "{nobody:?}");
}

fn a_modem_tells_rates(at_terminal: &Path, at_hub: &Path) {
    let told = skyhop(&["rate", "20Mbit/s", "--for", "1min"], at_terminal);
    assert_eq!(text(&told.stdout), "hub: 20 Mbit/s for 60 s", "{told:?}");
    let seen = status(at_terminal);
    let session = &seen["sessions"][0];
    assert_eq!(
        (&session["rate_bit_s"], &session["rate_source"]),
        (&20_000_000.into(), &"modem".into())
    );
    assert!(session["told_for_s"].as_f64().is_some_and(|left| left > 1.0), "{session}");
    skyhop(&["rate", "10Mbit/s", "--for", "100ms"], at_terminal);
    wait_for(at_terminal, "expiry", |status| status["sessions"][0]["rate_bit_s"] == 50_000_000);
    let fixed = skyhop(&["rate", "20Mbit/s", "--for", "1min"], at_hub);
    assert_eq!(fixed.status.code(), Some(2));
    assert!(text(&fixed.stderr).contains("rate = \"modem\""), "{fixed:?}");
}

#[test]
fn a_terminal_that_drains_ends_with_its_last_connection() {
    as_each_user(|runner| runner.inside(bare(), "operate::inside_a_terminal_drains"));
}

pub(crate) fn inside_a_terminal_drains() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let hub = keys.hub(&sockets.key("hub"), "");
    let terminal = keys.terminal(1, &sockets.key("terminal"), "");
    let mut client = mirror.connect_carried();
    let drained = skyhop(&["drain"], &sockets.path("terminal"));
    assert!(text(&drained.stdout).contains("1 left"), "{drained:?}");
    wait_for(&sockets.path("terminal"), "bypass", |status| {
        status["interception"]["why"] == "draining"
    });
    mirror.assert_passes_by();
    exchange(&mut client);
    drop(client);
    terminal.wait_for_end();

    // A hub cannot let connections pass, so its terminals do.
    let terminal = keys.terminal(1, &sockets.key("terminal"), "");
    let client: TcpStream = mirror.connect_carried();
    let mut drain = Command::new(std::env::var_os("SKYHOP").unwrap());
    drain.args(["drain", "--within", "1min", "--wait", "--control"]).arg(sockets.path("hub"));
    let mut drain = drain.spawn().unwrap();
    wait_for(&sockets.path("terminal"), "draining hub", |status| {
        status["interception"]["why"] == "peer-draining"
    });
    mirror.assert_passes_by();
    assert!(drain.try_wait().unwrap().is_none(), "--wait returns while the hub runs");
    drop(client);
    assert!(drain.wait().unwrap().success());
    hub.wait_for_end();
    terminal.end_by(Signal::SIGTERM);
}

#[test]
fn a_pair_that_init_writes_works_and_the_doctor_says_so() {
    as_each_user(|runner| runner.inside(bare(), "operate::inside_a_new_pair_is_examined"));
}

pub(crate) fn inside_a_new_pair_is_examined() {
    let (mirror, sockets) = (Mirror::start(PORT), Sockets::new());
    let directory = sockets.path("new");
    let init = |interface: &str| {
        let mut command = Command::new(std::env::var_os("SKYHOP").unwrap());
        command.arg("init").arg(&directory).args(["--hub", "hub:5900", "--name", "ship-1"]);
        command.args(["--hub-rate", "100Mbit/s", "--interface", interface]).output().unwrap()
    };
    let done = init(LAN_DEVICE);
    assert!(done.status.success() && text(&done.stdout).contains("skyhop doctor"), "{done:?}");
    let again = init(LAN_DEVICE);
    assert!(!again.status.success() && text(&again.stderr).contains("overwritten"), "{again:?}");

    let [hub_config, config] = ["hub", "ship-1"].map(|name| {
        let path = directory.join(format!("{name}.toml"));
        let own = format!("{}\n{}", sockets.key(name), fs::read_to_string(&path).unwrap());
        fs::write(&path, &own).unwrap();
        own
    });
    let terminal_file = directory.join("ship-1.toml");
    let (code, findings) = examine(&terminal_file);
    assert_eq!((code, verdict(&findings, "hub")), (Some(1), "fail"), "{findings:#}");
    assert_eq!(verdict(&findings, "interception"), "ok", "{findings:#}");

    let mut hub = Gateway::start(Node::Hub, "hub", &hub_config);
    hub.wait_for("ready");
    let (code, findings) = examine(&terminal_file);
    assert_eq!((code, verdict(&findings, "hub")), (Some(0), "ok"), "{findings:#}");
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    terminal.wait_for("ready");
    let mut client = mirror.connect_carried();
    let (code, findings) = examine(&terminal_file);
    assert_eq!((code, verdict(&findings, "running")), (Some(0), "ok"), "{findings:#}");
    // A doctor whose configuration has another terminal name does not disturb it either.
    let hidden = config.replace("ship-1\"", "nobody\"");
    fs::write(&terminal_file, hidden).unwrap();
    let (_, findings) = examine(&terminal_file);
    assert_eq!(verdict(&findings, "hub"), "ok", "{findings:#}");
    // A file with the key of another hub is judged by itself, whatever runs.
    fs::write(&terminal_file, with_another_hub_key(&config)).unwrap();
    let (code, findings) = examine(&terminal_file);
    assert_eq!((code, verdict(&findings, "hub")), (Some(1), "fail"), "{findings:#}");
    assert_eq!(verdict(&findings, "running"), "warn", "{findings:#}");
    exchange(&mut client);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

fn with_another_hub_key(config: &str) -> String {
    let other = gateway::keys::PrivateKey::generate().unwrap().public();
    let other = format!("hub_key = \"{}\"", gateway::keys::format_public_key(&other));
    let line =
        |line: &str| if line.starts_with("hub_key") { other.clone() } else { line.to_owned() };
    config.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Output of the doctor on the terminal's host.
pub(crate) fn examine(config: &Path) -> (Option<i32>, Value) {
    let skyhop = std::env::var_os("SKYHOP").unwrap();
    let mut command: Command = find_netns(Node::Terminal).unwrap().command(skyhop);
    let output = command.args(["doctor", "--json"]).arg(config).output().unwrap();
    let findings = serde_json::from_slice(&output.stdout);
    (output.status.code(), findings.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// The doctor's worst verdict on a check.
fn verdict<'a>(findings: &'a Value, check: &str) -> &'a str {
    let of = findings.as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    let verdicts = of.map(|finding| finding["verdict"].as_str().unwrap());
    verdicts
        .min_by_key(|verdict| ["fail", "warn", "ok"].iter().position(|it| it == verdict))
        .unwrap()
}

#[test]
fn a_pair_takes_a_changed_configuration_and_exports_its_metrics() {
    as_each_user(|runner| runner.inside(bare(), "operate::inside_a_pair_reloads"));
}

pub(crate) fn inside_a_pair_reloads() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let state = format!("{}\nstate = {:?}", sockets.key("hub"), sockets.path("kept"));
    let good = keys.hub_config(&state, "[metrics]\nlisten = \"127.0.0.1:9590\"");
    let file = sockets.path("hub.toml");
    let write = |text: &str| write_secret(&file, text);
    write(&good);
    let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, &sockets.key("terminal"), "");
    let mut client = mirror.connect_carried();
    let at_hub = sockets.path("hub");
    let rate = || status(&at_hub)["sessions"][0]["rate_bit_s"].as_u64();
    assert_eq!(rate(), Some(100_000_000));

    write(&good.replace("100 Mbit/s", "60 Mbit/s"));
    let reloaded = skyhop(&["reload"], &at_hub);
    assert_eq!(text(&reloaded.stdout), "configuration reloaded; changed: rate");
    assert_eq!(rate(), Some(60_000_000));
    write(&format!("mtu = 1400\n{}", good.replace("100 Mbit/s", "60 Mbit/s")));
    let reloaded = text(&skyhop(&["reload"], &at_hub).stdout);
    assert!(reloaded.contains("these need a restart, or `skyhop upgrade`: mtu"), "{reloaded}");
    write(&good.replace("100 Mbit/s", "sixty"));
    let refused = skyhop(&["reload"], &at_hub);
    assert!(!refused.status.success() && text(&refused.stderr).contains("sixty"), "{refused:?}");
    assert_eq!(rate(), Some(60_000_000));
    exchange(&mut client);
    the_log_changes(&good.replace("100 Mbit/s", "60 Mbit/s"), &mut hub, write);
    classes_change(&good, &at_hub, write);
    exchange(&mut client);

    let metrics = get(Node::Hub, "/metrics");
    assert!(metrics.contains("\nskyhop_sessions 1.0\n"), "{metrics}");
    assert!(
        metrics.contains("skyhop_session_rate_bits_per_second{peer=\"1\"} 60000000.0"),
        "{metrics}"
    );
    assert!(get(Node::Hub, "/status.json").contains("\"role\":\"hub\""));
    assert!(get(Node::Hub, "/").contains("<title>skyhop</title>"));

    // The hub no longer serves this terminal.
    write(
        &good
            .replace("100 Mbit/s", "70 Mbit/s")
            .replace("\nkey = ", "\nkey = \"HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=\" # "),
    );
    hub.hang_up();
    hub.wait_for("configuration reloaded");
    assert_reset(&client);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A reload raises a running hub's log level, and restores it.
fn the_log_changes(good: &str, hub: &mut Gateway, write: impl Fn(&str)) {
    write(&format!("log = \"loud\"\n{good}"));
    hub.hang_up();
    hub.wait_for("expected a level");
    write(&format!("log = \"debug\"\n{good}"));
    hub.hang_up();
    hub.wait_for("configuration reloaded");
    assert_reset(&connect(addresses(PORT + 1)[0]));
    hub.wait_for("cannot connect: ");
    write(good);
    hub.hang_up();
    hub.wait_for("configuration reloaded");
    assert_reset(&connect(addresses(PORT + 2)[0]));
    // Logged after everything that this connection would have logged.
    hub.hang_up();
    hub.wait_for("configuration reloaded");
    assert!(!hub.has_said("cannot connect: "));
}

/// A reload changes a running hub's classes, for existing and new connections.
fn classes_change(good: &str, at_hub: &Path, write: impl Fn(&str)) {
    let classes = || -> Vec<(Value, Value)> {
        let seen = status(at_hub);
        let rows = seen["sessions"][0]["classes"].as_array().unwrap();
        rows.iter().map(|class| (class["name"].clone(), class["weight"].clone())).collect()
    };
    let row = |name: &str, weight: u16| (Value::from(name), Value::from(weight));
    assert_eq!(classes(), [row("bulk", 1), row("interactive", 8), row("default", 4)]);
    let mail = "[[class]]\nname = \"mail\"\nports = [4000]\nweight = 7\nmaximum = \"1 Mbit/s\"\n";
    let slow = good.replace("100 Mbit/s", "60 Mbit/s");
    write(&format!("{slow}\n{mail}"));
    skyhop(&["reload"], at_hub);
    assert_eq!(classes(), [row("mail", 7), row("default", 1)]);
    let seen = status(at_hub);
    assert_eq!(seen["sessions"][0]["classes"][0]["maximum_bit_s"], 1_000_000);
    write(&format!("{slow}\n{}", mail.replace("weight = 7", "weight = 0")));
    let refused = skyhop(&["reload"], at_hub);
    assert!(text(&refused.stderr).contains("class.0.weight"), "{refused:?}");
    assert_eq!(classes(), [row("mail", 7), row("default", 1)]);
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// An HTTP response from a gateway's host.
pub(crate) fn get(node: Node, path: &str) -> String {
    let connect = || TcpStream::connect("127.0.0.1:9590").unwrap();
    let mut socket = find_netns(node).unwrap().run(connect);
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    said
}
