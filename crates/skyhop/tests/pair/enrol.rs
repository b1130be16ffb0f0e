//! Terminals join a running hub with one-time tokens, and are revoked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gateway::keys::PrivateKey;
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::common::{as_each_user, text};
use crate::inside::{Gateway, Mirror, PATIENCE, assert_reset, connect_carried_until, exchange};
use crate::lossless;

const PORT: u16 = 4000;

/// A hub with a directory of permits.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        fs::create_dir(site.path("permits")).unwrap();
        let key = PrivateKey::generate().unwrap();
        key.write_file(&site.path("hub.key")).unwrap();
        let config = "private_key_file = \"hub.key\"\nrate = \"100 Mbit/s\"\npermits = \"permits\"\n\
                      control = \"none\"\n";
        fs::write(site.path("hub.toml"), config).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn hub(&self) -> Gateway {
        let mut hub = Gateway::start_from(Node::Hub, "hub", &self.path("hub.toml"));
        hub.wait_for("ready");
        hub
    }

    /// What `skyhop enrol COMMAND hub.toml …` prints.
    fn enrol(&self, command: &str, rest: &[&str]) -> String {
        let mut enrol = Command::new(std::env::var_os("SKYHOP").unwrap());
        let output = enrol.args(["enrol", command]).arg(self.path("hub.toml")).args(rest).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn invite(&self, name: &str) -> String {
        self.enrol("invite", &[name, "--hub", "hub:5900", "--network", "10.1.0.0/16"])
    }

    fn permit(&self, name: &str) -> String {
        fs::read_to_string(self.path("permits").join(format!("{name}.toml"))).unwrap()
    }
}

/// Joins from the terminal.
fn join(token: &str, directory: &Path) -> Output {
    let skyhop = std::env::var_os("SKYHOP").unwrap();
    let mut join = find_netns(Node::Terminal).unwrap().command(skyhop);
    join.args(["enrol", "join", token]).arg(directory).args(["--interface", LAN_DEVICE]);
    join.output().unwrap()
}

#[test]
fn a_terminal_joins_with_a_token_and_is_revoked() {
    as_each_user(|runner| runner.inside(lossless(), "enrol::inside_a_terminal_joins"));
}

pub(crate) fn inside_a_terminal_joins() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    let mut hub = site.hub();
    let token = site.invite("ship-1");
    hub.wait_for("serving 1 terminals");
    assert!(site.permit("ship-1").contains("invite = "));
    let joined = join(&token, &site.path("ship"));
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    hub.wait_for("ship-1 has joined with the key ");
    let permit = site.permit("ship-1");
    assert!(permit.contains("key = ") && permit.contains("10.1.0.0/16"), "{permit}");
    assert!(!permit.contains("invite = ") && !permit.contains("expires"), "{permit}");

    // The file that `join` has written works.
    let file = site.path("ship").join("ship-1.toml");
    let mut terminal = Gateway::start_from(Node::Terminal, "terminal", &file);
    terminal.wait_for("ready");
    let mut held = connect_carried_until(&mirror);
    exchange(&mut held);

    // The token has been used.
    let again = join(&token, &site.path("thief"));
    assert!(!again.status.success() && text(&again.stderr).contains("used"), "{again:?}");
    assert!(!site.path("thief").join("ship-1.toml").exists());

    // A permit that makes no sense changes nothing for others, or for itself.
    let written = site.path("permits").join("ship-1.toml");
    fs::write(&written, "key = \"no key\"\n").unwrap();
    hub.wait_for("permit refused: ");
    exchange(&mut held);
    fs::write(&written, &permit).unwrap();
    assert!(site.enrol("list", &[]).contains("joined"));

    site.enrol("revoke", &["ship-1"]);
    terminal.wait_for("the other side no longer serves this one");
    assert_reset(&held);
    // One that was intercepted just before is reset.
    let next = (0..3).find_map(|_| mirror.try_connect(PATIENCE));
    assert!(next.is_some_and(|(_, carried)| !carried));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn an_invitation_opens_nothing_but_enrolment_and_expires() {
    as_each_user(|runner| runner.inside(lossless(), "enrol::inside_an_invitation"));
}

pub(crate) fn inside_an_invitation() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    let mut hub = site.hub();
    // A terminal that uses the invitation's key as its own.
    let stolen = PrivateKey::generate().unwrap();
    let key = gateway::keys::format_public_key(&stolen.public());
    let permit = site.path("permits").join("ship-1.toml");
    fs::write(&permit, format!("invite = \"{key}\"\n")).unwrap();
    hub.wait_for("serving 1 terminals");
    let hub_key = PrivateKey::read_file(&site.path("hub.key")).unwrap().public();
    let config = format!(
        "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nrate = \"50 Mbit/s\"\n\
         [intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
        stolen.to_base64(),
        gateway::keys::format_public_key(&hub_key)
    );
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    terminal.wait_for("ready");
    assert!(mirror.try_connect(PATIENCE).is_none_or(|(_, carried)| !carried));

    fs::write(&permit, format!("invite = \"{key}\"\nexpires = \"2026-01-01\"\n")).unwrap();
    hub.wait_for("serving 0 terminals");
    terminal.wait_for("the other side no longer serves this one");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
