//! Which probes are sent, and when.

use core::time::Duration;

use super::asked::Asked;
use super::probe::Flow;
use super::rehearse;

/// Size of delay probes in bytes, and the minimum interval between them.
pub(super) const DELAY_PROBE: usize = 64;
const DELAY_GAP: Duration = Duration::from_millis(2);
const DELAY_TIME: Duration = Duration::from_secs(2);
const LEAST_DELAYS: u32 = 20;
/// Duration of the saturating flow.
const FLOOD_TIME: Duration = Duration::from_secs(3);
/// Links on which the shortest flood, or a full queue, takes longer than this are not measured that
/// way.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
const LEAST_FLOOD: u32 = 16;
/// How long the sender of the saturating flow may sleep without the link becoming idle, if the
/// queue is long enough.
const RESERVE: Duration = Duration::from_millis(200);
/// The rate at which a queue is filled, as a multiple of the link's rate, if possible.
const FILL: u32 = 3;

/// The flow for delay measurements, at most a quarter of the minimum rate.
pub(super) fn delay(asked: &Asked) -> Flow {
    let gap = DELAY_GAP.max(asked.longest_time_of(DELAY_PROBE).saturating_mul(4)).min(PATIENCE);
    let count = ((DELAY_TIME.as_nanos() / gap.as_nanos()) as u32).max(LEAST_DELAYS);
    Flow::even(DELAY_PROBE, count, gap)
}

/// The flow that always has packets waiting but never overflows the queue: exactly the link's rate,
/// after an initial reserve. The link is `age` nanoseconds old.
pub(super) fn flood(asked: &Asked, mtu: u16, age: u64) -> Option<Flow> {
    let leaving = leaving(asked, mtu, age)?;
    let in_reserve = leaving.partition_point(|at| *at <= RESERVE) as u64;
    let reserve = (asked.queue_packets(mtu.into()) / 2).min(in_reserve).max(1) as usize;
    let times = core::iter::repeat_n(Duration::ZERO, reserve).chain(leaving).collect();
    Some(Flow { len: mtu.into(), times })
}

/// A flow at one and a half times the link's rate.
pub(super) fn overload(asked: &Asked, mtu: u16, age: u64) -> Option<Flow> {
    let times = leaving(asked, mtu, age)?.into_iter().map(|at| at * 2 / 3).collect();
    Some(Flow { len: mtu.into(), times })
}

/// When packets of an always backlogged link leave it, for the duration of a flood.
fn leaving(asked: &Asked, mtu: u16, age: u64) -> Option<Vec<Duration>> {
    let bits = asked.link.rate.greatest().bytes_in(FLOOD_TIME).bits();
    let count = u32::try_from(bits / (u64::from(mtu) * 8)).ok()? + LEAST_FLOOD;
    let mut leaving = rehearse::departures(&asked.link, age, mtu.into(), count);
    let least = leaving.get(LEAST_FLOOD as usize - 1).filter(|at| **at <= PATIENCE)?;
    let time = FLOOD_TIME.max(*least);
    leaving.retain(|at| *at <= time);
    Some(leaving)
}

/// The flow that fills the queue of a plain link. It is no faster than necessary, so that the
/// driver's own buffer does not overflow.
pub(super) fn fill(plain: &Asked, mtu: u16) -> Option<Flow> {
    let len = usize::from(mtu);
    let (each, limit) = (plain.longest_time_of(len), plain.queue_packets(len));
    // The first drop comes after 1 / (1 − 1/FILL) of the limit.
    let count = u32::try_from(limit * 3 / 2 + 50).ok()?;
    (each.checked_mul(count)? <= PATIENCE).then(|| Flow::even(len, count, each / FILL))
}
