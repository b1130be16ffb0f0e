//! Compares the measurements of one direction with its configuration.

use core::time::Duration;

use link::{LinkConfig, QueueLimit, Rate};
use units::BitRate;

use super::asked::ConfiguredLink;
use super::flows::DELAY_PROBE;
use super::judge::{ProbeTrace, QueueOccupancy};
use super::rehearse::{LossPrediction, SentProbes, expect, predict_losses};
use super::report::{DELAY_TOLERANCE, LOSS_CONFIDENCE, RATE_TOLERANCE};
use super::{
    DelayReport, DirectionReport, DisciplineReport, LossReport, OrderReport, QueueReport,
    RateReport, binomial,
};
use crate::LinkName;

/// Time between the stamp that shows a probe leaving and the stamp at which the link has it.
/// Matters on links with transmission opportunities.
const HAND_OVER: Duration = Duration::from_micros(200);
/// Significance level of the test that jitter reaches its maximum.
const RARE: f64 = 0.005;

/// The measurements of one direction.
pub(super) struct MeasuredDirection<'a> {
    pub(super) name: LinkName,
    /// The configuration; its discipline was measured separately.
    pub(super) asked: &'a ConfiguredLink,
    pub(super) mtu: u16,
    pub(super) delay: &'a ProbeTrace,
    pub(super) flood: &'a ProbeTrace,
    /// Drops of the flood by the queue.
    pub(super) dropped: u64,
    /// Probes on the plain link, where an MTU-sized packet takes `each`.
    pub(super) fill: &'a ProbeTrace,
    pub(super) each: Duration,
    /// Probes on a link without other losses, if a discipline is measured.
    pub(super) overload: Option<&'a ProbeTrace>,
}

impl MeasuredDirection<'_> {
    pub(super) fn report(&self) -> DirectionReport {
        DirectionReport {
            direction: self.name,
            delay: self.delay(),
            rate: self.rate(),
            loss: self.loss(),
            order: self.order(),
            queue: self.queue(),
            discipline: self.discipline(),
        }
    }

    /// Returns the link of the first two measurements: without a discipline.
    fn link(&self) -> LinkConfig {
        LinkConfig { discipline: link::Discipline::DropTail, ..self.asked.link.clone() }
    }

    fn delay(&self) -> Option<DelayReport> {
        let link = self.link();
        let due = expect(&link, &SentProbes { len: DELAY_PROBE, probes: &self.delay.sent }).arrived;
        let late = match link.rate {
            // A packet that is handed over a little late may miss an opportunity.
            Rate::Opportunities(_) => {
                let later = |&(seq, at): &(u32, u64)| (seq, at + HAND_OVER.as_nanos() as u64);
                let probes: Vec<_> = self.delay.sent.iter().map(later).collect();
                expect(&link, &SentProbes { len: DELAY_PROBE, probes: &probes }).arrived
            }
            _ => due.clone(),
        };
        let jitter = link.jitter.greatest();
        let measured = self.delay.delays(&due, &late, jitter)?;
        // The maximum of n samples is rarely below this fraction of the jitter.
        let share = RARE.powf(1.0 / measured.samples as f64);
        let jitter_ms = jitter.as_secs_f64() * 1e3;
        let varies = measured.greatest_extra >= jitter_ms * share - DELAY_TOLERANCE;
        Some(DelayReport {
            asked_ms: measured.asked,
            jitter_ms,
            median_ms: measured.median,
            p99_error_ms: measured.p99_error,
            worst_error_ms: measured.worst_error,
            greatest_extra_ms: measured.greatest_extra,
            samples: measured.samples,
            within: measured.p99_error <= DELAY_TOLERANCE && varies,
        })
    }

    fn rate(&self) -> Option<RateReport> {
        let len = usize::from(self.mtu);
        let expected = expect(&self.link(), &SentProbes { len, probes: &self.flood.sent });
        // If the kernel delivers packets late and in batches, the queue is fuller than the stamps
        // say, and it is unknown which packets it drops.
        let expected_drops = expected.left.iter().filter(|left| left.is_none()).count() as u64;
        if self.dropped.abs_diff(expected_drops) * 1000 > self.flood.sent.len() as u64 {
            return None;
        }
        let rates = self.flood.rate(len, &expected)?;
        let constant = self.asked.constant_rate().map(BitRate::bits_per_second);
        let asked = constant.map_or(rates.asked, |bits| bits as f64);
        // Jitter may lengthen or shorten each piece at both ends.
        let unsure = self.asked.link.jitter.greatest() * rates.runs;
        let tolerance = RATE_TOLERANCE + unsure.as_secs_f64() / rates.time.as_secs_f64();
        let within = (rates.measured / asked - 1.0).abs() <= tolerance;
        Some(RateReport { asked_bit_s: asked, measured_bit_s: rates.measured, tolerance, within })
    }

    fn loss(&self) -> Option<LossReport> {
        // What the queue dropped is no loss of the link.
        let sent = (self.flood.sent.len() as u64).saturating_sub(self.dropped);
        let lost = self.flood.missing().saturating_sub(self.dropped);
        if sent == 0 {
            return None;
        }
        let (asked, interval) = match self.asked.loss_of_each(self.mtu) {
            Some(each) => (each, binomial::interval(sent, each, LOSS_CONFIDENCE)),
            // Losses in bursts: a binomial interval would reject correct links.
            None => {
                let LossPrediction { interval, mean } = self.losses_by_chance()?;
                (self.asked.long_run_loss().unwrap_or(mean / sent as f64), interval)
            }
        };
        let least = *interval.start();
        let most = *interval.end();
        let within = interval.contains(&lost);
        Some(LossReport { asked, sent, lost, least, most, within })
    }

    fn losses_by_chance(&self) -> Option<LossPrediction> {
        let link = LinkConfig { queue: QueueLimit::Packets(usize::MAX), ..self.link() };
        let delays = SentProbes { len: DELAY_PROBE, probes: &self.delay.sent };
        let flood = SentProbes { len: self.mtu.into(), probes: &self.flood.sent };
        predict_losses(&link, &[delays, flood], Duration::from_secs_f64(DELAY_TOLERANCE / 1e3))
    }

    fn order(&self) -> OrderReport {
        let traces = [self.delay, self.flood, self.fill];
        let arrived = traces.iter().map(|trace| trace.arrived.len() as u64).sum();
        let out_of_order = traces.iter().map(|trace| trace.out_of_order()).sum();
        let reordering = self.asked.link.jitter.reorders();
        OrderReport { arrived, out_of_order, reordering, within: out_of_order == 0 || reordering }
    }

    fn queue(&self) -> Option<QueueReport> {
        let asked_packets = self.asked.queue_packets(self.mtu.into());
        let (measured_packets, full) = match self.fill.full_queue(self.each)? {
            QueueOccupancy::AtDrops(waiting) => (waiting, true),
            // The sender was too slow to fill the queue.
            QueueOccupancy::NoDrop(most) if most <= asked_packets => return None,
            QueueOccupancy::NoDrop(most) => (most, false),
        };
        let within = full && measured_packets == asked_packets;
        Some(QueueReport { asked_packets, measured_packets, full, within })
    }

    fn discipline(&self) -> Option<DisciplineReport> {
        let overload = self.overload?;
        let link = LinkConfig {
            loss: link::LossModel::None,
            jitter: link::Jitter::None,
            outages: Vec::new(),
            ..self.asked.link.clone()
        };
        let flow = SentProbes { len: self.mtu.into(), probes: &overload.sent };
        let shift = Duration::from_secs_f64(DELAY_TOLERANCE / 1e3);
        let LossPrediction { interval, .. } = predict_losses(&link, &[flow], shift)?;
        // A slightly late stamp can change the result by one packet.
        let least = interval.start().saturating_sub(1);
        let most = interval.end() + 1;
        let sent = overload.sent.len() as u64;
        let dropped = overload.missing();
        let within = (least..=most).contains(&dropped);
        let asked = self.asked.discipline.to_string();
        (sent > 0).then_some(DisciplineReport { asked, sent, dropped, least, most, within })
    }
}

#[cfg(test)]
mod tests;
