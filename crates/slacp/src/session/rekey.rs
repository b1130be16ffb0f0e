//! When a session renews its keys (`docs/slacp.md`, Keys).

use core::time::Duration;

use units::Instant;

use super::Session;
use crate::Config;
use crate::frame::Frame;
use crate::phases::RekeyError;
use crate::received::ACK_DELAY;

/// The schedule of key changes.
#[derive(Debug)]
pub(super) struct Rekey {
    after: Duration,
    packets: u64,
    /// When the last change completed, and at which packet count.
    changed_at: Instant,
    changed_after: u64,
    /// Until when packets of the previous key phase are accepted.
    previous_until: Option<Instant>,
}

impl Rekey {
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        Self {
            after: config.rekey_after,
            packets: config.rekey_packets,
            changed_at: now,
            changed_after: 0,
            previous_until: None,
        }
    }
}

impl Session {
    /// Packets of both directions, sent or known to have been sent.
    fn packets(&self) -> u64 {
        self.sent.next_number() + self.received.expected()
    }

    pub(super) fn rekey_timeout(&self) -> Option<Instant> {
        if self.rekey.previous_until.is_some() || !self.keys.may_offer() || !self.is_reachable() {
            return self.rekey.previous_until;
        }
        // Numbers that the peer skips count as well.
        let many = self.packets() - self.rekey.changed_after >= self.rekey.packets;
        Some(if many || self.keys.are_worn() {
            Instant::ZERO
        } else {
            self.rekey.changed_at + self.rekey.after
        })
    }

    /// Ends the session if a key is worn out. The terminal renews its keys at half of that limit,
    /// so a peer that meant to go on would have done so.
    pub(super) fn check_keys(&mut self, now: Instant) {
        if let Err(error) = self.keys.check()
            && self.closing.is_none()
        {
            self.fail(now, &error);
        }
    }

    /// Forgets the previous key, or starts the next change.
    pub(super) fn on_rekey_timeout(&mut self) {
        if self.rekey.previous_until.take().is_some() {
            self.keys.drop_previous();
        } else if let Some(offer) = self.keys.offer() {
            self.streams.send_control(offer);
        }
    }

    /// Checks, after a packet was opened, whether it completed a key change.
    pub(super) fn follow_phase(&mut self, now: Instant) {
        if self.keys.holds_previous() && self.rekey.previous_until.is_none() {
            // RFC 9001 §6.5.
            self.rekey.previous_until = Some(now + self.rtt.probe_delay(ACK_DELAY) * 3);
            self.rekey.changed_at = now;
            self.rekey.changed_after = self.packets();
        }
    }

    pub(super) fn on_rekey(&mut self, generation: u64, key: [u8; 32]) -> Result<(), RekeyError> {
        // A new change has begun, so no packet of the previous phase is in flight.
        if self.rekey.previous_until.is_some() && generation > self.keys.generation() {
            self.rekey.previous_until = None;
            self.keys.drop_previous();
        }
        let phase = self.keys.phase();
        if let Some(answer) = self.keys.on_rekey(generation, key)? {
            debug_assert!(matches!(answer, Frame::Rekey { .. }));
            self.streams.send_control(answer);
        }
        // The hub switches keys with the first packet of the new phase, which is this one.
        if self.keys.phase() != phase {
            self.ping();
        }
        Ok(())
    }
}
