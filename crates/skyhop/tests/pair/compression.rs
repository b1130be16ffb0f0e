//! Compressed streams between real hosts: every byte comes, every ending is the right one, and the
//! hop carries less.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LOSSY;
use crate::common::{as_each_user, text};
use crate::gateways::Keys;
use crate::inside::{
    accept, addresses, assert_reset, assert_same, connect, listen, payload, read_all, reset,
};
use crate::operate::{Sockets, skyhop, wait_for};

const PORT: u16 = 4600;
const SIZE: usize = 2_000_000;

#[test]
fn compressed_streams_arrive_whole_and_take_a_quarter() {
    as_each_user(|runner| runner.inside(&LOSSY[1..], "compression::inside_streams_are_compressed"));
}

pub(crate) fn inside_streams_are_compressed() {
    let (listener, keys, sockets) = (listen(PORT), Keys::new(1), Sockets::new());
    let class = "[[class]]\nname = \"default\"\ncompress = true\n";
    let hub = keys.hub(&sockets.key("hub"), class);
    let terminal = keys.terminal(1, &sockets.key("terminal"), class);
    let sides = [sockets.path("hub"), sockets.path("terminal")];

    // A log up, JSON down, with a half-close between them.
    let before = sides.each_ref().map(|side| sent(side));
    exchange(&listener, &log(), &json());
    let after = sides.each_ref().map(|side| sent(side));
    let [down, up] = [0, 1].map(|side| after[side] - before[side]);
    assert!(down * 4 < SIZE as u64 && up * 4 < SIZE as u64, "{down} down, {up} up");

    // What is dense already passes as it is, and so do both kinds one after the other.
    exchange(&listener, &payload(SIZE), &payload(SIZE / 2));
    exchange(&listener, &[log(), payload(SIZE)].concat(), &[payload(1000), json()].concat());
    endings(&listener);

    let seen = wait_for(&sides[1], "compressed streams", |now| {
        now["traffic"]["compression"]["streams"].as_u64() >= Some(5)
    });
    let done = &seen["traffic"]["compression"];
    let count = |key: &str| done[key].as_u64().unwrap();
    let saved = |less: &str, more: &str| count(more) - count(less);
    assert!(saved("sent_bytes", "to_hop_bytes") > 3 * SIZE as u64 / 2, "{done}");
    assert!(saved("received_bytes", "from_hop_bytes") > 3 * SIZE as u64 / 4, "{done}");
    let shown = text(&skyhop(&["status"], &sides[1]).stdout);
    assert!(shown.contains("compressed"), "{shown}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Bytes that a gateway has sent on the hop.
fn sent(control: &Path) -> u64 {
    let up = |now: &Value| now["sessions"][0].is_object();
    wait_for(control, "a session", up)["sessions"][0]["bytes_sent"].as_u64().unwrap()
}

/// A client that sends and ends, and a server that then answers and ends.
fn exchange(listener: &TcpListener, up: &[u8], down: &[u8]) {
    let client = connect(addresses(PORT)[0]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let server = accept(listener);
            assert_same(&read_all(&server), up);
            (&server).write_all(down).unwrap();
        });
        (&client).write_all(up).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&client), down);
    });
}

/// Resets by either side amid compressed data.
fn endings(listener: &TcpListener) {
    let pair = || -> [TcpStream; 2] {
        let client = connect(addresses(PORT)[0]);
        (&client).write_all(b"{\"request\":1}\n").unwrap();
        [client, accept(listener)]
    };
    let [client, server] = pair();
    (&server).write_all(&json()[..100_000]).unwrap();
    reset(client);
    assert_reset(&server);
    let [client, server] = pair();
    reset(server);
    assert_reset(&client);
}

/// Lines of a log, without repeating themselves.
fn log() -> Vec<u8> {
    let noise = payload(SIZE);
    let line = |n: usize| {
        let (client, path, time) = (noise[3 * n], noise[3 * n + 1], noise[3 * n + 2]);
        format!(
            "2026-11-25T10:{:02}:{:02}Z INFO http: request finished client=10.1.0.{client} \
             method=GET path=/api/items/{path} status=200 duration_ms={time}\n",
            n / 60 % 60,
            n % 60
        )
    };
    (0..).flat_map(|n| line(n).into_bytes()).take(SIZE).collect()
}

/// Records of an API.
fn json() -> Vec<u8> {
    let noise = payload(SIZE);
    let record = |n: usize| {
        let (lat, lon, speed) = (noise[3 * n], noise[3 * n + 1], noise[3 * n + 2]);
        format!(
            "{{\"id\":{n},\"vessel\":\"MV Example\",\"position\":{{\"lat\":{lat},\"lon\":{lon}}},\
             \"speed_kn\":{speed},\"status\":\"under way\",\"alarms\":[]}},\n"
        )
    };
    (0..).flat_map(|n| record(n).into_bytes()).take(SIZE).collect()
}
