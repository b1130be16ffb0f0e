//! The hub side: connects the streams of its terminals to their destinations.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;

use slacp::{Endpoint, Event, PublicKey, SessionId};

use crate::config::HubConfig;
use crate::error::RunError;
use crate::gateway::{DialPolicy, Gateway, Report, Side, bind, say_ready};
use crate::hop::HopEvent;
use crate::keys::random_bytes;
use crate::udp::UdpLink;

/// The hub's UDP port unless it is told another.
const PORT: u16 = 5900;

/// Runs a hub until `shutdown` completes. Prints the line `ready` on standard
/// output when terminals can connect.
///
/// # Errors
/// When it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(config: HubConfig, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    let link = match config.listen {
        Some(address) => bind(address)?,
        None => bind_anywhere()?,
    };
    let local = link.local_addr().map_err(RunError::System)?;
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let names: BTreeMap<PublicKey, String> =
        config.terminals.into_iter().map(|terminal| (terminal.key, terminal.name)).collect();
    let allow = names.keys().copied().collect();
    let endpoint = Endpoint::hub(config.link, config.identity.pair(), allow, seed);
    let policy =
        DialPolicy { timeout: config.connect_timeout, allow_loopback: config.allow_loopback };
    let gateway = Gateway::start(Side::Hub, endpoint, link, policy)?;
    tracing::info!("serving {} terminals on UDP {local}", names.len());
    say_ready();
    let mut hub = Hub { gateway, names, sessions: BTreeMap::new() };
    let result = hub.serve(shutdown).await;
    hub.gateway.stop().await;
    result
}

struct Hub {
    gateway: Gateway,
    names: BTreeMap<PublicKey, String>,
    /// The names of the terminals that have a session.
    sessions: BTreeMap<SessionId, String>,
}

impl Hub {
    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut shutdown = pin!(shutdown);
        loop {
            let report = tokio::select! {
                () = &mut shutdown => return Ok(()),
                report = self.gateway.report() => report,
            };
            match report {
                Report::Hop(HopEvent::Opened(stream, open)) => self.gateway.answer(stream, open),
                Report::Hop(HopEvent::Session(session, event)) => self.follow(session, &event),
                Report::Failed(error) => return Err(error),
            }
        }
    }

    fn follow(&mut self, session: SessionId, event: &Event) {
        if let Event::Up { peer, address } = event {
            let name = self.names.get(peer).cloned().unwrap_or_else(|| format!("{peer:?}"));
            tracing::info!("session up with {name} at {address}");
            self.sessions.insert(session, name);
            return;
        }
        let name = self.sessions.get(&session).map_or("a terminal", String::as_str);
        match event {
            Event::Unreachable => tracing::warn!("{name} unreachable: its connections are frozen"),
            Event::Reachable => tracing::info!("{name} reachable again"),
            Event::Down => {
                tracing::warn!("session with {name} over: its connections are reset");
                self.sessions.remove(&session);
            }
            _ => {}
        }
    }
}

/// Port 5900 of every address, of IPv4 alone where there is no IPv6.
fn bind_anywhere() -> Result<UdpLink, RunError> {
    let v6: SocketAddr = (Ipv6Addr::UNSPECIFIED, PORT).into();
    match bind(v6) {
        Err(RunError::Bind { source, .. }) if is_no_ipv6(&source) => {
            bind((Ipv4Addr::UNSPECIFIED, PORT).into())
        }
        result => result,
    }
}

fn is_no_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}
