//! A terminal written from `docs/slacp.md` alone talks to the hub of this crate.

mod by_hand;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use by_hand::frames::encode;
use by_hand::peer::Peer;
use slacp::{Config, Endpoint, Event, KeyPair, PublicKey, Read, SessionId, StreamId};
use units::{BitRate, Instant, Machine};

const ONE_WAY: Duration = Duration::from_millis(50);
/// Bytes of the hub's answer.
const ANSWER: usize = 200_000;

/// The hub's application: it reads a request, and answers with [`ANSWER`] bytes.
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
        while let Ok(Read::Data(count)) = hub.read(session, stream, &mut buffer) {
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
            let open = encode(&format!("OPEN stream=0 credit=1000000 {addresses}"), false);
            let request = encode("STREAM stream=0 offset=0 FIN", true);
            up.push_back((now + ONE_WAY, peer.send(&[open, request].concat())));
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
