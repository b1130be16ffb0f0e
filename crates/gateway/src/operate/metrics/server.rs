//! The connections of the server, with HTTP/1.1.
//!
//! Anybody can connect, with or without a token, so both the number of connections and the time for
//! a request are limited. Beyond the limit the oldest connection gives way to the newest, since an
//! honest request takes milliseconds. One that follows `/events` stays.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::access::Access;
use super::live::MOST_VIEWERS;
use crate::intercept::listener::is_exhaustion;

/// Connections at once.
pub(super) const MOST_SERVED: usize = 128;
const _: () = assert!(MOST_SERVED > MOST_VIEWERS, "one that follows nothing can give way");
/// How long a request may take to arrive, and how long a connection may be idle.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of a request, in bytes: with the cookies of other services of this machine.
const LONGEST_HEAD: usize = 32 << 10;
/// How long no connection is accepted after the process ran out of descriptors.
const RECOVERY: Duration = Duration::from_secs(1);

/// Whether a connection follows `/events` now.
#[derive(Debug, Clone, Default)]
pub(super) struct Follows(Arc<AtomicBool>);

impl Follows {
    /// The connection does until the returned value is dropped.
    pub(super) fn hold(&self) -> Following {
        self.0.store(true, Ordering::Relaxed);
        Following(self.clone())
    }

    fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// While it lives, its connection follows `/events`.
#[derive(Debug)]
pub(super) struct Following(Follows);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// Accepts connections and serves them until dropped.
pub(super) async fn serve(listener: TcpListener, router: Router, access: Arc<Access>) {
    let mut served = Served::default();
    loop {
        match listener.accept().await {
            Ok((socket, client)) if access.admits(client) => served.add(socket, &router),
            Ok((_, client)) => tracing::debug!("metrics: {client} is not in [metrics] allow"),
            Err(error) if is_exhaustion(&error) => sleep(RECOVERY).await,
            // The client has gone.
            Err(_) => {}
        }
    }
}

/// Connections that are served.
#[derive(Default)]
struct Served {
    tasks: JoinSet<()>,
    /// The oldest first; some may have ended.
    order: VecDeque<(AbortHandle, Follows)>,
}

impl Served {
    fn add(&mut self, socket: TcpStream, router: &Router) {
        self.make_room();
        let follows = Follows::default();
        let router = router.clone().layer(Extension(follows.clone()));
        let task = self.tasks.spawn(converse(socket, router));
        self.order.push_back((task, follows));
    }

    /// Closes the oldest connection that follows nothing, if no other has room.
    fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.order.retain(|(task, _)| !task.is_finished());
        if self.order.len() < MOST_SERVED {
            return;
        }
        let oldest = self.order.iter().position(|(_, follows)| !follows.is_held());
        if let Some((task, _)) = oldest.and_then(|at| self.order.remove(at)) {
            task.abort();
        }
    }
}

/// Answers requests until the client closes the connection, is idle, or takes too long to ask.
async fn converse(socket: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(LONGEST_HEAD);
    let service = TowerToHyperService::new(router);
    if let Err(error) = http.serve_connection(TokioIo::new(socket), service).await {
        tracing::debug!("metrics: a connection ends: {error}");
    }
}
