//! Decides when received data is acknowledged.

use units::Instant;

use crate::config::{AckConfig, AfterSlowStart};
use crate::receiver::DataArrival;

/// RFC 5681 §4.2 and RFC 9293 §3.8.6.3, with the options of [`AckConfig`].
#[derive(Debug, Clone)]
pub(super) struct AckScheduler {
    config: AckConfig,
    /// Number of acknowledgements that must leave one by one and without data, because the peer
    /// counts them as duplicates.
    pub(super) bare: u32,
    /// True if an acknowledgement must leave now; data may carry it.
    pub(super) due: bool,
    /// Time at which a delayed acknowledgement must leave.
    pub(super) delayed: Option<Instant>,
    /// Segments since the last acknowledgement.
    unacknowledged: u32,
    quick: u32,
    /// True while the sender is known or assumed to be in slow start.
    in_slow_start: bool,
}

impl AckScheduler {
    pub(super) fn new(config: AckConfig) -> Self {
        Self {
            config,
            bare: 0,
            due: false,
            delayed: None,
            unacknowledged: 0,
            quick: config.quick,
            in_slow_start: config.after_slow_start == AfterSlowStart::Assumed,
        }
    }

    /// Records whether the sender signals slow start ([`AfterSlowStart::Signalled`]).
    #[inline]
    pub(super) fn note_slow_start(&mut self, is_in_slow_start: bool) {
        if self.config.after_slow_start == AfterSlowStart::Signalled {
            self.in_slow_start = is_in_slow_start;
        }
    }

    /// Handles received data; `marked` if a queue marked any of it.
    #[inline]
    pub(super) fn on_data(&mut self, now: Instant, arrival: DataArrival, marked: bool) {
        let assumes = self.config.after_slow_start == AfterSlowStart::Assumed;
        if assumes && (arrival != DataArrival::InOrder || marked) {
            self.in_slow_start = false;
        }
        match arrival {
            // RFC 5681 §4.2: the sender counts duplicate acknowledgements, so each segment gets its
            // own.
            DataArrival::OutOfOrder | DataArrival::Duplicate => self.bare += 1,
            DataArrival::FilledHole => self.due = true,
            DataArrival::InOrder => self.on_next(now),
        }
    }

    #[inline]
    fn on_next(&mut self, now: Instant) {
        self.unacknowledged += 1;
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        let Some(delay) = self.config.delay else {
            self.due = true;
            return;
        };
        if quick || self.in_slow_start || self.unacknowledged >= self.config.every {
            self.due = true;
        } else if self.delayed.is_none() {
            self.delayed = Some(now + delay);
        }
    }

    /// Handles a SYN-ACK or a FIN.
    #[cold]
    pub(super) fn on_control(&mut self) {
        if self.config.control_alone {
            self.bare += 1;
        } else {
            self.due = true;
        }
    }

    /// Records that a segment with an acknowledgement leaves.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.due = false;
        self.delayed = None;
        self.unacknowledged = 0;
    }
}
