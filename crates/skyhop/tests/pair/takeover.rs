//! What the two processes of an upgraded hub share: the rate, terminals that come over TCP, and the modem.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use os::testkit::skip;
use serde_json::Value;
use tempfile::TempDir;

use crate::clean_up;
use crate::common::{as_myself, text};
use crate::dlep::Modem;
use crate::gateways::{Keys, accept_any};
use crate::inside::{
    Gateway, Mirror, PATIENCE, addresses, connect, exchange, listen, payload, wait_until,
};
use crate::operate::{skyhop, status, wait_for};
use crate::{blocked, lossless};

const PORT: u16 = 4000;
const FILE_PORT: u16 = 4001;

/// A hub that reads its file, as an upgrade needs it.
struct Hub {
    directory: TempDir,
    keys: Keys,
    gateway: Gateway,
}

impl Hub {
    fn start(own: &str, sections: &str) -> Self {
        let (directory, keys) = (tempfile::tempdir().unwrap(), Keys::new(1));
        let own = format!("control = {:?}\n{own}", directory.path().join("hub"));
        let file = directory.path().join("hub.toml");
        fs::write(&file, keys.hub_config(&own, sections)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut gateway = Gateway::start_from(Node::Hub, "hub", &file);
        gateway.wait_for("ready");
        Self { directory, keys, gateway }
    }

    fn control(&self) -> PathBuf {
        self.directory.path().join("hub")
    }

    /// Upgrades it, and waits until its terminal has come over.
    fn upgrade(&self) -> Value {
        let control = self.control();
        let upgraded = skyhop(&["upgrade", "--within", "1min"], &control);
        assert!(upgraded.status.success(), "{}", text(&upgraded.stderr));
        wait_for(&control, "the terminal has come over", |status| {
            status["sessions"].as_array().unwrap().len() == 1
        })
    }

    /// Ends the process that serves now, after the first one has ended.
    fn end(self) {
        let control = self.control();
        self.gateway.wait_for_end();
        let pid = status(&control)["pid"].as_u64().unwrap();
        kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
        wait_until(PATIENCE, || !control.exists());
    }
}

/// A download of so many bytes that counts what has come.
fn download(listener: &TcpListener, bytes: usize, come: &AtomicU64) {
    let mut client = connect(addresses(FILE_PORT)[0]);
    let (mut server, _) = accept_any(listener);
    thread::scope(|scope| {
        scope.spawn(move || server.write_all(&payload(bytes)).unwrap());
        let mut buffer = vec![0; 1 << 16];
        loop {
            match client.read(&mut buffer).unwrap() {
                0 => break,
                count => _ = come.fetch_add(count as u64, Ordering::Relaxed),
            }
        }
    });
    assert_eq!(come.load(Ordering::Relaxed), bytes as u64);
}

/// Bytes that the hub has sent towards the terminal, with Ethernet headers.
fn sent() -> u64 {
    let mut cat = find_netns(Node::Hub).unwrap().command("cat");
    let devices = text(&cat.arg("/proc/net/dev").output().unwrap().stdout);
    let line = devices.lines().find_map(|line| line.trim().strip_prefix(HOP_DEVICE));
    let numbers: Vec<&str> = line.unwrap().trim_start_matches(':').split_whitespace().collect();
    // After eight columns about reception (Linux, net/core/net-procfs.c).
    numbers[8].parse().unwrap()
}

#[test]
fn both_processes_of_an_upgraded_hub_share_its_rate() {
    as_myself(|runner| runner.inside(lossless(), "takeover::inside_rate_is_shared"));
}

pub(crate) fn inside_rate_is_shared() {
    // A rate that a busy machine moves, too.
    let hub = Hub::start("rate = \"8 Mbit/s\"", "");
    let terminal = hub.keys.terminal(1, "", "");
    let listener = listen(FILE_PORT);
    let come = [const { AtomicU64::new(0) }; 2];
    let so_far = |number: usize| come[number].load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| download(&listener, 12_000_000, &come[0]));
        wait_until(PATIENCE, || so_far(0) > 400_000);
        hub.upgrade();
        scope.spawn(|| download(&listener, 6_000_000, &come[1]));
        // The second begins, and the portions follow.
        wait_until(PATIENCE, || so_far(1) > 1_200_000);
        let windows = [2_400_000, 3_600_000, 4_800_000].map(|end| {
            let (before, began, sent_before) = ([so_far(0), so_far(1)], Instant::now(), sent());
            wait_until(PATIENCE, || so_far(1) > end);
            let (seconds, sent) = (began.elapsed().as_secs_f64(), sent() - sent_before);
            let moved =
                [0, 1].map(|number| (so_far(number) - before[number]) as f64 * 8e-6 / seconds);
            (sent as f64 * 8e-6 / seconds, moved)
        });
        println!("Mbit/s of the hub, and of the downloads: {windows:.1?}");
        // Both together keep to the hub's rate, which counts no Ethernet headers. What moves from one portion
        // to the other is nobody's for half a second, more often so the busier the machine is: one window shows
        // that both get their portions. That these are the whole otherwise, `pep::rates::handover` tests in virtual time.
        assert!(windows.iter().all(|(rate, _)| *rate <= 8.24), "{windows:.1?}");
        let shared =
            |(rate, moved): &(f64, [f64; 2])| *rate >= 6.0 && moved.iter().all(|each| *each > 2.4);
        assert!(windows.iter().any(shared), "{windows:.1?}");
    });
    hub.end();
    terminal.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_over_tcp_comes_over_to_the_next_process_at_once() {
    if clean_up::path("nft").is_none() {
        return skip("no nft");
    }
    as_myself(|runner| runner.inside(lossless(), "takeover::inside_over_tcp"));
}

pub(crate) fn inside_over_tcp() {
    let mirror = Mirror::start(PORT);
    let hub = Hub::start("listen_tcp = \"[::]:443\"", "");
    blocked::block();
    let mut terminal = hub.keys.terminal(1, "hub_tcp = \"hub:443\"", "");
    assert!(terminal.has_said("going on over TCP"));
    let mut held: TcpStream = mirror.connect_carried();
    let began = Instant::now();
    let seen = hub.upgrade();
    println!("over TCP, the terminal came over within {:?}", began.elapsed());
    assert_eq!(seen["sessions"][0]["over_tcp"], true, "{seen}");
    // The old connection is the former process's, a new one the next one's.
    exchange(&mut held);
    exchange(&mut mirror.connect_carried());
    let carried = |status: &Value| status["memory"]["connections"].as_u64().unwrap();
    wait_for(&hub.control(), "the new connection is over", |status| carried(status) == 0);
    let mut new = mirror.connect_carried();
    exchange(&mut new);
    assert_eq!(carried(&status(&hub.control())), 1);
    exchange(&mut held);
    assert!(!terminal.has_said("session with the hub lost"));
    drop(held);
    exchange(&mut new);
    hub.end();
    terminal.wait_for("session with the hub lost");
    terminal.end_by(Signal::SIGTERM);
}

#[test]
fn a_modem_s_rate_is_kept_while_the_hub_is_upgraded() {
    as_myself(|runner| runner.inside(lossless(), "takeover::inside_modem"));
}

pub(crate) fn inside_modem() {
    let (mirror, modem) = (Mirror::start(PORT), Modem::v4(Node::Server));
    let own = "rate = \"modem\"\ninitial_rate = \"50 Mbit/s\"\nmaximum_rate = \"50 Mbit/s\"";
    let section = format!("[dlep]\ninterface = \"{LAN_DEVICE}\"\nheartbeat = \"1 s\"\n");
    let hub = Hub::start(own, &section);
    let terminal = hub.keys.terminal(1, "", "");
    let sends_at = |mbit: u64, state: &str| {
        wait_for(&hub.control(), &format!("{mbit} Mbit/s, {state}"), |status| {
            let is_up = status["dlep"]["state"] == "up";
            status["sessions"][0]["rate_bit_s"] == mbit * 1_000_000 && is_up == (state == "up")
        })
    };
    let mut session = modem.serve(20);
    sends_at(20, "up");
    let mut held = mirror.connect_carried();
    hub.upgrade();
    // The former process has ended the session with the modem (RFC 8175 §10.9). The next one has not found
    // it yet, and sends at its rate all the same.
    assert_eq!(session.hear().0, 5);
    sends_at(20, "looked for");
    exchange(&mut held);
    let _session = modem.serve(10);
    let seen = sends_at(10, "up");
    assert_eq!(seen["sessions"][0]["told_by_modem"], true, "{seen}");
    exchange(&mut held);
    drop(held);
    hub.end();
    terminal.end_by(Signal::SIGTERM);
}
