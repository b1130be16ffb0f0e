//! Clients on loopback with a proxy that has no hop, and hostile clients.

use std::net::Ipv4Addr;
use std::sync::Arc;

use config::{AnswerTiming, NameResolution};
use pep::egress::EgressRules;
use tokio::sync::oneshot;

use pep::proxy::ProxyProtocol;
use slacp::{Destination, HostName, ResetReason};

use super::*;
use crate::figures::connections::ArrivingConnection;
use crate::figures::counters::GatewayCounters;
use crate::intercept::own::OwnAddresses;
use crate::relay::dial::Dialer;
use crate::services::{Service as _, Uplink};
use crate::testkit::{
    Hops, connect_from, dialer, give_address, in_namespace, read_all, without_hop,
};

/// A SOCKS client's request for a connection to an IPv4 address.
const REQUEST: [u8; 13] = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80];
/// Two clients on loopback.
const CLIENTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];

async fn proxy() -> (ProxyListener, SocketAddr) {
    let listen = "127.0.0.1:0".parse().unwrap();
    let config = ProxyConfig {
        listen,
        clients: Vec::new(),
        answer: AnswerTiming::Early,
        names: NameResolution::Hub,
    };
    let proxy = ProxyListener::listen(config).await.unwrap();
    let address = proxy.listener.local_addr().unwrap();
    (proxy, address)
}

async fn read(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut received = vec![0; count];
    client.read_exact(&mut received).await.unwrap();
    received
}

#[tokio::test]
async fn both_dialects_come_in_by_one_port_with_what_they_said_first() {
    let (mut proxy, address) = proxy().await;
    let mut socks = TcpStream::connect(address).await.unwrap();
    socks.write_all(&[5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80, b'h', b'i']).await.unwrap();
    let accepted = proxy.next().await;
    assert_eq!(read(&mut socks, 2).await, [5, 0]);
    assert_eq!(accepted.request.destination, Destination::Address("192.0.2.1:80".parse().unwrap()));
    assert_eq!(
        (accepted.request.dialect, &accepted.request.first[..]),
        (ProxyProtocol::Socks, &b"hi"[..])
    );
    assert_eq!(accepted.source, socks.local_addr().unwrap());

    let mut http = TcpStream::connect(address).await.unwrap();
    http.write_all(b"CONNECT server:80 HTTP/1.1\r\n\r\n").await.unwrap();
    let accepted = proxy.next().await;
    assert_eq!(
        accepted.request.destination,
        Destination::Name(HostName::new("server").unwrap(), 80)
    );
    assert_eq!((accepted.request.dialect, accepted.request.first.len()), (ProxyProtocol::Http, 0));
}

#[tokio::test]
async fn a_client_that_cannot_be_understood_reads_why() {
    let (mut proxy, address) = proxy().await;
    let serving = tokio::spawn(async move { proxy.next().await.source });
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET http://server/ HTTP/1.1\r\n\r\nand much more").await.unwrap();
    let received = read_all(&mut client).await.unwrap();
    assert!(received.starts_with(b"HTTP/1.1 405 "), "{}", String::from_utf8_lossy(&received));
    assert!(!serving.is_finished());
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_reset_in_time() {
    let (mut proxy, address) = proxy().await;
    let serving = tokio::spawn(async move { proxy.next().await.source });
    let began = tokio::time::Instant::now();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"CONNECT server").await.unwrap();
    for client in [&mut silent, &mut slow] {
        let error = read_all(client).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert!(began.elapsed() >= HANDSHAKE_LIMIT && began.elapsed() < 2 * HANDSHAKE_LIMIT);
    serving.abort();
}

#[tokio::test]
async fn the_oldest_handshake_gives_way_to_the_newest() {
    let (mut proxy, address) = proxy().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        tokio::select! {
            _ = stopped => proxy.slots.taken(),
            accepted = proxy.next() => panic!("{} wants something", accepted.source),
        }
    });
    let mut clients = Vec::new();
    for _ in 0..MAX_HANDSHAKES + 3 {
        let mut client = TcpStream::connect(address).await.unwrap();
        // A served client shows that it was accepted in this order.
        client.write_all(&[5, 1, 0]).await.unwrap();
        assert_eq!(read(&mut client, 2).await, [5, 0]);
        clients.push(client);
    }
    for client in &mut clients[..3] {
        let error = read_all(client).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert!(clients[3].try_read(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
    stop.send(()).unwrap();
    assert_eq!(serving.await.unwrap(), MAX_HANDSHAKES);
}

#[tokio::test]
async fn handshakes_of_one_client_shut_no_other_out() {
    let (mut proxy, address) = proxy().await;
    let serving = tokio::spawn(async move {
        let accepted = proxy.next().await;
        (proxy, accepted)
    });
    let mut silent = Vec::new();
    for _ in 0..MAX_HANDSHAKES {
        silent.push(connect_from(CLIENTS[1], address).await);
    }
    let mut client = connect_from(CLIENTS[0], address).await;
    client.write_all(&REQUEST).await.unwrap();
    let source = client.local_addr().unwrap();
    tokio::select! {
        served = serving => assert_eq!(served.unwrap().1.source, source),
        ended = read_all(&mut client) => panic!("it is turned away: {ended:?}"),
    }
}

#[tokio::test]
async fn a_client_with_its_share_of_the_connections_is_refused_and_others_are_carried() {
    let (proxy, address) = proxy().await;
    let counters = Arc::new(GatewayCounters::default());
    counters.live.set_limit(8);
    let [greedy, other] = CLIENTS;
    let held = [(); 7].map(|()| ArrivingConnection::new(counters.clone(), greedy));
    let dialer = dialer(EgressRules::everywhere());
    let upstream = ProxyUpstream::new(Default::default(), dialer, counters.clone());
    let mut service = ProxyService::new(proxy, upstream, UncarriedAction::Refused);
    let uplink = Uplink { is_open: true, ..Uplink::default() };
    for (client, carried) in [(greedy, 0), (other, 1)] {
        let mut socket = connect_from(client, address).await;
        socket.write_all(&REQUEST).await.unwrap();
        service.next().await;
        let arrived = without_hop(&counters, uplink, |role| {
            service.work(role);
            counters.live.arrived()
        });
        assert_eq!(arrived, held.len() as u64 + carried, "{client}");
    }
}

/// Connects a SOCKS client without a hop, then sends data; returns the replies.
async fn go_straight(request: &[u8]) -> (Vec<u8>, TcpStream, Arc<GatewayCounters>) {
    let (mut proxy, address) = proxy().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request).await.unwrap();
    let accepted = proxy.next().await;
    let counters = Arc::new(GatewayCounters::default());
    let upstream =
        ProxyUpstream::new(Default::default(), dialer(EgressRules::everywhere()), counters.clone());
    let arriving = ArrivingConnection::new(counters.clone(), accepted.address());
    tokio::spawn(carry(accepted, None, upstream, arriving));
    assert_eq!(read(&mut client, 2).await, [5, 0]);
    (read(&mut client, 10).await, client, counters)
}

#[tokio::test]
async fn without_a_hop_a_client_is_not_let_to_this_machines_own_services() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [high, low] = server.local_addr().unwrap().port().to_be_bytes();
    let request = [5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low];
    let (reply, mut client, counters) = go_straight(&request).await;
    assert_eq!(reply[..2], [5, 2]);
    assert_eq!(read_all(&mut client).await.unwrap(), b"");
    assert_eq!(counters.traffic.failed.get(), 1);
}

#[tokio::test]
async fn an_unknown_name_is_unreachable() {
    let name = b"nowhere.invalid";
    let request = [&[5, 1, 0, 5, 1, 0, 3, name.len() as u8][..], name, &[0, 80]].concat();
    let (reply, ..) = go_straight(&request).await;
    assert_eq!(reply[..2], [5, 4]);
}

/// It would connect back, and services here would take the client for the hub.
#[test]
fn the_hub_is_not_asked_for_an_address_of_this_machine() {
    in_namespace(|| {
        give_address("lo", [192, 0, 2, 7].into());
        let own = Some(OwnAddresses::open().unwrap());
        let dialer = Dialer { own, ..dialer(EgressRules::everywhere()) };
        let upstream = ProxyUpstream::new(Default::default(), dialer, Arc::default());
        let hops = Hops::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (address, asked) in [("192.0.2.7:80", false), ("198.51.100.1:80", true)] {
            let wanted = Destination::Address(address.parse().unwrap());
            let asking =
                upstream.hub_destinations(CLIENTS[0], &wanted, &hops.hops[1], hops.sessions[1]);
            let destinations = runtime.block_on(asking);
            let expected = if asked { Ok(vec![wanted]) } else { Err(ResetReason::Prohibited) };
            assert_eq!(destinations, expected, "{address}");
        }
    });
}

/// Its destination may take minutes to answer, and it may have many such connections.
#[tokio::test]
async fn a_client_counts_from_its_arrival_on() {
    let (hops, (mut proxy, address)) = (Hops::new(), proxy().await);
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&REQUEST).await.unwrap();
    let accepted = proxy.next().await;
    let counters = Arc::new(GatewayCounters::default());
    let upstream = ProxyUpstream::new(
        ProxySettings { answer: AnswerTiming::Deferred, names: NameResolution::Hub },
        dialer(EgressRules::everywhere()),
        counters.clone(),
    );
    let hop = Some((hops.hops[0].clone(), hops.sessions[0]));
    let arriving = ArrivingConnection::new(counters.clone(), accepted.address());
    let carried = tokio::spawn(carry(accepted, hop, upstream, arriving));
    // The far end does not answer.
    tokio::task::yield_now().await;
    assert_eq!(counters.live.arrived(), 1);
    drop(client);
    carried.await.unwrap();
    assert_eq!(counters.live.arrived(), 0);
}
