//! What names stand for: asks this machine's resolver, for clients of the proxy and for
//! streams whose destination is a name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slacp::{HostName, ResetReason};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How many names are resolved at the same time: each takes a thread.
const LOOKUPS: usize = 32;
/// How many addresses of a name are tried.
const ADDRESSES: usize = 4;
/// How long an address may take to answer while others have not been tried: two SYNs
/// (RFC 6298 §2) and a round trip.
const NEXT: Duration = Duration::from_secs(2);

/// A resolver that is asked so many names at a time, and keeps none.
#[derive(Debug, Clone)]
pub(crate) struct Resolver(Arc<Semaphore>);

impl Default for Resolver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS)))
    }
}

impl Resolver {
    /// The addresses of a host, at least one, in the order in which they should be tried.
    ///
    /// # Errors
    /// [`ResetReason::TimedOut`] after `patience`; [`ResetReason::Unreachable`] if there are
    /// none.
    pub(crate) async fn look_up(
        &self,
        (name, port): (&HostName, u16),
        patience: Duration,
    ) -> Result<Vec<SocketAddr>, ResetReason> {
        let looked_up = timeout(patience, async {
            let _permit = self.0.acquire().await.expect("nobody closes it");
            lookup_host((name.as_str(), port)).await
        });
        let addresses = looked_up.await.map_err(|_| ResetReason::TimedOut)?;
        let addresses: Vec<_> =
            addresses.map_err(|_| ResetReason::Unreachable)?.take(ADDRESSES).collect();
        if addresses.is_empty() { Err(ResetReason::Unreachable) } else { Ok(addresses) }
    }
}

/// Connects to the first of some addresses that answers; all together take at most
/// `patience`.
///
/// # Errors
/// That of the last address that was tried.
pub(crate) async fn try_each<F: Future<Output = io::Result<TcpStream>>>(
    addresses: &[SocketAddr],
    patience: Duration,
    connect: impl Fn(SocketAddr, Duration) -> F,
) -> io::Result<TcpStream> {
    let until = Instant::now() + patience;
    let mut outcome = Err(io::ErrorKind::TimedOut.into());
    for (left, address) in (0..addresses.len()).rev().zip(addresses) {
        let rest = until.saturating_duration_since(Instant::now());
        outcome = connect(*address, if left == 0 { rest } else { rest.min(NEXT) }).await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::TcpListener;

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_name_has_addresses_or_is_unreachable() {
        let resolver = Resolver::default();
        let patience = Duration::from_secs(20);
        let found = resolver.look_up((&name("localhost"), 80), patience).await.unwrap();
        assert!(found.iter().all(|it| it.ip().is_loopback() && it.port() == 80), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_is_patient_for_others_names() {
        let busy = Resolver(Arc::new(Semaphore::new(0)));
        let none = busy.look_up((&name("localhost"), 80), Duration::from_secs(10)).await;
        assert_eq!(none, Err(ResetReason::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_tried_in_order_the_last_for_as_long_as_is_left() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = server.local_addr().unwrap();
        let silent = |last| SocketAddr::from(([192, 0, 2, last], 80));
        let tried = Mutex::new(Vec::new());
        let connect = |address: SocketAddr, patience: Duration| {
            tried.lock().unwrap().push((address, patience));
            async move {
                if address == there {
                    return TcpStream::connect(address).await;
                }
                tokio::time::sleep(patience).await;
                Err(io::ErrorKind::TimedOut.into())
            }
        };
        let addresses = [silent(1), silent(2), there, silent(3)];
        let found = try_each(&addresses, Duration::from_secs(10), connect).await;
        assert_eq!(found.unwrap().peer_addr().unwrap(), there);
        let seconds = Duration::from_secs;
        let expected = [(silent(1), NEXT), (silent(2), NEXT), (there, NEXT)];
        assert_eq!(std::mem::take(&mut *tried.lock().unwrap()), expected);

        let nowhere = try_each(&[silent(1), silent(2)], seconds(10), connect).await;
        assert_eq!(nowhere.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(*tried.lock().unwrap(), [(silent(1), NEXT), (silent(2), seconds(8))]);
    }
}
