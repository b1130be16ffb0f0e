//! The link that the sessions of an endpoint share, also with other parts of the hub.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::scheduler::pacer::{BURST, Pacer, portion_of};

/// Maximum lead of one part of a hub over the others in virtual time, as bytes of a session of
/// weight 1: a few packets, so that parts need not alternate packet by packet.
const MAX_LEAD: u64 = 6000;
/// Time for which a part that is ahead leaves a free link to the others. Shorter than the burst
/// that makes up for it, so that no capacity is lost if the others have no time to use it.
const YIELD: Duration = Duration::from_millis(2);

/// Paces the packets of this part of a hub, and lets other parts take their turns.
#[derive(Debug)]
pub(crate) struct LinkPacer {
    pacer: Pacer,
    /// This part has had more than its share.
    is_ahead: bool,
    /// Link time used by this part so far.
    spent: Duration,
    /// The portion of the configured rate in use, above 0 and up to 1.
    portion: f64,
}

impl LinkPacer {
    /// Creates a link of that rate. At most `burst` leaves at once, if that is limited.
    pub(super) fn new(rate: BitRate, burst: Option<ByteCount>) -> Self {
        let pacer = Pacer::new(rate, BURST).with_max_burst(burst);
        Self { pacer, is_ahead: false, spent: Duration::ZERO, portion: 1.0 }
    }

    /// The time at which the next packet may leave.
    pub(crate) fn ready_at(&self) -> Instant {
        let free = self.pacer.ready_at();
        if self.is_ahead { free + YIELD } else { free }
    }

    /// Sets the pacer to the portion of `rate`; see [`Pacer::set_rate`].
    pub(super) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.pacer.set_rate(now, portion_of(rate, self.portion));
    }

    /// Sets the portion, above 0 and up to 1, for rates that are set from now on.
    pub(crate) fn set_portion(&mut self, portion: f64) {
        self.portion = portion;
    }

    /// The portion of the configured rate in use.
    pub(super) fn portion(&self) -> f64 {
        self.portion
    }

    /// Charges a packet of `size` IP bytes that leaves now.
    pub(super) fn sent(&mut self, now: Instant, size: ByteCount) {
        self.spent += self.pacer.charge(now, size);
    }

    /// Link time used by this part so far.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// Takes over the time until which all parts together have used the link, and decides whether
    /// this part lets the others go first. `ours` and `theirs` are the virtual times of those that
    /// have something to send, in units of which a byte of a session of weight 1 takes `steps`.
    pub(crate) fn update_shared_use(
        &mut self,
        free_at: Instant,
        (ours, theirs): (Option<u64>, Option<u64>),
        steps: u64,
    ) {
        self.pacer.set_free_at(free_at);
        self.is_ahead =
            ours.zip(theirs).is_some_and(|(ours, theirs)| ours > theirs + MAX_LEAD * steps);
    }
}

/// Returns the time until which a link shared by parts of a hub is used, after one of them has used
/// it for `spent` more; `free_at` is the previous value. After a pause a burst may leave at once,
/// as with a single pacer.
pub fn use_link(now: Instant, free_at: Instant, spent: Duration) -> Instant {
    free_at.max(now - BURST) + spent
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1500);
    const STEPS: u64 = 256;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1000)
    }

    /// A link that carries one packet in a millisecond, just used as far as it may be.
    fn link() -> LinkPacer {
        let mut link = LinkPacer::new(BitRate::from_mbit(12), None);
        while link.ready_at() <= at(0) {
            link.sent(at(0), PACKET);
        }
        link
    }

    #[test]
    fn parts_that_share_a_link_send_as_much_as_one_alone() {
        let mut parts = [
            LinkPacer::new(BitRate::from_mbit(12), None),
            LinkPacer::new(BitRate::from_mbit(12), None),
        ];
        let (mut free_at, mut sent) = (Instant::ZERO, 0);
        for ms in 0..1000 {
            let now = at(ms * 1000);
            // One part looks every millisecond, the other now and then.
            for (part, often) in parts.iter_mut().zip([1, 37]) {
                if ms % often == 0 {
                    part.update_shared_use(free_at, (None, None), STEPS);
                    let before = part.spent();
                    while part.ready_at() <= now {
                        part.sent(now, PACKET);
                        sent += 1;
                    }
                    free_at = use_link(now, free_at, part.spent() - before);
                }
            }
        }
        assert!((1000..=1005).contains(&sent), "{sent}");
    }

    #[test]
    fn one_that_is_ahead_leaves_the_link_to_the_others_for_a_moment() {
        let mut link = link();
        let free = link.ready_at();
        for (ours, theirs, waits) in [
            (Some(9000), Some(1000), true),
            (Some(7000), Some(1000), false),
            (Some(1000), Some(9000), false),
            (Some(9000), None, false),
            (None, Some(1000), false),
        ] {
            let turn = |bytes: Option<u64>| bytes.map(|bytes| bytes * STEPS);
            link.update_shared_use(free, (turn(ours), turn(theirs)), STEPS);
            let expected = if waits { free + YIELD } else { free };
            assert_eq!(link.ready_at(), expected, "{ours:?} {theirs:?}");
        }
        assert!(YIELD < BURST, "what is left to others in vain is made up for");
    }
}
