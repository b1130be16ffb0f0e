//! The terminal's side: says its key to a hub that has invited it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use slacp::{Config, Destination, Endpoint, Event, HostName, Open, Rate, SessionId, StreamId};
use thiserror::Error;
use units::{BitRate, Instant, Machine};

use super::token::{Token, TokenHub};
use super::{PLACE, PORT};
use crate::clock;
use crate::config::keys::{KeyError, PrivateKey, format_public_key, random_bytes};
use crate::doctor::knock::{Knock, mapped, socket};

/// Time for the hub to take the key. Several round trips of the slowest hop, and repeated messages.
const PATIENCE: Duration = Duration::from_secs(20);
/// Questions whether the hub serves the key, each up to 4 s.
const QUESTIONS: usize = 5;
/// Sending rate: a few packets.
const RATE: BitRate = BitRate::from_mbit(1);

/// Why a terminal could not join.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No hub of the token can be reached or answers.
    #[error(
        "no hub of this token answers ({hubs}): check the network, that the hub runs, and that the token has neither expired nor been used"
    )]
    Silence {
        /// Their addresses.
        hubs: String,
    },
    /// The hub has not taken the key.
    #[error("{hub} refuses the key: has the token been used? The hub's log says why")]
    Refused {
        /// The hub.
        hub: String,
    },
    /// The system's reason.
    #[error("cannot ask {hub}: {cause}")]
    System {
        /// The hub.
        hub: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// There are no keys.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Replaces the invitation of `token` with the public key of `key`, at the first of its hubs that
/// answers. Returns once that hub serves the key.
///
/// # Errors
/// [`JoinError`].
pub fn join(token: &Token, key: &PrivateKey) -> Result<(), JoinError> {
    for hub in &token.hubs {
        let name = || hub.address.as_str().to_owned();
        let system = |cause| JoinError::System { hub: name(), cause };
        let Ok(addresses) = hub.address.as_str().to_socket_addrs() else { continue };
        let addresses: Vec<SocketAddr> = addresses.collect();
        let socket = socket(&addresses).map_err(system)?;
        let endpoint = Endpoint::terminal(
            Config::new(Rate::Fixed(RATE)),
            token.secret.pair(),
            hub.key,
            addresses.clone(),
            random_bytes().map_err(|error| system(io::Error::other(error)))?,
        );
        let said = Conversation::new(endpoint, key).run(&socket).map_err(system)?;
        if said && serves(hub, key, &addresses) {
            return Ok(());
        } else if said {
            return Err(JoinError::Refused { hub: name() });
        }
    }
    let hubs = token.hubs.iter().map(|hub| hub.address.as_str());
    Err(JoinError::Silence { hubs: hubs.collect::<Vec<_>>().join(", ") })
}

/// Whether the hub answers this key.
fn serves(hub: &TokenHub, key: &PrivateKey, addresses: &[SocketAddr]) -> bool {
    let knock = || {
        let config = Config::new(Rate::Fixed(RATE));
        Knock::new(config, key.pair(), hub.key, addresses.to_vec()).answers()
    };
    (0..QUESTIONS).any(|_| knock())
}

/// A session that says one key on one stream.
struct Conversation {
    endpoint: Endpoint,
    key: String,
    stream: Option<(SessionId, StreamId)>,
    /// Whether the hub has taken the key, or refused it: the session or the stream is over.
    over: bool,
}

impl Conversation {
    fn new(endpoint: Endpoint, key: &PrivateKey) -> Self {
        let key = format_public_key(&key.public());
        Self { endpoint, key, stream: None, over: false }
    }

    /// Runs until the hub has ended the stream. Returns whether it has answered.
    fn run(mut self, socket: &UdpSocket) -> io::Result<bool> {
        let began = clock::now();
        let mut buffer = vec![0; 1 << 16];
        while !self.over && clock::now().saturating_since(began) < PATIENCE {
            self.send(socket)?;
            let now = clock::now();
            let next =
                self.endpoint.poll_timeout().map_or(PATIENCE, |(at, _)| at.saturating_since(now));
            let wait = next.clamp(Duration::from_millis(1), Duration::from_millis(500));
            socket.set_read_timeout(Some(wait))?;
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                self.endpoint.handle_datagram(clock::now(), from, &mut buffer[..length]);
            }
            self.follow(clock::now());
        }
        self.endpoint.shut_down(clock::now());
        self.send(socket)?;
        Ok(self.stream.is_some())
    }

    fn send(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let (now, mut datagram) = (clock::now(), Vec::new());
        self.endpoint.handle_timeout(now);
        while let Some(to) = self.endpoint.poll_transmit(now, &mut datagram) {
            // Lost, as on any network; the protocol repeats it.
            let _ = socket.send_to(&datagram, mapped(to, socket));
        }
        Ok(())
    }

    fn follow(&mut self, now: Instant) {
        while let Some((session, event)) = self.endpoint.poll_event() {
            match event {
                Event::Up { .. } if self.stream.is_none() => self.say(now, session),
                Event::Reset { .. } | Event::Down(_) => self.over = true,
                _ => {}
            }
        }
    }

    fn say(&mut self, now: Instant, session: SessionId) {
        let Some(name) = HostName::new(PLACE) else { return };
        let source = SocketAddr::from(([0, 0, 0, 0], 0));
        let open = Open { destination: Destination::Name(name, PORT), source, dscp: None };
        let Ok(stream) = self.endpoint.open(now, session, open) else {
            // A hub that resolves no names enrols nobody.
            self.over = true;
            return;
        };
        self.stream = Some((session, stream));
        // A new stream takes a key.
        let _ = self.endpoint.write(session, stream, self.key.as_bytes());
        let _ = self.endpoint.finish(session, stream);
    }
}
