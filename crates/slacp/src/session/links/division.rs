//! Divides the traffic of a session among its links: earliest completion first (ECF, Lim et al.,
//! CoNEXT 2017).
//!
//! Data that waits takes a link only if it would arrive later on the quicker ones. For the `n`-th
//! link in the order of delay, that is so once more waits than the quicker links carry in the time
//! by which it is slower. So a small request takes the quick link, and a transfer uses all links;
//! near its end the slow ones stop first, and all finish together.
//!
//! Delays are taken as half of the round-trip times, because two clocks cannot tell the directions
//! apart. On an asymmetric link the error is half of the asymmetry.

use core::time::Duration;

use units::BitRate;

/// The measured state of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinkView {
    /// Expected one-way delay, half of the RTT.
    pub(crate) delay: Duration,
    /// Rate towards the peer; 0 if unknown.
    pub(crate) rate: BitRate,
    /// Share of packets lost, 0 to 1.
    pub(crate) loss: f64,
    /// False while the sender doubts that packets arrive on the link.
    pub(crate) works: bool,
}

/// The traffic that a link may carry now, besides its own acknowledgements, probes and repairs,
/// which it always may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkTurn {
    /// All kinds of traffic, without a limit.
    All,
    /// New data while more than this number of bytes waits, except that of sparse flows.
    Beyond(u64),
    /// No traffic of streams and channels.
    Nothing,
}

/// The turn of each link. The quickest link that works carries everything. If no link works, all
/// try.
pub(crate) fn link_turns(links: &[LinkView]) -> Vec<LinkTurn> {
    let works: Vec<&LinkView> = links.iter().filter(|link| link.works).collect();
    let Some(least) = works.iter().map(|link| link.delay).min() else {
        return vec![LinkTurn::All; links.len()];
    };
    let ahead = |link: &LinkView| {
        let carried = |quick: &&LinkView| {
            let head_start = link.delay.saturating_sub(quick.delay);
            quick.rate.bytes_in(head_start).get()
        };
        // The quickest link carries what the slower ones lose.
        let head_start = link.delay.saturating_sub(least);
        let slower = works.iter().filter(|other| other.delay > least);
        let repairs = |other: &&LinkView| other.rate.bytes_in(head_start).get() as f64 * other.loss;
        let repairs: f64 = slower.map(repairs).sum();
        let carried: u64 = works.iter().map(carried).sum();
        carried.saturating_sub(repairs as u64)
    };
    let turn = |link: &LinkView| match link.works {
        true if link.delay == least => LinkTurn::All,
        true => LinkTurn::Beyond(ahead(link)),
        false => LinkTurn::Nothing,
    };
    links.iter().map(turn).collect()
}

/// Number of bytes that must be able to wait so that all links can be used.
pub(crate) fn max_waiting(turns: &[LinkTurn]) -> u64 {
    let beyond = |turn: &LinkTurn| if let LinkTurn::Beyond(bytes) = turn { *bytes } else { 0 };
    turns.iter().map(beyond).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ms: u64, mbit: u64) -> LinkView {
        let (delay, rate) = (Duration::from_millis(ms), BitRate::from_mbit(mbit));
        LinkView { delay, rate, loss: 0.0, works: true }
    }

    #[test]
    fn the_slow_link_carries_what_would_arrive_later_on_the_quick_one() {
        // 20 Mbit/s for 280 ms.
        let found = link_turns(&[link(300, 50), link(20, 20)]);
        assert_eq!(found, [LinkTurn::Beyond(700_000), LinkTurn::All]);
        assert_eq!(max_waiting(&found), 700_000);
    }

    #[test]
    fn repairs_of_the_slow_link_take_their_part_of_the_quick_one() {
        let lossy = LinkView { loss: 0.02, ..link(300, 50) };
        assert_eq!(link_turns(&[lossy, link(20, 20)])[0], LinkTurn::Beyond(665_000));
        assert_eq!(link_turns(&[lossy, link(20, 1)])[0], LinkTurn::Beyond(0));
    }

    #[test]
    fn of_three_links_the_slowest_counts_both_others() {
        let found = link_turns(&[link(20, 20), link(70, 8), link(270, 50)]);
        let slowest = 20_000_000 / 8 / 4 + 8_000_000 / 8 / 5;
        assert_eq!(found, [LinkTurn::All, LinkTurn::Beyond(125_000), LinkTurn::Beyond(slowest)]);
    }

    #[test]
    fn links_of_the_same_delay_both_carry_everything() {
        assert_eq!(link_turns(&[link(20, 20), link(20, 5)]), [LinkTurn::All, LinkTurn::All]);
    }

    #[test]
    fn a_link_that_does_not_work_carries_nothing_unless_none_does() {
        let lost = LinkView { works: false, ..link(20, 20) };
        assert_eq!(link_turns(&[link(300, 50), lost]), [LinkTurn::All, LinkTurn::Nothing]);
        assert_eq!(link_turns(&[lost, lost]), [LinkTurn::All, LinkTurn::All]);
        assert!(link_turns(&[]).is_empty());
    }
}
