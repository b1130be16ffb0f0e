//! Destinations that could not be connected to. A client that is answered at once
//! learns of it only by a reset, and does not try its server's next address (Happy
//! Eyeballs, RFC 8305). So further connections there pass by for a while: then it is
//! the destination that answers, and the client knows what to do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use slacp::ResetReason;
use tokio::sync::{Notify, oneshot};
use units::Instant;

use crate::clock;

/// How long a destination is remembered.
const KEPT: Duration = Duration::from_secs(60);
/// How many are; each new one has the table of interception made anew, and somebody
/// may look through all ports there are.
const MOST: usize = 64;

/// Those of one gateway. Connections tell of them, the intake lets them pass by.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    memory: Mutex<Memory>,
    /// There is one more.
    changed: Notify,
}

/// No I/O, no clock.
#[derive(Debug, Default)]
struct Memory {
    /// Somebody lets them pass by; before, nothing is remembered.
    is_followed: bool,
    /// Until when each is remembered.
    until: BTreeMap<SocketAddr, Instant>,
    /// What the intake knows.
    known: Vec<SocketAddr>,
    /// For who waits until the intake knows.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Refusals {
    /// A client that was answered could not be connected to `destination`. Returns
    /// when the next one's connection will pass by, so that the client can be told;
    /// at once if none will.
    pub(crate) async fn tell(&self, destination: SocketAddr, reason: ResetReason) {
        let is_of_destination = matches!(
            reason,
            ResetReason::Refused | ResetReason::Unreachable | ResetReason::TimedOut
        );
        if !is_of_destination {
            return;
        }
        let Some(known) = self.lock().remember(clock::now(), destination) else { return };
        self.changed.notify_one();
        // It fails if nothing is taken over any more.
        let _ = known.await;
    }

    /// From now on somebody lets them pass by.
    pub(crate) fn follow(&self) {
        self.lock().is_followed = true;
    }

    /// Waits for something that calls for [`Self::take_change`].
    pub(crate) async fn changed(&self) {
        let next = self.lock().next_end().map(|end| end.saturating_since(clock::now()));
        match next {
            Some(pause) => tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            },
            None => self.changed.notified().await,
        }
    }

    /// What passes by from now on, if that is not what passed by.
    pub(crate) fn take_change(&self) -> Option<Vec<SocketAddr>> {
        self.lock().take_change(clock::now())
    }

    /// The table is what was last taken.
    pub(crate) fn set(&self) {
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("nobody panics while holding it")
    }
}

impl Memory {
    /// `None` if there is nothing to wait for.
    fn remember(&mut self, now: Instant, destination: SocketAddr) -> Option<oneshot::Receiver<()>> {
        self.until.retain(|_, until| *until > now);
        if !self.is_followed {
            return None;
        }
        if self.until.len() >= MOST && !self.until.contains_key(&destination) {
            return None;
        }
        self.until.insert(destination, now + KEPT);
        if self.known.contains(&destination) {
            return None;
        }
        let (sender, known) = oneshot::channel();
        self.waiting.push(sender);
        Some(known)
    }

    fn next_end(&self) -> Option<Instant> {
        self.until.values().min().copied()
    }

    fn take_change(&mut self, now: Instant) -> Option<Vec<SocketAddr>> {
        self.until.retain(|_, until| *until > now);
        if self.until.keys().eq(self.known.iter()) {
            return None;
        }
        self.known = self.until.keys().copied().collect();
        Some(self.known.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn port(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_destination_is_remembered_for_a_minute_from_its_last_refusal() {
        let mut memory = Memory { is_followed: true, ..Memory::default() };
        assert!(memory.remember(at(0), port(80)).is_some());
        assert_eq!(memory.take_change(at(0)), Some(vec![port(80)]));
        assert_eq!(memory.take_change(at(1)), None);
        assert!(memory.remember(at(30), port(80)).is_none(), "the intake knows it");
        assert_eq!((memory.take_change(at(60)), memory.next_end()), (None, Some(at(90))));
        assert_eq!(memory.take_change(at(90)), Some(vec![]));
        assert_eq!((memory.take_change(at(91)), memory.next_end()), (None, None));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut memory = Memory { is_followed: true, ..Memory::default() };
        let first = MOST as u16;
        assert!((0..first).all(|number| memory.remember(at(0), port(number)).is_some()));
        assert!(memory.remember(at(1), port(first)).is_none());
        assert_eq!(memory.take_change(at(1)).unwrap().len(), MOST);
        assert!(memory.remember(at(60), port(first)).is_some(), "the others' time is over");
        assert_eq!(memory.take_change(at(60)), Some(vec![port(first)]));
    }

    #[tokio::test]
    async fn who_tells_waits_until_the_table_is_made_and_for_nothing_else() {
        let refusals = Refusals::default();
        refusals.tell(port(1), ResetReason::Refused).await;
        assert_eq!(refusals.take_change(), None, "nobody would let it pass by");
        refusals.follow();
        refusals.tell(port(1), ResetReason::Limit).await;
        assert_eq!(refusals.take_change(), None);
        let make = async {
            refusals.changed().await;
            assert_eq!(refusals.take_change(), Some(vec![port(2)]));
            refusals.set();
        };
        tokio::join!(refusals.tell(port(2), ResetReason::Refused), make);
    }
}
