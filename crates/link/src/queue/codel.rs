//! CoDel: drops packets when the waiting time has exceeded a target for too long.
//!
//! RFC 8289, following the pseudocode of §5. Only packets leaving the head of the queue are
//! checked; the length of the queue does not matter.
//!
//! Not modelled: fair queueing in combination with it (RFC 8290).

use core::time::Duration;

use units::Instant;

use super::fifo::Fifo;
use crate::payload::NumberedPacket;
use crate::{CarriedPacket, PacketCounters};

/// The parameters of CoDel (RFC 8289).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDel {
    /// Acceptable standing wait: 5 to 10 % of the interval (RFC 8289 §4.3).
    pub target: Duration,
    /// Time for which the wait may exceed the target: the maximum usual round-trip time (§4.4). The
    /// RFC's 100 ms is for terrestrial paths.
    pub interval: Duration,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl CoDel {
    /// For flows of round-trip time `rtt`: the interval is that, and the target a twentieth of it,
    /// like the RFC's 5 and 100 ms; no ECN.
    pub fn for_rtt(rtt: Duration) -> Self {
        Self { target: rtt / 20, interval: rtt, ecn: false }
    }
}

/// The state of CoDel: the variables of RFC 8289 §5.2.
#[derive(Debug)]
pub(super) struct CoDelState {
    codel: CoDel,
    /// Time at which the wait will have exceeded the target for a full interval.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u64,
    last_count: u64,
    /// Size of the largest packet so far: MAXPACKET.
    longest: u64,
}

impl CoDelState {
    pub(super) fn new(codel: CoDel) -> Self {
        Self {
            codel,
            first_above: None,
            dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            longest: 0,
        }
    }

    /// Records that a packet of `len` bytes bypasses the empty queue.
    pub(super) fn pass(&mut self, len: usize) {
        self.longest = self.longest.max(len as u64);
        self.first_above = None;
        self.dropping = false;
    }

    /// The `dequeue` of §5.5: returns the next packet to send, and drops those before it.
    pub(super) fn pop<P: CarriedPacket>(
        &mut self,
        fifo: &mut Fifo<P>,
        now: Instant,
        counters: &mut PacketCounters,
    ) -> Option<NumberedPacket<P>> {
        let (mut frame, mut bad) = self.take(fifo, now)?;
        if !self.dropping {
            if !bad {
                return Some(frame);
            }
            self.enter(now);
            if self.marks_instead(&mut frame, counters) {
                return Some(frame);
            }
            counters.drop_waiting(frame.len);
            // Entering drops one packet only, however long the next one waited (RFC 8289 §5.5).
            return self.take(fifo, now).map(|(frame, _)| frame);
        }
        self.dropping = bad;
        while self.dropping && now >= self.drop_next {
            self.count += 1;
            if self.marks_instead(&mut frame, counters) {
                // §5.5: from the time that was due, not from now.
                self.drop_next = self.control_law(self.drop_next);
                return Some(frame);
            }
            counters.drop_waiting(frame.len);
            let Some(next) = self.take(fifo, now) else {
                self.dropping = false;
                return None;
            };
            (frame, bad) = next;
            self.dropping = bad;
            if bad {
                self.drop_next = self.control_law(self.drop_next);
            }
        }
        Some(frame)
    }

    /// The `dodequeue` of §5.6: returns the head, and whether it may be dropped.
    fn take<P: CarriedPacket>(
        &mut self,
        fifo: &mut Fifo<P>,
        now: Instant,
    ) -> Option<(NumberedPacket<P>, bool)> {
        let Some((since, frame)) = fifo.pop() else {
            self.first_above = None;
            return None;
        };
        self.longest = self.longest.max(frame.len as u64);
        let wait = now.saturating_since(since);
        // §5.6: a queue of at most one packet is no standing queue.
        if wait < self.codel.target || fifo.bytes() <= self.longest {
            self.first_above = None;
            return Some((frame, false));
        }
        let Some(first_above) = self.first_above else {
            self.first_above = Some(now + self.codel.interval);
            return Some((frame, false));
        };
        Some((frame, now >= first_above))
    }

    /// Starts dropping, at nearly the previous rate if that was recent.
    fn enter(&mut self, now: Instant) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        // §5.5: within 16 intervals the drop rate of the last dropping state is a good start.
        let recent = now.saturating_since(self.drop_next) < self.codel.interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }

    /// §5.6: the more drops there have been, the shorter the interval to the next.
    fn control_law(&self, from: Instant) -> Instant {
        let interval = u64::try_from(self.codel.interval.as_nanos()).unwrap_or(u64::MAX);
        from + Duration::from_nanos((interval as f64 / (self.count as f64).sqrt()) as u64)
    }

    /// Marks the packet instead of dropping it, if enabled and possible.
    fn marks_instead<P: CarriedPacket>(
        &self,
        frame: &mut NumberedPacket<P>,
        counters: &mut PacketCounters,
    ) -> bool {
        let marked = self.codel.ecn && frame.packet.mark_ce();
        if marked {
            counters.marked.add(frame.len);
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// When packets are dropped, in milliseconds, if the head has always waited for `wait` and one
    /// packet is sent per millisecond.
    fn drops(wait: u64, until: u64) -> Vec<u64> {
        let mut state = CoDelState::new(CoDel::for_rtt(Duration::from_millis(100)));
        let mut fifo = Fifo::new();
        let mut counters = PacketCounters::default();
        let mut drops = Vec::new();
        for at in 1000..1000 + until {
            while fifo.len() < 20 {
                counters.inside.add(1500);
                fifo.push(
                    ms(at - wait),
                    NumberedPacket { packet: 1500usize, len: 1500, carried: 0, number: 0 },
                );
            }
            let before = counters.dropped_early.packets;
            // Makes everything else as old as its head.
            for (since, _) in &mut fifo.waiting() {
                *since = ms(at - wait);
            }
            assert!(state.pop(&mut fifo, ms(at), &mut counters).is_some());
            drops.extend((before..counters.dropped_early.packets).map(|_| at - 1000));
        }
        drops
    }

    #[test]
    fn a_wait_below_the_target_drops_nothing() {
        assert_eq!(drops(4, 2000), []);
    }

    /// §5.6: one interval after the wait first exceeded the target, and then after 100, 100 / √2,
    /// 100 / √3, … ms.
    #[test]
    fn a_long_wait_drops_at_the_times_of_the_control_law() {
        let expected: Vec<u64> = (0..6)
            .scan(100.0, |at, count| {
                let now = *at;
                *at += 100.0 / f64::sqrt(f64::from(count + 1));
                Some(f64::ceil(now) as u64)
            })
            .collect();
        assert_eq!(drops(6, 425), expected);
    }

    #[test]
    fn one_packet_of_backlog_is_no_standing_queue() {
        let mut state = CoDelState::new(CoDel::for_rtt(Duration::from_millis(100)));
        let mut fifo = Fifo::new();
        let mut counters = PacketCounters::default();
        for at in 0..1000 {
            fifo.push(
                ms(at),
                NumberedPacket { packet: 1500usize, len: 1500, carried: 0, number: 0 },
            );
            fifo.push(
                ms(at),
                NumberedPacket { packet: 1500usize, len: 1500, carried: 0, number: 0 },
            );
            state.pop(&mut fifo, ms(at + 50), &mut counters);
            state.pop(&mut fifo, ms(at + 50), &mut counters);
        }
        assert_eq!(counters.dropped_early.packets, 0);
    }

    #[test]
    fn a_return_to_dropping_remembers_the_rate() {
        let mut state = CoDelState::new(CoDel::for_rtt(Duration::from_millis(100)));
        (state.count, state.last_count, state.drop_next) = (9, 1, ms(1000));
        state.enter(ms(1500));
        assert_eq!(state.count, 8);
        (state.count, state.last_count, state.drop_next) = (9, 1, ms(1000));
        state.enter(ms(2600));
        assert_eq!(state.count, 1);
    }
}
