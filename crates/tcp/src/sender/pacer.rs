//! Spreads segments over time at a rate, except for a burst after a pause.

use core::time::Duration;

use shaping::VirtualSchedule;
use units::{BitRate, ByteCount, Instant};

/// Time for which a late driver may catch up in one burst.
const BURST: Duration = Duration::from_millis(1);

/// Schedules when the next segment may leave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pacer(VirtualSchedule);

impl Pacer {
    #[inline]
    pub(crate) fn ready_at(&self) -> Instant {
        self.0.free_at()
    }

    /// Records that `bytes` leave `now`, at `rate`. After a pause, `bucket` bytes (or [`BURST`] of
    /// the rate) may leave at once.
    #[inline]
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        bytes: u64,
        rate: Option<BitRate>,
        bucket: Option<ByteCount>,
    ) {
        let Some(rate) = rate else { return };
        let burst = bucket.map_or(BURST, |bucket| rate.time_to_send(bucket));
        self.0.charge(now, burst, rate.time_to_send(ByteCount::new(bytes)));
    }
}
