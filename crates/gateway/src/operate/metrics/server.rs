//! Connections of the metrics server, with HTTP/1.1.
//!
//! Any client can connect, with or without a token, so both the number of connections and the time
//! for a request are limited. Beyond the limit the oldest connection gives way to the newest, since
//! an honest request takes milliseconds. Connections that follow `/events` stay.

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

use super::access::MetricsAccess;
use super::live::MAX_VIEWERS;
use crate::intercept::listener::is_exhaustion;

/// Maximum number of concurrent connections, viewers included.
pub(super) const MAX_SERVED: usize = 128;
const _: () = assert!(MAX_SERVED > MAX_VIEWERS, "one that follows nothing can give way");
/// Time limit for the arrival of a request, and for an idle connection.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Size limit of a request's head, in bytes: it has the cookies of other services of this machine.
const MAX_HEAD: usize = 32 << 10;
/// Pause of accepting after the process ran out of descriptors.
const EXHAUSTION_PAUSE: Duration = Duration::from_secs(1);

/// Set while a connection follows `/events`.
#[derive(Debug, Clone, Default)]
pub(super) struct FollowFlag(Arc<AtomicBool>);

impl FollowFlag {
    /// Marks the connection as following until the returned guard is dropped.
    pub(super) fn hold(&self) -> FollowGuard {
        self.0.store(true, Ordering::Relaxed);
        FollowGuard(self.clone())
    }

    fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Guard: while it lives, its connection counts as following `/events`.
#[derive(Debug)]
pub(super) struct FollowGuard(FollowFlag);

impl Drop for FollowGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// Accepts connections and serves them until dropped.
pub(super) async fn serve(listener: TcpListener, router: Router, access: Arc<MetricsAccess>) {
    let mut served = ServedConnections::default();
    loop {
        match listener.accept().await {
            Ok((socket, client)) if access.admits(client) => served.add(socket, &router),
            Ok((_, client)) => tracing::debug!("metrics: {client} is not in [metrics] allow"),
            Err(error) if is_exhaustion(&error) => sleep(EXHAUSTION_PAUSE).await,
            // The client has disconnected.
            Err(_) => {}
        }
    }
}

#[derive(Default)]
struct ServedConnections {
    tasks: JoinSet<()>,
    /// Tasks by age, the oldest first; some may have ended.
    order: VecDeque<(AbortHandle, FollowFlag)>,
}

impl ServedConnections {
    fn add(&mut self, socket: TcpStream, router: &Router) {
        self.make_room();
        let follows = FollowFlag::default();
        let router = router.clone().layer(Extension(follows.clone()));
        let task = self.tasks.spawn(serve_connection(socket, router));
        self.order.push_back((task, follows));
    }

    /// At the limit, closes the oldest connection that does not follow `/events`.
    fn make_room(&mut self) {
        // The set keeps tasks that have ended until they are joined.
        while self.tasks.try_join_next().is_some() {}
        self.order.retain(|(task, _)| !task.is_finished());
        if self.order.len() < MAX_SERVED {
            return;
        }
        let oldest = self.order.iter().position(|(_, follows)| !follows.is_held());
        if let Some((task, _)) = oldest.and_then(|at| self.order.remove(at)) {
            task.abort();
        }
    }
}

/// Serves requests until the client closes the connection, is idle, or is too slow.
async fn serve_connection(socket: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).max_buf_size(MAX_HEAD);
    let service = TowerToHyperService::new(router);
    if let Err(error) = http.serve_connection(TokioIo::new(socket), service).await {
        tracing::debug!("metrics: connection failed: {error}");
    }
}
