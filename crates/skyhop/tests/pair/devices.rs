//! Interfaces and addresses that come later, go, and come back, while the gateways run.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use os::device::tun;

use crate::clean_up::path;
use crate::common::{as_each_user, as_myself, skip};
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, connect_carried_until, exchange, payload};
use crate::links::{Download, LEO_DEVICE, Linked, add_link, run};
use crate::{bare, lossless};

const PORT: u16 = 4000;
const SIZE: usize = 10_000_000;

/// A transfer of which both links carry a part.
fn transfer_over_both(pair: &Linked, port: u16) {
    let before = pair.carried([true; 2]);
    let sent = payload(SIZE);
    Download::begin(port, &sent).finish(&sent);
    let after = pair.carried([true; 2]);
    assert!((0..2).all(|link| after[link] > before[link] + 500_000), "{before:?} {after:?}");
}

/// Renames a device of this host, which takes it down for a moment.
fn rename(node: Node, from: &str, to: &str) {
    for arguments in
        [format!("set {from} down"), format!("set {from} name {to}"), format!("set {to} up")]
    {
        run(node, "ip", &format!("link {arguments}"));
    }
}

#[test]
fn a_link_is_used_whenever_its_interface_is_there() {
    if path("ip").is_none() {
        return skip("ip is missing");
    }
    as_each_user(|runner| runner.inside(lossless(), "devices::inside_a_link_comes_and_goes"));
}

pub(crate) fn inside_a_link_comes_and_goes() {
    let pair = Linked::join("", "");
    let sent = payload(SIZE);
    Download::begin(PORT, &sent).finish(&sent);
    add_link();
    transfer_over_both(&pair, PORT + 1);
    let mut download = Download::begin(PORT + 2, &sent);
    download.read(SIZE / 3);
    run(Node::Terminal, "ip", &format!("link delete {LEO_DEVICE}"));
    download.finish(&sent);
    pair.carried([true, false]);
    add_link();
    transfer_over_both(&pair, PORT + 3);
    rename(Node::Terminal, LEO_DEVICE, "other0");
    pair.carried([true, false]);
    rename(Node::Terminal, "other0", LEO_DEVICE);
    transfer_over_both(&pair, PORT + 4);
    pair.end();
}

/// A point-to-point link between terminal and hub, as a modem makes it when it dials; dropped, it hangs up.
struct Line {
    is_over: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl Line {
    /// [`None`] without TUN devices.
    fn dial() -> Option<Self> {
        let ends =
            [(Node::Terminal, "10.10.0.1 peer 10.10.0.2"), (Node::Hub, "10.10.0.2 peer 10.10.0.1")];
        let mut devices = Vec::new();
        for (node, addresses) in ends {
            devices.push(Arc::new(find_netns(node).unwrap().run(|| tun::open(LEO_DEVICE)).ok()?));
            run(node, "ip", &format!("address add {addresses} dev {LEO_DEVICE}"));
            run(node, "ip", &format!("link set {LEO_DEVICE} up"));
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let carry = |from: usize| {
            let (from, to) = (devices[from].clone(), devices[1 - from].clone());
            let is_over = is_over.clone();
            thread::spawn(move || carry_packets(&from, &to, &is_over))
        };
        Some(Self { carriers: vec![carry(0), carry(1)], is_over })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The devices go with their last descriptors.
        self.carriers.drain(..).for_each(|carrier| carrier.join().unwrap());
    }
}

fn carry_packets(from: &OwnedFd, to: &OwnedFd, is_over: &AtomicBool) {
    let mut packet = [0; 2000];
    while !is_over.load(Ordering::Relaxed) {
        let mut waiting = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::from(50u16)).unwrap();
        while let Ok(length) = nix::unistd::read(from, &mut packet) {
            // What the other end does not take is lost.
            let _ = nix::unistd::write(to, &packet[..length]);
        }
    }
}

#[test]
fn a_link_over_a_point_to_point_device_is_used_whenever_it_is_dialled() {
    if path("ip").is_none() {
        return skip("ip is missing");
    }
    as_myself(|runner| runner.inside(lossless(), "devices::inside_a_line_is_dialled"));
}

pub(crate) fn inside_a_line_is_dialled() {
    let Some(line) = Line::dial() else { return skip("TUN devices cannot be opened") };
    let pair = Linked::join("", "");
    transfer_over_both(&pair, PORT);
    drop(line);
    pair.carried([true, false]);
    let line = Line::dial();
    transfer_over_both(&pair, PORT + 1);
    drop(line);
    pair.carried([true, false]);
    pair.end();
}

#[test]
fn clients_are_served_whenever_their_interface_is_there() {
    if path("ip").is_none() {
        return skip("ip is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "devices::inside_clients_interfaces"));
}

pub(crate) fn inside_clients_interfaces() {
    let (mirror, keys) = (Mirror::start(PORT), Pair::new());
    let hub = keys.hub();
    rename(Node::Terminal, LAN_DEVICE, "away0");
    let mut terminal = keys.terminal();
    terminal.wait_for("ready");
    assert!(terminal.has_said(&format!("there is no interface {LAN_DEVICE:?} yet")));
    for _ in 0..2 {
        rename(Node::Terminal, "away0", LAN_DEVICE);
        exchange(&mut connect_carried_until(&mirror));
        rename(Node::Terminal, LAN_DEVICE, "away0");
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn what_listens_at_an_address_serves_it_whenever_it_is_there() {
    if path("ip").is_none() {
        return skip("ip is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "devices::inside_addresses_come_later"));
}

const OF_HUB: &str = "10.9.0.77";
const OF_TERMINAL: &str = "10.9.0.78";

fn address(node: Node, change: &str, address: &str) {
    run(node, "ip", &format!("address {change} {address}/24 dev {HOP_DEVICE}"));
}

pub(crate) fn inside_addresses_come_later() {
    let (mirror, keys) = (Mirror::start(PORT), Pair::new());
    let listening = format!("listen = \"{OF_HUB}:5900\"\nlisten_tcp = \"{OF_HUB}:443\"");
    let mut hub = Gateway::start(Node::Hub, "hub", &keys.hub_config(&listening, ""));
    for port in [5900, 443] {
        hub.wait_for(&format!(
            "no interface has the address {OF_HUB}: {OF_HUB}:{port} is served once"
        ));
    }
    let services = [1080, 9000, 53].map(|port| format!("{OF_TERMINAL}:{port}"));
    let [proxy, metrics, dns] = &services;
    let sections = format!(
        "listen = \"{OF_TERMINAL}:5901\"\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n\
         [proxy]\nlisten = \"{proxy}\"\nclients = [\"10.9.0.0/24\"]\n[metrics]\nlisten = \"{metrics}\"\nallow = [\"10.9.0.0/24\"]\n\
         [dns]\nlisten = [\"{dns}\"]\nclients = [\"10.9.0.0/24\"]\n"
    );
    let config = keys.terminal_config(&sections).replace("hub:5900", &format!("{OF_HUB}:5900"));
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
    for service in &services {
        terminal.wait_for(&format!("{service} is served once"));
    }
    address(Node::Terminal, "add", OF_TERMINAL);
    address(Node::Hub, "add", OF_HUB);
    terminal.wait_for("ready");
    let reach = || {
        for service in &services {
            let service: SocketAddr = service.parse().unwrap();
            let connect = || TcpStream::connect_timeout(&service, PATIENCE);
            find_netns(Node::Terminal).unwrap().run(connect).unwrap();
        }
    };
    reach();
    let mut client = mirror.connect_carried();
    for (node, own) in [(Node::Terminal, OF_TERMINAL), (Node::Hub, OF_HUB)] {
        address(node, "delete", own);
        client.write_all(b"pi").unwrap();
        address(node, "add", own);
        client.write_all(b"ng").unwrap();
        let mut back = [0; 4];
        std::io::Read::read_exact(&mut client, &mut back).unwrap();
        assert_eq!(&back, b"ping");
    }
    reach();
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_waits_for_a_name_server_that_knows_its_hub() {
    as_each_user(|runner| runner.inside(bare(), "devices::inside_a_name_comes_later"));
}

pub(crate) fn inside_a_name_comes_later() {
    let keys = Pair::new();
    let hub = keys.hub();
    let mut hosts = tempfile::NamedTempFile::new().unwrap();
    let cover = "mount --bind \"$1\" /etc/hosts && exec \"$SKYHOP\" terminal /dev/stdin";
    let mut command = find_netns(Node::Terminal).unwrap().command("unshare");
    command.args(["--mount", "sh", "-c", cover, "sh"]).arg(hosts.path());
    let sections = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    let config = keys.terminal_config(&sections).replace("hub:5900", "hub.at.sea.invalid:5900");
    let mut terminal = Gateway::run(command, &config);
    terminal.wait_for("cannot resolve the hub \"hub.at.sea.invalid:5900\", trying again");
    terminal.wait_for("looking for the hub");
    writeln!(hosts, "{} hub.at.sea.invalid", Node::Hub.address4()).unwrap();
    terminal.wait_for("ready");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
