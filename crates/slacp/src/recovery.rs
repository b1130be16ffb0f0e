//! Loss recovery: records of sent and received packets (ARQ), and FEC; what is measured of
//! the path, and the jitter of timers.

pub(crate) mod fec;
pub(crate) mod jitter;
pub(crate) mod path;
pub(crate) mod planner;
pub(crate) mod received;
pub(crate) mod sent;

/// The rule that distinguishes a loss from reordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LossDetection {
    /// Packets may overtake each other: a loss is assumed after three later packets, or a while.
    #[default]
    Reordering,
    /// The link keeps packets in order, except that control may overtake new data: any gap is a
    /// loss, at once.
    Ordered,
}
