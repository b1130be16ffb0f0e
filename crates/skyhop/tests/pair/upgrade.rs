//! A hub is replaced by a new process while connections go on.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use lab::{LAN_DEVICE, Node};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{as_each_user, text};
use crate::directions;
use crate::gateways::{Keys, accept_any, both};
use crate::inside::{
    Gateway, Mirror, PATIENCE, addresses, assert_same, connect, exchange, listen, payload,
    read_all, wait_until,
};
use crate::lossless;
use crate::operate::{skyhop, status, wait_for};
use crate::tunnel;

const PORT: u16 = 4000;
/// Where the server sends a file that takes several seconds at the hub's rate.
const FILE_PORT: u16 = 4001;
const FILE_BYTES: usize = 8_000_000;
/// Where a client is reached from the hub's side.
const CLIENT_PORT: u16 = 4002;
/// Environment variable that is set for a hub with workers and interception. The other one is
/// transparent.
const WORKERS: &str = "WORKERS";

fn has_workers() -> bool {
    std::env::var_os(WORKERS).is_some()
}

/// A connection that the terminal carries. A transparent hub does not show.
fn dial(mirror: &Mirror) -> TcpStream {
    let (socket, seen_as_hub) = mirror.connect();
    assert_eq!(seen_as_hub, has_workers());
    socket
}

/// The process that answers at this control socket.
fn pid(control: &Path) -> u64 {
    status(control)["pid"].as_u64().unwrap()
}

fn has_session(status: &Value) -> bool {
    status["sessions"].as_array().unwrap().len() == 1
}

/// Sections that need what only one process can have.
fn one_of_each(directory: &Path) -> String {
    let (cache, store) = (directory.join("cache"), directory.join("bundles"));
    format!(
        "[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[tunnel]\n\
         [http]\ncache = true\ndirectory = {cache:?}\n\
         [bundles]\nnode = \"ipn:1.0\"\nstore = {store:?}\n\
         [[bundles.peer]]\nnode = \"ipn:2.0\"\nterminal = \"1\"\n"
    )
}

#[test]
fn a_hub_is_upgraded_and_no_connection_is_reset() {
    as_each_user(|runner| {
        let variables = if runner.user.is_none() { "WORKERS=2" } else { "" };
        runner.inside_with(lossless(), "upgrade::inside_upgrade", variables);
    });
}

pub(crate) fn inside_upgrade() {
    let (mirror, directory) = (Mirror::start(PORT), tempfile::tempdir().unwrap());
    let (keys, control) = (Keys::new(1), directory.path().join("hub"));
    let state = directory.path();
    // An ordinary user's tunnel is a pair of veth devices.
    let (own, sections) = match has_workers() {
        true => ("workers = 2", one_of_each(directory.path())),
        false => ("transparent = true", "[tunnel]\n".to_owned()),
    };
    let own = format!("rate = \"20 Mbit/s\"\ncontrol = {control:?}\nstate = {state:?}\n{own}");
    let file = directory.path().join("hub.toml");
    fs::write(&file, keys.hub_config(&own, &sections)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", "\n[tunnel]\n");

    let (before, listener) = (pid(&control), listen(FILE_PORT));
    let sent = payload(FILE_BYTES);
    let mut held = dial(&mirror);
    assert_eq!(status(&control)["memory"]["connections"], 1);
    thread::scope(|scope| {
        scope.spawn(|| accept_any(&listener).0.write_all(&sent).unwrap());
        let download = scope.spawn(|| read_all(&connect(addresses(FILE_PORT)[0])));
        let upgraded = skyhop(&["upgrade", "--within", "1min"], &control);
        assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
        assert!(text(&upgraded.stdout).contains(" serves; connections of pid "), "{upgraded:?}");
        assert_ne!(pid(&control), before);
        assert_eq!(status(&control)["predecessor"], before);
        // The new process cannot be replaced while the old one is there.
        let again = skyhop(&["upgrade"], &control);
        assert!(text(&again.stderr).contains("still carries connections"), "{again:?}");
        // The terminal has a session with either.
        wait_for(&control, "the terminal has come over", has_session);
        let mut new = dial(&mirror);
        assert_eq!(status(&control)["memory"]["connections"], 1);
        exchange(&mut new);
        tunnel::echo_on(Node::Server);
        tunnel::wait_for_answer(&tunnel::client(both(Node::Server, tunnel::PORT)[0]));
        let now = status(&control);
        assert!(now["tunnel"]["to_hop"].as_u64().unwrap() > 0, "{now}");
        assert_eq!(now["bundles"].is_object() && now["http"].is_object(), has_workers(), "{now}");
        exchange(&mut held);
        assert_same(&download.join().unwrap(), &sent);
    });
    exchange(&mut held);
    drop(held);
    hub.wait_for_end();
    let now = wait_for(&control, "the process before has ended", |status| {
        has_session(status) && status["predecessor"].is_null()
    });
    // It has told what it still carried.
    let accounts = skyhop(&["accounting", "--json"], &control);
    let account: Value = serde_json::from_slice(&accounts.stdout).unwrap();
    let classes = account["classes"].as_object().unwrap().values();
    let moved: u64 = classes.map(|class| class["bytes_to"].as_u64().unwrap()).sum();
    assert!(moved >= FILE_BYTES as u64, "{account}");
    let mut next = dial(&mirror);
    exchange(&mut next);
    if has_workers() {
        let address = both(Node::Client, CLIENT_PORT)[0];
        directions::wait_until(Node::Server, Node::Client, address, true);
    }

    // Once more, to the half of the indices that the first process had; nothing is left of it.
    drop(next);
    wait_for(&control, "nothing is carried", |status| status["memory"]["connections"] == 0);
    let upgraded = skyhop(&["upgrade"], &control);
    assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
    assert_ne!(pid(&control), now["pid"].as_u64().unwrap());
    wait_for(&control, "the terminal has come over", has_session);
    let mut last = dial(&mirror);
    exchange(&mut last);
    assert_eq!(status(&control)["memory"]["connections"], 1);
    terminal.end_by(Signal::SIGTERM);
    kill(Pid::from_raw(pid(&control) as i32), Signal::SIGTERM).unwrap();
    wait_until(PATIENCE, || !control.exists());
}
