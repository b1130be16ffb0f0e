//! When the link counts as cut off, and how both sides find out
//! (`docs/slacp.md`, Fades).

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_core::Rng;
use units::{BitRate, ByteCount, Instant};

use crate::jitter;

/// How long after it should have been acknowledged something counts as not arrived.
/// With a GEO round trip a fade is known within 2 s; random losses hit four questions
/// in a row, and their probes, too rarely to matter.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// An unreachable peer is probed no more often than this: small enough to resume at once.
const PROBE_LEAST: Duration = Duration::from_millis(150);
/// Pauses between probes grow with the fade up to this.
const PROBE_MOST: Duration = Duration::from_secs(2);
/// A pause is this part of the time that the fade has lasted: it lengthens no fade by
/// more than an eighth, and grows exponentially.
const PROBE_SHARE: u32 = 8;
/// The probes of all sessions of an endpoint take at most one byte in so many that the
/// link can carry.
const PROBE_BUDGET: u64 = 100;
/// The IP bytes of the first probe, as far as is known: its headers, an acknowledgement
/// of a few runs and the tag.
const PROBE_SIZE: ByteCount = ByteCount::new(100);
/// After traffic has stopped for so long the receiver asks whether the sender is
/// still there, so that both sides know of a fade.
pub(crate) const ASK: Duration = Duration::from_secs(1);
/// A side that only receives asks this often, with an acknowledgement. With
/// [`SILENCE`] it knows within 1.5 s more than a round trip that its own direction is
/// cut off; one byte each time, and an acknowledgement.
pub(crate) const ASK_ALONG: Duration = Duration::from_millis(250);

/// After so long a silence a peer that had been heard in this fade counts as not heard:
/// several of its probes are missing.
const SILENT_AGAIN: Duration = Duration::from_secs(10);

/// The sessions of an endpoint that are in a fade: together they probe no faster than
/// one alone may.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faded(Arc<AtomicU64>);

impl Faded {
    fn enter(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// One of them, for as long as it lives.
#[derive(Debug)]
struct Counted(Faded);

impl Counted {
    fn all(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.0.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each fade ends once");
    }
}

/// The rate of which probes take their share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeRate {
    /// The endpoint's, which all its sessions share.
    Shared(BitRate),
    /// What the session has found to be its own.
    Own(BitRate),
}

/// Nothing of what is sent is acknowledged: one direction is silent, or both.
#[derive(Debug)]
pub(crate) struct Fade {
    since: Instant,
    /// When a probe left last, and its size.
    last_probe: Instant,
    probe_size: ByteCount,
    counted: Counted,
    /// Something has come meanwhile.
    heard: bool,
    /// Until when data are sent though nothing is acknowledged yet.
    trial_until: Option<Instant>,
}

impl Fade {
    pub(crate) fn new(now: Instant, faded: &Faded) -> Self {
        Self {
            since: now,
            last_probe: now,
            probe_size: PROBE_SIZE,
            counted: faded.enter(),
            heard: false,
            trial_until: None,
        }
    }

    /// When the first probe is due. Many sessions notice a fade at once, and spread theirs.
    pub(crate) fn first_probe(
        &self,
        rate: ProbeRate,
        most: Duration,
        rng: &mut impl Rng,
    ) -> Instant {
        self.since + jitter::part_of(self.budget(rate).min(most), rng)
    }

    /// A probe leaves. When the next one is due, after `most` at the latest.
    pub(crate) fn asks(
        &mut self,
        now: Instant,
        rate: ProbeRate,
        most: Duration,
        rng: &mut impl Rng,
    ) -> Instant {
        self.last_probe = now;
        let lasted = now.saturating_since(self.since);
        let pause = (lasted / PROBE_SHARE).clamp(PROBE_LEAST, PROBE_MOST);
        // Up to a quarter shorter, and no two sessions in step.
        let pause = pause - jitter::part_of(pause / 4, rng);
        now + pause.max(self.budget(rate).min(most.max(PROBE_MOST)))
    }

    /// The size of the packet that asked.
    pub(crate) fn asked_with(&mut self, size: ByteCount) {
        self.probe_size = size;
    }

    /// How long the budget of all sessions makes one wait between two probes.
    fn budget(&self, rate: ProbeRate) -> Duration {
        let (rate, sessions) = match rate {
            ProbeRate::Shared(rate) => (rate, self.counted.all()),
            ProbeRate::Own(rate) => (rate, 1),
        };
        let bytes = self.probe_size.get().saturating_mul(PROBE_BUDGET).saturating_mul(sessions);
        rate.time_to_send(ByteCount::new(bytes))
    }

    /// When it was noticed.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Something came, after the peer had been `silent`; an acknowledgement takes `delay`.
    ///
    /// If both directions were silent, both are probably back: data are sent for that
    /// long, which saves half a round trip. If none is acknowledged, that was all.
    ///
    /// Gives when to answer with a probe.
    pub(crate) fn heard(
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

    /// Until when data are sent as a trial, if they are.
    pub(crate) fn trial_until(&self) -> Option<Instant> {
        self.trial_until
    }

    /// Nothing of the trial was acknowledged.
    pub(crate) fn end_trial(&mut self) {
        self.trial_until = None;
    }

    /// Whether the acknowledgement of something that was `sent` then ends it: what was
    /// sent before may have arrived before.
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
        let mut fade = Fade::new(at(0), &Faded::default());
        fade.heard(at(500), Duration::from_millis(900), DELAY, RATE);
        assert_eq!(fade.trial_until(), None, "the other direction worked all the time");
        fade.heard(at(5000), Duration::from_millis(4500), DELAY, RATE);
        assert_eq!(fade.trial_until(), None, "a few of its probes were lost");
        fade.heard(at(15_000), Duration::from_secs(10), DELAY, RATE);
        assert_eq!(fade.trial_until(), Some(at(15_650)));
        fade.end_trial();
        fade.heard(at(17_000), Duration::from_secs(2), DELAY, RATE);
        assert_eq!(fade.trial_until(), None);
        let mut fade = Fade::new(at(0), &Faded::default());
        fade.heard(at(500), Duration::from_millis(1650), DELAY, RATE);
        assert_eq!(fade.trial_until(), Some(at(1150)));
    }

    #[test]
    fn what_was_sent_before_the_fade_does_not_end_it() {
        let fade = Fade::new(at(1000), &Faded::default());
        assert!(!fade.is_over(at(999)) && fade.is_over(at(1000)));
    }

    /// The bytes of probes in ten minutes, when so many sessions fade at once.
    fn probed(sessions: usize, mbit: u64) -> (u64, Duration) {
        let rate = ProbeRate::Shared(BitRate::from_mbit(mbit));
        let keepalive = Duration::from_secs(15);
        let (faded, mut rng) = (Faded::default(), ChaCha20Rng::from_seed([7; 32]));
        let mut fades: Vec<Fade> = (0..sessions).map(|_| Fade::new(at(0), &faded)).collect();
        let mut longest = Duration::ZERO;
        let mut bytes = 0;
        for fade in &mut fades {
            let mut next = fade.first_probe(rate, keepalive, &mut rng);
            while next < at(600_000) {
                bytes += PROBE_SIZE.get();
                let asked = next;
                next = fade.asks(asked, rate, keepalive, &mut rng);
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
        let mut fade = Fade::new(at(0), &Faded::default());
        for (ms, most) in [(0, 150), (1200, 150), (8000, 1000), (16_000, 2000), (600_000, 2000)] {
            let next = fade.asks(at(ms), RATE, Duration::from_secs(15), &mut rng);
            let pause = next.saturating_since(at(ms)).as_millis();
            assert!(pause <= most && pause >= most * 3 / 4, "{pause} ms at {ms} ms");
        }
    }

    #[test]
    fn at_rate_0_a_fade_is_probed_as_often_as_an_idle_session() {
        let (mut rng, keepalive) = (ChaCha20Rng::from_seed([7; 32]), Duration::from_secs(15));
        let mut fade = Fade::new(at(0), &Faded::default());
        let off = ProbeRate::Shared(BitRate::from_bits_per_second(0));
        assert!(fade.first_probe(off, keepalive, &mut rng) <= at(15_000));
        assert_eq!(fade.asks(at(0), off, keepalive, &mut rng), at(15_000));
    }
}
