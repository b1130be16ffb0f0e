//! A call through the tunnel: its packets arrive as they were sent, and cost on the hop what
//! docs/slacp.md says.

use core::time::Duration;
use std::net::UdpSocket;
use std::thread;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::as_each_user;
use crate::gateways::Keys;
use crate::inside::addresses;
use crate::operate::{Sockets, wait_for};
use crate::tunnel::{PORT, client, echo_on, wait_for_answer};

/// A geostationary link that loses 1 %.
const GEO: [&str; 8] =
    ["--rate", "2Mbit/s", "--return-rate", "2Mbit/s", "--delay", "300ms", "--per", "1%"];
/// Packets of the call each way, one every 20 ms as those of G.729.
const PACKETS: u16 = 300;
const EVERY: Duration = Duration::from_millis(20);
const VOICE: usize = 20;

#[test]
fn a_call_takes_half_its_bytes_and_arrives_as_it_was() {
    as_each_user(|runner| runner.inside(&GEO, "voice::inside_a_call"));
}

pub(crate) fn inside_a_call() {
    echo_on(lab::Node::Server);
    const TRIES: usize = 4;
    let mut tries = Vec::new();
    while tries.len() < TRIES {
        let plain = call("compress = false");
        let small = call("gather = \"25 ms\"");
        // In virtual time 124 and 51.5: here the pauses between packets are longer and shorter, and
        // on a busy machine fewer packets meet.
        if plain > 105.0 && small < plain / 2.0 {
            return;
        }
        tries.push((plain, small));
    }
    panic!("bytes a packet, and of those that are gathered: {tries:?}");
}

/// Bytes on the hop for each packet of a call, both ways, with these keys for its class.
fn call(keys_of_class: &str) -> f64 {
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let class = format!(
        "[tunnel]\n[[class]]\nname = \"voice\"\nports = [\"udp/{PORT}\"]\nchannel = \"none\"\n\
         {keys_of_class}\n[[class]]\nname = \"default\"\n"
    );
    let at = |side| format!("rate = \"1 Mbit/s\"\n{}", sockets.key(side));
    let hub = keys.hub(&at("hub"), &class);
    let terminal = keys.terminal(1, &at("terminal"), &class);
    let socket = client(addresses(PORT)[0]);
    wait_for_answer(&socket);
    // The contexts of headers are established.
    exchange(&socket, 0..60);
    let sides = [sockets.path("hub"), sockets.path("terminal")];
    let totals = || {
        let side =
            |path| totals(&wait_for(path, "a session", |now| now["sessions"][0].is_object()));
        let [hub, terminal] = [side(&sides[0]), side(&sides[1])];
        (hub.0 + terminal.0, hub.1 + terminal.1)
    };
    let before = totals();
    let came = exchange(&socket, 60..60 + PACKETS);
    let after = totals();
    assert!(came * 100 >= usize::from(PACKETS) * 93, "{came} of {PACKETS} came back");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

/// Bytes on the hop, and packets of channels.
fn totals(status: &Value) -> (u64, u64) {
    let session = &status["sessions"][0];
    let channels = session["channels"].as_array().unwrap().iter();
    let packets = channels.map(|channel| channel["packets_sent"].as_u64().unwrap()).sum();
    (session["bytes_sent"].as_u64().unwrap(), packets)
}

/// RTP (RFC 3550 §5.1) with G.729.
fn voice(number: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 18];
    packet.extend(number.to_be_bytes());
    packet.extend((u32::from(number) * 160).to_be_bytes());
    packet.extend(0xfeed_u32.to_be_bytes());
    packet.extend((0..VOICE).map(|at| (usize::from(number) * 31 + at * at) as u8));
    packet
}

/// Sends packets of a call, which the server sends back; returns how many came, each as it was sent.
fn exchange(socket: &UdpSocket, numbers: std::ops::Range<u16>) -> usize {
    let last = numbers.end - 1;
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (sent, number) in (0..).zip(numbers) {
                thread::sleep((EVERY * sent).saturating_sub(began.elapsed()));
                socket.send(&voice(number)).unwrap();
            }
        });
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut back = [0; 100];
        let mut came = 0;
        while let Ok(length) = socket.recv(&mut back) {
            // A reply to an earlier request is shorter.
            if length < 12 {
                continue;
            }
            let number = u16::from_be_bytes([back[2], back[3]]);
            assert_eq!(&back[..length], voice(number));
            came += 1;
            if number == last {
                break;
            }
        }
        came
    })
}
