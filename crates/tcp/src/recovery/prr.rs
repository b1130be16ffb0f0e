//! Proportional Rate Reduction (RFC 6937): how much may be sent per acknowledgement during loss
//! repair, so that the window shrinks smoothly to its new size without a burst afterwards.

/// The bound on sending when the window is already smaller than its target, for instance because
/// many segments were lost (RFC 6937 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrrBound {
    /// Packet conservation: no more is sent than was delivered (PRR-CRB).
    Conservative,
    /// Slow start: one extra segment per acknowledgement (PRR-SSRB), recommended by the standard.
    SlowStart,
}

#[derive(Debug, Clone)]
pub(crate) struct Prr {
    bound: PrrBound,
    /// `RecoverFS`: bytes outstanding at the start of recovery.
    flight_size: u64,
    delivered: u64,
    out: u64,
    allowance: u64,
}

impl Prr {
    /// Starts recovery with `flight_size` bytes outstanding.
    pub(crate) fn new(bound: PrrBound, flight_size: u64) -> Self {
        Self { bound, flight_size: flight_size.max(1), delivered: 0, out: 0, allowance: 0 }
    }

    /// Handles an acknowledgement of `delivered` more bytes, with `pipe` bytes in flight.
    pub(crate) fn on_ack(&mut self, delivered: u64, pipe: u64, ssthresh: u64, mss: u64) {
        self.delivered += delivered;
        self.allowance = if pipe > ssthresh {
            let share = u128::from(self.delivered) * u128::from(ssthresh);
            (share.div_ceil(u128::from(self.flight_size)) as u64).saturating_sub(self.out)
        } else {
            let owed = self.delivered.saturating_sub(self.out);
            let limit = match self.bound {
                // RFC 6937 §3: CRB conserves packets; SSRB adds a segment per acknowledgement, as
                // slow start does.
                PrrBound::Conservative => owed,
                PrrBound::SlowStart => owed.max(delivered) + mss,
            };
            limit.min(ssthresh - pipe)
        };
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
        self.allowance = self.allowance.saturating_sub(bytes);
    }

    /// Returns the number of bytes that may be sent now.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// RFC 6937 §4: 20 segments, one of them lost, ssthresh 10. New data leaves
    /// for every second acknowledgement (the retransmission took the first
    /// turn), and for every one when 10 are in flight.
    #[test]
    fn sends_for_every_second_acknowledgement() {
        let mut prr = Prr::new(PrrBound::SlowStart, 20 * MSS);
        prr.on_sent(MSS); // the fast retransmission
        let mut pipe = 17 * MSS;
        let mut sent = Vec::new();
        for ack in 4..=20 {
            pipe -= MSS;
            prr.on_ack(MSS, pipe, 10 * MSS, MSS);
            if prr.allowance() >= MSS {
                prr.on_sent(MSS);
                pipe += MSS;
                sent.push(ack);
            }
        }
        assert_eq!(sent, [7, 9, 11, 14, 15, 16, 17, 18, 19, 20]);
        assert_eq!(pipe, 10 * MSS);
    }

    #[test]
    fn after_heavy_loss_the_bounds_differ() {
        for (bound, expected) in [(PrrBound::Conservative, MSS), (PrrBound::SlowStart, 2 * MSS)] {
            let mut prr = Prr::new(bound, 20 * MSS);
            prr.on_ack(MSS, 2 * MSS, 10 * MSS, MSS);
            assert_eq!(prr.allowance(), expected);
        }
    }
}
