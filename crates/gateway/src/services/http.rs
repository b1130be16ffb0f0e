//! Cleartext HTTP: a terminal answers its clients' requests from a cache ([`TerminalHttp`]).
//!
//! [`http_cache`] decides; this module has the sockets and files. A [`conversation`] is a client's
//! connection: its requests are answered, or forwarded over an [`upstream`]. A connection that is
//! not plainly HTTP is relayed like any other, with all bytes that were read from it.

mod answer;
mod conversation;
mod disk;
mod exchange;
mod flight;
pub(crate) mod hub;
mod kept;
mod pool;
mod record;
mod refresh;
mod secure;
mod service;
mod sites;
mod upstream;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};

use config::HttpConfig;
use control::Counter;
use control::status::HttpStatus;
use http_cache::OriginTimeout;
use slacp::{Destination, StreamOpening};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::conversation::HttpConnection;
use self::kept::ResponseCache;
use self::sites::SiteTable;
use crate::relay::route::ClientRoute;
use crate::relay::route::Upstreams;

/// State shared by all client connections.
pub(crate) struct HttpShared {
    config: HttpConfig,
    kept: Arc<ResponseCache>,
    sites: SiteTable,
    upstreams: Upstreams,
    route: watch::Receiver<ClientRoute>,
    counters: HttpCounters,
    /// Time limit for servers that are asked without the hop.
    patience: Mutex<OriginTimeout>,
}

/// Counters beside those of the cache.
#[derive(Debug, Default)]
struct HttpCounters {
    /// Connections that were relayed unchanged.
    plain: Counter,
}

/// A terminal's HTTP cache. Dropping it ends its background tasks; connections end with the
/// gateway.
pub(crate) struct TerminalHttp {
    shared: Arc<HttpShared>,
    route: watch::Sender<ClientRoute>,
    tasks: Vec<AbortHandle>,
}

impl Drop for TerminalHttp {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl TerminalHttp {
    /// Starts the cache with what an earlier process has left on disk. Requests reach their servers
    /// by `upstreams`.
    ///
    /// # Errors
    /// A message if a site's certificate cannot be used.
    pub(crate) fn start(config: HttpConfig, upstreams: Upstreams) -> Result<Self, String> {
        let sites = SiteTable::load(&config)?;
        let (kept, tasks) =
            ResponseCache::start(config.cache.clone(), config.keys.directory.as_deref());
        let (sender, route) = watch::channel(ClientRoute::default());
        let shared = Arc::new(HttpShared {
            config,
            kept,
            sites,
            upstreams,
            route,
            counters: HttpCounters::default(),
            patience: Mutex::default(),
        });
        Ok(Self { shared, route: sender, tasks })
    }

    /// The shared state, for connections that come from another service.
    pub(crate) fn shared(&self) -> Arc<HttpShared> {
        self.shared.clone()
    }

    /// Sets the route of new requests: through the hub, or without it.
    fn set(&self, route: ClientRoute) {
        // Called after every event of the gateway: only a change wakes the connections.
        self.route.send_if_modified(|current| std::mem::replace(current, route) != route);
    }

    /// Ports to intercept while the hub is unreachable; empty if there is no stored response to
    /// serve.
    fn ports_to_serve_offline(&self) -> &[u16] {
        let serves =
            self.shared.config.keys.offline.get() && !self.shared.kept.lock().store().is_empty();
        if serves { &self.shared.config.ports } else { &[] }
    }

    fn status(&self) -> HttpStatus {
        let (stats, errors) = self.shared.kept.stats();
        let plain = self.shared.counters.plain.get();
        HttpStatus::new(&stats, plain, errors)
    }
}

impl HttpShared {
    /// Returns `true` if connections to this port are handled by the cache.
    pub(crate) fn takes(&self, port: u16) -> bool {
        self.config.takes(port) || self.sites.take(port)
    }

    fn patience(&self) -> MutexGuard<'_, OriginTimeout> {
        self.patience.lock().expect("nobody panics while holding the patience")
    }
}

/// Checks that the certificates of all sites can be used.
///
/// # Errors
/// A message that names the file.
pub(crate) fn check_sites(config: &HttpConfig) -> Result<(), String> {
    SiteTable::load(config).map(|_| ())
}

/// Serves a client's connection from its first byte.
pub(crate) async fn serve(
    shared: Arc<HttpShared>,
    socket: TcpStream,
    open: StreamOpening<Destination>,
) {
    HttpConnection::new(shared, socket, open).run().await;
}
