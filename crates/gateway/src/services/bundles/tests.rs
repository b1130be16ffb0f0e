//! Nodes on loopback that exchange bundles by TCPCLv4, and strangers who connect.

mod tls;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bundles::tcpcl::{ContactHeader, TcpclMessage, TermReason};
use bundles::{AgentConfig, AgentLimits, BundlePurpose, NeighbourConfig, NewBundle};
use control::protocol::{BundleAnswer, BundleOffer, BundleRequest, from_base64, to_base64};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use units::ByteCount;

use super::*;
use crate::testkit::{Watch, connect_from};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(node: &str, store: &Path, peers: &[(&str, NodeReach)]) -> BundlesConfig {
    let neighbour = |(node, _): &(&str, NodeReach)| NeighbourConfig {
        node: node.parse().unwrap(),
        behind: Vec::new(),
        everything: false,
    };
    let limits = AgentLimits {
        bytes: ByteCount::new(10_000_000),
        bundles: 100,
        largest: ByteCount::new(2_000_000),
        remembered: 1000,
        lifetime: Duration::from_secs(3600),
        window: 4,
        window_bytes: ByteCount::new(1_000_000),
    };
    let (node, peers_of) = (node.parse().unwrap(), peers.iter().map(neighbour).collect());
    BundlesConfig {
        keys: config::BundlesSection::default(),
        agent: AgentConfig { node, peers: peers_of, limits, reports: true },
        fragment: peers.iter().map(|_| Some(ByteCount::new(100_000))).collect(),
        reach: peers.iter().map(|(_, reach)| reach.clone()).collect(),
        store: store.to_owned(),
        listen: None,
        tls: None,
    }
}

/// A free address of loopback.
fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A node that `ipn:2.0` may connect to, and where.
async fn listening(store: &Path) -> (BundleService, SocketAddr) {
    listening_with(store, |_| {}).await
}

async fn listening_with(
    store: &Path,
    configure: impl Fn(&mut BundlesConfig),
) -> (BundleService, SocketAddr) {
    loop {
        let address = free();
        let mut config = config("ipn:1.0", store, &[("ipn:2.0", NodeReach::Listen)]);
        config.listen = Some(address);
        configure(&mut config);
        // Somebody else may have taken the port meanwhile.
        if let Ok(Some(node)) = BundleService::start(config).await {
            return (node, address);
        }
    }
}

async fn ask(node: &BundleService, request: BundleRequest) -> Result<BundleAnswer, String> {
    match node.requests.answer(request).await? {
        ControlAnswer::Bundle(answer) => Ok(*answer),
        other => panic!("{other:?}"),
    }
}

async fn send(
    node: &BundleService,
    to: &str,
    payload: &[u8],
    made: (u64, u64),
) -> Result<String, String> {
    let offer = BundleOffer {
        destination: to.to_owned(),
        lifetime_s: 600,
        name: None,
        length: payload.len() as u64,
        made: Some(made),
        report: true,
    };
    let BundleAnswer::Handle(handle) = ask(node, BundleRequest::Offer(offer)).await? else {
        panic!("a handle")
    };
    for piece in payload.chunks(45_000) {
        let base64 = to_base64(piece);
        ask(node, BundleRequest::Data { handle, base64 }).await?;
    }
    match ask(node, BundleRequest::End { handle }).await? {
        BundleAnswer::Stored(id) => Ok(id),
        other => panic!("{other:?}"),
    }
}

/// The payload of the next bundle for a service, if there is one.
async fn take(node: &BundleService, service: &str) -> Option<Vec<u8>> {
    let next = BundleRequest::Next { service: service.to_owned() };
    let BundleAnswer::Next(next) = ask(node, next).await.unwrap() else { panic!("the next") };
    let (bundle, _, length) = next?;
    let (mut payload, id) = (Vec::new(), bundle.id);
    while (payload.len() as u64) < length {
        let read = BundleRequest::Read { id: id.clone(), offset: payload.len() as u64 };
        let BundleAnswer::Data(data) = ask(node, read).await.unwrap() else { panic!("data") };
        payload.extend(from_base64(&data).unwrap());
    }
    ask(node, BundleRequest::Taken { id, taken: true }).await.unwrap();
    Some(payload)
}

async fn until<T>(mut it: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(it) = it().await {
                return it;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it never is")
}

/// Waits until a node has heard that the next one has a bundle.
async fn until_forwarded(node: &BundleService, id: &str) {
    until(async || {
        let state = ask(node, BundleRequest::State { id: id.to_owned() }).await.unwrap();
        (state == BundleAnswer::State(Some("forwarded".to_owned()))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nodes_exchange_bundles_over_tcp_also_after_a_restart() {
    let stores = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (first, address) = listening(stores[0].path()).await;
    let second = config("ipn:2.0", stores[1].path(), &[("ipn:1.0", NodeReach::Connect(address))]);
    let node = BundleService::start(second.clone()).await.unwrap().unwrap();
    let made = |number| (clock::unix_millis(), number);
    let large: Vec<u8> = (0..1_500_000u32).map(|number| (number / 7) as u8).collect();
    let twice = made(1);
    let id = send(&node, "ipn:1.7", &large, twice).await.unwrap();
    assert!(until(async || take(&first, "7").await).await == large);
    until_forwarded(&node, &id).await;
    // It crossed in parts, and asked for a report, which has come back and been read.
    until(async || (node.status().delivered == 1).then_some(())).await;
    assert_eq!((first.status().reports, first.status().joined), (1, 1));
    // The same again is a duplicate; the other way, and an empty one.
    assert_eq!(send(&node, "ipn:1.7", &large, twice).await.unwrap(), id);
    let empty = send(&first, "ipn:2.5", b"", made(2)).await.unwrap();
    assert_eq!(until(async || take(&node, "5").await).await, b"");
    // Its report has come back, too, and been read.
    until_forwarded(&first, &empty).await;
    until(async || (first.status().delivered == 2).then_some(())).await;
    until(async || (first.status().waiting == 0).then_some(())).await;
    drop(node);
    send(&first, "ipn:2.5", b"waits", made(3)).await.unwrap();
    assert_eq!(first.status().waiting, 1);
    // Its thread closes the store a moment later.
    let node = until(async || BundleService::start(second.clone()).await.ok().flatten()).await;
    assert_eq!(until(async || take(&node, "5").await).await, b"waits");
    assert_eq!(take(&first, "7").await, None);
    let refused = send(&node, "ipn:3.7", b"x", made(4)).await.unwrap_err();
    assert!(refused.contains("no route"), "{refused}");
}

/// What is said to a stranger, until the connection ends.
async fn told(address: SocketAddr, said: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(said).await.unwrap();
    let mut told = Vec::new();
    let reading = socket.read_to_end(&mut told);
    // A reset is an end, too.
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("the connection ends");
    told
}

fn greeting(node: &str) -> Vec<u8> {
    let mut said = ContactHeader::OURS.encode().to_vec();
    let (segment_mru, transfer_mru) = (64_000, 1_000_000);
    TcpclMessage::SessInit { keepalive: 0, segment_mru, transfer_mru, node, critical: false }
        .write(&mut said);
    said
}

fn with(mut said: Vec<u8>, message: &TcpclMessage<'_>, data: &[u8]) -> Vec<u8> {
    message.write(&mut said);
    said.extend_from_slice(data);
    said
}

#[tokio::test]
async fn strangers_and_liars_get_nothing_in() {
    let store = tempfile::tempdir().unwrap();
    let (node, address) = listening(store.path()).await;
    let term = TcpclMessage::SessTerm { reply: true, reason: TermReason::Unknown };
    let whole = |data: &[u8]| TcpclMessage::XferSegment {
        start: true,
        end: true,
        id: 0,
        total: Some(data.len() as u64),
        critical: false,
        length: data.len() as u64,
    };
    // Not the peer, no TCPCLv4, and messages out of order.
    let said = told(address, &with(greeting("ipn:9.0"), &term, b"")).await;
    assert!(said.ends_with(&[5, 0, 4]), "contact failure: {said:?}");
    assert_eq!(told(address, b"GET / HTTP/1.1\r\n\r\n").await, b"");
    told(address, &with(ContactHeader::OURS.encode().to_vec(), &whole(b"early"), b"early")).await;

    // No bundle, a bundle of another node, and one that is cut off.
    let refused = |said: &[u8]| said.windows(2).any(|pair| pair == [3, 4]);
    let (ours, own) = ("ipn:1.7".parse().unwrap(), "ipn:2.7".parse().unwrap());
    let stranger = "ipn:9.7".parse().unwrap();
    let made = |source| NewBundle {
        source,
        destination: &ours,
        created: clock::unix_millis(),
        sequence: 1,
        lifetime: Duration::from_secs(60),
        file_name: None,
        purpose: BundlePurpose::Data,
        payload: b"payload",
    };
    let foreign = made(&stranger).encode();
    for data in [&b"no bundle"[..], &foreign] {
        let said = with(greeting("ipn:2.0"), &whole(data), data);
        let said = told(address, &with(said, &term, b"")).await;
        assert!(refused(&said), "{said:?}");
    }
    let good = made(&own).encode();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let half = with(greeting("ipn:2.0"), &whole(&good), &good[..20]);
    socket.write_all(&half).await.unwrap();
    drop(socket);
    assert_eq!((node.status().waiting, take(&node, "7").await), (0, None));

    // After all that, the peer is served.
    let said = with(greeting("ipn:2.0"), &whole(&good), &good);
    let said = told(address, &with(said, &term, b"")).await;
    assert!(said.windows(2).any(|pair| pair == [2, 3]), "acknowledged: {said:?}");
    assert_eq!(take(&node, "7").await, Some(b"payload".to_vec()));
    let partial = std::fs::read_dir(store.path().join("partial")).unwrap().count();
    assert_eq!(partial, 0, "nothing is left of what did not come");
}

#[tokio::test]
async fn silent_connections_do_not_shut_the_peer_out() {
    let store = tempfile::tempdir().unwrap();
    let (_node, address) = listening(store.path()).await;
    let mut silent = Vec::new();
    for _ in 0..80 {
        // Of another client than the peer.
        silent.push(connect_from([127, 0, 0, 2].into(), address).await);
    }
    let term = TcpclMessage::SessTerm { reply: true, reason: TermReason::Unknown };
    let said = told(address, &with(greeting("ipn:2.0"), &term, b"")).await;
    assert!(said.starts_with(&ContactHeader::OURS.encode()), "{said:?}");
    // The oldest has given way.
    let mut rest = Vec::new();
    let reading = silent[0].read_to_end(&mut rest);
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("the connection ends");
}

/// A message per byte: what moves the rest for each of them takes seconds.
#[tokio::test]
async fn messages_of_a_byte_hold_up_nobody() {
    const KEEPALIVE: u8 = 4;
    let store = tempfile::tempdir().unwrap();
    let (_node, address) = listening(store.path()).await;
    let watch = Watch::start();
    let term = TcpclMessage::SessTerm { reply: true, reason: TermReason::Unknown };
    let said = [greeting("ipn:2.0"), vec![KEEPALIVE; 4 << 20]].concat();
    told(address, &with(said, &term, b"")).await;
    watch.assert_prompt();
}
