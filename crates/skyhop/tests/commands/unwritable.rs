//! Outputs that cannot be written: a full disk, a pipe whose reader left, a terminal that hung up, and a
//! reader that stopped. No command panics, each ends with its documented exit code, and gateways live on.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, Write, pipe};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use os::process::Handle;
use tempfile::TempDir;

use crate::common::terminal::{await_text, hung_up, on_a_terminal};
use crate::common::{Runner, as_myself, text};

/// An output that fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Broken {
    /// Every write fails: no space left on device.
    Full,
    /// Its reader has left.
    Closed,
    /// A terminal whose other end is closed.
    HungUp,
}

const BROKEN: [Broken; 3] = [Broken::Full, Broken::Closed, Broken::HungUp];

impl Broken {
    fn output(self) -> Stdio {
        match self {
            Self::Full => File::options().write(true).open("/dev/full").unwrap().into(),
            Self::Closed => pipe().unwrap().1.into(),
            Self::HungUp => hung_up().into(),
        }
    }
}

/// Lines that need files only. In each, `DIR` is the test's directory.
const FILES: &str = "
    demo --no-such-option
    hub DIR/hub.toml --print-rules
    hub DIR/no.toml
    terminal DIR/terminal.toml --print-rules
    terminal DIR/hub.toml
    solo DIR/solo.toml --print-rules
    keygen
    init DIR/init --hub 192.0.2.1:4500
    init --role other
    enrol invite DIR/hub.toml x --hub 192.0.2.1:4500
    enrol join token DIR/joined
    enrol revoke DIR/hub.toml x
    enrol list DIR/hub.toml
    check DIR/hub.toml DIR/solo.toml
    check DIR/hub.toml DIR/bad.toml
    schema hub
    doctor DIR/hub.toml
    doctor --explain clock
    doctor --explain nonsense
    lab presets
    lab show geo
    meter serve --listen 192.0.2.1:1
    meter bulk 127.0.0.1:1
    meter rr 127.0.0.1:1
    meter page 127.0.0.1:1
    meter udp 127.0.0.1:1
    meter swarm --print-hub-config
    meter compare DIR/no.json
    meter trace DIR/hub.toml
    tcp serve
    tcp get http://192.0.2.1/1MB
    tcp compare no-preset
    completions bash
    man
    --help
    lab --help
    --version
    no-such-command
    lab
";

/// Lines that simulate.
const STUDIES: &str = "
    sim DIR/short.toml --seeds 1
    study list
    study plan DIR/short.toml
    study run DIR/short.toml --store DIR/store
    study report DIR/short.toml --store DIR/store
    study report enac-table2 --store DIR/store
    study cell 0000 --plan DIR/no.json
    study add --store DIR/store
    study design --rate 2Mbit/s
";

/// Lines that ask a running hub.
const GATEWAYS: &str = "
    status
    status --json
    status --watch
    accounting
    events --for 1ms
    reload
    rate 1Mbit/s --for 1s
    rate 1Mbit/s --for 1s --peer nobody
    bundle list
    bundle receive 7
    bundle send DIR/hub.toml --to ipn:1.7
    outbox DIR --to ipn:1.7 --once
    upgrade --control DIR/none.sock
    drain --control DIR/none.sock
";

/// Lines that start labs; each may rely on those before it.
const LABS: &str = "
    lab status
    lab run t1 -- true
    lab run t1 -- no-such-program
    lab run t1 --gateways -- true
    lab shell t1
    lab up t1 --name broken
    lab set broken --per 1%
    lab exec --lab broken client -- true
    lab status
    lab down broken
    lab down broken
    lab check no-preset
";

/// A directory with configurations.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = directory.path().join(format!("{name}.key"));
        let output = Runner::myself().skyhop().arg("keygen").arg(&path).output().unwrap();
        text(&output.stdout)
    };
    let (hub, terminal) = (key("hub"), key("terminal"));
    // No two tests share a port: it is the kernel's choice.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let files = [
        (
            "hub.toml",
            format!(
                "private_key_file = \"hub.key\"\nrate = \"auto\"\nlisten = \"127.0.0.1:{port}\"\n\
                 log = \"trace\"\n[[terminal]]\nname = \"x\"\nkey = \"{terminal}\"\n"
            ),
        ),
        (
            "terminal.toml",
            format!(
                "private_key_file = \"terminal.key\"\nrate = \"auto\"\nhub = \"127.0.0.1:{port}\"\n\
                 hub_key = \"{hub}\"\nlog = \"trace\"\n[proxy]\nlisten = \"127.0.0.1:0\"\n"
            ),
        ),
        ("solo.toml", "log = \"trace\"\n[proxy]\nlisten = \"127.0.0.1:0\"\n".to_owned()),
        ("bad.toml", "rate = 7\n".to_owned()),
        ("short.toml", short_scenario()),
    ];
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let run = directory.path().join("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
    directory
}

fn short_scenario() -> String {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    fs::read_to_string(scenarios.join("enac-table2.toml")).unwrap()
}

/// `skyhop` with the arguments of this line, and nothing outside `directory`.
fn skyhop(directory: &Path, line: &str) -> Command {
    // `init` writes no file that is there already.
    let _ = fs::remove_dir_all(directory.join("init"));
    let line = line.replace("DIR", directory.to_str().unwrap());
    let mut command = Runner::myself().skyhop();
    command.args(line.split_whitespace());
    command.env("SKYHOP_RUN_DIR", directory.join("run"));
    command.env("SKYHOP_STATE_DIR", directory.join("run"));
    command.env("SHELL", "true").env("HOME", directory).current_dir(directory);
    command.env_remove("SKYHOP_LOG").env_remove("XDG_RUNTIME_DIR");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits for its end, which must come.
fn end(mut child: Child, what: &str) -> ExitStatus {
    let process = Handle::open(child.id()).unwrap();
    if let Some(process) = process {
        let mut ends = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ends, PollTimeout::from(60_000u16)).unwrap() == 0 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what} does not end");
        }
    }
    child.wait().unwrap()
}

/// The exit codes of these lines with these outputs, and how many bytes the ordinary run prints.
fn codes(
    directory: &Path,
    lines: &str,
    change: impl Fn(&mut Command),
) -> Vec<(String, Option<i32>)> {
    let run = |line: &str| {
        let mut command = skyhop(directory, line);
        change(&mut command);
        let child = command.spawn().unwrap();
        // Our end of a pipe or terminal goes with it.
        drop(command);
        (line.to_owned(), end(child, line).code())
    };
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(run).collect()
}

/// Whether each line prints something on standard output.
fn prints(directory: &Path, lines: &str) -> Vec<bool> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let prints = |line: &str| {
        // It prints until its reader leaves.
        let line = line.trim_end_matches(" --watch");
        let output = skyhop(directory, line).stdout(Stdio::piped()).output().unwrap();
        !output.stdout.is_empty()
    };
    lines.map(prints).collect()
}

fn check(directory: &Path, lines: &str) {
    // `--watch` ends with its reader only.
    let endless = lines.contains("--watch").then_some(Broken::Closed);
    let ordinary = codes(directory, lines, |command| {
        if let Some(broken) = endless.filter(|_| is_endless(command)) {
            command.stdout(broken.output());
        }
    });
    for (line, code) in &ordinary {
        assert!(matches!(code, Some(0..=2 | 127)), "{line}: {code:?}");
    }
    let prints = prints(directory, lines);
    for broken in BROKEN {
        let without_errors = codes(directory, lines, |command| {
            command.stderr(broken.output());
            if let Some(broken) = endless.filter(|_| is_endless(command)) {
                command.stdout(broken.output());
            }
        });
        assert_eq!(without_errors, ordinary, "standard error is {broken:?}");
        let without_any = codes(directory, lines, |command| {
            command.stderr(broken.output()).stdout(broken.output());
        });
        for (((line, code), (_, usual)), prints) in without_any.iter().zip(&ordinary).zip(&prints) {
            let fails = *prints && broken != Broken::Closed;
            let expected = if fails { Some(2) } else { *usual };
            assert_eq!(*code, expected, "{line}: both outputs are {broken:?}");
        }
    }
}

fn is_endless(command: &Command) -> bool {
    command.get_args().any(|argument| argument == "--watch")
}

#[test]
fn every_command_is_tried() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = fs::read_to_string(page).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("### skyhop "));
    let tried = [FILES, STUDIES, GATEWAYS, LABS].concat();
    let is_tried = |command: &&str| {
        tried
            .lines()
            .any(|line| line.split_whitespace().zip(command.split(' ')).all(|(a, b)| a == b))
    };
    let left: Vec<&str> = commands.filter(|command| !is_tried(command)).collect();
    assert_eq!(left, Vec::<&str>::new());
}

#[test]
fn commands_end_as_they_would_if_their_outputs_could_be_written() {
    check(directory().path(), FILES);
}

#[test]
fn studies_end_as_they_would_if_their_outputs_could_be_written() {
    check(directory().path(), STUDIES);
}

#[test]
fn labs_end_as_they_would_if_their_outputs_could_be_written() {
    as_myself(|_| check(directory().path(), LABS));
}

#[test]
fn operators_commands_end_as_they_would_if_their_outputs_could_be_written() {
    let directory = directory();
    let mut command = skyhop(directory.path(), "hub DIR/hub.toml");
    let mut hub = command.stdout(Stdio::piped()).spawn().unwrap();
    await_ready(&mut hub);
    check(directory.path(), GATEWAYS);
    stop(hub, "hub");
}

fn await_ready(gateway: &mut Child) {
    let mut line = String::new();
    BufReader::new(gateway.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
}

fn stop(gateway: Child, what: &str) {
    kill(Pid::from_raw(gateway.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(end(gateway, what).code(), Some(0), "{what}");
}

/// A pipe that is full, so that the next write to it waits for a reader.
fn stalled() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let full = loop {
        if let Err(error) = writer.write(&[b'\n'; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer.into())
}

/// Starts a gateway, makes it log by a reload, asks it, and stops it.
fn live(directory: &Path, role: &str, log: Stdio, what: &str) {
    let mut command = skyhop(directory, &format!("{role} DIR/{role}.toml"));
    let mut gateway = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    drop(command);
    await_ready(&mut gateway);
    operate(directory, role, what);
    stop(gateway, what);
}

fn operate(directory: &Path, role: &str, what: &str) {
    for line in ["reload", "status"] {
        let line = format!("{line} --control DIR/run/{role}.sock");
        let output = skyhop(directory, &line).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{what}: {line}: {}", text(&output.stderr));
    }
}

#[test]
fn gateways_live_on_without_a_log() {
    let directory = directory();
    let mut command = skyhop(directory.path(), "hub DIR/hub.toml");
    for role in ["hub", "terminal", "solo"] {
        // A terminal needs a hub to be ready.
        let hub = (role == "terminal").then(|| {
            let mut hub = command.stdout(Stdio::piped()).spawn().unwrap();
            await_ready(&mut hub);
            hub
        });
        for broken in BROKEN {
            live(directory.path(), role, broken.output(), &format!("{role}, {broken:?}"));
        }
        let (reader, log) = stalled();
        live(directory.path(), role, log, &format!("{role}, stalled"));
        drop(reader);
        if let Some(hub) = hub {
            stop(hub, "hub");
        }
    }
}

#[test]
fn a_gateway_outlives_its_terminal() {
    let directory = directory();
    let mut command = skyhop(directory.path(), "hub DIR/hub.toml");
    command.env("TERM", "dumb");
    let (hub, mut terminal) = on_a_terminal(command);
    await_text(&mut terminal, "ready");
    // The kernel sends SIGHUP, which asks for a reload; all that it logs from now on fails.
    drop(terminal);
    operate(directory.path(), "hub", "hub whose terminal is gone");
    stop(hub, "hub whose terminal is gone");
}
