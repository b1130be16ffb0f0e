//! Probes whether a hub answers, without disturbing a session.
//!
//! The probe begins a handshake and does not complete it. A running terminal with the same key keeps its
//! session, because the hub replaces a session only when the new one is used.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use slacp::{Endpoint, Event, KeyPair, PublicKey};
use units::Machine;

use super::sockets::LocalEnd;
use crate::config::keys::random_bytes;
use crate::process::clock;

/// Time limit for the hub's answer: several retries over the slowest hop.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Outcome of a probe, known after 4 s at most.
pub(crate) enum ProbeAnswer {
    /// The hub permits this key: its address, and the round-trip time.
    Permitted(SocketAddr, Duration),
    /// The hub refuses, with this reason.
    Refused(String),
    /// No answer within the time limit.
    Silence,
}

/// A probe of a hub over UDP, beside a session.
#[derive(Debug, Clone)]
pub(crate) struct HubProbe {
    link: slacp::Config,
    identity: KeyPair,
    hub_key: PublicKey,
    addresses: Vec<SocketAddr>,
    end: LocalEnd,
}

impl HubProbe {
    pub(crate) fn new(
        link: slacp::Config,
        identity: KeyPair,
        hub_key: PublicKey,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Self { link, identity, hub_key, addresses, end: LocalEnd::default() }
    }

    /// Sends the probe over this link.
    pub(crate) fn over_link(self, end: LocalEnd) -> Self {
        Self { end, ..self }
    }

    /// Returns whether the hub permits this key and answers within 4 s.
    pub(crate) async fn answered(self) -> bool {
        // The probe blocks its thread for up to 4 s.
        tokio::task::spawn_blocking(move || self.answers()).await.unwrap_or(false)
    }

    /// Like [`Self::answered`], but blocks the calling thread.
    pub(crate) fn answers(self) -> bool {
        matches!(self.probe(), Ok(ProbeAnswer::Permitted(..)))
    }

    /// Waits for the hub's answer. Blocks the calling thread.
    ///
    /// # Errors
    /// If no datagram can be sent to the hub.
    pub(crate) fn probe(self) -> io::Result<ProbeAnswer> {
        let Self { link, identity, hub_key, addresses, end } = self;
        let socket = end.udp_socket(!addresses.iter().all(SocketAddr::is_ipv4))?;
        let seed = random_bytes().map_err(io::Error::other)?;
        let endpoint = Endpoint::terminal(link, identity, hub_key, addresses, seed);
        exchange(&socket, endpoint)
    }
}

pub(crate) fn socket(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    if addresses.iter().all(SocketAddr::is_ipv4) {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        UdpSocket::bind(os::any_address(0))
    }
}

/// Drives the endpoint until the hub answers or refuses, or the time limit.
fn exchange(socket: &UdpSocket, mut endpoint: Endpoint) -> io::Result<ProbeAnswer> {
    let began = clock::now();
    let mut sent = began;
    let mut datagram = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    // The last error of sending, reported only if no answer comes: one of several addresses may work.
    let mut refused = None;
    loop {
        let now = clock::now();
        if now.saturating_since(began) >= TIMEOUT {
            return refused.map_or(Ok(ProbeAnswer::Silence), Err);
        }
        endpoint.handle_timeout(now);
        while let Some(to) = endpoint.poll_transmit(now, &mut datagram) {
            sent = now;
            refused = socket.send_to(&datagram, mapped(to, socket)).err();
        }
        let next = endpoint.poll_timeout().map_or(TIMEOUT, |(at, _)| at.saturating_since(now));
        // A read time-out of 0 is an error.
        let wait = next.clamp(Duration::from_millis(1), Duration::from_millis(500));
        socket.set_read_timeout(Some(wait))?;
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let now = clock::now();
        endpoint.handle_datagram(now, from, &mut buffer[..length]);
        if let Some(notice) = endpoint.poll_notice() {
            return Ok(ProbeAnswer::Refused(notice.to_string()));
        }
        while let Some((_, event)) = endpoint.poll_event() {
            if let Event::Up { address, .. } = event {
                return Ok(ProbeAnswer::Permitted(address, now.saturating_since(sent)));
            }
        }
    }
}

/// Converts a destination for `socket`: a dual-stack socket needs IPv4 addresses in mapped form.
fn mapped(address: SocketAddr, socket: &UdpSocket) -> SocketAddr {
    mapped_for(address, socket.local_addr())
}

/// Converts a destination for a socket with this local address.
pub(crate) fn mapped_for(address: SocketAddr, local: io::Result<SocketAddr>) -> SocketAddr {
    match (address, local) {
        (SocketAddr::V4(v4), Ok(SocketAddr::V6(_))) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dual_stack_socket_writes_ipv4_addresses_as_mapped() {
        let v4: SocketAddr = "192.0.2.1:5900".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:5900".parse().unwrap();
        let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(mapped(v4, &plain), v4);
        let dual = UdpSocket::bind("[::1]:0").unwrap();
        assert_eq!(mapped(v4, &dual).to_string(), "[::ffff:192.0.2.1]:5900");
        assert_eq!(mapped(v6, &dual), v6);
    }
}
