//! The constants of the control law for a measured rate. `docs/rate.md` derives them, and shows the
//! effect of other values.

/// A full packet in bits.
const PACKET: f64 = 12_000.0;
/// A queue of at least this many packets is needed to see one at all.
const PACKETS: f64 = 2.5;
/// The law tells apart up to this many e-foldings of sessions: 150 of them. It leaves every session
/// 1/150 of the link, or one that a crowded start has pushed to 20 kbit/s would stay there.
const FOLDS: f64 = 5.0;

/// The constants of the law that a session with [`crate::Rate::Auto`] steers by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// Queue that a session keeps on a link that it has to itself, in seconds. A shorter one is lost
    /// in the jitter of drivers, a longer one is felt by every request. Default 6 ms.
    pub alone: f64,
    /// Length that each factor *e* of sessions on the link adds to the queue, in seconds. More
    /// tells shares apart more surely, and makes crowds wait: 100 sessions keep `alone` + 4.6
    /// `slope`. Default 9 ms.
    pub slope: f64,
    /// Time in which a deviation of the queue is made up, in seconds: at least the time between
    /// acknowledgements. Default 0.2 s.
    pub settle: f64,
    /// Part of the way to its fair share that a session goes in one feedback time. More lets
    /// newcomers in faster, and disturbs the queue more. Default 0.15.
    pub fairness: f64,
}

impl Default for Law {
    fn default() -> Self {
        Self { alone: 0.006, slope: 0.009, settle: 0.2, fairness: 0.15 }
    }
}

impl Law {
    /// The queue of one session alone on a link of this rate in bit/s, in seconds.
    pub(super) fn alone_on(&self, link: f64) -> f64 {
        self.alone.max(PACKETS * PACKET / link)
    }

    /// The queue on a link of which each session has this share, both in bit/s.
    pub(super) fn queue(&self, link: f64, share: f64) -> f64 {
        self.alone_on(link) + self.slope * (link / share).ln().clamp(0.0, FOLDS)
    }

    /// The longest queue that is a price, in seconds: that of 150 sessions, without noise.
    pub(super) fn dearest(&self) -> f64 {
        self.alone + FOLDS * self.slope
    }

    /// The inverse of [`Self::queue`]: the share that a queue allows each session on the link.
    pub(super) fn share(&self, link: f64, queue: f64) -> f64 {
        let folds = (queue - self.alone_on(link)) / self.slope;
        link * (-folds.clamp(0.0, FOLDS)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_the_inverse_of_the_queue() {
        let law = Law::default();
        for sessions in [1.0, 2.0, 8.0, 100.0] {
            let queue = law.queue(50e6, 50e6 / sessions);
            assert!((law.share(50e6, queue) * sessions / 50e6 - 1.0).abs() < 1e-9);
            assert!(queue <= law.dearest(), "{sessions}: {queue}");
        }
    }

    #[test]
    fn no_queue_leaves_a_session_less_than_the_least_share_or_more_than_the_link() {
        let law = Law::default();
        assert!((law.share(50e6, 0.6) / law.share(50e6, law.dearest()) - 1.0).abs() < 1e-9);
        assert!((0.3e6..0.4e6).contains(&law.share(50e6, 0.6)) && law.share(50e6, 0.0) == 50e6);
    }

    #[test]
    fn a_hundred_sessions_wait_less_than_60_ms() {
        assert!(Law::default().queue(50e6, 0.5e6) < 0.06);
    }

    #[test]
    fn a_slow_link_has_room_for_packets() {
        assert_eq!(Law::default().alone_on(100e3), 0.3);
    }
}
