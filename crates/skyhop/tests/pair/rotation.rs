//! A hub's key is replaced while its terminal runs, and the terminal needs no other file.

use std::fs;
use std::path::PathBuf;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node};
use nix::sys::signal::Signal;

use crate::common::{as_each_user, text};
use crate::inside::{Gateway, Mirror, assert_reset, connect_carried_until, exchange};
use crate::lossless;
use crate::operate::{skyhop, wait_for};

const PORT: u16 = 4000;

/// A pair with its files.
struct Site {
    directory: tempfile::TempDir,
    terminal: PrivateKey,
}

impl Site {
    fn new() -> Self {
        let site = Self {
            directory: tempfile::tempdir().unwrap(),
            terminal: PrivateKey::generate().unwrap(),
        };
        let [first, next] = ["first.key", "next.key"].map(|name| {
            let key = PrivateKey::generate().unwrap();
            key.write_file(&site.path(name)).unwrap();
            key.public()
        });
        assert_ne!(first, next);
        let text = format!(
            "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nrate = \"50 Mbit/s\"\n\
             control = {:?}\nstate = {:?}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
            site.terminal.to_base64(),
            format_public_key(&first),
            site.path("terminal"),
            site.directory.path(),
        );
        site.write("terminal.toml", &text);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes the hub's file with this key and these lines.
    fn configure(&self, key: &str, lines: &str) {
        let text = format!(
            "private_key_file = {key:?}\nrate = \"100 Mbit/s\"\ncontrol = {:?}\n{lines}\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
            self.path("hub"),
            format_public_key(&self.terminal.public()),
        );
        self.write("hub.toml", &text);
    }

    fn reload(&self) {
        let reloaded = skyhop(&["reload"], &self.path("hub"));
        assert!(reloaded.status.success(), "{reloaded:?}");
        assert!(!text(&reloaded.stdout).contains("restart"), "{reloaded:?}");
    }

    fn start(&self, node: Node, role: &str) -> Gateway {
        let mut gateway = Gateway::start_from(node, role, &self.path(&format!("{role}.toml")));
        gateway.wait_for("ready");
        gateway
    }
}

#[test]
fn a_hub_s_key_is_replaced_without_touching_the_terminal() {
    as_each_user(|runner| runner.inside(lossless(), "rotation::inside_rotation"));
}

pub(crate) fn inside_rotation() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    site.configure("first.key", "");
    let mut hub = site.start(Node::Hub, "hub");
    let mut terminal = site.start(Node::Terminal, "terminal");
    let mut held = mirror.connect_carried();

    site.configure(
        "first.key",
        "next_key_file = \"next.key\"\nkey_until = \"2099-01-01T00:00:00Z\"",
    );
    site.reload();
    terminal.wait_for("the next key of hub is ");
    wait_for(&site.path("hub"), "the terminal knows the key", |status| {
        status["next_key"]["known"] == 1 && status["next_key"]["in_force"] == false
    });
    let shown = skyhop(&["status"], &site.path("hub"));
    assert!(text(&shown.stdout).contains("known to 1 terminals\n"), "{shown:?}");
    // The time of the first key is over; the session and its connections go on.
    site.configure(
        "first.key",
        "next_key_file = \"next.key\"\nkey_until = \"2001-01-01T00:00:00Z\"",
    );
    site.reload();
    hub.wait_for("terminals reach this hub by the key ");
    exchange(&mut held);
    exchange(&mut mirror.connect_carried());

    // The next key is the only one, and the hub starts anew.
    site.configure("next.key", "");
    hub.end_by(Signal::SIGKILL);
    let hub = site.start(Node::Hub, "hub");
    terminal.wait_for("hub has the key ");
    assert_reset(&held);
    exchange(&mut connect_carried_until(&mirror));

    // The terminal's file still has the first key.
    terminal.end_by(Signal::SIGTERM);
    let terminal = site.start(Node::Terminal, "terminal");
    exchange(&mut connect_carried_until(&mirror));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
