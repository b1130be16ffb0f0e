//! Checks whether the hub answers.
//!
//! It begins a handshake and does not complete it. A running terminal with the same key keeps its
//! session, because the hub replaces a session only when the new one is used.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use pep::config::{KnownHub, TerminalConfig};
use slacp::{Endpoint, Event, KeyPair, PublicKey};
use units::Machine;

use super::Finding;
use crate::clock;
use crate::config::keys::{format_public_key, random_bytes};
use crate::hop::sockets::LocalEnd;

const CHECK: &str = "hub";
/// Time limit for the hub's answer: several retries over the slowest hop.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Requests a session from a hub with this key, as this terminal would.
pub(super) fn hub(config: &TerminalConfig, hub: &KnownHub, hub_key: PublicKey) -> Finding {
    let name = hub.address.as_str();
    let addresses: Vec<SocketAddr> = match name.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let mend = "correct `hub` or the name service, or use an address";
            return Finding::fail(CHECK, format!("cannot resolve {name}: {error}"), mend);
        }
    };
    let (link, identity) = (config.link.clone(), config.identity.clone());
    match Knock::new(link, identity, hub_key, addresses).ask() {
        Ok(Answer::Yes(address, time)) => {
            let ms = time.as_secs_f64() * 1e3;
            Finding::ok(
                CHECK,
                format!("{name} ({address}) answers in {ms:.0} ms and knows this terminal's key"),
            )
        }
        Ok(Answer::No(why)) => {
            Finding::fail(CHECK, why, "run the same version of skyhop on both sides")
        }
        Ok(Answer::Silence) => {
            let key = format_public_key(&config.identity.public());
            let mend = format!(
                "check that the hub runs, that firewalls pass UDP to it, that `hub_key` is its \
                 key, and that it has a [[terminal]] with key = \"{key}\""
            );
            Finding::fail(CHECK, format!("{name} does not answer"), mend)
        }
        Err(error) => {
            let mend = "check the route with `ip route get`";
            Finding::fail(CHECK, format!("{name} cannot be reached: {error}"), mend)
        }
    }
}

enum Answer {
    Yes(SocketAddr, Duration),
    No(String),
    Silence,
}

/// A question to a hub over UDP, beside a session.
#[derive(Debug, Clone)]
pub(crate) struct Knock {
    link: slacp::Config,
    identity: KeyPair,
    hub_key: PublicKey,
    addresses: Vec<SocketAddr>,
    end: LocalEnd,
}

impl Knock {
    pub(crate) fn new(
        link: slacp::Config,
        identity: KeyPair,
        hub_key: PublicKey,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Self { link, identity, hub_key, addresses, end: LocalEnd::default() }
    }

    /// Asks by this link.
    pub(crate) fn by(self, end: LocalEnd) -> Self {
        Self { end, ..self }
    }

    /// Whether the hub answers within 4 s.
    pub(crate) async fn answered(self) -> bool {
        tokio::task::spawn_blocking(move || self.answers()).await.unwrap_or(false)
    }

    /// As [`Self::answered`], in the calling thread.
    pub(crate) fn answers(self) -> bool {
        matches!(self.ask(), Ok(Answer::Yes(..)))
    }

    fn ask(self) -> io::Result<Answer> {
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

/// Drives the beginning of a handshake.
fn exchange(socket: &UdpSocket, mut endpoint: Endpoint) -> io::Result<Answer> {
    let began = clock::now();
    let mut sent = began;
    let mut datagram = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut refused = None;
    loop {
        let now = clock::now();
        if now.saturating_since(began) >= TIMEOUT {
            return refused.map_or(Ok(Answer::Silence), Err);
        }
        endpoint.handle_timeout(now);
        while let Some(to) = endpoint.poll_transmit(now, &mut datagram) {
            sent = now;
            refused = socket.send_to(&datagram, mapped(to, socket)).err();
        }
        let next = endpoint.poll_timeout().map_or(TIMEOUT, |(at, _)| at.saturating_since(now));
        let wait = next.clamp(Duration::from_millis(1), Duration::from_millis(500));
        socket.set_read_timeout(Some(wait))?;
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let now = clock::now();
        endpoint.handle_datagram(now, from, &mut buffer[..length]);
        if let Some(notice) = endpoint.poll_notice() {
            return Ok(Answer::No(notice.to_string()));
        }
        while let Some((_, event)) = endpoint.poll_event() {
            if let Event::Up { address, .. } = event {
                return Ok(Answer::Yes(address, now.saturating_since(sent)));
            }
        }
    }
}

/// A dual-stack socket needs IPv4 addresses in mapped form.
fn mapped(address: SocketAddr, socket: &UdpSocket) -> SocketAddr {
    mapped_for(address, socket.local_addr())
}

/// The same for a socket with this local address.
pub(crate) fn mapped_for(address: SocketAddr, local: io::Result<SocketAddr>) -> SocketAddr {
    match (address, local) {
        (SocketAddr::V4(v4), Ok(SocketAddr::V6(_))) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::config::pair::NewPair;
    use crate::config::{read_hub, read_terminal};
    use crate::doctor::Verdict;

    /// Asks a hub on loopback that knows the terminal.
    fn ask_a_hub() -> Finding {
        let directory = tempfile::tempdir().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let pair = NewPair {
            hub: format!("127.0.0.1:{port}"),
            port,
            hub_rate: "10 Mbit/s".to_owned(),
            terminal_rate: "auto".to_owned(),
            interface: "lo".to_owned(),
            name: "ship".to_owned(),
            metered: false,
            hub_tcp: None,
            other_hubs: Vec::new(),
        };
        let [hub, terminal] = pair.write(directory.path()).unwrap();
        let (hub, terminal) = (read_hub(&hub).unwrap(), read_terminal(&terminal).unwrap());
        let allow = vec![hub.terminals[0].key];
        let mut endpoint = Endpoint::hub(hub.link, hub.identity, allow, [3; 32]);
        let is_done = AtomicBool::new(false);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let serve = || {
            let (mut buffer, mut datagram) = (vec![0; 1 << 16], Vec::new());
            while !is_done.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                endpoint.handle_datagram(clock::now(), from, &mut buffer[..length]);
                while let Some(to) = endpoint.poll_transmit(clock::now(), &mut datagram) {
                    socket.send_to(&datagram, to).unwrap();
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(serve);
            let found = super::hub(&terminal, &terminal.hubs[0], terminal.hubs[0].key);
            is_done.store(true, Ordering::Relaxed);
            found
        })
    }

    #[test]
    fn a_hub_that_knows_the_key_answers() {
        let found = ask_a_hub();
        assert_eq!(found.verdict, Verdict::Ok, "{found}");
        assert!(found.text.contains("answers in") && found.text.contains("knows"), "{found}");
    }

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
