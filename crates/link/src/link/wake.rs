//! The reasons for which a link is woken.

/// The reason for which a link is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeCause {
    /// A packet reaches the far end, where it may turn out to be lost.
    Arrival,
    /// A packet leaves; only with jitter that reorders.
    Departure,
}
