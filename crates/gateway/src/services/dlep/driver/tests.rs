//! Tests against a modem of our own, on loopback and on a link of our own.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use os::netlink::{RouteSocket, VethEnd};
use pep::dlep::{
    DataItem, DlepOutput, LinkAddress, LinkMetrics, LinkRates, ModemSettings, PORT,
    ReachableDestination, discovery,
};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use units::{BitRate, ByteCount};

use super::super::client::DlepClient;
use super::super::signals::{SignalSockets, connect};
use super::*;
use crate::testkit::{give_address, in_namespace};

const PATIENCE: Duration = Duration::from_secs(20);
/// Address on a link in a network namespace of our own.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 7);

/// A modem's end of a session.
struct Modem(TcpStream, pep::dlep::Modem);

impl Modem {
    /// Waits for a router, and begins a session in which the link has this rate.
    async fn accept(listener: &TcpListener, mbit: u64) -> Self {
        let (socket, _) = soon(listener.accept()).await.unwrap();
        let rates = metrics(1000).rates;
        let heartbeat = Duration::from_secs(10);
        let settings = ModemSettings { peer_type: "test modem".into(), heartbeat, maximum: rates };
        let mut modem = Self(socket, pep::dlep::Modem::new(settings, metrics(mbit)));
        assert!(modem.1.handle_connected(clock::now()));
        modem.reach(DlepPhase::Up).await;
        modem
    }

    /// Talks to the router until the session is in this phase.
    async fn reach(&mut self, phase: DlepPhase) {
        while self.1.phase() != phase {
            let mut bytes = [0; 1000];
            let count = soon(self.0.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "the router has hung up");
            self.1.handle_bytes(clock::now(), &bytes[..count]);
            self.flush().await;
        }
    }

    /// Waits for the router's next request.
    async fn requested(&mut self) -> (LinkAddress, CapacityRequest) {
        loop {
            if let Some(request) = self.1.poll_request() {
                return request;
            }
            let mut bytes = [0; 1000];
            let count = soon(self.0.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "the router has hung up");
            self.1.handle_bytes(clock::now(), &bytes[..count]);
            self.flush().await;
        }
    }

    /// Sends what the modem has to say.
    async fn flush(&mut self) {
        while let Some(output) = self.1.poll_output() {
            if let DlepOutput::Send(bytes) = output {
                self.0.write_all(&bytes).await.unwrap();
            }
        }
    }
}

fn metrics(mbit: u64) -> LinkMetrics {
    let rate = BitRate::from_mbit(mbit);
    let rates = LinkRates { transmit: rate, receive: rate };
    LinkMetrics { rates, latency: Duration::from_millis(300) }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes to that")
}

/// Waits for a report that satisfies the condition.
async fn known(client: &mut DlepClient, what: impl Fn(&DlepReport) -> bool) -> DlepReport {
    let waiting = async {
        loop {
            let report = client.report();
            if what(&report) {
                return report;
            }
            client.take_report();
            client.changed().await;
        }
    };
    soon(waiting).await
}

fn rate(report: &DlepReport) -> Option<u64> {
    let rate = report.base.rate([203, 0, 113, 1].into(), true);
    rate.map(|rate| rate.bits_per_second() / 1_000_000)
}

async fn listen(hops: u32) -> (TcpListener, SocketAddr) {
    listen_at(Ipv4Addr::LOCALHOST, hops).await
}

async fn listen_at(address: Ipv4Addr, hops: u32) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    SockRef::from(&listener).set_ttl_v4(hops).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn config(modem: ModemLocation) -> DlepConfig {
    DlepConfig { modem, heartbeat: Duration::from_secs(1), gtsm: true, on_demand: false }
}

#[tokio::test]
async fn a_modem_tells_dies_and_comes_back() {
    let (listener, address) = listen(255).await;
    let mut client = DlepClient::start(config(ModemLocation::At(address))).unwrap();
    let mut modem = Modem::accept(&listener, 20).await;
    let report = known(&mut client, |report| report.phase == DlepPhase::Up).await;
    assert_eq!((rate(&report), report.modem), (Some(20), Some(address)));

    let slow = ReachableDestination { metrics: metrics(5), networks: Vec::new() };
    modem.1.set_destination(LinkAddress::new(&[2, 0, 0, 0, 0, 1]).unwrap(), slow);
    modem.flush().await;
    known(&mut client, |report| rate(report) == Some(5)).await;
    let status = client.status(clock::now());
    assert_eq!((status.state.as_str(), status.destinations[0].rate_bit_s), ("up", Some(5_000_000)));

    drop(modem);
    let report = known(&mut client, |report| report.phase != DlepPhase::Up).await;
    assert_eq!((rate(&report), report.until), (None, None));
    let mut modem = Modem::accept(&listener, 30).await;
    known(&mut client, |report| rate(report) == Some(30)).await;
    client.stop();
    modem.reach(DlepPhase::Looking).await;
    known(&mut client, |report| report.phase == DlepPhase::Stopped).await;
}

/// A Heartbeat (RFC 8175 §12.20): a header without items.
const HEARTBEAT: [u8; 4] = [0, 16, 0, 0];

#[tokio::test]
async fn a_modem_that_sends_without_end_lets_other_tasks_run_between_reads() {
    let (listener, address) = listen(255).await;
    let mut client = DlepClient::start(config(ModemLocation::At(address))).unwrap();
    let modem = Modem::accept(&listener, 20).await;
    known(&mut client, |report| report.phase == DlepPhase::Up).await;
    // Nothing is read until this task waits: all that the kernel takes is there at once.
    let (heartbeats, mut sent) = (HEARTBEAT.repeat(READ_SIZE), 0);
    while let Ok(count) = modem.0.try_write(&heartbeats[sent % HEARTBEAT.len()..]) {
        sent += count;
    }
    drop(modem);
    let mut turns = 0;
    while client.report().phase == DlepPhase::Up {
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns >= sent / READ_SIZE, "{turns} turns of others while {sent} bytes were read");
}

/// RFC 8175 §12.18.
#[tokio::test]
async fn what_waits_is_asked_for_if_the_link_gives_capacity_on_demand() {
    let (listener, address) = listen(255).await;
    let config = config(ModemLocation::At(address));
    assert!(DlepClient::start(config.clone()).unwrap().waiting().is_none());
    let mut client = DlepClient::start(DlepConfig { on_demand: true, ..config }).unwrap();
    let waiting = client.waiting().expect("somewhere to say what waits");
    let mut modem = Modem::accept(&listener, 20).await;
    let hub = LinkAddress::new(&[2, 0, 0, 0, 0, 1]).unwrap();
    modem
        .1
        .set_destination(hub, ReachableDestination { metrics: metrics(0), networks: Vec::new() });
    modem.flush().await;
    for bytes in [1_000, 0] {
        waiting.send_modify(|demand| demand.waiting = ByteCount::new(bytes));
        let rate = BitRate::from_bits_per_second(8 * bytes);
        assert_eq!(modem.requested().await, (hub, CapacityRequest { rate, is_foreseen: false }));
    }
    waiting.send_modify(|demand| demand.foreseen = ByteCount::new(100));
    let rate = BitRate::from_bits_per_second(800);
    assert_eq!(modem.requested().await, (hub, CapacityRequest { rate, is_foreseen: true }));
}

/// RFC 8175 §12.1, RFC 5082.
#[tokio::test]
async fn what_a_router_has_passed_on_is_not_heard() {
    let (_listener, far) = listen(254).await;
    let heartbeat = Duration::from_secs(1);
    let connecting = connect(far, None, true, heartbeat);
    let heard = tokio::time::timeout(Duration::from_millis(300), connecting).await;
    assert!(heard.is_err(), "its answer is dropped");
    connect(far, None, false, heartbeat).await.unwrap();
    let (_listener, near) = listen(255).await;
    connect(near, None, true, heartbeat).await.unwrap();
}

#[test]
fn a_modem_is_found_on_its_interface() {
    in_namespace(|| {
        // The kernel does not receive multicast sent from 127.0.0.1.
        give_address("lo", OURS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listening = UdpSocket::bind(("0.0.0.0", PORT)).await.unwrap();
            let (group, lo) = ([224, 0, 0, 117].into(), 1);
            let lo = socket2::InterfaceIndexOrAddress::Index(lo);
            SockRef::from(&listening).join_multicast_v4_n(&group, &lo).unwrap();
            let (listener, address) = listen_at(OURS, 255).await;
            let modem = ModemLocation::Discover("lo".to_owned());
            let mut client = DlepClient::start(config(modem)).unwrap();
            let router = discovered(&listening).await;
            let point = DataItem::ConnectionPoint {
                address: address.ip(),
                port: Some(address.port()),
                tls: false,
            };
            offer(&listening, router, &point, 64).await;
            // The offer with the smaller TTL was ignored.
            assert_eq!(client.report().phase, DlepPhase::Looking);
            offer(&listening, router, &point, 255).await;
            let modem = Modem::accept(&listener, 20).await;
            let report = known(&mut client, |report| report.phase == DlepPhase::Up).await;
            assert_eq!(report.base.default_rate(), Some(BitRate::from_mbit(20)));
            drop(modem);
            // Discovery sends another signal.
            known(&mut client, |report| report.phase == DlepPhase::Looking).await;
            offer(&listening, discovered(&listening).await, &point, 255).await;
            Modem::accept(&listener, 30).await;
        });
    });
}

/// Source of the next Peer Discovery.
async fn discovered(listening: &UdpSocket) -> SocketAddr {
    let mut bytes = [0; 100];
    let (length, from) = soon(listening.recv_from(&mut bytes)).await.unwrap();
    assert_eq!(bytes[..length], discovery(&[DataItem::PeerType("skyhop".into())]));
    from
}

async fn offer(listening: &UdpSocket, router: SocketAddr, point: &DataItem, hops: u32) {
    let mut signal = discovery(std::slice::from_ref(point));
    signal[5] = 2;
    listening.set_ttl(hops).unwrap();
    listening.send_to(&signal, router).await.unwrap();
}

/// A modem's interface that is not there at the start, and is made anew later.
#[test]
fn a_modem_is_looked_for_whenever_its_interface_is_there() {
    in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let modem = ModemLocation::Discover("modem0".to_owned());
            let mut client = DlepClient::start(config(modem)).unwrap();
            known(&mut client, |report| report.trouble.is_some()).await;
            for _ in 0..2 {
                let mut kernel = RouteSocket::open().unwrap();
                let netns = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
                let end = |name| VethEnd { netns: netns.as_fd(), name, station: None };
                kernel.add_veth([&end("modem0"), &end("far0")]).unwrap();
                for name in ["modem0", "far0"] {
                    kernel.bring_up(name, None, true).unwrap();
                }
                give_address("modem0", OURS);
                let listening = UdpSocket::bind(("0.0.0.0", PORT)).await.unwrap();
                let index = nix::net::if_::if_nametoindex("modem0").unwrap();
                let device = socket2::InterfaceIndexOrAddress::Index(index);
                let group = [224, 0, 0, 117].into();
                SockRef::from(&listening).join_multicast_v4_n(&group, &device).unwrap();
                discovered(&listening).await;
                let mut link = LinkMessage::default();
                link.header.index = index;
                assert!(kernel.remove(RouteNetlinkMessage::DelLink(link)).unwrap());
            }
        });
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let error = SignalSockets::open("no-such-0", true).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}
