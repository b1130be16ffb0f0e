//! Packets that are not split cross the hop through the tunnel: as root with a TUN device where
//! available, as an ordinary user mostly with veth.

use core::time::Duration;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::common::{as_each_user, as_myself, assert_takes};
use crate::inside::{Gateway, PATIENCE, Pair, addresses};

pub(crate) const PORT: u16 = 4001;
pub(crate) const LOSSY: [&str; 8] =
    ["--rate", "100Mbit/s", "--return-rate", "50Mbit/s", "--delay", "50ms", "--per", "2%"];
pub(crate) const RTT: Duration = Duration::from_millis(100);
/// Datagrams in a stream. With 2 % loss each way, 16 are lost on average.
const STREAM: u32 = 400;
const PACE: Duration = Duration::from_millis(2);

/// Networks of the client's side, for the hub's configuration.
pub(crate) const NETWORKS: &str = "networks = [\"10.1.0.0/24\", \"fd00:1::/64\"]";

/// A hub and a terminal with tunnels, connected and agreed on using them.
pub(crate) fn both(pair: &Pair, networks: &str) -> (Gateway, Gateway) {
    both_with(pair, ["", ""], networks)
}

/// A hub and a terminal with tunnels, each with a key before its first section.
pub(crate) fn both_with(
    pair: &Pair,
    [hub, terminal]: [&str; 2],
    networks: &str,
) -> (Gateway, Gateway) {
    let hub = pair.hub_with_keys(hub, &format!("{networks}\n[tunnel]\n"));
    let mut terminal = pair.terminal_with(&format!(
        "{terminal}\n[tunnel]\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]"
    ));
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    (hub, terminal)
}

fn echo() {
    echo_on(Node::Server);
}

/// Makes a host echo every datagram.
pub(crate) fn echo_on(node: Node) {
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    let socket = find_netns(node).unwrap().run(bind);
    thread::spawn(move || {
        let mut datagram = [0; 2000];
        loop {
            let (length, from) = socket.recv_from(&mut datagram).unwrap();
            let _ = socket.send_to(&datagram[..length], from);
        }
    });
}

/// A UDP client of the server.
pub(crate) fn client(server: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    socket
}

/// Round-trip time of a datagram to the server, if it returns within `patience`.
pub(crate) fn round_trip(socket: &UdpSocket, number: u32, patience: Duration) -> Option<Duration> {
    let began = Instant::now();
    socket.send(&number.to_be_bytes()).unwrap();
    loop {
        let left = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero())?;
        socket.set_read_timeout(Some(left)).unwrap();
        let mut back = [0; 4];
        if socket.recv(&mut back).ok()? == 4 && u32::from_be_bytes(back) == number {
            return Some(began.elapsed());
        }
    }
}

/// Sends until a reply arrives.
pub(crate) fn wait_for_answer(socket: &UdpSocket) {
    let began = Instant::now();
    while round_trip(socket, u32::MAX, RTT * 3).is_none() {
        assert!(began.elapsed() < PATIENCE, "no answer");
    }
}

/// The numbers that return from a stream of [`STREAM`] datagrams of 500 bytes.
fn stream(socket: &UdpSocket) -> Vec<u32> {
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..STREAM {
                let datagram = [&number.to_be_bytes()[..], &[0; 496]].concat();
                socket.send(&datagram).unwrap();
                thread::sleep(PACE);
            }
        });
        socket.set_read_timeout(Some(RTT * 15)).unwrap();
        let mut datagram = [0; 500];
        let mut back = Vec::new();
        // A reply to an earlier request is shorter.
        while let Ok(length) = socket.recv(&mut datagram) {
            if length == datagram.len() {
                back.push(u32::from_be_bytes(*datagram.first_chunk().unwrap()));
            }
            if back.last() == Some(&(STREAM - 1)) {
                break;
            }
        }
        back
    })
}

/// One of the counters that a gateway logs at its end.
pub(crate) fn count(line: &str, name: &str) -> u64 {
    let (_, packets) = line.split_once("packets ").unwrap();
    let (_, rest) = packets.split_once(&format!("{name} ")).unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn datagrams_cross_whole_and_in_order() {
    as_each_user(|runner| runner.inside(&LOSSY, "tunnel::inside_datagrams_cross"));
}

pub(crate) fn inside_datagrams_cross() {
    echo();
    let servers = addresses(PORT);
    let plain = stream(&client(servers[0]));
    assert!(plain.len() + 5 < STREAM as usize, "the link loses: {} came", plain.len());

    let pair = Pair::new();
    let (hub, terminal) = both(&pair, NETWORKS);
    for server in servers {
        let socket = client(server);
        wait_for_answer(&socket);
        let back = stream(&socket);
        assert!(back.is_sorted_by(|one, next| one < next), "{server}: {back:?}");
        assert!(back.len() + 1 >= STREAM as usize, "{server}: {} came", back.len());
        let mut numbers = 0..;
        let trip = || round_trip(&socket, numbers.next().unwrap(), PATIENCE).unwrap_or(PATIENCE);
        assert_takes(RTT, Duration::from_millis(20), trip);
    }
    assert_hops(servers[0]);

    let sent = terminal.end_with(Signal::SIGTERM);
    assert!(count(&sent, "to hop") > 2 * u64::from(STREAM), "{sent}");
    let received = hub.end_with(Signal::SIGTERM);
    assert_eq!(count(&received, "foreign"), 0, "{received}");
}

/// The path has two routers, terminal and hub, as it does without skyhop.
fn assert_hops(server: SocketAddr) {
    let socket = client(server);
    socket.set_ttl(3).unwrap();
    wait_for_answer(&socket);
    let socket = client(server);
    socket.set_ttl(2).unwrap();
    socket.send(&[0; 4]).unwrap();
    socket.set_read_timeout(Some(RTT * 3)).unwrap();
    assert!(socket.recv(&mut [0; 4]).is_err(), "it passed one router");
}

#[test]
fn datagrams_do_not_wait_behind_a_download() {
    as_myself(|runner| runner.inside(&LOSSY[..6], "tunnel::inside_a_download_runs"));
}

pub(crate) fn inside_a_download_runs() {
    echo();
    let pair = Pair::new();
    let (hub, terminal) = both(&pair, NETWORKS);
    let [server, _] = addresses(PORT);
    let socket = client(server);
    wait_for_answer(&socket);
    let [web, _] = addresses(80);
    let mut download = TcpStream::connect(web).unwrap();
    download.write_all(b"GET /200MB HTTP/1.0\r\n\r\n").unwrap();
    download.read_exact(&mut vec![0; 2_000_000]).unwrap();
    let (done, began) = (AtomicBool::new(false), Instant::now());
    let limit = RTT + Duration::from_millis(20);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&download, &done));
        let medians = (0..12).map(|attempt| median_trip(&socket, attempt * 15));
        // A busy machine delays a few; then try again.
        let mut tried = Vec::new();
        for median in medians {
            tried.push(median);
            if median < limit {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        let rate = reader.join().unwrap() as f64 * 8.0 / began.elapsed().as_secs_f64();
        assert!(tried.last().is_some_and(|median| *median < limit), "{tried:?}");
        // There was a queue to wait in all the time.
        assert!(rate > 20e6, "the download had no more than {rate} bit/s");
    });
    drop(download);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Reads until told to stop; returns the number of bytes.
fn read_until(mut download: &TcpStream, done: &AtomicBool) -> usize {
    let mut part = vec![0; 100_000];
    let mut bytes = 0;
    while !done.load(Ordering::Relaxed) {
        download.read_exact(&mut part).unwrap();
        bytes += part.len();
    }
    bytes
}

fn median_trip(socket: &UdpSocket, first: u32) -> Duration {
    let trips = (first..first + 15).map(|number| round_trip(socket, number, PATIENCE).unwrap());
    let mut trips: Vec<Duration> = trips.collect();
    trips.sort();
    trips[trips.len() / 2]
}

#[test]
fn packets_from_elsewhere_are_dropped() {
    as_myself(|runner| runner.inside(&LOSSY[..6], "tunnel::inside_clients_are_strangers"));
}

pub(crate) fn inside_clients_are_strangers() {
    echo();
    let pair = Pair::new();
    let (hub, terminal) = both(&pair, "networks = [\"10.77.0.0/16\"]");
    for server in addresses(PORT) {
        assert_eq!(round_trip(&client(server), 1, RTT * 3), None);
    }
    terminal.end_by(Signal::SIGTERM);
    let told = hub.end_with(Signal::SIGTERM);
    assert_eq!((count(&told, "foreign"), count(&told, "from hop")), (2, 0), "{told}");
    addresses(PORT).map(client).iter().for_each(wait_for_answer);
}

#[test]
fn datagrams_pass_while_there_is_no_hub() {
    as_each_user(|runner| runner.inside(&LOSSY[..6], "tunnel::inside_the_hub_comes_and_goes"));
}

pub(crate) fn inside_the_hub_comes_and_goes() {
    echo();
    let sockets = addresses(PORT).map(client);
    let pair = Pair::new();
    let (hub, mut terminal) = both(&pair, NETWORKS);
    sockets.iter().for_each(wait_for_answer);

    hub.end_by(Signal::SIGKILL);
    sockets.iter().for_each(wait_for_answer);
    terminal.wait_for("hub unreachable");

    let hub = pair.hub_with(&format!("{NETWORKS}\n[tunnel]\n"));
    terminal.wait_for("session up with the hub");
    sockets.iter().for_each(wait_for_answer);
    let told = hub.end_with(Signal::SIGTERM);
    assert!(count(&told, "from hop") >= 1, "{told}");

    sockets.iter().for_each(wait_for_answer);
    // A hub without a tunnel serves it all the same.
    let hub = pair.hub();
    terminal.wait_for("the hub has no tunnel");
    sockets.iter().for_each(wait_for_answer);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
