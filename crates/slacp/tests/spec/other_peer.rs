//! Peers written from `docs/slacp.md` alone interoperate with the endpoints of this crate.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::by_hand::frames::encode;
use crate::by_hand::peer::Peer;
use slacp::{
    Config, Endpoint, Event, KeyPair, PublicKey, ReadOutcome, SessionId, StreamId, StreamOpening,
};
use units::{BitRate, Instant, Machine};

const ONE_WAY: Duration = Duration::from_millis(50);
/// Size of the hub's answer in bytes.
const ANSWER: usize = 200_000;

/// The hub's application. It reads a request and answers with [`ANSWER`] bytes.
#[derive(Default)]
struct Server {
    stream: Option<(SessionId, StreamId)>,
    request: Vec<u8>,
    written: usize,
    closed: bool,
}

impl Server {
    fn turn(&mut self, hub: &mut Endpoint) {
        while let Some((session, event)) = hub.poll_event() {
            match event {
                Event::Opened { stream, .. } => {
                    hub.accept(session, stream).unwrap();
                    self.stream = Some((session, stream));
                }
                Event::Closed(_) => self.closed = true,
                _ => {}
            }
        }
        let Some((session, stream)) = self.stream.filter(|_| !self.closed) else { return };
        let mut buffer = [0; 1000];
        while let Ok(ReadOutcome::Data(count)) = hub.read(session, stream, &mut buffer) {
            self.request.extend_from_slice(&buffer[..count]);
        }
        while self.written < ANSWER {
            let bytes: Vec<u8> = (self.written..ANSWER).take(1000).map(byte).collect();
            match hub.write(session, stream, &bytes).unwrap() {
                0 => return,
                count => self.written += count,
            }
            if self.written == ANSWER {
                hub.finish(session, stream).unwrap();
            }
        }
    }
}

fn byte(at: usize) -> u8 {
    (at * 31 + at / 256) as u8
}

#[test]
fn a_terminal_made_from_the_specification_downloads_over_a_lossy_hop() {
    let key = KeyPair::from_private([1; 32]);
    let mut peer = Peer::new(&key.public().0, [2; 32], [3; 32]);
    let allowed = PublicKey(peer.public().try_into().unwrap());
    let config = Config::new(BitRate::from_mbit(20));
    let mut hub = Endpoint::hub(config, key, vec![allowed], [4; 32]);
    let mut server = Server::default();
    let address = SocketAddr::from(([192, 0, 2, 1], 5900));

    let mut now = Instant::from_nanos(1_000_000_000);
    let mut up = VecDeque::from([(now + ONE_WAY, peer.initiation())]);
    let mut down: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut datagram, mut sent, mut asked) = (Vec::new(), 0, false);
    for _ in 0..5000 {
        now += Duration::from_millis(1);
        while let Some((_, mut bytes)) = up.pop_front_if(|(at, _)| *at <= now) {
            hub.handle_datagram(now, address, &mut bytes);
        }
        hub.handle_timeout(now);
        server.turn(&mut hub);
        while hub.poll_transmit(now, &mut datagram).is_some() {
            sent += 1;
            // The first is the response.
            if sent % 50 != 0 {
                down.push_back((now + ONE_WAY, datagram.clone()));
            }
        }
        let mut answered = false;
        while let Some((_, bytes)) = down.pop_front_if(|(at, _)| *at <= now) {
            answered |= bytes[0] == 2;
            peer.receive(&bytes);
        }
        if answered && !asked {
            asked = true;
            let addresses = "destination=203.0.113.1:80 source=10.0.0.2:40000";
            let open =
                encode(&format!("OPEN stream=0 window=1000 credit=1000000 {addresses}"), false);
            let request = encode("STREAM stream=0 offset=0 FIN", true);
            up.push_back((now + ONE_WAY, peer.packet_of(&[open, request].concat())));
            up.push_back((now + ONE_WAY, peer.offer_keys([5; 32])));
        }
        up.extend(peer.acknowledgement().map(|packet| (now + ONE_WAY, packet)));
    }
    assert_eq!(peer.closed, None);
    assert!(peer.accepted && server.closed);
    assert_eq!(server.request, b"data");
    assert_eq!(peer.end, Some(ANSWER as u64));
    let received: Option<Vec<u8>> = peer.data.iter().copied().collect();
    assert_eq!(received.unwrap(), (0..ANSWER).map(byte).collect::<Vec<u8>>());
    assert!(peer.renewed > 0, "the hub did not change its keys");
    assert!(peer.restored() > 0, "nothing was restored from repairs");
}

#[test]
fn a_hub_made_from_the_specification_serves_a_terminal_and_changes_keys() {
    let mut peer = Peer::hub([1; 32], [3; 32]);
    let key = PublicKey(peer.public().try_into().unwrap());
    let address = SocketAddr::from(([192, 0, 2, 1], 5900));
    let mut config = Config::new(BitRate::from_mbit(20));
    config.rekey_after = Duration::from_secs(1);
    let identity = KeyPair::from_private([2; 32]);
    let mut terminal = Endpoint::terminal(config, identity, key, vec![address], [4; 32]);

    let mut now = Instant::from_nanos(1_000_000_000);
    let mut to_hub: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut to_terminal: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut datagram, mut stream, mut answered) = (Vec::new(), None, false);
    let (mut heard, mut buffer) = (Vec::new(), [0; 1000]);
    // Long enough for one key change, too short for two.
    for _ in 0..2000 {
        now += Duration::from_millis(1);
        while let Some((_, mut bytes)) = to_terminal.pop_front_if(|(at, _)| *at <= now) {
            terminal.handle_datagram(now, address, &mut bytes);
        }
        terminal.handle_timeout(now);
        while let Some((session, event)) = terminal.poll_event() {
            if let Event::Up { .. } = event {
                let open = StreamOpening { destination: address, source: address, dscp: None };
                let id = terminal.open(now, session, open).unwrap();
                assert_eq!(terminal.write(session, id, b"request"), Ok(7));
                terminal.finish(session, id).unwrap();
                stream = Some((session, id));
            }
        }
        if let Some((session, id)) = stream {
            while let Ok(ReadOutcome::Data(count)) = terminal.read(session, id, &mut buffer) {
                heard.extend_from_slice(&buffer[..count]);
            }
        }
        while terminal.poll_transmit(now, &mut datagram).is_some() {
            to_hub.push_back((now + ONE_WAY, datagram.clone()));
        }
        while let Some((_, bytes)) = to_hub.pop_front_if(|(at, _)| *at <= now) {
            peer.receive(&bytes);
        }
        if peer.opened && peer.end == Some(7) && !answered {
            answered = true;
            let accept = encode("ACCEPT stream=0", false);
            let answer = encode("STREAM stream=0 offset=0 FIN", true);
            let packet = peer.packet_of(&[accept, answer].concat());
            to_terminal.push_back((now + ONE_WAY, packet));
        }
        let replies = core::mem::take(&mut peer.replies).into_iter();
        to_terminal.extend(replies.chain(peer.acknowledgement()).map(|it| (now + ONE_WAY, it)));
    }
    let request: Option<Vec<u8>> = peer.data.iter().copied().collect();
    assert_eq!((request.unwrap(), heard), (b"request".to_vec(), b"data".to_vec()));
    assert_eq!(peer.closed, None);
    assert!(peer.renewed > 0, "the terminal did not change its keys");
    let (session, _) = stream.unwrap();
    assert_eq!(terminal.stats(session).unwrap().forged, 0);
}
