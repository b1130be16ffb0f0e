//! Idle connections to servers. Each carries only requests that leave nothing behind, so whoever asks
//! next may use it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpStream;
use units::Instant;

use crate::operate::counters::Counter;

/// Idle connections to one server, and in all.
const MOST_EACH: usize = 8;
const MOST: usize = 256;
/// How long a connection stays idle: most servers close it sooner.
const IDLE: Duration = Duration::from_secs(30);

/// A server, and the address that it sees, if that is a client's.
type Key = (SocketAddr, Option<IpAddr>);

/// Idle connections, and counters of what uses them.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<BTreeMap<Key, Vec<(Instant, TcpStream)>>>,
    pub(super) exchanges: Counter,
    /// Exchanges over a connection that was there.
    pub(super) reused: Counter,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<(Instant, TcpStream)>>> {
        self.idle.lock().expect("nobody panics while holding the pool")
    }

    /// A connection to one of these addresses that its server has not closed: the last one used.
    pub(super) fn take(
        &self,
        now: Instant,
        servers: &[SocketAddr],
        source: Option<IpAddr>,
    ) -> Option<TcpStream> {
        let mut idle = self.lock();
        for server in servers {
            let Some(connections) = idle.get_mut(&(*server, source)) else { continue };
            while let Some((since, socket)) = connections.pop() {
                let silent = matches!(
                    socket.try_read(&mut [0]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock
                );
                if silent && now.saturating_since(since) < IDLE {
                    self.reused.increment();
                    return Some(socket);
                }
            }
            idle.remove(&(*server, source));
        }
        None
    }

    /// Keeps a connection whose last response has been read to its end.
    pub(super) fn give_back(&self, now: Instant, socket: TcpStream, source: Option<IpAddr>) {
        let Ok(server) = socket.peer_addr() else { return };
        let mut idle = self.lock();
        let all = idle.values().map(Vec::len).sum::<usize>();
        let connections = idle.entry((server, source)).or_default();
        if connections.len() < MOST_EACH && all < MOST {
            connections.push((now, socket));
        }
    }

    /// Closes what has been idle for long.
    pub(super) fn expire(&self, now: Instant) {
        self.lock().retain(|_, connections| {
            connections.retain(|(since, _)| now.saturating_since(*since) < IDLE);
            !connections.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::testkit::connected;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn a_connection_serves_again_whoever_sees_the_same_client() {
        let pool = Pool::default();
        let [near, _far] = connected().await;
        let server = near.peer_addr().unwrap();
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        pool.give_back(at(0), near, client);
        assert!(pool.take(at(1), &[server], None).is_none());
        assert!(pool.take(at(1), &[server], client).is_some());
        assert!(pool.take(at(1), &[server], client).is_none());
        assert_eq!(pool.reused.get(), 1);
    }

    #[tokio::test]
    async fn what_was_closed_or_spoke_or_is_old_serves_nobody() {
        let pool = Pool::default();
        let [near, far] = connected().await;
        let server = near.peer_addr().unwrap();
        drop(far);
        near.readable().await.unwrap();
        pool.give_back(at(0), near, None);
        assert!(pool.take(at(1), &[server], None).is_none());

        let [near, mut far] = connected().await;
        let server = near.peer_addr().unwrap();
        far.write_all(b"HTTP/1.1 408 x\r\n\r\n").await.unwrap();
        near.readable().await.unwrap();
        pool.give_back(at(0), near, None);
        assert!(pool.take(at(1), &[server], None).is_none());

        let [near, _far] = connected().await;
        let server = near.peer_addr().unwrap();
        pool.give_back(at(0), near, None);
        pool.expire(at(29));
        assert_eq!(pool.lock().len(), 1);
        assert!(pool.take(at(30), &[server], None).is_none());
        pool.expire(at(30));
        assert!(pool.lock().is_empty());
    }

    #[tokio::test]
    async fn a_server_gets_no_more_idle_connections_than_a_few() {
        let pool = Pool::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        for _ in 0..=MOST_EACH {
            pool.give_back(at(0), TcpStream::connect(server).await.unwrap(), None);
        }
        assert_eq!(pool.lock()[&(server, None)].len(), MOST_EACH);
    }
}
