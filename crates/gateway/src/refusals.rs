//! Remembers destinations that refused connections. A client that is answered at once sees only a
//! reset, and does not try its server's next address (Happy Eyeballs, RFC 8305). So further
//! connections to the destination pass unaccelerated for a while: the client then hears the
//! destination itself. Deferring the answer would do as well, but needs CAP_NET_RAW.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use slacp::ResetReason;
use tokio::sync::{Notify, oneshot};
use units::Instant;

use crate::clock;

/// First period for which connections pass; short, because a server may just be starting. Doubles
/// with each further refusal up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(5);
/// Maximum period. A destination is forgotten this long after its last period ended.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum remembered destinations. Each new one rebuilds the interception table, and a port scan
/// yields many.
const MOST: usize = 64;

/// The refusals of one gateway. Connections report them; the intake lets their destinations pass.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    memory: Mutex<Memory>,
    /// Notified of each new refusal.
    changed: Notify,
}

/// The last refusal of a destination.
#[derive(Debug)]
struct Refusal {
    /// End of the current period, and its length.
    until: Instant,
    lasting: Duration,
}

/// The deciding part: no I/O, no clock.
#[derive(Debug, Default)]
struct Memory {
    /// Whether an intake acts on refusals. Nothing is remembered before.
    is_followed: bool,
    refusals: BTreeMap<SocketAddr, Refusal>,
    /// The destinations that the intake knows.
    known: Vec<SocketAddr>,
    /// Wait until the intake has been updated.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Refusals {
    /// Reports that an answered client could not be connected to `destination`. Returns once the
    /// next connection would pass unaccelerated, so that the client may be reset; at once if none
    /// will.
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
        // Fails if interception has ended.
        let _ = known.await;
    }

    /// From now on an intake acts on refusals.
    pub(crate) fn follow(&self) {
        self.lock().is_followed = true;
    }

    /// Waits until [`Self::take_change`] may have news.
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

    /// The destinations to let pass, if they have changed.
    pub(crate) fn take_change(&self) -> Option<Vec<SocketAddr>> {
        self.lock().take_change(clock::now())
    }

    /// The interception table now has what was taken last.
    pub(crate) fn set(&self) {
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("nobody panics while holding it")
    }
}

impl Memory {
    /// Records a refusal. Returns `None` if there is nothing to wait for.
    fn remember(&mut self, now: Instant, destination: SocketAddr) -> Option<oneshot::Receiver<()>> {
        self.refusals.retain(|_, refusal| refusal.until + LONGEST > now);
        let has_room = self.refusals.len() < MOST || self.refusals.contains_key(&destination);
        if !self.is_followed || !has_room {
            return None;
        }
        let refusal = self.refusals.entry(destination);
        let refusal = refusal
            .and_modify(|refusal| {
                if refusal.until <= now {
                    refusal.lasting = (refusal.lasting * 2).min(LONGEST);
                }
            })
            .or_insert(Refusal { until: now, lasting: FIRST });
        refusal.until = now + refusal.lasting;
        if self.known.contains(&destination) {
            return None;
        }
        let (sender, known) = oneshot::channel();
        self.waiting.push(sender);
        Some(known)
    }

    /// When the next period ends.
    fn next_end(&self) -> Option<Instant> {
        let passing = self.known.iter().filter_map(|destination| self.refusals.get(destination));
        passing.map(|refusal| refusal.until).min()
    }

    fn take_change(&mut self, now: Instant) -> Option<Vec<SocketAddr>> {
        let passing = self.refusals.iter().filter(|(_, refusal)| refusal.until > now);
        let passing: Vec<SocketAddr> = passing.map(|(destination, _)| *destination).collect();
        if passing == self.known {
            return None;
        }
        self.known.clone_from(&passing);
        Some(passing)
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

    /// Seconds until a destination that refuses at this time is intercepted again.
    fn lasts(memory: &mut Memory, seconds: u64) -> u64 {
        assert!(memory.remember(at(seconds), port(80)).is_some());
        assert_eq!(memory.take_change(at(seconds)), Some(vec![port(80)]));
        let end = memory.next_end().unwrap();
        assert_eq!(memory.take_change(end), Some(vec![]));
        assert_eq!(memory.next_end(), None);
        end.saturating_since(at(seconds)).as_secs()
    }

    #[test]
    fn who_refuses_again_and_again_passes_by_ever_longer() {
        let mut memory = Memory { is_followed: true, ..Memory::default() };
        let mut now = 0;
        for lasting in [5, 10, 20, 40, 60, 60] {
            assert_eq!(lasts(&mut memory, now), lasting);
            now += lasting;
        }
        assert_eq!(lasts(&mut memory, now + 59), 60);
        assert_eq!(lasts(&mut memory, now + 59 + 60 + 60), 5, "it was forgotten");
    }

    #[test]
    fn refusals_at_the_same_time_count_once() {
        let mut memory = Memory { is_followed: true, ..Memory::default() };
        assert!(memory.remember(at(0), port(80)).is_some());
        assert!(memory.remember(at(0), port(80)).is_some(), "the intake does not know it yet");
        assert_eq!(memory.take_change(at(0)), Some(vec![port(80)]));
        assert_eq!(memory.take_change(at(1)), None);
        assert!(memory.remember(at(3), port(80)).is_none(), "the intake knows it");
        assert_eq!((memory.take_change(at(5)), memory.next_end()), (None, Some(at(8))));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut memory = Memory { is_followed: true, ..Memory::default() };
        let first = MOST as u16;
        assert!((0..first).all(|number| memory.remember(at(0), port(number)).is_some()));
        assert!(memory.remember(at(1), port(first)).is_none());
        assert_eq!(memory.take_change(at(1)).unwrap().len(), MOST);
        assert_eq!(memory.take_change(at(5)), Some(vec![]));
        assert!(memory.remember(at(64), port(first)).is_none());
        assert!(memory.remember(at(65), port(first)).is_some(), "the others are forgotten");
        assert_eq!(memory.take_change(at(65)), Some(vec![port(first)]));
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
