//! Padding completes a train while there is no data, so that the path is measured before a user
//! waits for it.

use crate::rate::allowance::{Allowance, Spent};

/// Maximum number of padded trains per path. Two are enough on most links; a fast one takes three
/// or four, and each that an outage or a time slot swallows takes one more.
const TRAINS: u32 = 8;

/// Permission of a session to pad its trains, and the padding sent so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    /// The configuration allows padding (`probe`).
    allowed: bool,
    /// It is this session's turn, or there is data that waits.
    granted: bool,
    /// Number of trains that may still be padded on this path.
    left: u32,
    /// Bytes of padded trains so far.
    padded: u64,
    /// Of these, on the first path once there is another.
    first: Option<u64>,
    allowance: Allowance,
}

impl Padding {
    pub(super) fn new(allowed: bool) -> Self {
        let allowance = Allowance::new(0.0, Spent::default());
        Self { allowed, granted: false, left: TRAINS, padded: 0, first: None, allowance }
    }

    /// Sets the number of bytes that the session may spend.
    pub(super) fn set_allowance(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// The same permission on another path.
    pub(super) fn on_new_path(self) -> Self {
        Self { left: TRAINS, first: self.first.or(Some(self.padded)), ..self }
    }

    /// Returns `true` if the configuration allows padding, even if it is not the session's turn.
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The same permission, for when it is the session's turn again, or there is data.
    pub(super) fn without_turn(self) -> Self {
        Self { granted: false, ..self }
    }

    /// Records that a packet of a padded train left.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.padded += bytes;
    }

    pub(super) fn grant(&mut self) {
        self.granted = true;
    }

    /// The session's use of padding, of `sent` bytes in all.
    pub(super) fn spent(&self, sent: u64) -> Spent {
        Spent { padded: self.padded, sent, first: self.first }
    }

    /// Number of bytes of padding that the session may still send, after `sent` bytes in all.
    pub(super) fn allowance(&self, sent: u64) -> u64 {
        if self.allowed { self.allowance.left(self.spent(sent)) } else { 0 }
    }

    /// Returns `true` if a train may start without data.
    pub(super) fn may_start(&self) -> bool {
        self.allowed && self.granted && self.left > 0
    }

    /// Starts a train of `bytes` bytes after `sent` in all; returns `true` if it may be padded. If
    /// the allowance does not cover it, it takes data to start the next one.
    pub(super) fn start_train(&mut self, bytes: u64, sent: u64) -> bool {
        let padded = self.may_start() && self.allowance.covers(bytes, self.spent(sent));
        self.left -= u32::from(padded);
        self.granted &= padded;
        padded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::allowance::ADVANCE;

    const TRAIN: u64 = 300_000;

    fn padding(share: f64) -> Padding {
        let mut padding = Padding::new(true);
        padding.set_allowance(Allowance::new(share, Spent::default()));
        padding.grant();
        padding
    }

    #[test]
    fn padding_needs_permission_and_a_turn() {
        for (allowed, granted) in [(false, false), (false, true), (true, false)] {
            let mut padding = Padding { allowed, granted, ..padding(0.02) };
            assert!(!padding.may_start() && !padding.start_train(1, 0), "{padding:?}");
        }
        assert!(padding(0.02).start_train(1, 0));
    }

    #[test]
    fn each_path_has_a_number_of_padded_trains() {
        let mut padding = padding(0.02);
        assert_eq!((0..100).filter(|_| padding.start_train(1, 0)).count(), TRAINS as usize);
        padding.grant();
        assert!(!padding.may_start());
        assert!(padding.on_new_path().may_start());
    }

    #[test]
    fn a_train_beyond_the_allowance_waits_for_data() {
        let mut padding = padding(0.02).on_new_path();
        assert!(!padding.start_train(ADVANCE + 1, 0) && !padding.may_start());
        padding.grant();
        assert!(padding.start_train(ADVANCE, 0));
        padding.sent(ADVANCE);
        padding.grant();
        assert!(!padding.start_train(1, 49));
        padding.grant();
        assert!(padding.start_train(1, 50));
    }

    #[test]
    fn a_session_that_keeps_moving_pads_its_share_of_what_it_sends() {
        for share in [0.001, 0.02, 0.1] {
            let (mut padding, mut sent) = (padding(share), 0);
            for _ in 0..10_000 {
                padding.grant();
                if padding.start_train(TRAIN, sent) {
                    padding.sent(TRAIN);
                    sent += TRAIN;
                }
                sent += 1_000_000;
                padding = padding.on_new_path();
            }
            let most = (ADVANCE as f64 + share * sent as f64) as u64;
            assert!((most - TRAIN..=most).contains(&padding.padded), "{share}: {padding:?}");
        }
    }
}
