//! Frees the memory that an idle session no longer needs: a hub has thousands of sessions, few of
//! which are in use at a time.

use core::time::Duration;

use units::Instant;

use super::{SessionPath, SharedState};

/// Idle time until a session frees memory. Its collections grow again when needed, which costs less
/// than sending a packet.
const REST_AFTER: Duration = Duration::from_secs(5);

impl SessionPath {
    /// The time at which to free memory; `None` if the session has carried nothing since that was
    /// done.
    pub(super) fn rest_timeout(&self) -> Option<Instant> {
        let used = self.activity.carried.max(self.activity.loaded);
        (used > self.activity.rested).then_some(used + REST_AFTER)
    }

    /// Frees the memory of all collections beyond their contents.
    pub(super) fn rest(&mut self, shared: &mut SharedState, now: Instant) {
        self.activity.rested = now;
        shared.free_spare();
        self.sender.free_spare();
        self.receiver.free_spare();
        self.loss.free_spare();
        if let Some(auto) = self.rate.measuring_mut() {
            auto.free_spare();
        }
    }
}
