//! What the packages hold works: units, scripts, lists of files.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use os::testkit::skip;
use tempfile::TempDir;

const SKYHOP: &str = env!("CARGO_BIN_EXE_skyhop");
/// Where the units expect it.
const INSTALLED: &str = "/usr/bin/skyhop";
/// The units, an instance of each, and the greatest exposure in tenths
/// (`systemd-analyze security`).
const UNITS: [(&str, &str, u32); 3] = [
    ("skyhop-hub.service", "skyhop-hub.service", 13),
    ("skyhop-terminal@.service", "skyhop-terminal@ship-1.service", 22),
    ("skyhop-solo.service", "skyhop-solo.service", 22),
];
const PATIENCE: Duration = Duration::from_secs(20);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn packaging(path: &str) -> PathBuf {
    repository().join("packaging").join(path)
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// The instances of the units, with the test's program.
fn units(instance: &str) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let copy = |(unit, name, _): &(&str, &str, u32)| {
        let text = read(packaging("systemd").join(unit)).replace(INSTALLED, SKYHOP);
        let path = directory.path().join(name.replace("ship-1", instance));
        fs::write(&path, text).unwrap();
        path
    };
    let paths = UNITS.iter().map(copy).collect();
    (directory, paths)
}

fn systemd_analyze() -> Option<Command> {
    let found = Command::new("systemd-analyze").arg("--version").output().is_ok();
    found.then(|| Command::new("systemd-analyze"))
}

#[test]
fn systemd_accepts_the_units() {
    let Some(mut verify) = systemd_analyze() else { return skip("systemd-analyze is missing") };
    let (_directory, paths) = units("ship-1");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).args(paths);
    // Unknown keys are only warnings.
    assert_eq!(output(&mut verify), "");
}

#[test]
fn systemd_finds_them_hardened() {
    let Some(_) = systemd_analyze() else { return skip("systemd-analyze is missing") };
    let (_directory, paths) = units("ship-1");
    let operate = read(repository().join("docs/operate.md"));
    for ((_, name, exposure), path) in UNITS.iter().zip(paths) {
        let row = format!("| {}.{} |", exposure / 10, exposure % 10);
        let mut rows = operate.lines().filter(|line| line.ends_with(&row));
        assert!(rows.any(|line| line.contains(name.trim_end_matches(".service"))), "{name} {row}");
        let mut security = systemd_analyze().unwrap();
        security.args(["security", "--offline=true", "--no-pager"]);
        security.arg(format!("--threshold={exposure}")).arg(path);
        output(&mut security);
    }
}

/// The values of a key of a unit, with the instance filled in.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = read(packaging("systemd").join(unit)).replace("%i", "ship-1");
    let prefix = format!("{key}=");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

/// The command of a unit, for a gateway whose directories are below `root`.
fn unit_command(unit: &str, key: &str, root: &Path) -> Command {
    let [line] = &values(unit, key)[..] else { panic!("{unit} has one {key}") };
    let below = |text: &str| text.replace(" /etc/", &format!(" {}/etc/", root.display()));
    let line = below(line.trim_start_matches('-'));
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some(INSTALLED));
    let mut command = Command::new(SKYHOP);
    command.args(words);
    for variable in values(unit, "Environment") {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, format!("{}{value}", root.display()));
    }
    command
}

/// Starts, reloads and drains a hub as its unit does.
#[test]
fn a_hub_lives_as_its_unit_says() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let [runtime] = &values("skyhop-hub.service", "RuntimeDirectory")[..] else { panic!() };
    let socket = root.join("run").join(runtime).join("hub.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut init = Command::new(SKYHOP);
    init.arg("init").arg(root.join("etc/skyhop")).args(["--hub", &free.to_string()]);
    output(&mut init);
    let mut hub = unit_command("skyhop-hub.service", "ExecStart", root).spawn().unwrap();
    let started = Instant::now();
    while !socket.exists() {
        assert!(hub.try_wait().unwrap().is_none() && started.elapsed() < PATIENCE, "it starts");
        std::thread::sleep(Duration::from_millis(10));
    }
    let reload = output(&mut unit_command("skyhop-hub.service", "ExecReload", root));
    assert!(reload.contains("reloaded"), "{reload}");
    output(&mut unit_command("skyhop-hub.service", "ExecStop", root));
    assert!(hub.wait().unwrap().success());
}

#[test]
fn every_unit_starts_a_gateway_and_stops_it_in_time() {
    for (unit, _, _) in UNITS {
        let nowhere = tempfile::tempdir().unwrap();
        for (key, why) in [
            ("ExecStart", ".toml"),
            ("ExecReload", "no private directory"),
            ("ExecStop", "no private directory"),
        ] {
            let output = unit_command(unit, key, nowhere.path()).output().unwrap();
            let said = said(&output);
            let known = said.contains(why) || said.contains("no gateway runs here");
            assert!(known && !said.contains("Usage"), "{unit} {key}: {said}");
        }
        let stop = values(unit, "ExecStop").concat();
        let within = stop.rsplit_once(' ').unwrap().1.trim_end_matches('s');
        let limit = values(unit, "TimeoutStopSec").concat();
        let [within, limit] = [within, &limit].map(|text| text.parse::<u32>().unwrap());
        assert!(within < limit, "{unit}: systemd waits for the drain");
    }
}
