//! Gateways that are full, that start and stop repeatedly, and the memory they keep.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Instant;

use lab::Node;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::clean_up::{path, traces};
use crate::common::{as_each_user, as_myself, skip, text};
use crate::gateways::{Keys, connect_from};
use crate::inside::{
    Gateway, Mirror, PATIENCE, accept, addresses, assert_reset, connect, connect_carried_until,
    exchange, listen, payload,
};
use crate::operate::{Sockets, connections, status, wait_for};
use crate::semantics::vanish;
use crate::{bare, lossless};

const PORT: u16 = 4000;
/// Number of starts and stops, unless SKYHOP_CYCLES says otherwise.
const CYCLES: usize = 8;
/// Allowed growth of a process's memory, in bytes, for what the allocator keeps.
const KEPT: u64 = 4_000_000;

#[test]
fn a_full_gateway_lets_new_connections_pass_and_old_ones_live() {
    as_myself(|runner| runner.inside(bare(), "faults::inside_a_terminal_is_full"));
}

pub(crate) fn inside_a_terminal_is_full() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let at = sockets.path("terminal");
    let bounds = "max_connections = 3\ntotal_memory = \"1 MB\"";
    let hub = keys.hub(&sockets.key("hub"), "");
    let terminal = keys.terminal(1, &format!("{bounds}\n{}", sockets.key("terminal")), "");
    let passes_by = |why: &str| {
        wait_for(&at, why, |status| status["interception"]["why"] == why);
        mirror.assert_passes_by();
    };
    let is_on = || wait_for(&at, "room", |status| status["interception"]["on"] == true);

    let mut held = mirror.connect_carried();
    let (greedy, third) = (mirror.connect_carried(), mirror.connect_carried());
    passes_by("connections");
    exchange(&mut held);
    drop(third);
    is_on();

    // The echo is not read.
    greedy.set_nonblocking(true).unwrap();
    let part = payload(100_000);
    wait_for(&at, "memory", |status| {
        while (&greedy).write(&part).is_ok() {}
        status["interception"]["why"] == "memory"
    });
    passes_by("memory");
    exchange(&mut held);
    drop(greedy);
    is_on();
    drop(mirror.connect_carried());
    exchange(&mut held);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Memory held for connections. Packets in flight, FEC and channels hold more.
fn held_for_streams(status: &Value) -> u64 {
    let held = |connection: &Value| {
        ["held_to_send_bytes", "held_to_read_bytes"].map(|key| connection[key].as_u64().unwrap())
    };
    connections(status).iter().flat_map(held).sum()
}

#[test]
fn a_full_hub_sends_new_connections_past_it_and_old_ones_live() {
    as_myself(|runner| runner.inside(bare(), "faults::inside_a_hub_is_full"));
}

pub(crate) fn inside_a_hub_is_full() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let (at_hub, at) = (sockets.path("hub"), sockets.path("terminal"));
    let bounds = "max_connections = 3\ntotal_memory = \"1 MB\"";
    let hub = keys.hub(&format!("{bounds}\n{}", sockets.key("hub")), "");
    let terminal = keys.terminal(1, &sockets.key("terminal"), "");
    let mut held = mirror.connect_carried();
    let (greedy, third) = (mirror.connect_carried(), mirror.connect_carried());
    let is_told = |status: &Value| status["interception"]["why"] == "peer-full";
    assert_reset(&connect(addresses(PORT)[0]));
    wait_for(&at, "the hub is full", is_told);
    mirror.assert_passes_by();
    exchange(&mut held);
    drop(third);
    drop(connect_carried_until(&mirror));

    // What is not read here accumulates on the hub.
    greedy.set_nonblocking(true).unwrap();
    let part = payload(100_000);
    let full = wait_for(&at_hub, "memory", |status| {
        while (&greedy).write(&part).is_ok() {}
        status["memory"]["held_bytes"].as_u64() >= Some(1_000_000)
    });
    assert!(full["memory"]["held_bytes"].as_u64() > Some(held_for_streams(&full)), "{full:#}");
    let began = Instant::now();
    while !is_told(&status(&at)) {
        assert!(began.elapsed() < PATIENCE, "new connections are carried");
        let _ = mirror.try_connect(PATIENCE / 20);
    }
    mirror.assert_passes_by();
    exchange(&mut held);
    drop(greedy);
    drop(connect_carried_until(&mirror));
    exchange(&mut held);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn clients_pass_by_while_a_side_has_no_descriptors() {
    as_myself(|runner| {
        runner.inside(bare(), "faults::inside_a_terminal_has_no_descriptors");
        runner.inside(bare(), "faults::inside_a_hub_has_no_descriptors");
    });
}

/// Descriptor limit of the side that runs out of them.
const DESCRIPTORS: usize = 80;

pub(crate) fn inside_a_terminal_has_no_descriptors() {
    let keys = Keys::new(1);
    let hub = keys.hub("", "");
    let proxy = "[proxy]\nlisten = \"0.0.0.0:1080\"\nclients = [\"0.0.0.0/0\"]\n";
    let config = keys.terminal_config(1, "", proxy);
    let mut terminal = Gateway::start_poor(Node::Terminal, "terminal", &config, DESCRIPTORS);
    terminal.wait_for("ready");
    runs_out((Node::Client, (Node::Terminal.address4(), 1080).into()));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

pub(crate) fn inside_a_hub_has_no_descriptors() {
    let keys = Keys::new(1);
    let config = keys.hub_config("", "[metrics]\nlisten = \"127.0.0.1:9590\"\n");
    let mut hub = Gateway::start_poor(Node::Hub, "hub", &config, DESCRIPTORS);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", "");
    runs_out((Node::Hub, ([127, 0, 0, 1], 9590).into()));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Connections to a listener of a gateway use up its descriptors: carried ones survive, new ones
/// pass unaccelerated until there is room again.
fn runs_out((from, door): (Node, SocketAddr)) {
    let mirror = Mirror::start(PORT);
    let mut held = connect_carried_until(&mirror);
    let idle: Vec<_> = (0..DESCRIPTORS).map(|_| connect_from(from, door)).collect();
    let began = Instant::now();
    while mirror.try_connect(PATIENCE / 20).is_none_or(|(_, carried)| carried) {
        assert!(began.elapsed() < PATIENCE, "nothing passes by");
    }
    exchange(&mut held);
    drop(idle);
    drop(connect_carried_until(&mirror));
    exchange(&mut held);
}

#[test]
fn starts_and_stops_leave_nothing() {
    if !["nft", "ip"].into_iter().all(|program| path(program).is_some()) {
        return skip("nft or ip is missing");
    }
    as_myself(|runner| runner.inside(bare(), "faults::inside_starts_and_stops"));
}

/// `SKYHOP_CYCLES=1000 cargo test -p skyhop --test pair starts_and_stops` runs longer.
pub(crate) fn inside_starts_and_stops() {
    let cycles = std::env::var("SKYHOP_CYCLES").map_or(CYCLES, |text| text.parse().unwrap());
    let (mirror, keys) = (Mirror::start(PORT), Keys::new(1));
    let before = traces(Node::Terminal);
    let hub = keys.hub("", "");
    let cycle = || {
        let terminal = keys.terminal(1, "", "own_traffic = true\n[tunnel]\ndevice = \"veth\"");
        exchange(&mut connect_carried_until(&mirror));
        terminal.end_by(Signal::SIGTERM);
        let mut solo =
            Gateway::start(Node::Terminal, "solo", "[intercept]\ninterfaces = [\"lan0\"]\n");
        solo.wait_for("ready");
        exchange(&mut mirror.connect_carried());
        solo.end_by(Signal::SIGTERM);
    };
    cycle();
    let (descriptors, memory) = (hub.descriptors(), hub.resident());
    (0..cycles).for_each(|_| cycle());
    let began = Instant::now();
    while hub.descriptors() > descriptors || traces(Node::Terminal) != before {
        assert!(began.elapsed() < PATIENCE, "{}", traces(Node::Terminal));
    }
    let more = hub.resident().saturating_sub(memory);
    println!("{cycles} cycles: the hub has {more} bytes more");
    assert!(more < KEPT, "{more} bytes in {cycles} cycles");
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_terminal_keeps_what_it_learnt_of_its_path_and_tells_systemd() {
    as_each_user(|runner| runner.inside(bare(), "faults::inside_a_terminal_remembers"));
}

pub(crate) fn inside_a_terminal_remembers() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let (kept, at) = (sockets.path("kept"), sockets.path("terminal"));
    let keys_of_terminal =
        format!("rate = \"auto\"\nstate = {kept:?}\n{}", sockets.key("terminal"));
    let hub = keys.hub(&sockets.key("hub"), "");
    let heard = UnixDatagram::bind(sockets.path("systemd")).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = keys.terminal_config(1, &keys_of_terminal, "");
    let start = || {
        let variable = [("NOTIFY_SOCKET", sockets.path("systemd"))];
        let mut terminal = Gateway::start_with(Node::Terminal, "terminal", &config, &variable);
        terminal.wait_for("ready");
        assert_eq!(said(&heard), "READY=1");
        terminal
    };
    let state = |status: &Value| status["sessions"][0]["rate_state"].clone();

    let terminal = start();
    assert_eq!(state(&status(&at)), "blind");
    let client = mirror.connect_carried();
    let [mut to, mut from] = [(); 2].map(|()| client.try_clone().unwrap());
    let writes = thread::spawn(move || while to.write_all(&[7; 10_000]).is_ok() {});
    let reads = thread::spawn(move || io::copy(&mut from, &mut io::sink()));
    wait_for(&at, "the rate", |status| state(status) == "cruising");
    client.shutdown(Shutdown::Both).unwrap();
    writes.join().unwrap();
    let _ = reads.join().unwrap();
    let end = |terminal: Gateway| {
        terminal.end_by(Signal::SIGTERM);
        while said(&heard) != "STOPPING=1" {}
    };
    end(terminal);
    assert!(kept.join("terminal-paths.json").is_file());

    // On a busy machine the round-trip time may be mistaken for another path's.
    let is_known_again = (0..10).any(|_| {
        let terminal = start();
        exchange(&mut mirror.connect_carried());
        let is = state(&status(&at)) != "blind";
        end(terminal);
        is
    });
    assert!(is_known_again);
    hub.end_by(Signal::SIGTERM);
}

fn said(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 200];
    let length = socket.recv(&mut buffer).expect("it tells how it is");
    text(&buffer[..length])
}

#[test]
fn an_idle_client_that_is_gone_is_found_out() {
    as_myself(|runner| runner.inside(lossless(), "faults::inside_a_client_is_gone"));
}

/// Neither end sends, so only the terminal's keep-alive detects it.
pub(crate) fn inside_a_client_is_gone() {
    let listener = listen(PORT);
    let keys = Keys::new(1);
    let hub = keys.hub("", "");
    let terminal = keys.terminal(1, "keepalive = \"1 s\"", "");
    let client = connect(addresses(PORT)[0]);
    let server = accept(&listener);
    vanish(client);
    assert_reset(&server);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
