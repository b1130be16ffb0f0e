//! A terminal's share of its hub: rate and memory.

use std::io::{self, Write};
use std::path::Path;
use std::thread;

use lab::Node;
use nix::sys::signal::Signal;

use crate::common::{as_myself, text};
use crate::gateways::{Keys, accept_any, both, connect_from, listen_on};
use crate::inside::Gateway;
use crate::lossless;
use crate::operate::{Sockets, connections, skyhop, wait_for, write_secret};

const PORT: u16 = 4400;

#[test]
fn terminals_share_the_rate_of_their_hub_as_their_sections_say() {
    let options: Vec<&str> = lossless().iter().copied().chain(["--terminals", "2"]).collect();
    as_myself(|runner| runner.inside(&options, "shares::inside_shares"));
}

pub(crate) fn inside_shares() {
    by_weight_and_guarantee("");
}

/// A key of the first terminal, and what it then gets for each bit of the second, by the rate of both in Mbit/s.
type ShareCase = (&'static str, fn(f64) -> f64);

/// Checks the shares of two terminals of a hub with these keys.
pub(crate) fn by_weight_and_guarantee(hub_keys: &str) {
    let (keys, sockets) = (Keys::new(2), Sockets::new());
    let own = format!("rate = \"20 Mbit/s\"\n{hub_keys}{}", sockets.key("hub"));
    let equal = keys.hub_config(&own, "");
    let with = |key: &str| equal.replace("name = \"1\"\n", &format!("name = \"1\"\n{key}\n"));
    let (file, at_hub) = (sockets.path("hub.toml"), sockets.path("hub"));
    write_secret(&file, &with("weight = 3"));
    let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
    hub.wait_for("ready");
    let terminals = [1, 2].map(|number| keys.terminal(number, "", ""));
    [1, 2].into_iter().for_each(download_for_ever);
    assert_share(&at_hub, |_| 3.0, "weight = 3");

    // Of `total` Mbit/s: 20, or less while the machine is busy. What a guarantee leaves is shared equally, too.
    let cases: [ShareCase; 3] = [
        ("", |_| 1.0),
        ("maximum = \"4 Mbit/s\"", |total| 4.0 / (total - 4.0)),
        ("guaranteed = \"12 Mbit/s\"", |total| (total + 12.0) / (total - 12.0)),
    ];
    for (key, expected) in cases {
        write_secret(&file, &with(key));
        let reloaded = skyhop(&["reload"], &at_hub);
        assert!(text(&reloaded.stdout).contains("reloaded"), "{reloaded:?}");
        assert_share(&at_hub, expected, key);
        let shown = text(&skyhop(&["status"], &at_hub).stdout);
        let parts = [("maximum", "at most 4 Mbit/s"), ("guaranteed", "guaranteed 12 Mbit/s")];
        for (name, part) in parts {
            assert_eq!(shown.contains(part), key.contains(name), "{key:?}: {shown}");
        }
    }
    terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    hub.end_by(Signal::SIGTERM);
}

/// A client that downloads until its terminal stops.
fn download_for_ever(terminal: u8) {
    let server = (Node::Server.address4(), 80).into();
    let mut socket = connect_from(Node::client(terminal).unwrap(), server);
    socket.write_all(b"GET /100MB HTTP/1.1\r\nHost: server\r\n\r\n").unwrap();
    thread::spawn(move || io::copy(&mut socket, &mut io::sink()));
}

/// Expects that the first terminal gets `expected` times what the second gets, given the rate of both together in
/// Mbit/s, within a few tries: a busy machine holds one of them up for a while.
fn assert_share(at_hub: &Path, expected: fn(f64) -> f64, key: &str) {
    const TRIES: usize = 5;
    let mut tries = Vec::new();
    while tries.len() < TRIES {
        let rates @ [first, second] = rates(at_hub);
        if (0.87..1.15).contains(&(first / second / expected(first + second))) {
            return;
        }
        tries.push(rates);
    }
    panic!("{tries:.1?} Mbit/s with {key:?}");
}

/// Rates at which the hub sends to both terminals, in Mbit/s, over 8 MB.
fn rates(at_hub: &Path) -> [f64; 2] {
    let sent_to = |status: &serde_json::Value, peer: &str| {
        let mut sessions = status["sessions"].as_array().unwrap().iter();
        let session = sessions.find(|session| session["peer"] == peer);
        session.map_or(0, |session| session["bytes_sent"].as_u64().unwrap())
    };
    let both = |status: &serde_json::Value| ["1", "2"].map(|peer| sent_to(status, peer));
    let after = |bytes: u64, begin: &serde_json::Value| {
        let [first, second] = both(begin);
        let most = first.min(second);
        wait_for(at_hub, "sending", |now| {
            let [first_now, second_now] = both(now);
            first_now + second_now > first + second + bytes && first_now.min(second_now) > most
        })
    };
    let now = wait_for(at_hub, "two sessions", |now| !both(now).contains(&0));
    // Skip the data in flight and the first windows.
    let begin = after(4_000_000, &now);
    let end = after(8_000_000, &begin);
    let [sent_begin, sent_end] = [&begin, &end].map(both);
    let age = |status: &serde_json::Value| status["sessions"][0]["since_s"].as_f64().unwrap();
    let seconds = age(&end) - age(&begin);
    [0, 1].map(|index| (sent_end[index] - sent_begin[index]) as f64 * 8e-6 / seconds)
}

#[test]
fn the_streams_of_a_terminal_hold_what_its_section_says_at_most() {
    as_myself(|runner| runner.inside(lossless(), "shares::inside_little_memory"));
}

pub(crate) fn inside_little_memory() {
    const MEMORY: u64 = 200_000;
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let config = keys.hub_config(&sockets.key("hub"), "");
    let own = config.replace("name = \"1\"\n", "name = \"1\"\nmemory = \"200 kB\"\n");
    let mut hub = Gateway::start(Node::Hub, "hub", &own);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", "");
    let server = both(Node::Server, PORT)[0];
    let listener = listen_on(Node::Server, server);
    let client = connect_from(Node::Client, server);
    let (_unread, _) = accept_any(&listener);
    client.set_nonblocking(true).unwrap();
    // Write until nothing has moved for long: the server does not read.
    let (mut written, mut quiet, part) = (0, 0, [7; 10_000]);
    wait_for(&sockets.path("hub"), "the client is stopped", |status| {
        let before = written;
        while let Ok(count) = (&client).write(&part) {
            written += count;
        }
        let held = connections(status)[0]["held_to_read_bytes"].as_u64().unwrap();
        assert!(held <= MEMORY, "{held} bytes");
        quiet = if written == before && held > 0 { quiet + 1 } else { 0 };
        quiet == 20
    });
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
