//! A hub is replaced by a new process while connections go on.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use gateway::keys::{PrivateKey, format_public_key};
use lab::Node;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{as_each_user, text};
use crate::inside::{
    Gateway, Mirror, PATIENCE, accept, addresses, assert_same, connect, connect_carried_until,
    exchange, listen, payload, read_all, wait_until,
};
use crate::lossless;
use crate::operate::{skyhop, status, wait_for};

const PORT: u16 = 4000;
/// Where the server sends a file that takes several seconds at the hub's rate.
const FILE_PORT: u16 = 4001;
const FILE_BYTES: usize = 12_000_000;

fn configure(directory: &Path, hub: &PrivateKey, terminal: &PrivateKey, more: &str) -> PathBuf {
    let path = directory.join("hub.toml");
    let text = format!(
        "private_key = \"{}\"\nrate = \"20 Mbit/s\"\ncontrol = {:?}\nstate = {directory:?}\n{more}\n\
         [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
        hub.to_base64(),
        directory.join("hub"),
        format_public_key(&terminal.public()),
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The process that answers at this control socket.
fn pid(control: &Path) -> u64 {
    status(control)["pid"].as_u64().unwrap()
}

#[test]
fn a_hub_is_upgraded_and_no_connection_is_reset() {
    as_each_user(|runner| runner.inside(lossless(), "upgrade::inside_upgrade"));
}

pub(crate) fn inside_upgrade() {
    let (mirror, directory) = (Mirror::start(PORT), tempfile::tempdir().unwrap());
    let [hub_key, terminal_key] = [(), ()].map(|()| PrivateKey::generate().unwrap());
    let file = configure(directory.path(), &hub_key, &terminal_key, "");
    let control = directory.path().join("hub");
    let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
    hub.wait_for("ready");
    let config = format!(
        "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nrate = \"20 Mbit/s\"\n\
         [intercept]\ninterfaces = [\"{}\"]\n",
        terminal_key.to_base64(),
        format_public_key(&hub_key.public()),
        lab::LAN_DEVICE,
    );
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    terminal.wait_for("ready");

    let (before, listener) = (pid(&control), listen(FILE_PORT));
    let sent = payload(FILE_BYTES);
    let mut held = mirror.connect_carried();
    thread::scope(|scope| {
        scope.spawn(|| accept(&listener).write_all(&sent).unwrap());
        let download = scope.spawn(|| read_all(&connect(addresses(FILE_PORT)[0])));
        let upgraded = skyhop(&["upgrade", "--within", "1min"], &control);
        assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
        assert!(text(&upgraded.stdout).contains(" serves; connections of pid "), "{upgraded:?}");
        assert_ne!(pid(&control), before);
        assert_eq!(status(&control)["predecessor"], before);
        // The new process cannot be replaced while the old one is there.
        let again = skyhop(&["upgrade"], &control);
        assert!(text(&again.stderr).contains("still carries connections"), "{again:?}");
        exchange(&mut held);
        assert_same(&download.join().unwrap(), &sent);
    });
    exchange(&mut held);
    drop(held);
    hub.wait_for_end();
    let now = wait_for(&control, "the terminal has come over", |status| {
        status["sessions"].as_array().unwrap().len() == 1 && status["predecessor"].is_null()
    });
    let mut next = connect_carried_until(&mirror);
    exchange(&mut next);

    // Once more, to the half of the indices that the first process had; nothing is left of it.
    drop(next);
    wait_for(&control, "nothing is carried", |status| status["memory"]["connections"] == 0);
    let upgraded = skyhop(&["upgrade"], &control);
    assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
    assert_ne!(pid(&control), now["pid"].as_u64().unwrap());
    exchange(&mut connect_carried_until(&mirror));
    terminal.end_by(Signal::SIGTERM);
    kill(Pid::from_raw(pid(&control) as i32), Signal::SIGTERM).unwrap();
    wait_until(PATIENCE, || !control.exists());
}
