//! Terminals join a running hub with one-time tokens, and are revoked.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gateway::keys::PrivateKey;
use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::skip;

use crate::clean_up::path;
use crate::common::{as_each_user, as_myself, text};
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
    join.args(["enrol", "join", "-"]).arg(directory).args(["--interface", LAN_DEVICE]);
    join.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut joining = join.spawn().unwrap();
    // It may have ended for another reason.
    let _ = joining.stdin.take().unwrap().write_all(token.as_bytes());
    joining.wait_with_output().unwrap()
}

#[test]
fn a_terminal_joins_with_a_token_and_is_revoked() {
    as_each_user(|runner| runner.inside(lossless(), "enrol::inside_a_terminal_joins"));
}

pub(crate) fn inside_a_terminal_joins() {
    let (mirror, site) = (Mirror::start(PORT), Site::new());
    let mut hub = site.hub();
    let token = site.invite("ship-1");
    hub.wait_for("serving 1 terminal");
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
    terminal.wait_for("the other side no longer serves this gateway");
    assert_reset(&held);
    // One that was intercepted just before is reset.
    let next = (0..3).find_map(|_| mirror.try_connect(PATIENCE));
    assert!(next.is_some_and(|(_, carried)| !carried));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_whose_network_blocks_udp_joins_over_tcp() {
    as_myself(|runner| runner.inside(lossless(), "enrol::inside_a_terminal_joins_over_tcp"));
}

pub(crate) fn inside_a_terminal_joins_over_tcp() {
    let site = Site::new();
    let file = site.path("hub.toml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config + "listen_tcp = \"[::]:443\"\n").unwrap();
    let mut hub = site.hub();
    // Nobody is at that port, as if a firewall dropped what is sent there.
    let token = site.enrol("invite", &["ship-1", "--hub", "hub:5901", "--tcp", "hub:443"]);
    hub.wait_for("serving 1 terminal");
    let joined = join(&token, &site.path("ship"));
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    hub.wait_for("ship-1 has joined with the key ");
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
    hub.wait_for("serving 1 terminal");
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
    terminal.wait_for("the other side no longer serves this gateway");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Members of etcd for a hub: one is not there, one answers, and one says nothing.
const MEMBERS: [&str; 3] = ["127.0.0.1:2377", "127.0.0.1:2379", "127.0.0.1:2378"];

/// A running etcd on the hubs' host, with its data in this directory.
struct Etcd(std::process::Child);

impl Etcd {
    fn start(directory: &Path) -> Self {
        let mut etcd = find_netns(Node::Hub).unwrap().command(path("etcd").unwrap());
        etcd.args(["--data-dir"]).arg(directory.join("etcd"));
        etcd.args(["--listen-client-urls", "http://127.0.0.1:2379"]);
        etcd.args(["--advertise-client-urls", "http://127.0.0.1:2379"]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:2380"]);
        let etcd = etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        Self(etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_hubs_share_their_permits_in_etcd() {
    if path("etcd").is_none() {
        return skip("no etcd");
    }
    as_each_user(|runner| runner.inside(lossless(), "enrol::inside_etcd"));
}

pub(crate) fn inside_etcd() {
    let (mirror, directory) = (Mirror::start(PORT), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    let _silent = find_netns(Node::Hub).unwrap().run(|| TcpListener::bind(MEMBERS[2]).unwrap());
    let start = |number: u16| {
        let name = format!("hub-{number}");
        fs::create_dir_all(at(&name)).unwrap();
        let file = at(&name).join("hub.toml");
        if !file.exists() {
            PrivateKey::generate().unwrap().write_file(&at(&name).join("hub.key")).unwrap();
            let text = format!(
                "private_key_file = \"hub.key\"\nlisten = \"[::]:{}\"\nrate = \"100 Mbit/s\"\n\
                 control = {:?}\nstate = {:?}\n[etcd]\nmembers = {:?}\n",
                5900 + number,
                at(&name).join("control"),
                at(&name),
                if number == 0 { &MEMBERS[1..2] } else { &MEMBERS },
            );
            fs::write(&file, text).unwrap();
        }
        let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
        hub.wait_for("ready");
        hub
    };
    // The hubs may be there first.
    let mut hubs = [0, 1].map(start);
    let etcd = Etcd::start(directory.path());
    hubs.iter_mut().for_each(|hub| hub.wait_for("etcd answers again"));
    let enrol = |command: &str, rest: &[&str]| {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let mut enrol = find_netns(Node::Hub).unwrap().command(skyhop);
        let output = enrol.args(["enrol", command]).arg(at("hub-0").join("hub.toml")).args(rest);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let other = PrivateKey::read_file(&at("hub-1").join("hub.key")).unwrap().public();
    let other = format!("hub:5901={}", gateway::keys::format_public_key(&other));
    let token = enrol("invite", &["ship-1", "--hub", "hub:5900", "--other-hub", &other]);
    hubs.iter_mut().for_each(|hub| hub.wait_for("serving 1 terminal"));
    let joined = join(&token, &at("ship"));
    assert!(joined.status.success(), "{}", text(&joined.stderr));
    assert!(enrol("list", &[]).contains("joined"));
    let mut terminal =
        Gateway::start_from(Node::Terminal, "terminal", &at("ship").join("ship-1.toml"));
    terminal.wait_for("ready");
    let mut held = connect_carried_until(&mirror);

    // While etcd is away nobody notices, and a hub that starts then serves whom it knew.
    drop(etcd);
    hubs.iter_mut().for_each(|hub| hub.wait_for("the terminals stay as they are"));
    exchange(&mut held);
    exchange(&mut mirror.connect_carried());
    let used = terminal.line_with("using hub").contains("hub-2");
    let [first, second] = hubs;
    let (kept, other) = if used { (second, first) } else { (first, second) };
    other.end_by(Signal::SIGTERM);
    let mut again = start(u16::from(!used));
    again.wait_for("serving 1 terminal");

    let _etcd = Etcd::start(directory.path());
    let mut hubs = [kept, again];
    hubs.iter_mut().for_each(|hub| hub.wait_for("etcd answers again"));
    enrol("revoke", &["ship-1"]);
    let revoked = std::time::Instant::now();
    hubs.iter_mut().for_each(|hub| hub.wait_for("serving 0 terminals"));
    assert!(revoked.elapsed() < Duration::from_secs(1), "{:?}", revoked.elapsed());
    assert_reset(&held);
    terminal.end_by(Signal::SIGTERM);
    hubs.into_iter().for_each(|hub| hub.end_by(Signal::SIGTERM));
}
