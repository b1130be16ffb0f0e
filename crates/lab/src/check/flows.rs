//! The flows of probes: their sizes and sending times.

use core::time::Duration;

use super::asked::ConfiguredLink;
use super::probe::ProbeFlow;
use super::rehearse;

/// Size of delay probes in bytes, and the minimum interval between them.
pub(super) const DELAY_PROBE: usize = 64;
const DELAY_GAP: Duration = Duration::from_millis(2);
const DELAY_TIME: Duration = Duration::from_secs(2);
const LEAST_DELAYS: u32 = 20;
/// Duration of the saturating flow.
const FLOOD_TIME: Duration = Duration::from_secs(3);
/// Maximum time of the shortest flood, or to fill a queue; slower links are not measured that way.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
const LEAST_FLOOD: u32 = 16;
/// Time that the sender of the saturating flow may sleep without the link becoming idle, if the
/// queue is long enough.
const RESERVE: Duration = Duration::from_millis(200);
/// The rate at which a queue is filled, as a multiple of the link's rate, if possible.
const FILL: u32 = 3;

/// Returns the flow for delay measurements, at most a quarter of the minimum rate.
pub(super) fn delay(asked: &ConfiguredLink) -> ProbeFlow {
    let gap = DELAY_GAP.max(asked.longest_time_of(DELAY_PROBE).saturating_mul(4)).min(PATIENCE);
    let count = ((DELAY_TIME.as_nanos() / gap.as_nanos()) as u32).max(LEAST_DELAYS);
    ProbeFlow::even(DELAY_PROBE, count, gap)
}

/// Returns the flow that always has packets waiting but never overflows the queue: exactly the
/// link's rate, after an initial reserve. The link is `age` nanoseconds old.
pub(super) fn flood(asked: &ConfiguredLink, mtu: u16, age: u64) -> Option<ProbeFlow> {
    let leaving = departure_times(asked, mtu, age)?;
    let in_reserve = leaving.partition_point(|at| *at <= RESERVE) as u64;
    let reserve = (asked.queue_packets(mtu.into()) / 2).min(in_reserve).max(1) as usize;
    let times = core::iter::repeat_n(Duration::ZERO, reserve).chain(leaving).collect();
    Some(ProbeFlow { len: mtu.into(), times })
}

/// Returns a flow at one and a half times the link's rate.
pub(super) fn overload(asked: &ConfiguredLink, mtu: u16, age: u64) -> Option<ProbeFlow> {
    let times = departure_times(asked, mtu, age)?.into_iter().map(|at| at * 2 / 3).collect();
    Some(ProbeFlow { len: mtu.into(), times })
}

/// Returns the times at which packets leave a link that always has a backlog, for the duration of a
/// flood.
fn departure_times(asked: &ConfiguredLink, mtu: u16, age: u64) -> Option<Vec<Duration>> {
    let bits = asked.link.rate.greatest().bytes_in(FLOOD_TIME).bits();
    let count = u32::try_from(bits / (u64::from(mtu) * 8)).ok()? + LEAST_FLOOD;
    let mut leaving = rehearse::departures(&asked.link, age, mtu.into(), count);
    let least = leaving.get(LEAST_FLOOD as usize - 1).filter(|at| **at <= PATIENCE)?;
    let time = FLOOD_TIME.max(*least);
    leaving.retain(|at| *at <= time);
    Some(leaving)
}

/// Returns the flow that fills the queue of a plain link. It is no faster than necessary, so that
/// the driver's own buffer does not overflow.
pub(super) fn fill(plain: &ConfiguredLink, mtu: u16) -> Option<ProbeFlow> {
    let len = usize::from(mtu);
    let each = plain.longest_time_of(len);
    let limit = plain.queue_packets(len);
    // The first drop comes after 1 / (1 − 1/FILL) of the limit.
    let count = u32::try_from(limit.checked_mul(3)? / 2 + 50).ok()?;
    (each.checked_mul(count)? <= PATIENCE).then(|| ProbeFlow::even(len, count, each / FILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1500;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delay_probes_take_at_most_a_quarter_of_the_least_rate() {
        // At 8 kbit/s, 64 bytes take 64 ms.
        for rate in ["rate = \"8 kbit/s\"", "rate-trace = [\"0s 8 kbit/s\", \"1s 80 Mbit/s\"]"] {
            let flow = delay(&ConfiguredLink::forward(rate));
            assert_eq!((flow.times.len(), flow.times[1]), (20, MS * 256), "{rate}");
        }
        let flow = delay(&ConfiguredLink::forward("rate = \"1 Gbit/s\""));
        assert_eq!((flow.times.len(), flow.times[1]), (1000, MS * 2));
    }

    #[test]
    fn however_slow_the_link_probes_are_at_most_eight_seconds_apart() {
        let flow =
            delay(&ConfiguredLink::forward("rate-trace = [\"0s 1 Mbit/s\", \"1s 10 bit/s\"]"));
        assert_eq!((flow.times.len(), flow.times[1]), (20, PATIENCE));
    }

    #[test]
    fn a_flood_has_a_reserve_that_fits_in_the_queue_and_the_rate_of_the_link() {
        // 1500 bytes take 1 ms: 200 packets in 200 ms, or half of the queue.
        for (queue, reserve) in [("1000 packets", 200), ("100 packets", 50), ("1 packet", 1)] {
            let flow =
                flood(&ConfiguredLink::forward(&format!("queue = \"{queue}\"")), MTU, 0).unwrap();
            let at_once = flow.times.iter().filter(|at| at.is_zero()).count();
            assert_eq!((at_once, flow.times[at_once]), (reserve, MS), "{queue}");
            assert_eq!(flow.times.len(), reserve + 3000);
            assert_eq!(flow.times.last(), Some(&FLOOD_TIME));
        }
    }

    #[test]
    fn a_flood_follows_a_rate_that_changes() {
        let link = ConfiguredLink::forward(
            "rate-trace = [\"0s 12 Mbit/s\", \"10s 6 Mbit/s\"]\nqueue = \"1 packet\"",
        );
        let from = |age: Duration| flood(&link, MTU, age.as_nanos() as u64).unwrap();
        assert_eq!(from(Duration::ZERO).times[2], MS * 2);
        assert_eq!(from(Duration::from_secs(10)).times[2], MS * 4);
    }

    #[test]
    fn links_that_are_too_slow_are_not_flooded() {
        // 16 packets take 8 s at 24 kbit/s.
        assert_eq!(
            flood(&ConfiguredLink::forward("rate = \"24 kbit/s\""), MTU, 0).unwrap().times.len(),
            1 + 16
        );
        assert_eq!(flood(&ConfiguredLink::forward("rate = \"23 kbit/s\""), MTU, 0), None);
        assert_eq!(overload(&ConfiguredLink::forward("rate = \"23 kbit/s\""), MTU, 0), None);
    }

    #[test]
    fn an_overload_is_half_as_fast_again_as_the_link() {
        let flow = overload(&ConfiguredLink::forward(""), MTU, 0).unwrap();
        assert_eq!((flow.times.len(), flow.times[2999]), (3000, Duration::from_secs(2)));
    }

    #[test]
    fn filling_overflows_the_queue_even_at_a_third_of_the_link_s_time() {
        for packets in [1, 10, 1000] {
            let flow =
                fill(&ConfiguredLink::forward(&format!("queue = \"{packets} packets\"")), MTU)
                    .unwrap();
            let took = flow.times.last().unwrap().as_nanos() / MS.as_nanos();
            assert!(flow.times.len() as u128 - took > packets + 1, "{packets}: {took} ms");
        }
    }

    #[test]
    fn a_queue_that_takes_too_long_to_fill_is_not_filled() {
        assert!(fill(&ConfiguredLink::forward("queue = \"5300 packets\""), MTU).is_some());
        assert_eq!(fill(&ConfiguredLink::forward("queue = \"5301 packets\""), MTU), None);
        assert_eq!(
            fill(&ConfiguredLink::forward(&format!("queue = \"{} packets\"", usize::MAX)), MTU),
            None
        );
    }
}
