//! The state of the rate meter that a segment records when it is sent.

use units::Instant;

/// The state of the rate meter when a segment was sent: P.* of the draft that `estimate/rate.rs` follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliverySnapshot {
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Instant,
    pub(crate) first_sent_at: Instant,
    pub(crate) is_app_limited: bool,
}
