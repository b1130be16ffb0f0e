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

/// How long connections to a destination pass by at first, a server may just be
/// starting; twice as long when it refuses again, up to …
const FIRST: Duration = Duration::from_secs(5);
/// … so long. So long after that a destination is forgotten.
const LONGEST: Duration = Duration::from_secs(60);
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

/// Of one destination, the last one.
#[derive(Debug)]
struct Refusal {
    /// Connections pass by until then, after they have for so long.
    until: Instant,
    lasting: Duration,
}

/// No I/O, no clock.
#[derive(Debug, Default)]
struct Memory {
    /// Somebody lets them pass by; before, nothing is remembered.
    is_followed: bool,
    refusals: BTreeMap<SocketAddr, Refusal>,
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

    /// When one of those that pass by does not any more.
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

    /// Seconds until a destination that refuses at this time does not pass by any more.
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
