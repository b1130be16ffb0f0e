//! A modem of our own on the terminal's LAN, which reports its rate over DLEP (RFC 8175). It
//! encodes the protocol independently of the gateway.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use socket2::{InterfaceIndexOrAddress, SockRef};

use crate::bare;
use crate::common::{as_each_user, text};
use crate::gateways::Keys;
use crate::inside::{Mirror, PATIENCE, assert_same, payload, read_all};
use crate::operate::{Sockets, skyhop, status, wait_for};

const PORT: u16 = 4000;
const DLEP: u16 = 854;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 117);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 7);

/// A data item (RFC 8175 §11.3).
fn item(code: u16, value: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), &(value.len() as u16).to_be_bytes(), value].concat()
}

/// A message (§11.2).
fn message(kind: u16, items: &[Vec<u8>]) -> Vec<u8> {
    item(kind, &items.concat())
}

fn mbit(rate: u64) -> Vec<u8> {
    item(15, &(rate * 1_000_000).to_be_bytes())
}

fn mac() -> Vec<u8> {
    item(7, &[2, 0, 0, 0, 0, 1])
}

/// A modem's sockets on a LAN.
pub(crate) struct Modem {
    discovery: UdpSocket,
    listener: TcpListener,
    point: Vec<u8>,
}

impl Modem {
    /// A modem on this host that uses IPv4.
    pub(crate) fn v4(node: Node) -> Self {
        Self::on_lan(node, move |device| {
            let address = node.address4();
            let discovery = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DLEP)).unwrap();
            let device = InterfaceIndexOrAddress::Index(device);
            SockRef::from(&discovery).join_multicast_v4_n(&GROUP_V4, &device).unwrap();
            SockRef::from(&discovery).set_ttl_v4(255).unwrap();
            let listener = TcpListener::bind((address, 0)).unwrap();
            SockRef::from(&listener).set_ttl_v4(255).unwrap();
            let port = listener.local_addr().unwrap().port().to_be_bytes();
            let point = item(2, &[&[0][..], &address.octets(), &port].concat());
            Self { discovery, listener, point }
        })
    }

    /// A modem that uses IPv6 and sends no connection point.
    fn v6() -> Self {
        Self::on_lan(Node::Client, |device| {
            let discovery = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, DLEP)).unwrap();
            SockRef::from(&discovery).join_multicast_v6(&GROUP_V6, device).unwrap();
            SockRef::from(&discovery).set_unicast_hops_v6(255).unwrap();
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, DLEP)).unwrap();
            SockRef::from(&listener).set_unicast_hops_v6(255).unwrap();
            Self { discovery, listener, point: Vec::new() }
        })
    }

    fn on_lan(node: Node, open: impl FnOnce(u32) -> Self + Send) -> Self {
        let modem = find_netns(node)
            .unwrap()
            .run(move || open(nix::net::if_::if_nametoindex(LAN_DEVICE).unwrap()));
        modem.discovery.set_read_timeout(Some(PATIENCE)).unwrap();
        modem
    }

    /// Answers the next router that looks for a modem, and reports this rate.
    pub(crate) fn serve(&self, rate: u64) -> Session {
        let mut signal = [0; 64];
        let (length, router): (usize, SocketAddr) = self.discovery.recv_from(&mut signal).unwrap();
        assert_eq!(&signal[..length], b"DLEP\x00\x01\x00\x0b\x00\x04\x00\x07\x00skyhop");
        let offer = [b"DLEP".as_slice(), &message(2, std::slice::from_ref(&self.point))].concat();
        self.discovery.send_to(&offer, router).unwrap();
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut session = Session(socket);
        assert_eq!(session.hear().0, 1);
        let gbit = 1_000_000_000u64.to_be_bytes();
        let defaults = [item(12, &gbit), item(13, &gbit), item(14, &gbit), mbit(rate)];
        let mut items = vec![item(1, &[0]), item(4, b"\0lab modem"), item(5, &[0, 0, 0x27, 0x10])];
        items.extend(defaults);
        items.push(item(16, &300_000u64.to_be_bytes()));
        session.say(2, &items);
        session
    }
}

/// The modem's end of a session.
pub(crate) struct Session(TcpStream);

impl Session {
    fn say(&mut self, kind: u16, items: &[Vec<u8>]) {
        self.0.write_all(&message(kind, items)).unwrap();
    }

    /// The next message other than a heartbeat: type and items.
    pub(crate) fn hear(&mut self) -> (u16, Vec<u8>) {
        loop {
            let mut header = [0; 4];
            self.0.read_exact(&mut header).unwrap();
            let [kind, length] = [0, 2].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
            let mut items = vec![0; length.into()];
            self.0.read_exact(&mut items).unwrap();
            if kind != 16 {
                return (kind, items);
            }
        }
    }
}

#[test]
fn a_modem_tells_its_rate_by_dlep() {
    as_each_user(|runner| runner.inside(bare(), "dlep::inside_a_modem_tells"));
}

pub(crate) fn inside_a_modem_tells() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let hub = keys.hub(&sockets.key("hub"), "");
    let modem = Modem::v4(Node::Client);
    let rates = "rate = \"modem\"\ninitial_rate = \"50 Mbit/s\"\nmaximum_rate = \"50 Mbit/s\"";
    let section = format!("[dlep]\ninterface = \"{LAN_DEVICE}\"\nheartbeat = \"1 s\"");
    let own = format!("{rates}\n{}", sockets.key("terminal"));
    let terminal = keys.terminal(1, &own, &section);
    let control = sockets.path("terminal");
    let sends_at = |mbit: u64| {
        wait_for(&control, &format!("{mbit} Mbit/s"), |status| {
            status["sessions"][0]["rate_bit_s"] == mbit * 1_000_000
        })
    };

    let mut session = modem.serve(20);
    let seen = sends_at(20);
    assert_eq!(seen["dlep"]["state"], "up", "{seen:#}");
    assert_eq!(seen["dlep"]["peer_type"], "lab modem");
    assert_eq!(seen["sessions"][0]["told_by_modem"], true);
    let refused = skyhop(&["rate", "30Mbit/s", "--for", "1min"], &control);
    assert!(text(&refused.stderr).contains("DLEP"), "{refused:?}");

    // The hub is behind the only destination, so traffic to it is paced at this rate.
    session.say(7, &[mac(), mbit(2)]);
    assert_eq!(session.hear(), (8, [mac(), item(1, &[0])].concat()));
    sends_at(2);
    let (client, began) = (mirror.connect_carried(), Instant::now());
    let data = payload(500_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            (&client).write_all(&data).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        assert_same(&read_all(&client), &data);
    });
    let took = began.elapsed();
    assert!(took.as_secs_f64() > 1.9, "2 Mbit/s: {took:?}");
    session.say(13, &[mac(), mbit(60)]);
    sends_at(50);
    session.say(11, &[mac()]);
    assert_eq!(session.hear().0, 12);
    sends_at(0);
    session.say(7, &[mac(), mbit(9)]);
    sends_at(9);

    // The modem dies, and another one appears.
    drop((session, modem));
    sends_at(50);
    assert!(status(&control)["sessions"][0]["told_for_s"].is_null());
    let modem = Modem::v6();
    let mut session = modem.serve(30);
    let seen = sends_at(30);
    assert_eq!(seen["dlep"]["sessions"], 2, "{seen:#}");

    terminal.end_by(Signal::SIGTERM);
    assert_eq!(session.hear(), (5, item(1, &[255])));
    hub.end_by(Signal::SIGTERM);
}
