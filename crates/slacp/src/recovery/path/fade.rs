//! Detection of an outage of the link, and the schedule of probes in it (`docs/slacp.md`, Fades).

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_core::Rng;
use units::{BitRate, ByteCount, Instant};

use crate::recovery::jitter;

/// Delay beyond its due time after which an acknowledgement counts as missing. Over a GEO hop a
/// fade is detected within 2 s; random loss hits four probes in a row, and their retransmissions,
/// too rarely to matter.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// The same for a link layer: the allocation of capacity on demand may take 3 s (SLACP paper,
/// §4.3), and data waits in the MAC's buffer for another.
pub(crate) const LINK_LAYER_SILENCE: Duration = Duration::from_secs(5);
/// Minimum interval between probes of an unreachable peer: short enough to resume at once.
const PROBE_LEAST: Duration = Duration::from_millis(150);
/// Maximum interval between probes; intervals grow with the length of the fade.
const PROBE_MOST: Duration = Duration::from_secs(2);
/// The interval is this fraction of the fade so far. It prolongs no fade by more than an eighth,
/// and grows exponentially.
const PROBE_SHARE: u32 = 8;
/// Divisor of the link capacity, in bytes, that the probes of all sessions of an endpoint may take
/// together: 1 %.
const PROBE_BUDGET: u64 = 100;
/// Estimated size of the first probe, in IP bytes: headers, an acknowledgement of a few runs, and
/// the tag.
const PROBE_SIZE: ByteCount = ByteCount::new(100);
/// Time after the last data received until the receiver asks whether the sender is alive, so that
/// both sides notice a fade.
pub(crate) const SILENT_SENDER_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which a side that only receives adds a PING to its acknowledgements. With
/// [`SILENCE`], it learns within 1.5 s plus one round trip that its own direction is down. Each
/// PING costs one byte and an acknowledgement.
pub(crate) const RECEIVER_PING_INTERVAL: Duration = Duration::from_millis(250);

/// A peer heard during this fade counts as silent again after this long: several of its probes are
/// missing by then.
const SILENT_AGAIN: Duration = Duration::from_secs(10);

/// Number of an endpoint's sessions in a fade. Together they probe no faster than one alone may.
#[derive(Debug, Clone, Default)]
pub(crate) struct FadedSessions(Arc<AtomicU64>);

impl FadedSessions {
    fn enter(&self) -> FadedGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        FadedGuard(self.clone())
    }
}

/// Counts one session in a fade until dropped.
#[derive(Debug)]
struct FadedGuard(FadedSessions);

impl FadedGuard {
    fn count(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Drop for FadedGuard {
    fn drop(&mut self) {
        let before = self.0.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each fade ends once");
    }
}

/// The rate of which probes take at most 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeRate {
    /// The endpoint's rate, shared by all its sessions.
    Shared(BitRate),
    /// The rate that the session has measured for itself.
    Own(BitRate),
}

/// State of a fade: no packet is being acknowledged, because one or both directions are silent.
#[derive(Debug)]
pub(crate) struct FadeState {
    since: Instant,
    /// Time and size of the last probe.
    last_probe: Instant,
    probe_size: ByteCount,
    counted: FadedGuard,
    /// A packet has arrived since the fade began.
    heard: bool,
    /// End of the trial, in which data is sent although nothing is acknowledged yet.
    trial_until: Option<Instant>,
}

impl FadeState {
    pub(crate) fn new(now: Instant, faded: &FadedSessions) -> Self {
        Self {
            since: now,
            last_probe: now,
            probe_size: PROBE_SIZE,
            counted: faded.enter(),
            heard: false,
            trial_until: None,
        }
    }

    /// The due time of the first probe. Jittered, because many sessions notice a fade at the same
    /// time.
    pub(crate) fn first_probe(
        &self,
        rate: ProbeRate,
        most: Duration,
        rng: &mut impl Rng,
    ) -> Instant {
        self.since + jitter::part_of(self.budget(rate).min(most), rng)
    }

    /// Records a probe; returns the due time of the next one, at most `most` later.
    pub(crate) fn record_probe(
        &mut self,
        now: Instant,
        rate: ProbeRate,
        most: Duration,
        rng: &mut impl Rng,
    ) -> Instant {
        self.last_probe = now;
        let lasted = now.saturating_since(self.since);
        let pause = (lasted / PROBE_SHARE).clamp(PROBE_LEAST, PROBE_MOST);
        // Up to a quarter shorter, so that no two sessions stay in step.
        let pause = pause - jitter::part_of(pause / 4, rng);
        // However small the budget, a faded session probes as often as an idle one sends
        // keepalives.
        now + pause.max(self.budget(rate).min(most.max(PROBE_MOST)))
    }

    /// Records the size of the last probe, in IP bytes.
    pub(crate) fn record_probe_size(&mut self, size: ByteCount) {
        self.probe_size = size;
    }

    /// Minimum interval between two probes within the shared budget.
    fn budget(&self, rate: ProbeRate) -> Duration {
        let (rate, sessions) = match rate {
            ProbeRate::Shared(rate) => (rate, self.counted.count()),
            // Sessions that measure their rates share no pacer, so each has 1 % of its own.
            ProbeRate::Own(rate) => (rate, 1),
        };
        let bytes = self.probe_size.get().saturating_mul(PROBE_BUDGET).saturating_mul(sessions);
        rate.time_to_send(ByteCount::new(bytes))
    }

    /// The time when the fade was detected.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Handles a packet from a peer that had been `silent`; `delay` is the maximum time for an
    /// acknowledgement. Returns the time at which to answer with a probe.
    ///
    /// If both directions were silent, both are probably back. Data is then sent on trial for
    /// `delay`, which saves half a round trip; if none of it is acknowledged, the trial ends.
    pub(crate) fn on_heard(
        &mut self,
        now: Instant,
        silent: Duration,
        delay: Duration,
        rate: ProbeRate,
    ) -> Instant {
        let both = silent >= if self.heard { SILENT_AGAIN } else { delay + SILENCE };
        self.heard = true;
        if both {
            self.trial_until = Some(now + delay);
        }
        (self.last_probe + PROBE_LEAST.max(self.budget(rate))).max(now)
    }

    /// End of the trial in progress, if there is one.
    pub(crate) fn trial_until(&self) -> Option<Instant> {
        self.trial_until
    }

    /// Ends the trial, because none of its data was acknowledged.
    pub(crate) fn end_trial(&mut self) {
        self.trial_until = None;
    }

    /// Returns whether the acknowledgement of a packet sent at that time ends the fade. Earlier
    /// packets may have arrived before it.
    pub(crate) fn is_over(&self, sent: Instant) -> bool {
        sent >= self.since
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;

    const RATE: ProbeRate = ProbeRate::Own(BitRate::from_mbit(50));
    const DELAY: Duration = Duration::from_millis(650);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_a_peer_that_was_silent_too_is_trusted_for_a_while() {
        let mut fade = FadeState::new(at(0), &FadedSessions::default());
        fade.on_heard(at(500), Duration::from_millis(900), DELAY, RATE);
        assert_eq!(fade.trial_until(), None, "the other direction worked all the time");
        fade.on_heard(at(5000), Duration::from_millis(4500), DELAY, RATE);
        assert_eq!(fade.trial_until(), None, "a few of its probes were lost");
        fade.on_heard(at(15_000), Duration::from_secs(10), DELAY, RATE);
        assert_eq!(fade.trial_until(), Some(at(15_650)));
        fade.end_trial();
        fade.on_heard(at(17_000), Duration::from_secs(2), DELAY, RATE);
        assert_eq!(fade.trial_until(), None);
        let mut fade = FadeState::new(at(0), &FadedSessions::default());
        fade.on_heard(at(500), Duration::from_millis(1650), DELAY, RATE);
        assert_eq!(fade.trial_until(), Some(at(1150)));
    }

    #[test]
    fn what_was_sent_before_the_fade_does_not_end_it() {
        let fade = FadeState::new(at(1000), &FadedSessions::default());
        assert!(!fade.is_over(at(999)) && fade.is_over(at(1000)));
    }

    /// Bytes of probes in ten minutes when this many sessions fade at once.
    fn probed(sessions: usize, mbit: u64) -> (u64, Duration) {
        let rate = ProbeRate::Shared(BitRate::from_mbit(mbit));
        let keepalive = Duration::from_secs(15);
        let (faded, mut rng) = (FadedSessions::default(), ChaCha20Rng::from_seed([7; 32]));
        let mut fades: Vec<FadeState> =
            (0..sessions).map(|_| FadeState::new(at(0), &faded)).collect();
        let mut longest = Duration::ZERO;
        let mut bytes = 0;
        for fade in &mut fades {
            let mut next = fade.first_probe(rate, keepalive, &mut rng);
            while next < at(600_000) {
                bytes += PROBE_SIZE.get();
                let asked = next;
                next = fade.record_probe(asked, rate, keepalive, &mut rng);
                longest = longest.max(next.saturating_since(asked));
            }
        }
        drop(fades);
        assert_eq!(faded.0.load(Ordering::Relaxed), 0);
        (bytes, longest)
    }

    #[test]
    fn all_probes_together_take_one_percent_of_the_rate() {
        for (sessions, mbit) in [(1, 50), (10, 50), (1000, 50), (1000, 10), (4000, 50)] {
            let (bytes, longest) = probed(sessions, mbit);
            let most = mbit * 1_000_000 / 8 * 600 / 100;
            assert!(bytes <= most, "{sessions} sessions, {mbit} Mbit/s: {bytes} bytes of {most}");
            assert!(longest <= Duration::from_secs(15), "{longest:?}");
        }
        assert!(probed(1000, 50).1 <= PROBE_MOST, "a hub of 50 Mbit/s has room for a thousand");
    }

    #[test]
    fn pauses_grow_with_the_fade_up_to_two_seconds() {
        let mut rng = ChaCha20Rng::from_seed([7; 32]);
        let mut fade = FadeState::new(at(0), &FadedSessions::default());
        for (ms, most) in [(0, 150), (1200, 150), (8000, 1000), (16_000, 2000), (600_000, 2000)] {
            let next = fade.record_probe(at(ms), RATE, Duration::from_secs(15), &mut rng);
            let pause = next.saturating_since(at(ms)).as_millis();
            assert!(pause <= most && pause >= most * 3 / 4, "{pause} ms at {ms} ms");
        }
    }

    #[test]
    fn at_rate_0_a_fade_is_probed_as_often_as_an_idle_session() {
        let (mut rng, keepalive) = (ChaCha20Rng::from_seed([7; 32]), Duration::from_secs(15));
        let mut fade = FadeState::new(at(0), &FadedSessions::default());
        let off = ProbeRate::Shared(BitRate::from_bits_per_second(0));
        assert!(fade.first_probe(off, keepalive, &mut rng) <= at(15_000));
        assert_eq!(fade.record_probe(at(0), off, keepalive, &mut rng), at(15_000));
    }
}
