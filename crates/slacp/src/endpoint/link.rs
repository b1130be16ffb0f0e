//! The link that the sessions of an endpoint share, also with other parts of the hub.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::pacer::{BURST, Pacer};

/// How far a part of a hub may get ahead of the others in virtual time, as bytes of a session of
/// weight 1: a few packets, so that parts need not take turns packet by packet.
const AHEAD: u64 = 6000;
/// How long a part that is ahead leaves a free link to the others. Less than the burst that makes
/// up for it, so nothing of the link is lost if they have no time to use it.
const YIELD: Duration = Duration::from_millis(2);

/// Paces what leaves, and lets other parts of the hub take their turns.
#[derive(Debug)]
pub(super) struct Link {
    pacer: Pacer,
    /// Whether this part has had more than its share.
    is_ahead: bool,
    /// Bytes charged for what this part has sent.
    sent: ByteCount,
}

impl Link {
    pub(super) fn new(rate: BitRate) -> Self {
        Self { pacer: Pacer::new(rate, BURST), is_ahead: false, sent: ByteCount::default() }
    }

    /// When the next packet may leave.
    pub(super) fn ready_at(&self) -> Instant {
        let free = self.pacer.ready_at();
        if self.is_ahead { free + YIELD } else { free }
    }

    /// As [`Pacer::set_rate`].
    pub(super) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.pacer.set_rate(now, rate);
    }

    /// Charges a packet that leaves.
    pub(super) fn sent(&mut self, now: Instant, size: ByteCount) {
        self.pacer.sent(now, size);
        self.sent = ByteCount::new(self.sent.get() + size.get());
    }

    /// Bytes charged for what this part has sent so far.
    pub(super) fn total(&self) -> ByteCount {
        self.sent
    }

    /// Charges what other parts have sent, and follows whether this one is to let them go first.
    /// `ours` and `theirs` are the virtual times of those that have something to send, in steps of
    /// which a byte of a session of weight 1 takes `steps`.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        others_sent: ByteCount,
        (ours, theirs): (Option<u64>, Option<u64>),
        steps: u64,
    ) {
        if others_sent > ByteCount::default() {
            self.pacer.sent(now, others_sent);
        }
        self.is_ahead =
            ours.zip(theirs).is_some_and(|(ours, theirs)| ours > theirs + AHEAD * steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1500);
    const STEPS: u64 = 256;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1000)
    }

    fn link() -> Link {
        // One packet in a millisecond.
        let mut link = Link::new(BitRate::from_mbit(12));
        while link.ready_at() <= at(0) {
            link.sent(at(0), PACKET);
        }
        link
    }

    fn follow(link: &mut Link, sent: u64, turns: (Option<u64>, Option<u64>)) {
        let turn = |bytes: Option<u64>| bytes.map(|bytes| bytes * STEPS);
        link.follow(at(0), ByteCount::new(sent), (turn(turns.0), turn(turns.1)), STEPS);
    }

    #[test]
    fn what_others_send_takes_the_time_it_takes() {
        let mut link = link();
        let (free, total) = (link.ready_at(), link.total());
        follow(&mut link, 3000, (Some(0), None));
        assert_eq!(link.ready_at(), free + Duration::from_millis(2));
        assert_eq!(link.total(), total, "it is not ours");
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
            follow(&mut link, 0, (ours, theirs));
            let expected = if waits { free + YIELD } else { free };
            assert_eq!(link.ready_at(), expected, "{ours:?} {theirs:?}");
        }
        assert!(YIELD < BURST, "what is left to others in vain is made up for");
    }
}
