//! The keys of a path and the schedule of their renewal (`docs/slacp.md`, Keys).

use core::ops::Range;
use core::time::Duration;

use units::Instant;

use super::{SessionPath, SharedState};
use crate::Config;
use crate::keys::phases::{KeyLimitReached, KeyPhases, RekeyError};
use crate::recovery::received::ACK_DELAY;
use crate::wire::frame::Frame;
use crate::wire::packet::PacketHeader;

/// The keys in use, and the schedule of their renewal. Packets count in both directions.
pub(in crate::session) struct KeySchedule {
    phases: KeyPhases,
    after: Duration,
    packets: u64,
    /// Time and packet count at the completion of the last change.
    changed_at: Instant,
    changed_after: u64,
    /// Packets of the previous key phase are accepted until this time.
    previous_until: Option<Instant>,
}

impl KeySchedule {
    pub(super) fn new(now: Instant, config: &Config, phases: KeyPhases) -> Self {
        Self {
            phases: phases.limited(config.key_limits),
            after: config.rekey_after,
            packets: config.rekey_packets,
            changed_at: now,
            changed_after: 0,
            previous_until: None,
        }
    }

    /// The key phase for outgoing packets.
    pub(super) fn phase(&self) -> bool {
        self.phases.phase()
    }

    /// Number of key renewals so far.
    pub(super) fn generation(&self) -> u64 {
        self.phases.generation()
    }

    /// Returns an error if a key has reached its usage limit.
    pub(super) fn check(&self) -> Result<(), KeyLimitReached> {
        self.phases.check()
    }

    /// Seals the last packet of `buf`, whose `header` carries [`Self::phase`].
    pub(super) fn seal(&mut self, number: u64, header: Range<usize>, buf: &mut Vec<u8>) {
        self.phases.seal(number, header, buf);
    }

    /// Decrypts a packet; `None` if it is not authentic.
    pub(super) fn open<'a>(
        &mut self,
        header: &PacketHeader,
        number: u64,
        packet: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        self.phases.open(header, number, packet)
    }

    /// The time at which the previous key expires or, if the peer `is_reachable`, the next change
    /// is due. `packets` is the number of packets exchanged so far.
    fn poll_timeout(&self, packets: u64, is_reachable: bool) -> Option<Instant> {
        debug_assert!(self.changed_after <= packets, "packets are only ever added");
        // Keys never change in an outage, in which the peer cannot answer.
        if self.previous_until.is_some() || !self.phases.may_offer() || !is_reachable {
            return self.previous_until;
        }
        // Due at once, whatever the time: half of a usage limit is reached.
        let many = packets - self.changed_after >= self.packets;
        Some(if many || self.phases.are_due_for_renewal() {
            Instant::ZERO
        } else {
            self.changed_at + self.after
        })
    }

    /// Forgets the previous key, or starts the next change with the frame returned.
    fn handle_timeout(&mut self) -> Option<Frame<'static>> {
        if self.drop_previous() { None } else { self.phases.offer() }
    }

    /// Forgets the previous receiving key; `false` if there was none.
    fn drop_previous(&mut self) -> bool {
        let held = self.previous_until.take().is_some();
        if held {
            self.phases.drop_previous();
        }
        held
    }

    /// Returns whether the packet opened last has completed a key change.
    fn has_changed(&self) -> bool {
        self.phases.holds_previous() && self.previous_until.is_none()
    }

    /// Records a completed change. The previous key stays valid until `previous_until`.
    fn changed(&mut self, now: Instant, packets: u64, previous_until: Instant) {
        self.previous_until = Some(previous_until);
        self.changed_at = now;
        self.changed_after = packets;
    }

    /// Handles the peer's key share; returns the answer, if any.
    fn on_rekey(
        &mut self,
        generation: u64,
        key: [u8; 32],
    ) -> Result<Option<Frame<'static>>, RekeyError> {
        if generation > self.phases.generation() {
            // A new change has begun, so no packet of the previous phase is in flight.
            self.drop_previous();
        }
        self.phases.on_rekey(generation, key)
    }
}

impl SessionPath {
    /// Packets of both directions, sent or known to have been sent. Numbers that the peer skips
    /// count as well.
    fn packets(&self) -> u64 {
        self.sender.sent.next_number() + self.receiver.received.expected()
    }

    pub(super) fn rekey_timeout(&self) -> Option<Instant> {
        self.keys.poll_timeout(self.packets(), self.is_reachable())
    }

    /// Closes the session if a key has reached its limit. The terminal renews its keys at half of
    /// that, so an honest peer does not get here.
    pub(super) fn check_keys(&mut self, shared: &mut SharedState, now: Instant) {
        if let Err(error) = self.keys.check()
            && shared.is_usable()
        {
            self.fail(shared, now, &error);
        }
    }

    pub(super) fn on_rekey_timeout(&mut self, shared: &mut SharedState) {
        if let Some(offer) = self.keys.handle_timeout() {
            self.send_own(shared, offer);
        }
    }

    /// Checks, after a packet was opened, whether it completed a key change.
    pub(super) fn follow_phase(&mut self, now: Instant) {
        if self.keys.has_changed() {
            // Packets of the old phase may still arrive, for three probe delays (RFC 9001 §6.5).
            let previous_until = now + self.rtt.probe_delay(ACK_DELAY) * 3;
            self.keys.changed(now, self.packets(), previous_until);
        }
    }

    pub(super) fn on_rekey(
        &mut self,
        shared: &mut SharedState,
        generation: u64,
        key: [u8; 32],
    ) -> Result<(), RekeyError> {
        let phase = self.keys.phase();
        if let Some(answer) = self.keys.on_rekey(generation, key)? {
            debug_assert!(matches!(answer, Frame::Rekey { .. }));
            self.send_own(shared, answer);
        }
        // The hub switches keys with the first packet of the new phase, which is this one.
        if self.keys.phase() != phase {
            self.ping();
        }
        Ok(())
    }
}
