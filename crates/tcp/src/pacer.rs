//! Paces segments.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

/// How much a late driver may send at once to catch up.
const BURST: Duration = Duration::from_millis(1);

/// When the next segment may leave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pacer {
    free_at: Instant,
}

impl Pacer {
    #[inline]
    pub(crate) fn ready_at(&self) -> Instant {
        self.free_at
    }

    /// Records that `bytes` leave `now`, at `rate`. After a pause, `bucket` bytes (or [`BURST`] of
    /// the rate) may leave at once. This is a token bucket, stored as the time at which it would be
    /// fully in debt.
    #[inline]
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        bytes: u64,
        rate: Option<BitRate>,
        bucket: Option<ByteCount>,
    ) {
        let Some(rate) = rate else { return };
        let time = rate.time_to_send(ByteCount::new(bytes));
        let burst = bucket.map_or(BURST, |bucket| rate.time_to_send(bucket));
        let full = now.as_nanos().saturating_sub(burst.as_nanos() as u64);
        self.free_at = self.free_at.max(Instant::from_nanos(full)) + time;
    }
}
