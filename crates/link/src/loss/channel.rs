//! A loss model in use, with its state.

use units::{Instant, Probability};

use super::burst::Bursts;
use super::gilbert::Chain;
use super::{Loss, any_of};
use crate::Trace;
use crate::reception::Reception;

/// Decides which packets of a link are lost.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Time at which the model started.
    begin: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The loss probability of each packet.
    Per(f64),
    /// The error probability of each bit.
    Ber(f64),
    Burst(Bursts),
    /// The period, and the number of packets since the last loss.
    Periodic(u64, u64),
    GilbertElliott(Chain),
    Trace(Trace<Probability>),
}

impl Channel {
    pub(crate) fn new(loss: Loss, begin: Instant, seed: u64) -> Self {
        let state = match loss {
            Loss::None => State::Per(0.0),
            Loss::Per(per) => State::Per(per.get()),
            Loss::Ber(ber) => State::Ber(ber.get()),
            Loss::Burst(model) => State::Burst(Bursts::new(model, begin, seed)),
            Loss::Periodic(period) => State::Periodic(period.get(), 0),
            Loss::GilbertElliott(model) => State::GilbertElliott(Chain::new(model, seed)),
            Loss::Trace(trace) => State::Trace(trace),
        };
        Self { begin, state }
    }

    /// Returns true if a packet of `len` bytes with this reception is lost. `chance`, uniform in
    /// `0.0..1.0`, is only called if it matters.
    #[inline]
    pub(crate) fn loses(
        &mut self,
        len: usize,
        reception: Reception,
        chance: impl FnOnce() -> f64,
    ) -> bool {
        let probability = match self.state {
            State::Per(per) => per,
            _ => self.probability(len, reception),
        };
        probability > 0.0 && chance() < probability
    }

    /// Returns true if an error burst hits this reception. For a packet that is received in parts,
    /// the other models are applied once, by [`Channel::loses`] of the last part.
    pub(crate) fn strikes(&mut self, reception: Reception) -> bool {
        match &mut self.state {
            State::Burst(bursts) => bursts.hit(reception),
            _ => false,
        }
    }

    fn probability(&mut self, len: usize, reception: Reception) -> f64 {
        match &mut self.state {
            State::Per(per) => *per,
            State::Ber(ber) => any_of(*ber, (len as u64).saturating_mul(8)),
            State::Burst(bursts) => f64::from(bursts.hit(reception)),
            State::Periodic(period, since) => {
                *since = (*since + 1) % *period;
                f64::from(*since == 0)
            }
            State::GilbertElliott(chain) => chain.next_loss(),
            State::Trace(trace) => {
                trace.value_at(reception.until.saturating_since(self.begin)).get()
            }
        }
    }
}
