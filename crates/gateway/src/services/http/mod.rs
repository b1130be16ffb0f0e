//! Cleartext HTTP: a terminal answers its clients' requests from a cache ([`Http`]).
//!
//! [`http_cache`] decides; here are the sockets and files. A [`conversation`] is a client's connection:
//! its requests are answered, or sent on over an [`upstream`]. What is no HTTP that we understand
//! becomes a relayed connection like any other, with all that has been read of it.

mod answer;
mod conversation;
mod disk;
mod exchange;
mod flight;
pub(crate) mod hub;
pub(crate) mod hub_store;
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
use http_cache::Patience;
use slacp::{Destination, Open};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::conversation::Conversation;
use self::kept::Kept;
use self::sites::Sites;
use crate::figures::counters::Counter;
use crate::figures::status::HttpStatus;
use crate::relay::route::Route;
use crate::relay::route::Upstreams;

/// What all conversations share.
pub(crate) struct Shared {
    config: HttpConfig,
    kept: Arc<Kept>,
    sites: Sites,
    upstreams: Upstreams,
    route: watch::Receiver<Route>,
    counters: HttpCounters,
    /// With servers that are asked without the hop.
    patience: Mutex<Patience>,
}

/// What is counted beside the cache.
#[derive(Debug, Default)]
struct HttpCounters {
    /// Connections that were no HTTP, or not ours to handle.
    plain: Counter,
}

/// A terminal's cache. Dropping it ends what it does on its own; connections end with the gateway.
pub(crate) struct Http {
    shared: Arc<Shared>,
    route: watch::Sender<Route>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Http {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Http {
    /// Starts with what an earlier process has left on disk. Connections go to their
    /// destinations by `upstreams`.
    ///
    /// # Errors
    /// What is wrong with a site's certificate.
    pub(crate) fn start(config: HttpConfig, upstreams: Upstreams) -> Result<Self, String> {
        let sites = Sites::load(&config)?;
        let (kept, tasks) = Kept::start(config.cache.clone(), config.directory.as_deref());
        let (sender, route) = watch::channel(Route::default());
        let shared = Arc::new(Shared {
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

    /// What conversations share, for connections that come in by another way.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Sets how requests reach their servers.
    fn set(&self, route: Route) {
        self.route.send_if_modified(|current| std::mem::replace(current, route) != route);
    }

    /// Ports whose connections are to be taken although the hub cannot be reached; none without
    /// anything to serve.
    fn ports_to_serve_offline(&self) -> &[u16] {
        let serves = self.shared.config.offline && !self.shared.kept.lock().store().is_empty();
        if serves { &self.shared.config.ports } else { &[] }
    }

    fn status(&self) -> HttpStatus {
        let (stats, errors) = self.shared.kept.stats();
        let plain = self.shared.counters.plain.get();
        HttpStatus::of_terminal(&stats, (plain, errors))
    }
}

impl Shared {
    /// Whether connections to this port are handled.
    pub(crate) fn takes(&self, port: u16) -> bool {
        self.config.takes(port) || self.sites.take(port)
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().expect("nobody panics while holding the patience")
    }
}

/// Checks the certificates of sites.
///
/// # Errors
/// What is wrong with one.
pub(crate) fn check_sites(config: &HttpConfig) -> Result<(), String> {
    Sites::load(config).map(|_| ())
}

/// Serves a client's connection, of which nothing has been read.
pub(crate) async fn serve(shared: Arc<Shared>, socket: TcpStream, open: Open<Destination>) {
    Conversation::new(shared, socket, open).run().await;
}
