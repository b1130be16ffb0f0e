//! Which probes are sent, and when.

use core::time::Duration;

use super::asked::Asked;
use super::probe::Flow;
use super::rehearse;

/// Delay probes are so long, and at least so far apart.
pub(super) const DELAY_PROBE: usize = 64;
const DELAY_GAP: Duration = Duration::from_millis(2);
const DELAY_TIME: Duration = Duration::from_secs(2);
const LEAST_DELAYS: u32 = 20;
/// How long the saturating flow lasts.
const FLOOD_TIME: Duration = Duration::from_secs(3);
/// Links on which as little as the least flood, or a full queue, takes longer
/// are not asked for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
const LEAST_FLOOD: u32 = 16;
/// How long the sender of the saturating flow may sleep without the link's
/// becoming idle, if the queue is long enough.
const RESERVE: Duration = Duration::from_millis(200);
/// How fast a queue is filled: so many times the link's rate, if possible.
const FILL: u32 = 3;

/// The flow whose delays are measured: at most a quarter of the least rate.
pub(super) fn delay(asked: &Asked) -> Flow {
    let gap = DELAY_GAP.max(asked.longest_time_of(DELAY_PROBE).saturating_mul(4)).min(PATIENCE);
    let count = ((DELAY_TIME.as_nanos() / gap.as_nanos()) as u32).max(LEAST_DELAYS);
    Flow::even(DELAY_PROBE, count, gap)
}

/// The flow that is never out of packets and never overflows the queue: the
/// link's rate exactly, behind a reserve. The link is `age` nanoseconds old.
pub(super) fn flood(asked: &Asked, mtu: u16, age: u64) -> Option<Flow> {
    let leaving = leaving(asked, mtu, age)?;
    let in_reserve = leaving.partition_point(|at| *at <= RESERVE) as u64;
    let reserve = (asked.queue_packets(mtu.into()) / 2).min(in_reserve).max(1) as usize;
    let times = core::iter::repeat_n(Duration::ZERO, reserve).chain(leaving).collect();
    Some(Flow { len: mtu.into(), times })
}

/// A flow that is half as fast again as the link.
pub(super) fn overload(asked: &Asked, mtu: u16, age: u64) -> Option<Flow> {
    let times = leaving(asked, mtu, age)?.into_iter().map(|at| at * 2 / 3).collect();
    Some(Flow { len: mtu.into(), times })
}

/// When packets leave that the link always has enough of, for as long as a flood
/// takes.
fn leaving(asked: &Asked, mtu: u16, age: u64) -> Option<Vec<Duration>> {
    let bits = asked.link.rate.greatest().bytes_in(FLOOD_TIME).bits();
    let count = u32::try_from(bits / (u64::from(mtu) * 8)).ok()? + LEAST_FLOOD;
    let mut leaving = rehearse::departures(&asked.link, age, mtu.into(), count);
    let least = leaving.get(LEAST_FLOOD as usize - 1).filter(|at| **at <= PATIENCE)?;
    let time = FLOOD_TIME.max(*least);
    leaving.retain(|at| *at <= time);
    Some(leaving)
}

/// The flow that fills the queue of a plain link; no faster than needed, lest
/// the driver's own buffer overflow.
pub(super) fn fill(plain: &Asked, mtu: u16) -> Option<Flow> {
    let len = usize::from(mtu);
    let (each, limit) = (plain.longest_time_of(len), plain.queue_packets(len));
    // 1 / (1 − 1/FILL) of the limit comes before the first drop.
    let count = u32::try_from(limit * 3 / 2 + 50).ok()?;
    (each.checked_mul(count)? <= PATIENCE).then(|| Flow::even(len, count, each / FILL))
}
