//! The first round trips: from nothing, or from a memory, to a rate confirmed by a train.
//!
//! A train of [`FIRST`] packets spreads to the link's rate, so one round trip gives a rough value.
//! A longer train, sent a quarter faster than that, either spreads again, and the rate is found, or
//! does not: then the link is faster, and the next train is twice as fast, those after it four
//! times. The data in flight meanwhile is bounded by a multiple of the data that has arrived, which
//! limits the cost of a wrong guess. With jitter or time slots a train must be long enough for a
//! verdict: the error of each shows the length that the next one needs. Padding completes what data
//! does not fill.

use core::time::Duration;

use super::{FULL, PACKET, Plan, TRAIN_RATE};
use crate::rate::arrivals::Window;
use crate::rate::train::{Bucket, Measured, Unmeasured};
use crate::rate::{PathMemory, RateState};

/// Packets in the first train: its 15 gaps give the rate within a few percent (RFC 6928 allows TCP
/// 10).
const FIRST: usize = 16;
/// Size of the packets of a first train of padding, in bytes: on a link of 64 kbit/s it takes half a
/// second, and on one of 500 Mbit/s long enough to be measured.
const SMALL: usize = 256;
/// Bits that may be sent without a measurement, so that the start does not hold up a sender of
/// small messages.
const UNMEASURED: f64 = 4.0 * FIRST as f64 * PACKET;
/// Growth of a train after one that arrived all at once, and its maximum length in packets.
const LONGER: usize = 4;
const LONGEST: usize = 256;
/// Rate of a confirming train relative to the rate it is to confirm: at first, after one that did
/// not spread, and after further such trains.
const EXCESS: f64 = 1.25;
const FASTER: f64 = 2.0;
const FASTEST: f64 = 4.0;
/// Duration of a confirming train in s, and its minimum and maximum length: the fifth that exceeds the
/// link must fit in a queue of 100 packets.
const CONFIRM: f64 = 0.05;
const CONFIRM_PACKETS: (usize, usize) = (24, 256);
/// Maximum duration of a train on a link with much jitter, or with long time slots.
const CONFIRM_MOST: f64 = 0.6;
/// A first train with a relative error above this says only that there is more jitter than it could
/// show.
const VAGUE: f64 = 0.25;
/// Maximum error of a confirming train, relative to its excess over the rate: three standard
/// deviations.
const SURE: f64 = 1.0 / 3.0;
/// A queue that stood this long throughout a window shows the link's rate, whatever trains say.
const QUEUED: Duration = Duration::from_millis(50);
/// Maximum packets in excess of the link if it is no faster than known.
const EXCEEDING: f64 = 128.0;
/// Maximum in flight as a multiple of the data that has arrived: 16 packets, then 3.8 MB, a flight
/// of 50 Mbit/s and 600 ms. With 64 instead, 100 MB over 250/3 Mbit/s took 0.1 s more, and a queue
/// of 100 packets lost 0.4 instead of 1.7 % of the start.
const GROWTH: f64 = 160.0;
/// The same when no train was measurable.
const BLIND_GROWTH: f64 = 4.0;
/// A train that arrived at this fraction of its sending rate did not spread.
const UNSPREAD: f64 = 0.93;
/// Fraction of the remembered capacity that is sent in the first round trip. A path of a tenth of
/// it has room for that with a queue of half a BDP, and nearly with a quarter: of the first flights
/// it loses 9 % then, and 57 % with a half. A correct memory costs 0.2 s (bench `rate --
/// downloads`).
const JUMP: f64 = 0.14;
/// Fraction used meanwhile of a rate that one short train has shown.
const TRUST: f64 = 0.9;

#[derive(Debug)]
pub(super) enum Start {
    /// Nothing is known. A train is due, whatever else is in flight.
    Blind { packets: usize },
    /// A rate was observed and awaits confirmation by a train that is `due` or in flight, faster by
    /// the factor `excess` and `long` in seconds.
    Confirm { rate: f64, excess: f64, long: f64, due: bool },
    /// A rate is remembered, and part of it is used until a train has confirmed it (Careful Resume,
    /// RFC 9959: unvalidated).
    Resume { memory: PathMemory, flight: f64, due: bool },
}

/// Conclusion from a train of the start.
enum Verdict {
    /// The capacity is known, in bit/s.
    Capacity(f64),
    /// The search goes on in this state.
    Search(Start),
}

impl Default for Start {
    fn default() -> Self {
        Self::Blind { packets: FIRST }
    }
}

impl Start {
    pub(super) fn state(&self) -> RateState {
        match self {
            Self::Blind { .. } => RateState::Blind,
            Self::Confirm { .. } => RateState::Confirming,
            Self::Resume { .. } => RateState::Resuming,
        }
    }

    /// Rate of packets outside trains, in bit/s.
    pub(super) fn rate(&self) -> f64 {
        match self {
            Self::Blind { .. } => TRAIN_RATE,
            Self::Confirm { rate, .. } => rate * TRUST,
            Self::Resume { memory, .. } => bits(memory) * JUMP,
        }
    }

    /// Expected rate of the next round trip, in bit/s.
    pub(super) fn expected(&self, rtt: Duration) -> f64 {
        match self {
            Self::Blind { .. } => UNMEASURED / rtt.as_secs_f64().max(1e-3),
            _ => self.rate(),
        }
    }

    /// Maximum in flight, in bits, after `delivered` bytes have arrived.
    pub(super) fn allowed_in_flight(&self, delivered: u64) -> f64 {
        let delivered = delivered as f64 * 8.0;
        match self {
            Self::Blind { packets } => {
                let usual = (FIRST as f64 * PACKET + delivered).min(UNMEASURED);
                usual.max(*packets as f64 * PACKET)
            }
            Self::Confirm { .. } => GROWTH * delivered.max(FIRST as f64 * PACKET),
            Self::Resume { flight, .. } => *flight,
        }
    }

    /// Returns `true` if [`Self::next_train`] has a train.
    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Blind { .. } => true,
            Self::Confirm { due, .. } | Self::Resume { due, .. } => *due,
        }
    }

    /// The train due before the next payload, if one is. A `memory` replaces the blind start.
    pub(super) fn next_train(&mut self, memory: Option<PathMemory>, rtt: Duration) -> Option<Plan> {
        if let (Self::Blind { .. }, Some(memory)) = (&*self, memory) {
            let flight = bits(&memory) * JUMP * rtt.as_secs_f64();
            *self = Self::Resume { memory, flight, due: true };
        }
        match self {
            Self::Blind { packets } => {
                // Full packets would hold a link of 64 kbit/s for 3 s. A longer train, though, has
                // to outlast a time slot.
                let padding = if *packets > FIRST { FULL } else { SMALL };
                Some(Plan { packets: *packets, rate: TRAIN_RATE, padding })
            }
            Self::Confirm { rate, excess, long, due } => {
                core::mem::take(due).then(|| confirming(*rate, *excess, *long))
            }
            Self::Resume { memory, due, .. } => {
                let rate = bits(memory);
                core::mem::take(due).then(|| confirming(rate, EXCESS, CONFIRM))
            }
        }
    }

    /// Processes the result of a train; returns the capacity once it is confirmed.
    pub(super) fn train_came(
        &mut self,
        train: Result<Measured, Unmeasured>,
        delivered: u64,
        rtt: Duration,
    ) -> Option<f64> {
        let verdict = match train {
            Ok(seen) => self.judge(seen),
            Err(Unmeasured::Policed(bucket)) => policed(bucket),
            Err(why) => {
                let blind = BLIND_GROWTH * delivered as f64 * 8.0 / rtt.as_secs_f64().max(1e-3);
                Verdict::Search(self.after_nothing(why, delivered, blind))
            }
        };
        match verdict {
            Verdict::Capacity(rate) => Some(rate),
            Verdict::Search(next) => {
                *self = next;
                None
            }
        }
    }

    fn judge(&self, seen: Measured) -> Verdict {
        let search = |rate, excess| confirm(rate, excess, seen.long_enough(excess));
        Verdict::Search(match self {
            Self::Blind { packets } if seen.error > VAGUE && *packets < LONGEST => {
                Self::Blind { packets: packets * LONGER }
            }
            // A slow link: the train was as long as one that is to confirm it.
            Self::Blind { .. } if seen.is_sure() && seen.has_spread() && seen.time >= CONFIRM => {
                return Verdict::Capacity(seen.received);
            }
            Self::Blind { .. } => search(seen.received, EXCESS),
            _ if !seen.has_spread() => search(self.believed(seen), self.next_excess()),
            Self::Confirm { rate, long, .. } if !seen.is_sure() && *long < CONFIRM_MOST => {
                search(rate.max(seen.received), EXCESS)
            }
            // The path is as remembered.
            Self::Resume { memory, .. } if seen.received >= bits(memory) => {
                return Verdict::Capacity(bits(memory));
            }
            Self::Resume { memory, .. } if !seen.is_sure() => search(bits(memory), EXCESS),
            _ => return Verdict::Capacity(seen.received),
        })
    }

    /// The state after a train that measured nothing; `blind` is the rate of what has arrived.
    fn after_nothing(&self, why: Unmeasured, delivered: u64, blind: f64) -> Self {
        match (self, why) {
            (Self::Blind { packets }, Unmeasured::AtOnce) if *packets < LONGEST => {
                Self::Blind { packets: packets * LONGER }
            }
            (Self::Blind { packets }, Unmeasured::TooFew)
                if (delivered as f64) * 8.0 < UNMEASURED =>
            {
                Self::Blind { packets: *packets }
            }
            (Self::Blind { .. }, _) => confirm(blind, FASTER, CONFIRM),
            // The train tells nothing new; only arrivals may, and not by more than a factor of two.
            (Self::Confirm { rate, long, .. }, _) => {
                confirm(rate.max(blind.min(rate * 2.0)), EXCESS, *long)
            }
            (Self::Resume { memory, .. }, _) => confirm(bits(memory) / 2.0, EXCESS, CONFIRM),
        }
    }

    /// The credible part of the arrival rate of a train that did not spread, in bit/s: in time
    /// slots it may exceed the link's rate.
    fn believed(&self, seen: Measured) -> f64 {
        match self {
            Self::Confirm { rate, .. } if seen.error > VAGUE => seen.received.min(rate * FASTER),
            _ => seen.received.min(seen.sent),
        }
    }

    /// The capacity, if recent arrivals came out of a queue: all of the link's time was used.
    pub(super) fn overtaken(&self, window: Window) -> Option<f64> {
        let confirming = matches!(self, Self::Confirm { .. });
        let busy = window.queue > QUEUED && !window.torn;
        let enough = window.bytes as f64 * 8.0 >= FIRST as f64 * PACKET;
        (confirming && busy && enough).then_some(window.delivered)
    }

    /// Excess of the train after one that did not spread.
    fn next_excess(&self) -> f64 {
        match self {
            Self::Confirm { excess, .. } if *excess >= FASTER => FASTEST,
            _ => FASTER,
        }
    }
}

fn confirm(rate: f64, excess: f64, long: f64) -> Start {
    Start::Confirm { rate: rate.min(TRAIN_RATE), excess, long, due: true }
}

/// The next train behind a bucket has to outlast what that holds.
fn policed(bucket: Bucket) -> Verdict {
    if bucket.is_sure() {
        return Verdict::Capacity(bucket.rate);
    }
    let bits = bucket.packets() as f64 * PACKET / FASTER;
    let long = (bits / bucket.rate).clamp(CONFIRM, CONFIRM_MOST);
    Verdict::Search(confirm(bucket.rate, FASTER, long))
}

fn confirming(rate: f64, excess: f64, long: f64) -> Plan {
    let bits = rate * long;
    // Where arrivals vary, packets wait to be sent, and there is room for them.
    let longer = long / CONFIRM;
    let most = CONFIRM_PACKETS.1.min((EXCEEDING / (1.0 - 1.0 / excess)) as usize);
    let most = (most as f64 * longer) as usize;
    let packets = ((bits / PACKET) as usize).clamp(CONFIRM_PACKETS.0, most);
    let padding = ((bits / 8.0) as usize / packets).clamp(SMALL, FULL);
    Plan { packets, rate: rate * excess, padding }
}

impl Measured {
    /// Returns `true` if it tells a rate from one lower by [`EXCESS`], with three standard
    /// deviations.
    pub(super) fn is_sure(&self) -> bool {
        self.error <= SURE * (EXCESS - 1.0)
    }

    /// Length in s that a train needs to tell a rate from one lower by this factor. The error of a
    /// rate falls with the length of the train.
    fn long_enough(&self, excess: f64) -> f64 {
        (self.time * self.error / (SURE * (excess - 1.0))).clamp(CONFIRM, CONFIRM_MOST)
    }

    /// Returns `true` if it arrived more slowly than it was sent.
    fn has_spread(&self) -> bool {
        self.received <= UNSPREAD * self.sent
    }
}

fn bits(memory: &PathMemory) -> f64 {
    memory.capacity.bits_per_second() as f64
}
