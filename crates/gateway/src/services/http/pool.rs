//! Idle connections to servers. A connection returns here only after a complete exchange, so that
//! any client may use it next.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use control::Counter;
use tokio::net::TcpStream;
use units::Instant;

use super::secure::TlsConnection;
use super::wire::WireEnd;

/// Limit of idle connections to one server.
const MAX_PER_SERVER: usize = 8;
/// Limit of idle connections in total.
const MAX_IDLE: usize = 256;
/// Idle connections are closed after this time; most servers close them sooner.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a server.
pub(super) enum PooledConnection {
    Plain(TcpStream),
    Secure(Box<TlsConnection>),
}

impl PooledConnection {
    pub(super) fn wire(&self) -> WireEnd<'_> {
        match self {
            Self::Plain(socket) => WireEnd::Socket(socket),
            Self::Secure(secure) => WireEnd::Secure(secure),
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.peer_addr().ok(),
            Self::Secure(secure) => secure.peer(),
        }
    }

    /// Returns `true` if the server has neither closed the connection nor sent anything since its
    /// last response. Consumes a byte if there is one.
    fn is_silent(&self) -> bool {
        match self {
            Self::Plain(socket) => is_silent(socket),
            Self::Secure(secure) => secure.is_silent(),
        }
    }
}

/// Returns `true` if nothing can be read from the socket, not even its end. Consumes a byte if
/// there is one.
pub(super) fn is_silent(socket: &TcpStream) -> bool {
    let read = socket.try_read(&mut [0]);
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Key of requests that may share a connection: the client's address, if servers see that, and the
/// TLS name under which the server is authenticated.
pub(super) type SharingKey = (Option<IpAddr>, Option<String>);

type PoolKey = (SocketAddr, SharingKey);

/// Idle connections by server and sharing key, with their counters.
#[derive(Default)]
pub(super) struct ConnectionPool {
    idle: Mutex<BTreeMap<PoolKey, Vec<(Instant, PooledConnection)>>>,
    pub(super) exchanges: Counter,
    /// Exchanges over a connection that was in the pool.
    pub(super) reused: Counter,
}

impl ConnectionPool {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolKey, Vec<(Instant, PooledConnection)>>> {
        self.idle.lock().expect("nobody panics while holding the pool")
    }

    /// Takes an idle connection to one of these addresses, the last one used, unless its server has
    /// closed it.
    pub(super) fn take(
        &self,
        now: Instant,
        servers: &[SocketAddr],
        sharers: &SharingKey,
    ) -> Option<PooledConnection> {
        let mut idle = self.lock();
        for server in servers {
            let key = (*server, sharers.clone());
            let Some(connections) = idle.get_mut(&key) else { continue };
            while let Some((since, line)) = connections.pop() {
                if line.is_silent() && now.saturating_since(since) < IDLE_TIMEOUT {
                    self.reused.increment();
                    return Some(line);
                }
            }
            idle.remove(&key);
        }
        None
    }

    /// Returns a connection to the pool after its last response was read completely.
    pub(super) fn give_back(&self, now: Instant, line: PooledConnection, sharers: SharingKey) {
        // Without a peer address the connection has been reset.
        let Some(server) = line.peer() else { return };
        let mut idle = self.lock();
        let all = idle.values().map(Vec::len).sum::<usize>();
        let connections = idle.entry((server, sharers)).or_default();
        // Beyond the limits it is dropped, which closes it.
        if connections.len() < MAX_PER_SERVER && all < MAX_IDLE {
            connections.push((now, line));
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn expire(&self, now: Instant) {
        self.lock().retain(|_, connections| {
            connections.retain(|(since, _)| now.saturating_since(*since) < IDLE_TIMEOUT);
            !connections.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::testkit::connected;

    const ANY: SharingKey = (None, None);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn a_connection_serves_again_whoever_sees_the_same_client() {
        let pool = ConnectionPool::default();
        let [near, _far] = connected().await;
        let server = near.peer_addr().unwrap();
        let client = (Some(IpAddr::from([10, 0, 0, 1])), None);
        pool.give_back(at(0), PooledConnection::Plain(near), client.clone());
        assert!(pool.take(at(1), &[server], &ANY).is_none());
        let named = (client.0, Some("a.example".to_owned()));
        assert!(pool.take(at(1), &[server], &named).is_none(), "it has proved no name");
        assert!(pool.take(at(1), &[server], &client).is_some());
        assert!(pool.take(at(1), &[server], &client).is_none());
        assert_eq!(pool.reused.get(), 1);
    }

    #[tokio::test]
    async fn what_was_closed_or_spoke_or_is_old_serves_nobody() {
        let pool = ConnectionPool::default();
        let [near, far] = connected().await;
        let server = near.peer_addr().unwrap();
        drop(far);
        near.readable().await.unwrap();
        pool.give_back(at(0), PooledConnection::Plain(near), ANY);
        assert!(pool.take(at(1), &[server], &ANY).is_none());

        let [near, mut far] = connected().await;
        let server = near.peer_addr().unwrap();
        far.write_all(b"HTTP/1.1 408 x\r\n\r\n").await.unwrap();
        near.readable().await.unwrap();
        pool.give_back(at(0), PooledConnection::Plain(near), ANY);
        assert!(pool.take(at(1), &[server], &ANY).is_none());

        let [near, _far] = connected().await;
        let server = near.peer_addr().unwrap();
        pool.give_back(at(0), PooledConnection::Plain(near), ANY);
        pool.expire(at(29));
        assert_eq!(pool.lock().len(), 1);
        assert!(pool.take(at(30), &[server], &ANY).is_none());
        pool.expire(at(30));
        assert!(pool.lock().is_empty());
    }

    #[tokio::test]
    async fn a_server_gets_no_more_idle_connections_than_a_few() {
        let pool = ConnectionPool::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        for _ in 0..=MAX_PER_SERVER {
            let socket = TcpStream::connect(server).await.unwrap();
            pool.give_back(at(0), PooledConnection::Plain(socket), ANY);
        }
        assert_eq!(pool.lock()[&(server, ANY)].len(), MAX_PER_SERVER);
    }
}
