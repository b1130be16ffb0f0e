//! Connections that are full, replaced, or of strangers.

use std::net::Ipv4Addr;

use config::LinkConfig;

use super::*;
use crate::testkit::Hops;

/// The UDP address of a hub.
const HUB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 5900);

/// A connection of a session whose far end does not read, full.
async fn full(session: SessionLink) -> (TcpLinks, Receiver<TcpEvent>, ConnectionId, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let links = TcpLinks::new();
    let events = links.take_events().unwrap();
    let id = links.connect(at, &LocalEnd::default(), None, None).await.unwrap();
    links.divert(0, &[HUB], Some(id));
    let (far, _) = listener.accept().await.unwrap();
    links.authenticate(id, session);
    while links.send(0, HUB, None, &[7; 1400]) != SendOutcome::Full(session) {}
    (links, events, id, far)
}

#[tokio::test]
async fn a_session_goes_on_when_its_full_connection_is_closed() {
    let session = (Hops::new().sessions[0], 0);
    let (links, mut events, id, _far) = full(session).await;
    links.close(id);
    assert!(!links.carries(0, HUB, None));
    let event = events.recv().await;
    assert!(matches!(event, Some(TcpEvent::Room(room)) if room == session), "{event:?}");
}

#[tokio::test]
async fn a_newer_connection_of_a_session_replaces_a_full_one() {
    let session = (Hops::new().sessions[0], 0);
    let (links, mut events, old, _far) = full(session).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let new = listener.local_addr().unwrap();
    let new = links.connect(new, &LocalEnd::default(), None, None).await.unwrap();
    links.divert(0, &[HUB], Some(new));
    links.authenticate(new, session);
    assert!(links.carries(0, HUB, None) && links.source(old).is_none());
    let event = events.recv().await;
    assert!(matches!(event, Some(TcpEvent::Room(room)) if room == session), "{event:?}");
}

#[tokio::test]
async fn a_session_that_no_longer_uses_its_full_connection_goes_on() {
    let session = (Hops::new().sessions[0], 0);
    let (links, mut events, _id, _far) = full(session).await;
    links.divert(0, &[HUB], None);
    assert!(!links.carries(0, HUB, Some(session.0)));
    links.release(session);
    let event = events.recv().await;
    assert!(matches!(event, Some(TcpEvent::Room(room)) if room == session), "{event:?}");
    // Once.
    links.release(session);
    tokio::task::yield_now().await;
    assert!(events.try_recv().is_err());
}

/// A hub's connections, and those that strangers keep from these addresses.
async fn with_strangers(from: &[Ipv4Addr]) -> (TcpLinks, Vec<ConnectionId>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (links, mut ids, mut held) = (TcpLinks::new(), Vec::new(), Vec::new());
    for from in from {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((*from, 0).into()).unwrap();
        held.push(socket.connect(at).await.unwrap());
        let (stream, far) = listener.accept().await.unwrap();
        assert!(links.make_room(far.ip()));
        ids.push(links.add(far, NewConnection::Accepted(stream, None)));
    }
    (links, ids, held)
}

#[tokio::test]
async fn strangers_of_one_network_replace_each_other() {
    let near = |i: usize| Ipv4Addr::new(127, 0, 1, 1 + (i % 4) as u8);
    let far = Ipv4Addr::new(127, 0, 2, 1);
    let mut from = vec![far];
    from.extend((0..=MOST_UNPROVEN_OF_NETWORK).map(near));
    let (links, ids, _held) = with_strangers(&from).await;
    let open = |id: &ConnectionId| links.source(*id).is_some();
    // The oldest one of the network is closed, and none of another network.
    assert_eq!(ids.iter().map(open).collect::<Vec<_>>()[..3], [true, false, true]);
    assert_eq!(ids.iter().filter(|id| open(id)).count(), 1 + MOST_UNPROVEN_OF_NETWORK);
}

#[tokio::test]
async fn whoever_takes_most_places_of_strangers_makes_room() {
    let networks = |i: usize| Ipv4Addr::new(127, 0, 1 + (i % 5) as u8, 1);
    let from: Vec<_> = (0..MOST_UNPROVEN).map(networks).collect();
    let (links, ids, _held) = with_strangers(&from).await;
    assert!(ids.iter().all(|id| links.source(*id).is_some()));
    assert!(links.make_room([192, 0, 2, 1].into()));
    // 256 of five networks are 52 of the first one.
    let closed: Vec<_> = ids.iter().filter(|id| links.source(**id).is_none()).collect();
    assert_eq!(closed, [&ids[0]]);
}

/// The next datagram that has been sent over a connection.
async fn next(far: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    far.read_exact(&mut length).await.unwrap();
    let mut datagram = vec![0; usize::from(u16::from_be_bytes(length))];
    far.read_exact(&mut datagram).await.unwrap();
    datagram
}

/// The far end of the next connection, behind the preface, and where it comes from.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (mut far, from) = listener.accept().await.unwrap();
    let mut preface = [0; PREFACE.len()];
    far.read_exact(&mut preface).await.unwrap();
    assert_eq!(preface, *PREFACE);
    (far, from)
}

#[tokio::test]
async fn each_link_has_its_own_connection_to_the_same_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let link = |name: &str, last| LinkConfig {
        name: name.to_owned(),
        rate: slacp::Rate::auto(),
        interface: None,
        source: Some([127, 0, 0, last].into()),
    };
    let ends = LocalEnd::all(&[link("geo", 2), link("leo", 3)]);
    let (links, session) = (TcpLinks::new(), Hops::new().sessions[0]);
    let mut fars = Vec::new();
    for end in &ends {
        let id = links.connect(at, end, None, None).await.unwrap();
        let (far, from) = accept(&listener).await;
        assert_eq!(Some(from.ip()), end.source());
        links.authenticate(id, (session, end.link));
        fars.push((id, far));
    }
    // What no connection carries is UDP's.
    links.divert(1, &[HUB], Some(fars[1].0));
    assert_eq!(links.send(0, HUB, None, b"geo"), SendOutcome::NoConnection);
    links.divert(0, &[HUB], Some(fars[0].0));
    for (number, said) in [(1, b"leo"), (0, b"geo")] {
        assert_eq!(links.send(number, HUB, Some(session), said), SendOutcome::Queued);
        assert_eq!(next(&mut fars[usize::from(number)].1).await, said);
    }
}

#[tokio::test]
async fn a_session_keeps_its_connection_when_another_carries_the_rest() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (links, former) = (TcpLinks::new(), Hops::new().sessions[0]);
    let mut fars = Vec::new();
    for _ in 0..2 {
        let id = links.connect(at, &LocalEnd::default(), None, None).await.unwrap();
        links.divert(0, &[HUB], Some(id));
        fars.push((id, accept(&listener).await.0));
        if fars.len() == 1 {
            links.authenticate(id, (former, 0));
            links.pin((former, 0));
        }
    }
    links.close(fars[0].0);
    for (session, number) in [(Some(former), 0), (None, 1)] {
        assert_eq!(links.send(0, HUB, session, &[7]), SendOutcome::Queued);
        assert_eq!(next(&mut fars[number].1).await, [7]);
    }
    // Also when nothing carries the rest.
    links.divert(0, &[HUB], None);
    assert!(links.carries(0, HUB, Some(former)) && !links.carries(0, HUB, None));
}

#[tokio::test]
async fn a_hub_answers_each_connection_whatever_the_link() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (links, session) = (TcpLinks::new(), Hops::new().sessions[0]);
    let mut events = links.take_events().unwrap();
    let serving = tokio::spawn(links.clone().serve(listener, None));
    // None ends meanwhile: that would be an event, too.
    let mut terminals = Vec::new();
    for link in [0, 1] {
        let mut terminal = TcpStream::connect(at).await.unwrap();
        let from = terminal.local_addr().unwrap();
        terminal.write_all(&[&PREFACE[..], &[0, 1, 9]].concat()).await.unwrap();
        let Some(TcpEvent::Datagram(id, said)) = events.recv().await else { panic!("a datagram") };
        assert_eq!((links.source(id), said), (Some(from), vec![9]));
        links.authenticate(id, (session, link));
        assert_eq!(links.send(link, from, Some(session), &[link]), SendOutcome::Queued);
        assert_eq!(next(&mut terminal).await, [link]);
        terminals.push(terminal);
    }
    serving.abort();
}

#[tokio::test]
async fn a_stranger_gets_no_sessions_datagrams_for_its_address() {
    let (links, ids, held) = with_strangers(&[Ipv4Addr::LOCALHOST]).await;
    links.lock().accepts = true;
    let (session, at) = (Hops::new().sessions[0], held[0].local_addr().unwrap());
    assert_eq!(links.send(0, at, Some(session), b"sealed"), SendOutcome::NoConnection);
    // An answer, before there is a session.
    assert_eq!(links.send(0, at, None, b"answer"), SendOutcome::Queued);
    links.authenticate(ids[0], (session, 0));
    assert_eq!(links.send(0, at, Some(session), b"sealed"), SendOutcome::Queued);
}
