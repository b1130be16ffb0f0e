//! Adaptive coding and modulation (ACM): a hub that follows a fade with the MODCOD of its carrier.
//!
//! The receiver measures its Es/N0 all the time and reports it; the hub acts on a report a
//! *reaction* after the measurement, and what it then sends arrives a propagation delay later:
//!
//! ```text
//! receiver ── Es/N0 falls ───────────────────────────── the new MODCOD arrives ─▶ time
//!                  ╲ report        (lost, if the margin      ╱
//!                   ╲               was too small)          ╱ delay
//! hub ───────────────── reaction ── the MODCOD changes ────────────────────────▶
//! ```
//!
//! Until then everything is lost that the old MODCOD carries below its threshold. A margin above the
//! thresholds avoids that in fades that are slow enough: those of at most the margin in the reaction
//! and the delay together. A hysteresis keeps ripples from moving the MODCOD up and down.
//!
//! Not modelled: errors of the measurement and lost reports (a fade of the return link); limits on
//! how often the hub changes; several receivers with fades of their own on one carrier (all see the
//! same); power control at the uplink.

use core::time::Duration;

use units::{BitRate, Decibels, SymbolRate};

use super::{Modcod, Modcods};
use crate::trace::nanos;
use crate::{Outage, Trace};

/// A carrier whose MODCOD follows the Es/N0. With only one MODCOD it does not: constant coding and
/// modulation (CCM), and fades below its threshold lose everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acm {
    /// The MODCODs from which the hub chooses.
    pub modcods: Modcods,
    /// The symbol rate of the carrier, the same for all MODCODs.
    pub symbol_rate: SymbolRate,
    /// Distance by which the Es/N0 must exceed a MODCOD's threshold to use it. Zero or more.
    pub margin: Decibels,
    /// Additional distance before the hub changes to a more efficient MODCOD. Zero or more.
    pub hysteresis: Decibels,
    /// Time from a measurement until the hub sends with the MODCOD for it: measuring, the delay of
    /// the return link, and processing at both ends.
    pub reaction: Duration,
}

impl Acm {
    /// Returns the hub's choices during `es_n0` at the receiver.
    ///
    /// Before a trace begins, its first value has always been there. A trace that repeats has always
    /// repeated: it begins with the MODCOD, and with the reports on their way, of its end.
    pub fn follow(&self, es_n0: Trace<Decibels>) -> Adaptation {
        let mut controller = AcmController::new(self, *es_n0.value_at(Duration::ZERO));
        if es_n0.period().is_some() {
            // A period of reports first: each confines the choice to a range, and so does their
            // sequence, so all periods after the first are alike.
            es_n0.values().for_each(|es_n0| _ = controller.handle_report(*es_n0));
        }
        let steps = self.changes(&mut controller, &es_n0);
        let modcods = Trace::of_steps(steps, es_n0.period());
        Adaptation { symbol_rate: self.symbol_rate, es_n0, modcods }
    }

    /// Returns the MODCODs with the times in nanoseconds from which on they are sent.
    fn changes(
        &self,
        controller: &mut AcmController<'_>,
        es_n0: &Trace<Decibels>,
    ) -> Vec<(u64, Modcod)> {
        let mut before = *controller.modcod();
        let mut changes = Vec::new();
        let mut first = before;
        for (at, es_n0) in es_n0.steps() {
            let modcod = *controller.handle_report(*es_n0);
            if modcod != before {
                changes.push((at.saturating_add(nanos(self.reaction)), modcod));
                before = modcod;
            }
        }
        if let Some(period) = es_n0.period() {
            changes.iter_mut().for_each(|(at, _)| *at %= nanos(period));
            // Reactions to the end of a period fall into the next one.
            changes.sort_by_key(|(at, _)| *at);
            first = changes.last().map_or(first, |(_, last)| *last);
        }
        if changes.first().is_none_or(|(at, _)| *at > 0) {
            changes.insert(0, (0, first));
        }
        // Times are distinct unless they saturate at the end of time.
        changes.dedup_by_key(|(at, _)| *at);
        changes
    }
}

/// The hub's choice of a MODCOD: a state machine whose only input are reports.
///
/// It moves down to the best MODCOD that has the margin as soon as the present one lacks it, and up
/// to the best one that has margin and hysteresis. If none has the margin, it is the most robust.
#[derive(Debug, Clone)]
pub struct AcmController<'a> {
    acm: &'a Acm,
    current: usize,
}

impl<'a> AcmController<'a> {
    /// Starts with the best MODCOD for this Es/N0.
    pub fn new(acm: &'a Acm, es_n0: Decibels) -> Self {
        Self { acm, current: acm.modcods.best(es_n0 - acm.margin) }
    }

    /// Returns the MODCOD that is in use.
    pub fn modcod(&self) -> &'a Modcod {
        &self.acm.modcods.0[self.current]
    }

    /// Handles a report of the Es/N0 at the receiver, and returns the MODCOD to use from now on.
    pub fn handle_report(&mut self, es_n0: Decibels) -> &'a Modcod {
        let Acm { modcods, margin, hysteresis, .. } = self.acm;
        let most = modcods.best(es_n0 - *margin);
        let least = modcods.best(es_n0 - *margin - *hysteresis);
        // A negative hysteresis puts `least` above `most`, and `clamp` would panic.
        self.current = self.current.clamp(least.min(most), most);
        self.modcod()
    }
}

/// The behaviour of a hub with [`Acm`] during a fade.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptation {
    symbol_rate: SymbolRate,
    es_n0: Trace<Decibels>,
    modcods: Trace<Modcod>,
}

impl Adaptation {
    /// Returns the Es/N0 at the receiver.
    pub fn es_n0(&self) -> &Trace<Decibels> {
        &self.es_n0
    }

    /// Returns the MODCODs with which the hub sends. Repeats if the Es/N0 does.
    pub fn modcods(&self) -> &Trace<Modcod> {
        &self.modcods
    }

    /// Returns the rates of the carrier, as left to the encapsulation.
    pub fn rates(&self) -> Trace<BitRate> {
        self.modcods.map(|modcod| modcod.rate(self.symbol_rate))
    }

    /// Returns the times at which the receiver cannot decode the carrier, with this propagation
    /// delay: the Es/N0 is below the threshold of the MODCOD that was sent.
    pub fn outages(&self, delay: Duration) -> Vec<Outage> {
        let period = self.es_n0.period();
        let mut outages: Vec<Outage> = Vec::new();
        let times = self.times(delay);
        let ends = times.iter().skip(1).copied().chain([period.map_or(u64::MAX, nanos)]);
        for (&from, until) in times.iter().zip(ends) {
            if self.is_decoded(from, delay) {
                continue;
            }
            let after = Duration::from_nanos(from);
            let lasting = Duration::from_nanos(until - from);
            match outages.last_mut() {
                // Adjacent times without reception are one outage.
                Some(last) if last.after + last.lasting == after => last.lasting += lasting,
                _ => outages.push(Outage { after, lasting, every: period }),
            }
        }
        outages
    }

    /// Returns the times of a period, in nanoseconds from its begin, at which the Es/N0 or the
    /// MODCOD changes at the receiver.
    fn times(&self, delay: Duration) -> Vec<u64> {
        let arrivals = self.modcods.steps().map(|(at, _)| at.saturating_add(nanos(delay)));
        let mut times: Vec<u64> = self.es_n0.steps().map(|(at, _)| at).chain(arrivals).collect();
        if let Some(period) = self.es_n0.period() {
            // A change near the end of a period arrives in the next one.
            times.iter_mut().for_each(|at| *at %= nanos(period));
        }
        times.sort_unstable();
        times.dedup();
        times
    }

    fn is_decoded(&self, at: u64, delay: Duration) -> bool {
        let sent = match self.es_n0.period().map(nanos) {
            // A trace that repeats has always repeated, so the time of sending wraps around.
            Some(period) => at.saturating_add(period - nanos(delay) % period),
            None => at.saturating_sub(nanos(delay)),
        };
        let [at, sent] = [at, sent].map(Duration::from_nanos);
        *self.es_n0.value_at(at) >= self.modcods.value_at(sent).es_n0()
    }
}

#[cfg(test)]
mod tests;
