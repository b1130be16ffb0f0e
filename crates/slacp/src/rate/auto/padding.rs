//! Padding: what a train consists of while there is no data, so that the path is measured before
//! anybody waits for it.

/// Maximum number of padded trains per path. Two are enough on most links; a fast one takes three
/// or four, and each that an outage or a time slot swallows takes one more.
const TRAINS: u32 = 8;
/// After its first two paths a session pads trains only while padding is no more than the inverse of
/// this of what it has sent: a terminal that changes its address every minute pays for few of them.
const SHARE: u64 = 50;

/// Whether trains may be padded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    /// Whether the configuration allows it.
    allowed: bool,
    /// Whether it is this session's turn, or there is data that waits.
    granted: bool,
    /// How many more trains may be padded.
    left: u32,
    /// Bytes of padded trains so far, and on the first path once there is another.
    padded: u64,
    first: Option<u64>,
}

impl Padding {
    pub(super) fn new(allowed: bool) -> Self {
        Self { allowed, granted: false, left: TRAINS, padded: 0, first: None }
    }

    /// The same permission on another path, if the session has sent so many bytes.
    pub(super) fn on_new_path(self, sent: u64) -> Self {
        let first = self.first.unwrap_or(self.padded);
        let within = self.padded <= first + sent / SHARE;
        Self { left: if within { TRAINS } else { 0 }, first: Some(first), ..self }
    }

    /// Whether the configuration allows padding.
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The same permission, for when it is the session's turn again, or there is data.
    pub(super) fn without_turn(self) -> Self {
        Self { granted: false, ..self }
    }

    /// A packet of a padded train left.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.padded += bytes;
    }

    pub(super) fn grant(&mut self) {
        self.granted = true;
    }

    /// Whether a train may start without data.
    pub(super) fn may_start(&self) -> bool {
        self.allowed && self.granted && self.left > 0
    }

    /// Starts a train; returns whether it may be padded.
    pub(super) fn start_train(&mut self) -> bool {
        let padded = self.may_start();
        self.left -= u32::from(padded);
        padded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_needs_permission_and_a_turn() {
        for (allowed, granted) in [(false, false), (false, true), (true, false)] {
            let mut padding = Padding { granted, ..Padding::new(allowed) };
            assert!(!padding.may_start() && !padding.start_train(), "{padding:?}");
        }
        let mut padding = Padding::new(true);
        padding.grant();
        assert!(padding.start_train());
    }

    #[test]
    fn each_path_has_a_number_of_padded_trains() {
        let mut padding = Padding::new(true);
        padding.grant();
        assert_eq!((0..100).filter(|_| padding.start_train()).count(), TRAINS as usize);
        assert!(!padding.may_start());
        assert!(padding.on_new_path(0).may_start());
    }

    #[test]
    fn a_session_that_keeps_moving_pads_a_fiftieth_of_what_it_sends() {
        let (mut padding, mut sent) = (Padding::new(true), 0);
        padding.grant();
        for _ in 0..1000 {
            if padding.start_train() {
                padding.sent(300_000);
                sent += 300_000;
            }
            sent += 1_000_000;
            padding = padding.on_new_path(sent);
        }
        let padded = padding.padded as f64 / sent as f64;
        assert!((0.019..0.021).contains(&padded), "{padded}");
    }

    #[test]
    fn the_second_path_is_measured_whatever_was_sent() {
        let mut padding = Padding::new(true);
        padding.grant();
        padding.sent(300_000);
        assert!(padding.on_new_path(0).may_start());
        let mut second = padding.on_new_path(0);
        second.sent(300_000);
        assert!(!second.on_new_path(0).may_start());
    }
}
