//! Clients on loopback with a proxy that has no hop, and hostile clients.

use std::sync::Arc;

use config::{AnswerTiming, NameResolution};
use pep::egress::EgressRules;
use tokio::sync::oneshot;

use pep::proxy::ProxyProtocol;
use slacp::{Destination, HostName};

use super::*;
use crate::figures::connections::ArrivingConnection;
use crate::figures::counters::GatewayCounters;
use crate::testkit::{Hops, dialer, read_all};

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
    assert_eq!(counters.failed.get(), 1);
}

#[tokio::test]
async fn an_unknown_name_is_unreachable() {
    let name = b"nowhere.invalid";
    let request = [&[5, 1, 0, 5, 1, 0, 3, name.len() as u8][..], name, &[0, 80]].concat();
    let (reply, ..) = go_straight(&request).await;
    assert_eq!(reply[..2], [5, 4]);
}

/// Its destination may take minutes to answer, and it may have many such connections.
#[tokio::test]
async fn a_client_counts_from_its_arrival_on() {
    let (hops, (mut proxy, address)) = (Hops::new(), proxy().await);
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&[5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80]).await.unwrap();
    let accepted = proxy.next().await;
    let counters = Arc::new(GatewayCounters::default());
    let upstream = ProxyUpstream::new(
        (AnswerTiming::Deferred, NameResolution::Hub),
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
