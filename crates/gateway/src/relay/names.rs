//! Name look-ups with this machine's resolver, for clients of the proxy and for streams to names.
//!
//! A look-up blocks a thread until the resolver answers or times out. Each client, and the clients of a
//! terminal together, therefore have a limited share of the threads ([`WorkSlots`]), so that slow names of one
//! client do not delay the others.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pep::admission::SlotShare;
use pep::relay::{DialAttempts, alternating};
use slacp::{HostName, ResetReason};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

use crate::process::clock;
use crate::relay::dial;
use crate::relay::turns::{SlotAsker, WorkSlots};

/// Maximum concurrent look-ups per client; the same number may wait. A browser needs no more at once than
/// a page has hosts.
pub(crate) const LOOKUPS_EACH: SlotShare = SlotShare::each(8);

/// Maximum concurrent look-ups. Each takes a thread, of which tokio has 512.
const LOOKUPS: usize = 128;

/// A resolver shared fairly among clients, which are grouped by `G`. It does not cache.
#[derive(Clone)]
pub(crate) struct NameResolver<G: Ord + Clone>(WorkSlots<G>);

impl<G: Ord + Clone> Default for NameResolver<G> {
    fn default() -> Self {
        Self::of(LOOKUPS)
    }
}

impl<G: Ord + Clone> NameResolver<G> {
    fn of(lookups: usize) -> Self {
        Self(WorkSlots::new(lookups))
    }
}

impl<G: Ord + Clone + Send + 'static> NameResolver<G> {
    /// Returns the addresses of a host, at least one, in the order to try them.
    ///
    /// # Errors
    /// [`ResetReason::TimedOut`] after `time_limit`; [`ResetReason::Unreachable`] if the name has no
    /// addresses; [`ResetReason::Limit`] if too many look-ups of the asker wait.
    pub(crate) async fn look_up(
        &self,
        asker: SlotAsker<G>,
        name: &HostName,
        port: u16,
        time_limit: Duration,
    ) -> Result<Vec<SocketAddr>, ResetReason> {
        let looked_up = timeout(time_limit, async {
            let permit = self.0.acquire(asker).await?;
            let name = name.as_str().to_owned();
            // The thread stays busy until the resolver answers, even if the asker stops waiting.
            let lookup = tokio::spawn(async move {
                let found = lookup_host((name, port)).await;
                drop(permit);
                // A broken IP version must not hold up the other (RFC 8305 §4).
                found.map(alternating)
            });
            let found = lookup.await.map_err(|_| ResetReason::Unreachable)?;
            found.map_err(|_| ResetReason::Unreachable)
        });
        let addresses = looked_up.await.map_err(|_| ResetReason::TimedOut)??;
        if addresses.is_empty() { Err(ResetReason::Unreachable) } else { Ok(addresses) }
    }
}

/// Connects to the address that answers first (RFC 8305). `time_limit` is for all attempts together.
///
/// # Errors
/// That of the attempt which failed last.
pub(crate) async fn connect_any<F: Future<Output = io::Result<TcpStream>>>(
    addresses: Vec<SocketAddr>,
    time_limit: Duration,
    connect: impl Fn(SocketAddr, Duration) -> F,
) -> io::Result<TcpStream> {
    let mut dial = DialAttempts::new(clock::now(), addresses, time_limit);
    let mut attempts = FuturesUnordered::new();
    loop {
        let now = clock::now();
        if let Some(address) = dial.poll(now) {
            attempts.push(connect(address, dial.until().saturating_since(now)));
        }
        let next = dial.poll_timeout().map_or(time_limit, |next| next.saturating_since(now));
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(socket)) => return Ok(socket),
                Some(Err(error)) => {
                    if dial.handle_failure(clock::now(), dial::reset_reason(&error)).is_err() {
                        return Err(error);
                    }
                }
                None => return Err(io::ErrorKind::TimedOut.into()),
            },
            () = sleep(next) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use super::*;

    /// An address that refuses connections, and one that accepts them.
    fn closed_and_open() -> (std::net::TcpListener, [SocketAddr; 2]) {
        let [closed, open] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = [&closed, &open].map(|listener| listener.local_addr().unwrap());
        (open, addresses)
    }

    fn connect(to: SocketAddr, within: Duration) -> impl Future<Output = io::Result<TcpStream>> {
        dial::connect(to, dial::DialSource::default(), within)
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_refuses() {
        let (_open, [closed, open]) = closed_and_open();
        let time_limit = Duration::from_secs(5);
        let socket = connect_any(vec![closed, open], time_limit, connect).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), open);
        let error = connect_any(vec![closed, closed], time_limit, connect).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_holds_up_no_other() {
        let (_open, [silent, open]) = closed_and_open();
        let connect = async |address, within| {
            if address == silent { pending().await } else { connect(address, within).await }
        };
        let time_limit = Duration::from_secs(3600);
        let socket = connect_any(vec![silent, open], time_limit, connect).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), open);
    }

    #[tokio::test]
    async fn addresses_share_the_time_limit() {
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let limits = Mutex::new(Vec::new());
        let fail = |_, within| {
            limits.lock().unwrap().push(within);
            async { Err(io::ErrorKind::TimedOut.into()) }
        };
        let time_limit = Duration::from_secs(9);
        connect_any(vec![address; 3], time_limit, fail).await.unwrap_err();
        let limits = limits.into_inner().unwrap();
        assert_eq!(limits.len(), 3);
        assert!(limits[2] < limits[0] && limits[0] <= time_limit, "{limits:?}");
    }

    /// A client that may have this many lookups at once.
    fn asker(client: u8, share: usize) -> SlotAsker<()> {
        SlotAsker::ungrouped([10, 0, 0, client].into(), SlotShare::each(share))
    }

    fn name(text: &str) -> HostName {
        HostName::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_name_has_addresses_or_is_unreachable() {
        let resolver = NameResolver::default();
        let time_limit = Duration::from_secs(20);
        let found =
            resolver.look_up(asker(1, 1), &name("localhost"), 80, time_limit).await.unwrap();
        assert!(found.iter().all(|it| it.ip().is_loopback() && it.port() == 80), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_others_names_ends_after_the_time_limit() {
        let busy = NameResolver::of(0);
        let time_limit = Duration::from_secs(10);
        let none = busy.look_up(asker(1, 1), &name("localhost"), 80, time_limit).await;
        assert_eq!(none, Err(ResetReason::TimedOut));
    }

    #[tokio::test]
    async fn slow_names_of_one_asker_leave_others_their_own() {
        let resolver = NameResolver::of(4);
        let many = asker(1, 2);
        let slow = [resolver.0.acquire(many).await, resolver.0.acquire(many).await];
        assert!(slow.iter().all(Result::is_ok));
        let waits = [(); 2].map(|()| {
            tokio::spawn({
                let resolver = resolver.clone();
                async move { resolver.0.acquire(many).await.map(drop) }
            })
        });
        tokio::task::yield_now().await;
        let refused = resolver.0.acquire(many).await.map(drop);
        assert_eq!(refused, Err(ResetReason::Limit), "two are asked for, two wait");
        let time_limit = Duration::from_secs(20);
        let other = resolver.look_up(asker(2, 2), &name("localhost"), 80, time_limit).await;
        assert!(other.is_ok(), "{other:?}");
        drop(slow);
        for waiting in waits {
            assert_eq!(waiting.await.unwrap(), Ok(()));
        }
    }
}
