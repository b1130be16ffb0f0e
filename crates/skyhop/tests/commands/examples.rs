//! The worked examples: every file is valid, and every gateway runs on its example's link.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Runner, as_each_user, text};

/// Bytes of a download, `http://server/200kB`.
const OBJECT: u64 = 200_000;

/// An example in a directory of its own, with keys, and with the lab's names instead of the world's.
struct Example {
    directory: tempfile::TempDir,
    /// Names of the gateways' files, without `.toml`; the hub's first.
    gateways: &'static [&'static str],
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

impl Example {
    fn new(name: &str, gateways: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        open_to_all(directory.path());
        let example = Self { directory, gateways };
        for entry in fs::read_dir(examples().join(name)).unwrap() {
            let from = entry.unwrap().path();
            let to = example.path(from.file_name().unwrap().to_str().unwrap());
            fs::copy(from, to).unwrap();
        }
        example
    }

    /// The keys of all gateways. Files replace their example keys by those.
    fn with_keys(self, runner: &Runner) -> Self {
        let hub = self.keygen(runner, "hub");
        let mut hub_file = fs::read_to_string(self.path("hub.toml")).unwrap();
        for name in self.gateways.iter().filter(|name| **name != "hub") {
            let own = self.keygen(runner, name);
            let section = format!("name = \"{name}\"\n");
            let (before, after) = hub_file.split_once(&section).expect("the hub permits it");
            hub_file = before.to_owned() + &section + &with_value(after, "key", &own);
            let path = self.path(&format!("{name}.toml"));
            let terminal = with_value(&fs::read_to_string(&path).unwrap(), "hub_key", &hub);
            fs::write(path, terminal).unwrap();
        }
        fs::write(self.path("hub.toml"), hub_file).unwrap();
        self
    }

    fn keygen(&self, runner: &Runner, name: &str) -> String {
        let path = self.path(&format!("{name}.key"));
        let output = runner.skyhop().arg("keygen").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Names that differ in the lab.
    fn for_the_lab(self) -> Self {
        let state = self.path("state").display().to_string();
        for name in self.gateways {
            let path = self.path(&format!("{name}.toml"));
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace("hub.example.net", "hub").replace("\"wan0\"", "\"sat0\"");
            // The lab's server is in a network that hubs usually close.
            let text = text.replace("\"10.0.0.0/8\", ", "");
            fs::write(path, text.replace("/var/lib/skyhop", &state)).unwrap();
        }
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `skyhop COMMAND` in the example's directory, which must succeed.
    fn skyhop(&self, runner: &Runner, arguments: &[&str]) -> String {
        let mut command = runner.skyhop();
        let output = command.args(arguments).current_dir(self.directory.path()).output().unwrap();
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {said}\n{errors}");
        said
    }

    /// Runs a script on the client of a lab with the example's link.
    fn in_its_lab(&self, runner: &Runner, script: &str) -> String {
        let mut command: Command = runner.skyhop();
        command.args(["lab", "run", "./link.toml", "--", "sh", "-euc", script]);
        command.env("SKYHOP", &runner.skyhop).current_dir(self.directory.path());
        let output = command.output().unwrap();
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}\n{errors}");
        said
    }
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
}

/// `text` with another value of the first `key = "…"` at the start of a line.
fn with_value(text: &str, key: &str, value: &str) -> String {
    let start = format!("{key} = \"");
    let is_first = |line: &str| line.starts_with(&start);
    let number = text.lines().position(is_first).expect(key);
    let line = |(at, line): (usize, &str)| match at == number {
        true => format!("{start}{value}\"\n"),
        false => format!("{line}\n"),
    };
    text.lines().enumerate().map(line).collect()
}

/// `start HOST ROLE FILE` starts a gateway, `ready FILE` waits until it is ready. All end with the
/// script.
const START: &str = r#"
start() {
    "$SKYHOP" lab exec "$1" -- "$SKYHOP" "$2" "$3" >"$3.out" 2>"$3.log" &
    pids="${pids-} $!"
}
ready() {
    for try in $(seq 300); do
        if grep -q ready "$1.out"; then return; fi
        sleep 0.1
    done
    cat "$1.log" >&2
    exit 1
}
trap 'kill $pids; wait' EXIT
"#;

/// The pair carries a download, and says so.
fn carries(name: &str, gateways: &'static [&'static str]) {
    as_each_user(|runner| {
        let example = Example::new(name, gateways).with_keys(runner).for_the_lab();
        let files: Vec<String> = gateways.iter().map(|name| format!("{name}.toml")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let checked = example.skyhop(runner, &[&["check"], &files[..]].concat());
        assert_eq!(checked.matches(": valid, ").count(), files.len(), "{checked}");
        let mut script = format!("{START}start hub hub hub.toml; ready hub.toml\n");
        for (number, file) in files[1..].iter().enumerate() {
            let number = if number == 0 { String::new() } else { (number + 1).to_string() };
            script += &format!("start terminal{number} terminal {file}; ready {file}\n");
            script += &format!(
                "\"$SKYHOP\" lab exec client{number} -- curl -sSfo /dev/null --max-time 60 \
                 http://server/200kB\n"
            );
        }
        script += "\"$SKYHOP\" status --json\n";
        assert_carried(&example.in_its_lab(runner, &script), "terminal", "from_hop_bytes");
    });
}

/// Every gateway of that role has carried the download: `status` is what `skyhop status` printed.
fn assert_carried(status: &str, role: &str, counter: &str) {
    let status: Value = serde_json::from_str(status).unwrap();
    let of_role = status.as_array().unwrap().iter().filter(|gateway| gateway["role"] == role);
    let carried: Vec<u64> =
        of_role.map(|gateway| gateway["traffic"][counter].as_u64().unwrap()).collect();
    assert!(!carried.is_empty() && carried.iter().all(|bytes| *bytes >= OBJECT), "{status:#}");
}

#[test]
fn every_file_is_valid() {
    let mut count = 0;
    for entry in fs::read_dir(examples()).unwrap() {
        let folder = entry.unwrap().path();
        let files = fs::read_dir(&folder).into_iter().flatten();
        let files = files.map(|entry| entry.unwrap().path());
        let files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
        if !folder.is_dir() || files.is_empty() {
            continue;
        }
        let mut command = Runner::myself().skyhop();
        let output = command.args(["check", "--without-keys"]).args(&files).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
        count += files.len();
    }
    assert!(count >= 15, "{count} files");
}

#[test]
fn a_ship_carries_a_download() {
    carries("ship", &["hub", "ship-1"]);
}

#[test]
fn two_villages_carry_downloads() {
    carries("village", &["hub", "village", "clinic"]);
}

#[test]
fn an_oil_rig_carries_a_download() {
    carries("oil-rig", &["hub", "rig"]);
}

#[test]
fn a_backhaul_carries_a_download() {
    carries("cellular-backhaul", &["hub", "cell"]);
}

#[test]
fn one_box_carries_a_download() {
    as_each_user(|runner| {
        let example = Example::new("one-box", &["solo"]).for_the_lab();
        let script = format!(
            "{START}start terminal solo solo.toml; ready solo.toml\n\
             curl -sSfo /dev/null --max-time 60 http://server/200kB\n\"$SKYHOP\" status --json\n"
        );
        assert_carried(&example.in_its_lab(runner, &script), "solo", "down_bytes");
    });
}
