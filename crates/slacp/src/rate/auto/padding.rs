//! Padding: what a train consists of while there is no data, so that the path is measured before
//! anybody waits for it.

/// Maximum number of padded trains per path. Two are enough on most links; a fast one takes three
/// or four, and each that an outage or a time slot swallows takes one more.
const TRAINS: u32 = 8;

/// Whether trains may be padded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    /// Whether the configuration allows it.
    allowed: bool,
    /// Whether it is this session's turn, or there is data that waits.
    granted: bool,
    /// How many more trains may be padded.
    left: u32,
}

impl Padding {
    pub(super) fn new(allowed: bool) -> Self {
        Self { allowed, granted: false, left: TRAINS }
    }

    /// The same permission on another path.
    pub(super) fn on_new_path(self) -> Self {
        Self { left: TRAINS, ..self }
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
        assert!(padding.on_new_path().may_start());
    }
}
