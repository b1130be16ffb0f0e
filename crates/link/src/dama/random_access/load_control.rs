//! Load control of a contention channel, at the hub.

use units::Probability;

use super::{BlockReception, ContentionBlock};

/// Target load in relation to that of the highest throughput. Beyond the peak more load means less
/// throughput, and the load of a block varies by the root of its number of bursts; below it little
/// is lost. For slotted ALOHA 0.8·e^-0.8 = 0.36 of 0.37.
const HEADROOM: f64 = 0.8;

/// Keeps the load of a contention channel below the peak of its scheme: the hub announces the
/// probability with which a terminal with a burst sends it in a block, the *persistence*.
///
/// Without such control random access is bistable: once many terminals retransmit, nearly all
/// bursts collide, and the backlog stays (slotted ALOHA: L. Kleinrock, S. S. Lam, IEEE Trans. Commun.
/// 23(4), 1975; CRDSA: C. Kissling, arXiv:1203.4693). Back-off alone mends this slowly.
///
/// The rule is that of R. L. Rivest, "Network control by Bayesian broadcast", IEEE Trans. Inf. Theory
/// 33(3), 1987: estimate the number b of terminals that want to send, and let each send with
/// probability min(1, G/b), where G is the best number of bursts. He does so for each slot of slotted
/// ALOHA, where G is 1; here it is done for each block, where G is 80 % of the scheme's
/// [`peak_load`](super::AccessScheme::peak_load) times the slots. The estimate comes from the idle
/// slots: of n bursts with d replicas each, a slot holds none with probability (1 − d/N)^n
/// (M. Kodialam, T. Nandagopal, MobiCom 2006, "zero estimator"), and b = n/p if the persistence in
/// that block was p. As b does not depend on p, the delay until an announcement is in force makes
/// the control late but does not make it swing.
///
/// Terminals whose bursts collided together are silent together until no answer has come, so that a
/// backlog shows in waves of that period. The estimate therefore averages over such times: it rises
/// over one period and falls over two, a little above the mean, on the safe side. A block without an
/// idle slot is answered at once.
///
/// Blocks of a few slots show little of a heavy load; the control then finds its persistence in more
/// steps, and a little below the best.
///
/// A channel with little load has persistence 1, that is, no added delay.
#[derive(Debug, Clone)]
pub struct LoadControl {
    block: ContentionBlock,
    target: f64,
    /// Number of blocks after which a terminal takes silence for a collision.
    answer: f64,
    /// Estimate of the number of terminals that want to send in a block.
    backlog: f64,
}

impl LoadControl {
    /// Control of an empty channel, whose terminals wait `answer` blocks for an answer
    /// ([`super::Contention::new`]).
    pub fn new(block: ContentionBlock, answer: u32) -> Self {
        let target = HEADROOM * block.scheme().peak_load() * f64::from(block.slots());
        Self { block, target, answer: f64::from(answer.max(1)), backlog: 0.0 }
    }

    /// Handles the reception of a block in which terminals sent with probability `in_force`: the
    /// one announced in time for it, not the latest. A block with `in_force` 0, or with all slots
    /// corrupted, carries no information.
    pub fn handle_block(&mut self, reception: &BlockReception<'_>, in_force: Probability) {
        if in_force == Probability::ZERO || reception.intact == 0 {
            return;
        }
        let backlog = self.bursts(reception) / in_force.get();
        // Shows a lower bound only, which must not lower the estimate. It acts at once.
        if Self::is_full(reception) {
            self.backlog = self.backlog.max(backlog);
            return;
        }
        // Backlogs show in waves of one answer time: averages over them, on the safe side.
        let period = if backlog > self.backlog { self.answer } else { 2.0 * self.answer };
        self.backlog += (backlog - self.backlog) / period;
    }

    /// Returns the persistence to announce, above 0.
    pub fn persistence(&self) -> Probability {
        if self.backlog <= self.target {
            return Probability::ONE;
        }
        Probability::new(self.target / self.backlog).unwrap_or(Probability::ONE)
    }

    /// Returns the load in bursts per slot if every terminal with a burst sent it, for
    /// [`super::choose`] to compare with its limit. It may exceed 1.
    pub fn load(&self) -> f64 {
        self.backlog / f64::from(self.block.slots())
    }

    /// Returns true if the block shows no upper bound of the number of bursts.
    fn is_full(reception: &BlockReception<'_>) -> bool {
        reception.idle == 0 && reception.unresolved > 0
    }

    /// Returns the number of bursts on the air: exact if all were decoded.
    fn bursts(&self, reception: &BlockReception<'_>) -> f64 {
        let decoded = reception.decoded.len() as f64;
        let shown = f64::from(self.shown(reception));
        match reception.unresolved {
            0 if reception.intact == self.block.slots() => decoded,
            0 => shown.max(decoded),
            // Without an idle slot the number has only lower bounds, of which twice the target acts
            // at once.
            _ if Self::is_full(reception) => shown.max(decoded + 2.0).max(2.0 * self.target),
            // At least two bursts have collided in an unresolved slot.
            _ => shown.max(decoded + 2.0),
        }
    }

    /// Returns the number of bursts for which `idle` is closest to its expectation, up to that
    /// which leaves half a slot idle.
    fn shown(&self, reception: &BlockReception<'_>) -> u32 {
        /// 2²⁴ bursts are more than a block of 65,535 slots can show.
        const BITS: usize = 24;
        let slots = f64::from(self.block.slots());
        let replicas = f64::from(self.block.scheme().replicas());
        let missed = 1.0 - replicas / slots;
        // Half of what one burst changes, so that the number is rounded to the nearest.
        let mut left = f64::from(reception.intact) * (1.0 + 0.5 * replicas / slots);
        let idle = f64::from(reception.idle).max(0.5);
        let mut powers = [missed; BITS];
        for bit in 1..BITS {
            powers[bit] = powers[bit - 1] * powers[bit - 1];
        }
        // The largest n with left · missed^n ≥ idle, from its highest bit.
        let mut bursts = 0;
        for bit in (0..BITS).rev() {
            if left * powers[bit] >= idle {
                left *= powers[bit];
                bursts += 1 << bit;
            }
        }
        bursts
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AccessScheme, BlockReceiver, ContentionBurst};
    use super::*;
    use crate::Dice;

    fn block(replicas: u8, slots: u16) -> ContentionBlock {
        ContentionBlock::new(AccessScheme::Crdsa { replicas, iterations: 16 }, slots).unwrap()
    }

    fn reception(idle: u16, intact: u16) -> BlockReception<'static> {
        BlockReception { decoded: &[], idle, intact, unresolved: intact - idle, passes: 0 }
    }

    #[test]
    fn few_bursts_are_counted_exactly() {
        let control = LoadControl::new(block(2, 100), 11);
        for (idle, bursts) in [(100, 0), (98, 1), (96, 2)] {
            assert_eq!(control.shown(&reception(idle, 100)), bursts);
        }
    }

    #[test]
    fn a_full_block_gives_a_lower_bound() {
        // 101 · 0.98^n = 0.5
        let control = LoadControl::new(block(2, 100), 11);
        assert_eq!(control.bursts(&reception(0, 100)), 262.0);
        // Slots that a single burst fills show nothing but that two bursts collide.
        let tiny = LoadControl::new(block(2, 2), 11);
        assert_eq!(tiny.bursts(&reception(0, 2)), 2.0);
        let decoded = BlockReception { decoded: &[7], unresolved: 0, ..reception(0, 2) };
        assert_eq!(tiny.bursts(&decoded), 1.0);
    }

    /// The mean of the estimate over many blocks, within 2 % of the truth, also if some slots are
    /// corrupted.
    #[test]
    fn many_bursts_are_counted_without_bias() {
        const BLOCKS: u32 = 2000;
        let block = block(3, 100);
        let control = LoadControl::new(block, 11);
        let mut receiver = BlockReceiver::new(block);
        let dice = &mut Dice::new(1);
        for (sent, corrupted) in [(20, vec![]), (60, vec![]), (60, (0..20).collect())] {
            let mut sum = 0.0;
            for _ in 0..BLOCKS {
                let bursts: Vec<_> =
                    (0..sent).map(|id| ContentionBurst { id, slots: block.draw(dice) }).collect();
                sum += control.bursts(&receiver.receive(&bursts, &corrupted));
            }
            let mean = sum / f64::from(BLOCKS);
            assert!(
                (mean / f64::from(sent) - 1.0).abs() < 0.02,
                "{sent} {}: {mean}",
                corrupted.len()
            );
        }
    }

    #[test]
    fn a_light_load_is_not_delayed_and_a_heavy_one_is_spread() {
        let mut control = LoadControl::new(block(2, 100), 11);
        assert_eq!(control.persistence(), Probability::ONE);
        for _ in 0..50 {
            control.handle_block(&reception(60, 100), Probability::ONE);
        }
        assert_eq!(control.persistence(), Probability::ONE);
        // About 48 bursts of terminals that send with probability 0.1: 480 want to.
        for _ in 0..50 {
            control.handle_block(&reception(38, 100), Probability::new(0.1).unwrap());
        }
        assert!((control.load() - 4.8).abs() < 0.1, "{}", control.load());
        assert!((control.persistence().get() - 0.1).abs() < 0.02, "{:?}", control.persistence());
    }

    #[test]
    fn blocks_that_say_nothing_change_nothing() {
        let mut control = LoadControl::new(block(2, 100), 11);
        control.handle_block(&reception(0, 100), Probability::ZERO);
        control.handle_block(&reception(0, 0), Probability::ONE);
        assert_eq!(control.load(), 0.0);
    }
}
