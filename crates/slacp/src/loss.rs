//! How much of what is sent the link loses, measured.

/// The horizon of the estimate, in packets.
const HORIZON: f64 = 4000.0;
/// Until so many packets have been observed …
const UNMEASURED: f64 = 300.0;
/// … the link is assumed to lose at least this share: a session's first request
/// should not wait two round trips for having been the first.
const ASSUMED: f64 = 0.01;

/// The share of packets lost on the way, over the last few thousand. Packets
/// that the peer restored by FEC count as lost: that is what the link did. One
/// that was declared lost before it was restored counts twice, so the estimate
/// is high while tails are being protected.
#[derive(Debug, Default)]
pub(crate) struct LossMeter {
    sent: f64,
    lost: f64,
    recovered: u64,
}

impl LossMeter {
    /// So many packets have been acknowledged and so many declared lost, and
    /// the peer has recovered so many in all.
    pub(crate) fn update(&mut self, acknowledged: usize, lost: usize, recovered: u64) {
        let restored = recovered.saturating_sub(self.recovered);
        self.recovered = self.recovered.max(recovered);
        let fresh = (acknowledged + lost) as f64;
        let keep = (1.0 - fresh / HORIZON).max(0.0);
        self.sent = self.sent * keep + fresh;
        self.lost = self.lost * keep + lost as f64 + restored as f64;
    }

    /// The measured probability that a packet is lost.
    pub(crate) fn rate(&self) -> f64 {
        if self.sent == 0.0 { 0.0 } else { (self.lost / self.sent).min(1.0) }
    }

    fn assumed(&self) -> f64 {
        if self.sent < UNMEASURED { self.rate().max(ASSUMED) } else { self.rate() }
    }

    /// How many repairs a block of `count` packets needs so that it is very
    /// rarely lost: its expected losses and three standard deviations; 0 on a
    /// link measured clean.
    pub(crate) fn repairs_for(&self, count: usize) -> usize {
        let (p, n) = (self.assumed().min(0.5), count as f64);
        // Below one loss in twenty horizons the link counts as clean.
        if p < 0.05 / HORIZON {
            return 0;
        }
        // The repairs can be lost too: 1 / (1 - p).
        ((n * p + 3.0 * (n * p * (1.0 - p)).sqrt()) / (1.0 - p)).ceil() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_loss_and_counts_restored_packets() {
        let mut meter = LossMeter::default();
        assert_eq!(meter.rate(), 0.0);
        for i in 1..=200 {
            meter.update(99, 1, i);
        }
        assert!((meter.rate() - 0.02).abs() < 1e-3, "{}", meter.rate());
        meter.update(4000, 0, 200);
        assert_eq!(meter.repairs_for(100), 0);
    }

    #[test]
    fn a_link_is_clean_only_once_it_is_measured() {
        let mut meter = LossMeter::default();
        assert_eq!(meter.repairs_for(1), 1);
        meter.update(300, 0, 0);
        assert_eq!(meter.repairs_for(1), 0);
    }

    #[test]
    fn a_lone_packet_gets_a_copy_on_a_lossy_link() {
        let mut meter = LossMeter::default();
        meter.update(990, 10, 0);
        assert_eq!(meter.repairs_for(1), 1);
        assert_eq!(meter.repairs_for(250), 8);
    }
}
