//! The terminal's side of enrolment: sends its public key to a hub that has invited it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slacp::{
    Config, Destination, Endpoint, Event, HostName, KeyPair, Rate, SessionId, StreamId,
    StreamOpening,
};
use thiserror::Error;
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use units::{BitRate, Instant, Machine};

use super::token::JoinToken;
use super::{ENROL_HOST, ENROL_PORT};
use crate::config::keys::{KeyError, PrivateKey, format_public_key, random_bytes};
use crate::config::pair::HubContact;
use crate::hop::knock::{mapped_for, socket};
use crate::hop::sockets::LocalEnd;
use crate::hop::tcp::{TcpEvent, TcpLinks};
use crate::process::clock;

/// Time limit for enrolment at one hub: several round trips of the slowest hop, with repetitions.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit over UDP if the hub also accepts TCP: two messages, and the answer to a third one's
/// cookie.
const UDP_TIMEOUT: Duration = Duration::from_secs(4);
/// Sending rate, enough for a few packets.
const RATE: BitRate = BitRate::from_mbit(1);

/// Reason for which a terminal could not join.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No hub of the token answers.
    #[error(
        "no hub of this token answers ({hubs}): check the network, that the hub runs, and that the token has neither expired nor been used"
    )]
    Silence {
        /// Addresses of the token's hubs, with commas between them.
        hubs: String,
    },
    /// The hub refused the key.
    #[error("{hub} refuses the key: has the token been used? The hub's log says why")]
    Refused {
        /// Address of the hub that refuses it.
        hub: String,
    },
    /// A system call failed before the hub could be asked.
    #[error("cannot ask {hub}: {cause}")]
    System {
        /// Address of the hub to be asked.
        hub: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// No key can be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Replaces the invitation of `token` with the public key of `key`, at the first hub that answers:
/// over UDP, or over TCP where UDP is blocked. Returns once that hub serves the key.
///
/// # Errors
/// [`JoinError`].
pub fn join(token: &JoinToken, key: &PrivateKey) -> Result<(), JoinError> {
    let system =
        |hub: &HubContact, cause| JoinError::System { hub: hub.address.as_str().to_owned(), cause };
    for hub in &token.hubs {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| system(hub, cause))?;
        let joined =
            runtime.block_on(join_at(hub, token, key)).map_err(|cause| system(hub, cause))?;
        match joined {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(JoinError::Refused { hub: hub.address.as_str().to_owned() });
            }
            None => {}
        }
    }
    let hubs = token.hubs.iter().map(|hub| hub.address.as_str());
    Err(JoinError::Silence { hubs: hubs.collect::<Vec<_>>().join(", ") })
}

/// Joins at one hub. Returns whether it serves the key now; [`None`] if it does not answer.
async fn join_at(
    hub: &HubContact,
    token: &JoinToken,
    key: &PrivateKey,
) -> io::Result<Option<bool>> {
    // A name that does not resolve here may still have a TCP address.
    let addresses = tokio::net::lookup_host(hub.address.as_str()).await;
    let addresses: Vec<SocketAddr> = addresses.map(Iterator::collect).unwrap_or_default();
    // UDP goes first: TCP is for networks that block it.
    let by_udp = if hub.tcp.is_some() { UDP_TIMEOUT } else { JOIN_TIMEOUT };
    if !addresses.is_empty() {
        let path = JoinPath::Udp(UdpSocket::from_std(non_blocking(&addresses)?)?);
        if let Some(done) = enrol_over(path, by_udp, hub, &addresses, token, key).await? {
            return Ok(Some(done));
        }
    }
    let Some(tcp) = &hub.tcp else { return Ok(None) };
    let links = TcpLinks::new();
    let Some(events) = links.take_events() else { return Ok(None) };
    let Ok((id, over)) = links.connect_to(tcp, &LocalEnd::default(), None).await else {
        return Ok(None);
    };
    // Over TCP, the endpoint needs an address only to identify the hub.
    let addresses = [over];
    links.divert(0, &addresses, Some(id));
    enrol_over(JoinPath::Tcp(links, events), JOIN_TIMEOUT, hub, &addresses, token, key).await
}

fn non_blocking(addresses: &[SocketAddr]) -> io::Result<std::net::UdpSocket> {
    let socket = socket(addresses)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends the key, then checks that the hub serves it; [`None`] if the hub does not answer.
async fn enrol_over(
    mut path: JoinPath,
    patience: Duration,
    hub: &HubContact,
    addresses: &[SocketAddr],
    token: &JoinToken,
    key: &PrivateKey,
) -> io::Result<Option<bool>> {
    let endpoint = |identity: KeyPair| {
        let seed = random_bytes().map_err(io::Error::other)?;
        let config = Config::new(Rate::Fixed(RATE));
        Ok::<_, io::Error>(Endpoint::terminal(config, identity, hub.key, addresses.to_vec(), seed))
    };
    let mut conversation = KeyDelivery::new(key);
    let mut invited = endpoint(token.secret.pair())?;
    drive(&mut invited, &mut path, patience, |now, endpoint| {
        conversation.handle_events(now, endpoint)
    })
    .await;
    invited.shut_down(clock::now());
    path.send_all(&mut invited).await;
    // No session: the hub is silent, as it is to unknown keys.
    if conversation.stream.is_none() {
        return Ok(None);
    }
    // A handshake, which proves it; the session is not used, so that a running terminal keeps its
    // own.
    let is_up = |_: Instant, endpoint: &mut Endpoint| {
        core::iter::from_fn(|| endpoint.poll_event())
            .any(|(_, event)| matches!(event, Event::Up { .. }))
    };
    Ok(Some(drive(&mut endpoint(key.pair())?, &mut path, JOIN_TIMEOUT, is_up).await))
}

/// Runs an endpoint until it is done, the path has ended, or time is up. Returns `true` if it is
/// done.
async fn drive(
    endpoint: &mut Endpoint,
    path: &mut JoinPath,
    patience: Duration,
    mut is_done: impl FnMut(Instant, &mut Endpoint) -> bool,
) -> bool {
    let until = clock::now() + patience;
    while clock::now() < until {
        path.send_all(endpoint).await;
        let next = endpoint.poll_timeout().map_or(until, |(at, _)| at.min(until));
        let wait = next.saturating_since(clock::now());
        match timeout(wait, path.receive()).await {
            Ok(Some((from, mut datagram))) => {
                endpoint.handle_datagram(clock::now(), from, &mut datagram);
            }
            Ok(None) => return false,
            Err(_) => {}
        }
        if is_done(clock::now(), endpoint) {
            return true;
        }
    }
    false
}

/// Transport of datagrams to the hub.
enum JoinPath {
    Udp(UdpSocket),
    Tcp(TcpLinks, Receiver<TcpEvent>),
}

impl JoinPath {
    async fn send_all(&self, endpoint: &mut Endpoint) {
        let now = clock::now();
        let mut datagram = Vec::new();
        endpoint.handle_timeout(now);
        while let Some(to) = endpoint.poll_transmit(now, &mut datagram) {
            // A lost datagram is repeated by the protocol.
            match self {
                Self::Udp(socket) => {
                    let to = mapped_for(to, socket.local_addr());
                    let _ = socket.send_to(&datagram, to).await;
                }
                Self::Tcp(links, _) => drop(links.send(0, to, None, &datagram)),
            }
        }
    }

    /// Receives a datagram with its source; [`None`] if no more can come. Cancel-safe.
    async fn receive(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        match self {
            Self::Udp(socket) => loop {
                let mut datagram = vec![0; 1 << 16];
                // An error is an ICMP message about an earlier datagram, which is repeated.
                if let Ok((length, from)) = socket.recv_from(&mut datagram).await {
                    datagram.truncate(length);
                    return Some((from, datagram));
                }
            },
            Self::Tcp(links, events) => loop {
                match events.recv().await? {
                    TcpEvent::Datagram(id, datagram) => return Some((links.source(id)?, datagram)),
                    TcpEvent::Room(_) => {}
                    TcpEvent::Ended(_) => return None,
                }
            },
        }
    }
}

/// Sends one key on one stream.
struct KeyDelivery {
    key: String,
    stream: Option<(SessionId, StreamId)>,
}

impl KeyDelivery {
    fn new(key: &PrivateKey) -> Self {
        Self { key: format_public_key(&key.public()), stream: None }
    }

    /// Handles events. Returns `true` once the hub has accepted or refused the key: the session or
    /// the stream has ended.
    fn handle_events(&mut self, now: Instant, endpoint: &mut Endpoint) -> bool {
        let mut over = false;
        while let Some((session, event)) = endpoint.poll_event() {
            match event {
                Event::Up { .. } if self.stream.is_none() => {
                    over |= !self.send_key(now, endpoint, session);
                }
                Event::Reset { .. } | Event::Down(_) => over = true,
                _ => {}
            }
        }
        over
    }

    /// Sends the key. Returns `false` if the hub does not enrol terminals.
    fn send_key(&mut self, now: Instant, endpoint: &mut Endpoint, session: SessionId) -> bool {
        let Some(name) = HostName::new(ENROL_HOST) else { return false };
        let source = SocketAddr::from(([0, 0, 0, 0], 0));
        let open =
            StreamOpening { destination: Destination::Name(name, ENROL_PORT), source, dscp: None };
        // A hub that resolves no names does not enrol terminals.
        let Ok(stream) = endpoint.open(now, session, open) else { return false };
        self.stream = Some((session, stream));
        // A new stream has room for a key.
        let _ = endpoint.write(session, stream, self.key.as_bytes());
        let _ = endpoint.finish(session, stream);
        true
    }
}
