//! Beginning of a measurement: on another path, or on the same one after a report of the modem.

use units::{BitRate, ByteCount, Instant};

use super::{Auto, Member};
use crate::rate::PathMemory;

impl Auto {
    /// Returns `true` if these are the session's settings, so that it need not begin again.
    pub(crate) fn has(&self, ceiling: Option<BitRate>, probe: bool) -> bool {
        let ceiling = ceiling.map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        ceiling == self.ceiling && self.padding.is_allowed() == probe
    }

    /// Starts afresh on another path with packet number `next`.
    pub(crate) fn move_to(&mut self, next: u64) {
        // Kept: counters of the session and the opinion of the peer. All else belongs to the path.
        let burst = self.burst;
        *self = Self {
            sent: self.sent,
            marked: self.marked,
            prepared: self.prepared,
            trust: self.trust.on_new_path(),
            member: self.member.take().map(Member::on_new_path),
            ..Self::on_path(self.ceiling, self.law, next, self.padding.on_new_path())
        };
        self.limit_bursts(burst);
    }

    /// Measures again with packets from number `next` on, after the rate was set otherwise.
    /// `memory` is the rate that the path may carry for this session now, and `link` that of the
    /// whole link if others had a part of it.
    pub(crate) fn begin_again(
        &mut self,
        next: u64,
        memory: Option<PathMemory>,
        link: Option<BitRate>,
    ) {
        // At a hub many reports end at once, and sessions without data pad by turns.
        let padding = self.padding.on_new_path().without_turn();
        let burst = self.burst;
        *self = Self {
            sent: self.sent,
            marked: self.marked,
            prepared: self.prepared,
            trust: self.trust.on_new_path(),
            memory,
            link: link.map_or(0.0, |rate| rate.bits_per_second() as f64),
            ..Self::on_path(self.ceiling, self.law, next, padding)
        };
        self.limit_bursts(burst);
    }

    /// Counts a packet whose rate was set otherwise.
    pub(crate) fn sent_otherwise(&mut self, size: ByteCount) {
        self.sent += size.get();
    }

    /// Sets the memory of the path, before anything is sent.
    pub(crate) fn remember(&mut self, memory: PathMemory) {
        self.memory = Some(memory);
    }

    /// Returns `true` if the path is remembered from an earlier session or report.
    pub(crate) fn remembers(&self) -> bool {
        self.memory.is_some()
    }

    /// The memory of the path for a later session; `None` until its capacity is measured.
    pub(crate) fn memory(&self, now: Instant) -> Option<PathMemory> {
        let age = now.saturating_since(self.measured_at?);
        Some(PathMemory { capacity: self.capacity()?, min_rtt: self.min_rtt?, age })
    }
}
