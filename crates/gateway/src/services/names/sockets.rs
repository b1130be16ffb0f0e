//! The sockets at which a terminal's resolver gets questions and connections to pool addresses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use config::DnsConfig;
use pep::traffic::IpFamily;
use tokio::net::TcpListener;

use super::secure::{self, DnsTransport};
use super::udp::{DnsSocket, PORT};
use crate::intercept::listener::Listener;
use crate::intercept::netfilter::NameRules;
use crate::network::presence;
use crate::process::error::RunError;

/// Port shown in printed rules; a running gateway takes any free one.
const PRINTED_PORT: u16 = 5902;

/// The sockets of a terminal's resolver.
pub(crate) struct ResolverSockets {
    /// At configured addresses of this machine, UDP and TCP.
    pub(super) listening: Vec<(Arc<DnsSocket>, TcpListener)>,
    /// For DNS over TLS and HTTPS.
    pub(super) secure: Vec<(TcpListener, DnsTransport)>,
    /// For intercepted questions over UDP.
    pub(super) redirected: Vec<Arc<DnsSocket>>,
    /// For intercepted connections, to resolvers and to pool addresses.
    pub(super) listeners: Vec<Listener>,
}

impl ResolverSockets {
    /// Opens the sockets that `config` requires.
    ///
    /// # Errors
    /// An address cannot be bound, or privileges are missing.
    pub(crate) async fn open(config: &DnsConfig) -> Result<Self, RunError> {
        let mut sockets = Self {
            listening: Vec::new(),
            secure: Vec::new(),
            redirected: Vec::new(),
            listeners: Vec::new(),
        };
        for address in config.keys.listen.iter() {
            let failed = |cause| RunError::Listen { address: *address, cause };
            let udp = DnsSocket::listen(*address).map_err(failed)?;
            let tcp = presence::listen(udp.address()).map_err(failed)?;
            tracing::info!("names are resolved at {}", udp.address());
            sockets.listening.push((Arc::new(udp), tcp));
        }
        if let Some(secure) = &config.secure {
            sockets.secure = secure::listen(secure).await?;
        }
        if config.intercept || config.names.pool.is_some() {
            IpFamily::BOTH.into_iter().for_each(|version| sockets.redirect(version));
        }
        Ok(sockets)
    }

    /// Opens the sockets for intercepted traffic of an IP version. Without them questions pass
    /// unredirected.
    fn redirect(&mut self, version: IpFamily) {
        let passes = |what: &str, error: &io::Error| {
            tracing::warn!("DNS questions over {what} and {} pass: {error}", version.name());
        };
        match Listener::bind(version) {
            Ok(listener) => self.listeners.push(listener),
            Err(error) => return passes("TCP", &error),
        }
        match DnsSocket::redirected(version) {
            Ok(socket) => self.redirected.push(Arc::new(socket)),
            Err(error) => passes("UDP", &error),
        }
    }

    /// Removes pool prefixes of IP versions whose connections are not intercepted.
    pub(crate) fn restrict_pool(&self, config: &mut DnsConfig) {
        let accepts = |version| self.listeners.iter().any(|listener| listener.port().0 == version);
        if let Some(pool) = &mut config.names.pool {
            pool.prefixes.retain(|prefix| accepts(IpFamily::of(prefix.address())));
        }
    }

    /// The rules that redirect questions and connections to these sockets, if any.
    pub(crate) fn rules(&self, config: &DnsConfig) -> Option<NameRules> {
        let connections = self.listeners.iter().map(Listener::port).collect();
        let questions = self.redirected.iter().map(|socket| socket.address()).collect();
        rules(config, connections, questions, false)
    }

    /// The addresses of this machine at which questions are answered.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listening.iter().map(|(socket, _)| socket.address())
    }
}

/// The rules of a terminal with `config`, for display.
pub(crate) fn printed_rules(config: &DnsConfig) -> Option<NameRules> {
    let versions = IpFamily::BOTH;
    let listeners = versions.map(|version| (version, PRINTED_PORT)).to_vec();
    let sockets = versions
        .map(|version| SocketAddr::new(DnsSocket::redirect_address(version, 1), PORT))
        .to_vec();
    rules(config, listeners, sockets, true)
}

fn rules(
    config: &DnsConfig,
    connections: Vec<(IpFamily, u16)>,
    questions: Vec<SocketAddr>,
    asking: bool,
) -> Option<NameRules> {
    let pool = config.names.pool.as_ref().map_or(&[][..], |pool| &pool.prefixes);
    // Clients of `listen` are intercepted only if they may get pool addresses, whose connections
    // must come here.
    let here = config.keys.listen.iter().filter(|at| at.port() == PORT && !pool.is_empty());
    let wanted = config.intercept || !pool.is_empty();
    wanted.then(|| NameRules {
        connections,
        questions,
        pool: pool.to_vec(),
        bypass: config.keys.bypass.to_vec(),
        listen: here.map(SocketAddr::ip).filter(|address| !address.is_unspecified()).collect(),
        answering: asking,
        intercept: config.intercept,
    })
}
