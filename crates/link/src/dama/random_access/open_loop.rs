//! The throughput of a scheme without feedback.

use super::scheme::exp_minus;
use super::{BlockReceiver, ContentionBlock, ContentionBurst};
use crate::Dice;

/// Measured throughput of a [`ContentionBlock`]'s scheme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenLoop {
    /// Mean number of decoded bursts per slot.
    pub throughput: f64,
    /// Standard error of the throughput, from the variation between blocks.
    pub standard_error: f64,
    /// Share of the bursts that were not decoded: the packet loss ratio of the literature.
    pub lost: f64,
}

/// Measures the throughput at an offered `load` in bursts per slot, without retransmissions, as the
/// literature's curves S(G) are: in each of `blocks` blocks, at least 2, the number of bursts has a
/// Poisson distribution. The same arguments give the same result.
pub fn open_loop(block: ContentionBlock, load: f64, blocks: u32, seed: u64) -> OpenLoop {
    let slots = f64::from(block.slots());
    let mut receiver = BlockReceiver::new(block);
    let mut dice = Dice::new(seed);
    let mut bursts = Vec::new();
    let mut sent = 0.0;
    let mut sum = 0.0;
    let mut squares = 0.0;
    for _ in 0..blocks.max(2) {
        let number = poisson(load * slots, &mut dice);
        bursts.clear();
        bursts.extend((0..number).map(|id| ContentionBurst { id, slots: block.draw(&mut dice) }));
        let decoded = receiver.receive(&bursts, &[]).decoded.len() as f64;
        sent += f64::from(number);
        sum += decoded;
        squares += decoded * decoded;
    }
    let blocks = f64::from(blocks.max(2));
    let variance = (squares - sum * sum / blocks) / (blocks - 1.0);
    OpenLoop {
        throughput: sum / blocks / slots,
        standard_error: (variance / blocks).sqrt() / slots,
        lost: if sent > 0.0 { 1.0 - sum / sent } else { 0.0 },
    }
}

/// Draws a number with a Poisson distribution: events of a process of rate 1 until `mean` (D. E.
/// Knuth, TAOCP vol. 2, 3.4.1), in parts small enough for exp(−mean) not to vanish.
fn poisson(mean: f64, dice: &mut Dice) -> u32 {
    const PART: f64 = 500.0;
    let mut events = 0;
    let mut left = mean.max(0.0);
    while left > 0.0 {
        let end = exp_minus(left.min(PART));
        left -= PART;
        let mut product = dice.chance();
        while product > end {
            events += 1;
            product *= dice.chance();
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_numbers_have_their_mean_and_variance() {
        const DRAWS: u32 = 20_000;
        let dice = &mut Dice::new(1);
        for mean in [0.3, 50.0, 1300.0] {
            let drawn: Vec<_> = (0..DRAWS).map(|_| f64::from(poisson(mean, dice))).collect();
            let average = drawn.iter().sum::<f64>() / f64::from(DRAWS);
            let variance =
                drawn.iter().map(|n| (n - average).powi(2)).sum::<f64>() / f64::from(DRAWS);
            let error = (mean / f64::from(DRAWS)).sqrt();
            assert!((average - mean).abs() < 3.3 * error, "{mean}: {average}");
            assert!((variance / mean - 1.0).abs() < 0.06, "{mean}: {variance}");
        }
        assert_eq!(poisson(0.0, dice), 0);
    }
}
