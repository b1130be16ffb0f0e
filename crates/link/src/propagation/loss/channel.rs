//! A loss model in use, with its state.

use units::{Instant, Probability};

use super::burst::Bursts;
use super::gilbert::MarkovChain;
use super::{LossModel, any_of};
use crate::Trace;
use crate::propagation::reception::ReceptionTime;

/// Decides which packets of a link are lost.
#[derive(Debug)]
pub(crate) struct LossProcess {
    /// Time at which the model started.
    begin: Instant,
    state: LossState,
}

#[derive(Debug)]
enum LossState {
    /// The loss probability of each packet.
    Per(f64),
    /// The error probability of each bit.
    Ber(f64),
    Burst(Bursts),
    /// The period, and the number of packets since the last loss.
    Periodic(u64, u64),
    GilbertElliott(MarkovChain),
    Trace(Trace<Probability>),
}

impl LossProcess {
    pub(crate) fn new(loss: LossModel, begin: Instant, seed: u64) -> Self {
        let state = match loss {
            LossModel::None => LossState::Per(0.0),
            LossModel::Per(per) => LossState::Per(per.get()),
            LossModel::Ber(ber) => LossState::Ber(ber.get()),
            LossModel::Burst(model) => LossState::Burst(Bursts::new(model, begin, seed)),
            LossModel::Periodic(period) => LossState::Periodic(period.get(), 0),
            LossModel::GilbertElliott(model) => {
                LossState::GilbertElliott(MarkovChain::new(model, seed))
            }
            LossModel::Trace(trace) => LossState::Trace(trace),
        };
        Self { begin, state }
    }

    /// Returns true if a packet of `len` bytes with this reception is lost. `chance`, uniform in
    /// `0.0..1.0`, is only called if it matters.
    #[inline]
    pub(crate) fn loses(
        &mut self,
        len: usize,
        reception: ReceptionTime,
        chance: impl FnOnce() -> f64,
    ) -> bool {
        // The most common model is inline; the others are kept out of the way of a packet.
        let probability = match self.state {
            LossState::Per(per) => per,
            _ => self.probability(len, reception),
        };
        probability > 0.0 && chance() < probability
    }

    /// Returns true if an error burst hits this reception. For a packet that is received in parts,
    /// the other models are applied once, by [`Self::loses`] of the last part.
    pub(crate) fn is_hit_by_burst(&mut self, reception: ReceptionTime) -> bool {
        match &mut self.state {
            LossState::Burst(bursts) => bursts.hit(reception),
            _ => false,
        }
    }

    fn probability(&mut self, len: usize, reception: ReceptionTime) -> f64 {
        match &mut self.state {
            LossState::Per(per) => *per,
            LossState::Ber(ber) => any_of(*ber, (len as u64).saturating_mul(8)),
            LossState::Burst(bursts) => f64::from(bursts.hit(reception)),
            LossState::Periodic(period, since) => {
                *since = (*since + 1) % *period;
                f64::from(*since == 0)
            }
            LossState::GilbertElliott(chain) => chain.next_loss(),
            LossState::Trace(trace) => {
                trace.value_at(reception.until.saturating_since(self.begin)).get()
            }
        }
    }
}
