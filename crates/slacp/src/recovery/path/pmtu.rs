//! Path MTU discovery by probing (Datagram PLPMTUD, RFC 8899; `docs/slacp.md`, Path MTU). Sizes are
//! those of IP packets, in bytes.

use core::time::Duration;

use units::Instant;

/// The MTU that every path is assumed to carry at first: the minimum MTU of IPv6.
const BASE_MTU: usize = 1280;
/// The smallest size in use: every IPv4 host must accept it (RFC 791 §3.1). Smaller links exist,
/// but this protocol is not meant for them.
const MIN_MTU: usize = 576;
/// Number of lost probes after which a size counts as too large (RFC 8899 §5.1.2).
const TRIES: u32 = 3;
/// Resolution of the search, in bytes.
const STEP: usize = 16;
/// Interval after which larger sizes are tried again (RFC 8899 §5.1.1).
const RAISE: Duration = Duration::from_secs(600);
/// Number of full packets lost in a row, with none received since, that reveals a black hole.
const BLACK_HOLE: u32 = 10;
/// The same while no full packet has ever arrived. At 10 % loss, three in a row are lost by chance
/// once in a thousand times, and a false alarm costs only headers for one round trip.
const BLACK_HOLE_UNPROVEN: u32 = 3;
/// A packet that falls short of the maximum by less than this is full: a repair of it must fit in
/// another packet, and headers differ.
const FULL: usize = 32;

/// A probe packet in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MtuProbe {
    id: u32,
    pub(crate) size: usize,
}

/// The search for the path MTU of one direction.
#[derive(Debug)]
pub(crate) struct PmtuSearch {
    base: usize,
    most: usize,
    /// The largest size known to pass, and the smallest size known not to pass.
    size: usize,
    failed: usize,
    tries: u32,
    in_flight: Option<u32>,
    next_id: u32,
    raise_at: Option<Instant>,
    /// A packet or probe of the current size has arrived.
    proven: bool,
    /// The highest number of an acknowledged full packet.
    full_acked: u64,
    full_lost: u32,
    /// The MTU is configured and not searched for.
    is_known: bool,
}

impl PmtuSearch {
    /// Starts a search up to `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        let base = BASE_MTU.min(most);
        Self {
            base,
            most,
            size: base,
            failed: most + 1,
            tries: 0,
            in_flight: None,
            next_id: 0,
            raise_at: None,
            proven: false,
            full_acked: 0,
            full_lost: 0,
            is_known: false,
        }
    }

    /// Fixes the MTU without a search: the path is a link that carries packets of `most` bytes.
    pub(crate) fn known(most: usize) -> Self {
        Self { base: most, size: most, proven: true, is_known: true, ..Self::new(most) }
    }

    /// The current maximum packet size.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The packet size to expect: the current one, or until a probe has failed the largest, which
    /// usually passes.
    pub(crate) fn likely(&self) -> usize {
        if self.size == self.base && self.failed > self.most { self.most } else { self.size }
    }

    /// The largest size to try.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The size that every path is assumed to carry.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Returns whether a packet of the current size has arrived.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// The size that every path carries.
    pub(crate) fn least(&self) -> usize {
        if self.is_known { self.most } else { MIN_MTU.min(self.most) }
    }

    /// Restarts the search for a new path.
    pub(crate) fn restart(&mut self) {
        if self.is_known {
            return;
        }
        let next_id = self.next_id;
        // Identifiers go on, so that the fate of an old probe does not end a new one.
        *self = Self { next_id, full_acked: self.full_acked, ..Self::new(self.most) };
    }

    /// The time at which [`Self::probe`] returns the next probe.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        if self.in_flight.is_some() || self.is_known {
            None
        } else if self.is_complete() {
            self.raise_at
        } else {
            Some(Instant::ZERO)
        }
    }

    /// Returns the next probe, to be sent now.
    pub(crate) fn probe(&mut self, now: Instant) -> Option<MtuProbe> {
        if self.probe_at()? > now {
            return None;
        }
        if self.raise_at.take().is_some() {
            // The path may have changed, so the search begins anew (RFC 8899 §5.1.1).
            self.failed = self.most + 1;
        }
        self.next_id += 1;
        self.in_flight = Some(self.next_id);
        Some(MtuProbe { id: self.next_id, size: self.candidate() })
    }

    /// The next size to try: first the largest, which usually passes. If that fails, even the base
    /// may be too large (RFC 8899 §5.2) and is tried; then the middle of the remaining range.
    fn candidate(&self) -> usize {
        if self.failed > self.most {
            self.most
        } else if self.is_doubtful() {
            self.base
        } else {
            (self.size + self.failed) / 2
        }
    }

    /// Returns whether even the base may be too large for the path.
    fn is_doubtful(&self) -> bool {
        !self.proven && self.size > self.least()
    }

    /// Returns whether the search has ended, for now.
    fn is_complete(&self) -> bool {
        // The configured size is tried first, and the base once that has failed.
        let is_tried = self.failed <= self.most;
        let is_found = self.failed - self.size <= STEP && is_tried && !self.is_doubtful();
        self.size == self.most && !(self.is_doubtful() && is_tried) || is_found
    }

    /// Records that the path carries the probe.
    pub(crate) fn arrived(&mut self, now: Instant, probe: MtuProbe) {
        self.finish(probe);
        if probe.size > self.size && probe.size < self.failed {
            self.size = probe.size;
            self.tries = 0;
        }
        self.proven |= probe.size >= self.size;
        self.schedule_raise(now);
    }

    /// Records that the probe was lost, by its size or by chance.
    pub(crate) fn lost(&mut self, now: Instant, probe: MtuProbe) {
        if !self.finish(probe) {
            return;
        }
        self.tries += 1;
        if self.tries == TRIES {
            self.tries = 0;
            // Only the base is probed at the current size, and it does not pass either.
            if probe.size == self.size {
                self.fall_back();
            } else {
                self.failed = probe.size;
            }
        }
        self.schedule_raise(now);
    }

    /// Ends the probe in flight; `false` if `probe` is an earlier one.
    fn finish(&mut self, probe: MtuProbe) -> bool {
        self.in_flight.take_if(|id| *id == probe.id).is_some()
    }

    /// Schedules the next search if this one has ended below the configured MTU.
    fn schedule_raise(&mut self, now: Instant) {
        if self.is_complete() && self.size < self.most {
            self.raise_at.get_or_insert(now + RAISE);
        }
    }

    /// Falls back to the base or, if the current size was no larger, to the minimum.
    fn fall_back(&mut self) {
        let (size, above) = (self.size, self.size > self.base);
        self.restart();
        // The base itself does not pass, so the search goes on between the minimum and the failed
        // size.
        if !above {
            self.base = self.least();
            self.size = self.base;
            self.failed = size;
        }
    }

    /// Returns whether a packet of this size counts as full.
    fn is_full(&self, size: usize) -> bool {
        size <= self.size && size + FULL > self.size
    }

    /// Records that a packet of this size was acknowledged.
    pub(crate) fn packet_arrived(&mut self, number: u64, size: usize) {
        if self.is_full(size) {
            self.proven = true;
            self.full_acked = self.full_acked.max(number);
            self.full_lost = 0;
        }
    }

    /// Records that a packet of this size was lost. Returns whether the path has become a black
    /// hole.
    pub(crate) fn packet_lost(&mut self, number: u64, size: usize) -> bool {
        // Once a full packet sent later has arrived, a loss is not due to the size.
        if !self.is_full(size) || self.size == self.least() || number < self.full_acked {
            return false;
        }
        self.full_lost += 1;
        let most = if self.proven { BLACK_HOLE } else { BLACK_HOLE_UNPROVEN };
        let black_hole = self.full_lost >= most;
        if black_hole {
            self.fall_back();
        }
        black_hole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs the search on a path of `mtu`; returns the number of probes.
    fn search(pmtu: &mut PmtuSearch, mtu: usize, now: Instant) -> usize {
        let mut count = 0;
        while let Some(probe) = pmtu.probe(now) {
            count += 1;
            assert!(count < 100);
            assert_eq!(pmtu.probe(now), None, "one at a time");
            if probe.size <= mtu { pmtu.arrived(now, probe) } else { pmtu.lost(now, probe) }
        }
        count
    }

    #[test]
    fn a_link_of_known_mtu_is_never_probed_nor_doubted() {
        let mut pmtu = PmtuSearch::known(1528);
        assert_eq!((pmtu.size(), pmtu.least(), pmtu.is_proven()), (1528, 1528, true));
        assert!((0..100).all(|number| !pmtu.packet_lost(number, 1528)));
        pmtu.restart();
        assert_eq!((pmtu.size(), pmtu.probe_at()), (1528, None));
    }

    proptest! {
        #[test]
        fn finds_any_mtu(most in 576usize..9217, mtu in 576usize..9217) {
            // A configured size below the base is not probed; lost packets reveal it.
            prop_assume!(most > BASE_MTU || most <= mtu);
            let mut pmtu = PmtuSearch::new(most);
            let probes = search(&mut pmtu, mtu, Instant::ZERO);
            prop_assert!(pmtu.size() <= mtu.min(most));
            prop_assert!(pmtu.size() + STEP >= mtu.min(most));
            prop_assert!(probes <= 3 * 12);
        }
    }

    #[test]
    fn a_size_just_above_the_base_is_probed() {
        for (mtu, size) in [(1281, 1281), (1280, 1280), (576, 576)] {
            let mut pmtu = PmtuSearch::new(1281);
            search(&mut pmtu, mtu, Instant::ZERO);
            assert_eq!(pmtu.size(), size);
        }
    }

    #[test]
    fn an_ordinary_path_takes_one_probe_and_none_later() {
        let mut pmtu = PmtuSearch::new(1500);
        assert_eq!(pmtu.size(), 1280);
        assert_eq!(search(&mut pmtu, 1500, Instant::ZERO), 1);
        assert_eq!((pmtu.size(), pmtu.probe_at()), (1500, None));
    }

    #[test]
    fn a_path_that_grows_is_found_after_ten_minutes() {
        let mut pmtu = PmtuSearch::new(1500);
        search(&mut pmtu, 1400, Instant::ZERO);
        assert_eq!(pmtu.probe_at(), Some(Instant::ZERO + RAISE));
        assert_eq!(search(&mut pmtu, 1500, Instant::ZERO + RAISE), 1);
        assert_eq!((pmtu.size(), pmtu.probe_at()), (1500, None));
    }

    #[test]
    fn only_large_losses_that_nothing_large_followed_mean_a_black_hole() {
        let mut pmtu = PmtuSearch::new(1500);
        search(&mut pmtu, 1500, Instant::ZERO);
        pmtu.packet_arrived(100, 1500);
        for number in 0..1000 {
            assert!(!pmtu.packet_lost(number.min(99), 1500), "overtaken");
            assert!(!pmtu.packet_lost(200, 600), "small");
            assert!(!pmtu.packet_lost(200, 1280), "small");
        }
        for number in 101..110 {
            assert!(!pmtu.packet_lost(number, 1500));
        }
        assert!(pmtu.packet_lost(110, 1500));
        assert_eq!(pmtu.size(), 1280);
        assert!(pmtu.probe_at().is_some(), "it looks again at once");
    }

    #[test]
    fn a_path_that_never_carried_the_base_is_known_by_three_packets() {
        let mut pmtu = PmtuSearch::new(1500);
        let probe = pmtu.probe(Instant::ZERO).unwrap();
        assert!(!pmtu.packet_lost(1, 1270) && !pmtu.packet_lost(2, 1270));
        assert!(!pmtu.packet_lost(3, 700), "not full");
        assert!(pmtu.packet_lost(4, 1270));
        assert_eq!(pmtu.size(), 576);
        // Packets in flight belong to the past.
        (0..5).for_each(|_| pmtu.lost(Instant::ZERO, probe));
        (5..50).for_each(|number| assert!(!pmtu.packet_lost(number, 1270)));
        search(&mut pmtu, 900, Instant::ZERO);
        assert!((884..=900).contains(&pmtu.size()), "{}", pmtu.size());
        // Ten minutes later the path carries more.
        search(&mut pmtu, 1500, Instant::ZERO + RAISE);
        assert_eq!(pmtu.size(), 1500);
    }

    #[test]
    fn a_path_that_shrinks_below_the_base_is_followed_in_two_steps() {
        let mut pmtu = PmtuSearch::new(1500);
        search(&mut pmtu, 1500, Instant::ZERO);
        pmtu.packet_arrived(100, 1490);
        assert_eq!((101..200).find(|number| pmtu.packet_lost(*number, 1490)), Some(110));
        assert_eq!((200..300).find(|number| pmtu.packet_lost(*number, 1270)), Some(202));
        assert_eq!(pmtu.size(), 576);
        assert!((300..400).all(|number| !pmtu.packet_lost(number, 576)), "nothing is smaller");
    }

    #[test]
    fn a_late_answer_to_a_probe_given_up_still_counts() {
        let mut pmtu = PmtuSearch::new(1500);
        let probe = pmtu.probe(Instant::ZERO).unwrap();
        pmtu.lost(Instant::ZERO, probe);
        pmtu.lost(Instant::ZERO, probe);
        assert_eq!(pmtu.tries, 1, "lost once");
        pmtu.arrived(Instant::ZERO, probe);
        assert_eq!(pmtu.size(), 1500);
    }
}
