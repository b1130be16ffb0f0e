//! Protocols other than TCP and UDP cross the hop through the tunnel: ICMP, and IPsec's ESP (RFC
//! 4303), of which only the protocol number matters here.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::as_each_user;
use crate::gateways::both as both_of;
use crate::inside::{PATIENCE, Pair, addresses};
use crate::tunnel::{NETWORKS, both, count};

const ESP: i32 = 50;
/// Number of packets of each kind. None is retransmitted.
const PACKETS: u16 = 100;
const PACE: Duration = Duration::from_millis(5);
const LOSSY: [&str; 6] = ["--rate", "100Mbit/s", "--delay", "50ms", "--per", "2%"];

#[test]
fn icmp_and_ipsec_cross_whole() {
    as_each_user(|runner| runner.inside(&LOSSY, "protocols::inside_icmp_and_ipsec"));
}

pub(crate) fn inside_icmp_and_ipsec() {
    let pair = Pair::new();
    let (hub, terminal) = both(&pair, NETWORKS);
    for (server, client) in addresses(0).into_iter().zip(both_of(Node::Client, 0)) {
        let mirror = find_netns(Node::Server).unwrap().run(|| raw(server.ip(), ESP));
        thread::spawn(move || send_back(mirror, client));
        assert_answered(server, ESP, |number| number.to_be_bytes().repeat(50));
        assert_pings_answered(server);
    }
    let sent = terminal.end_with(Signal::SIGTERM);
    assert!(count(&sent, "to hop") >= 4 * u64::from(PACKETS), "{sent}");
    hub.end_by(Signal::SIGTERM);
}

/// Expects replies to echo requests.
pub(crate) fn assert_pings_answered(server: SocketAddr) {
    let is_v4 = server.is_ipv4();
    let pings = if is_v4 { libc::IPPROTO_ICMP } else { libc::IPPROTO_ICMPV6 };
    assert_answered(server, pings, |number| echo_request(is_v4, number));
}

/// Expects replies, with the same endings, to all but one in fifty packets, although the link loses
/// twice as many.
fn assert_answered(server: SocketAddr, protocol: i32, packet: impl Fn(u16) -> Vec<u8>) {
    let socket = raw(server.ip(), protocol);
    // The first reply shows that the tunnel is up.
    let first = [packet(u16::MAX)];
    let began = Instant::now();
    let is_answered = || {
        socket.send_to(&first[0], &server.into()).unwrap();
        answers(&socket, &first) > 0
    };
    while !is_answered() {
        assert!(began.elapsed() < PATIENCE, "no answer of protocol {protocol} at {server}");
    }
    let packets: Vec<_> = (0..PACKETS).map(packet).collect();
    let answered = thread::scope(|scope| {
        let hearing = scope.spawn(|| answers(&socket, &packets));
        for packet in &packets {
            socket.send_to(packet, &server.into()).unwrap();
            thread::sleep(PACE);
        }
        hearing.join().unwrap()
    });
    assert!(answered >= packets.len() - 2, "{protocol} at {server}: {answered} answers");
}

/// Number of packets that are answered before a pause. A reply repeats everything except the header
/// of an echo request.
fn answers(mut socket: &Socket, packets: &[Vec<u8>]) -> usize {
    let mut waiting: Vec<&[u8]> = packets.iter().map(|packet| &packet[8..]).collect();
    let mut packet = [0; 2000];
    while !waiting.is_empty()
        && let Ok(length) = socket.read(&mut packet)
    {
        waiting.retain(|sent| !packet[..length].ends_with(sent));
    }
    packets.len() - waiting.len()
}

/// Sends the payload of every packet back to the client.
fn send_back(mut socket: Socket, client: SocketAddr) {
    socket.set_read_timeout(None).unwrap();
    // IPv4 delivers the packet with its header, which has 20 bytes without options.
    let header = if client.is_ipv4() { 20 } else { 0 };
    let mut packet = [0; 2000];
    while let Ok(length) = socket.read(&mut packet) {
        let _ = socket.send_to(&packet[header..length], &client.into());
    }
}

/// A raw socket for a protocol, of the same IP version.
fn raw(like: IpAddr, protocol: i32) -> Socket {
    let domain = if like.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// RFC 792; RFC 4443 §4.1, whose checksum the kernel computes.
fn echo_request(is_v4: bool, number: u16) -> Vec<u8> {
    let kind = if is_v4 { 8 } else { 128 };
    let head = [kind, 0, 0, 0, 0x53, 0x4b];
    let mut packet = [&head[..], &number.to_be_bytes().repeat(50)].concat();
    if is_v4 {
        let words = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}
