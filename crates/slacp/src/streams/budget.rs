//! Shares of memory among the clients of a session (`docs/slacp.md`, Flow control).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::flow::PeerLimits;

/// A client that holds more than this multiple of what is left gets no further part.
const MAX_HOLDING_RATIO: u64 = 63;
/// The windows of a client that holds this multiple of what is left do not grow.
const MAX_GROWING_RATIO: u64 = 3;
/// Divisor for a client's unproven parts once they take an eighth of what is left. Together they
/// take at most half of what is left, or a quarter if those of all clients take as much as is left.
/// Forty streams that a client opens at once still get 0.3 MB each of the default memory.
const UNPROVEN_DIVISOR: u64 = 24;

/// Memory that is handed out to clients in parts, in bytes. The more of it a client holds, the
/// smaller is its next part, so that others still get large ones.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    whole: u64,
    taken: u64,
    /// Sum of the unproven parts of all clients.
    unproven: u64,
    /// Usage by client. Clients that hold nothing are left out.
    clients: BTreeMap<IpAddr, ClientUsage>,
    shares: ShareRules,
}

/// Bytes that a client holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClientUsage {
    pub(crate) bytes: u64,
    /// The bytes of parts of which nothing has been read yet: they may never be needed.
    pub(crate) unproven: u64,
}

impl ClientUsage {
    /// A part of this size, which `is_proven` to be needed or not.
    pub(crate) fn part(bytes: u64, is_proven: bool) -> Self {
        Self { bytes, unproven: if is_proven { 0 } else { bytes } }
    }
}

/// The rules for the size of a client's next part. *Left* is the memory that no client holds.
#[derive(Debug)]
struct ShareRules {
    /// Divisor of what is left, for the first parts of a client that is alone.
    first_divisor: u64,
    /// Amount added to that divisor by each other client that holds something.
    divisor_per_other: u64,
    /// A part counts as one of the first while what is left is more than this many eighths of what is
    /// left and what the client holds together.
    first_eighths: u64,
    /// Divisor for all further parts, and the largest for the first ones.
    later_divisor: u64,
    /// Multiple of what is left up to which a client gets further parts above the minimum.
    later_multiple: u64,
    /// Minimum size of a part, in bytes.
    min_part: u64,
}

impl MemoryBudget {
    /// A budget for the windows of streams. The first windows of a client can fill the fastest
    /// links. Sixty stalled streams of one client, however large their windows, leave 1 MB of the
    /// default memory for its next one, and more than a thousand fit before one is refused.
    pub(crate) fn for_windows(limits: &PeerLimits) -> Self {
        let least = limits.min_window();
        let shares = ShareRules {
            first_divisor: 8,
            divisor_per_other: 8,
            first_eighths: 7,
            later_divisor: 64,
            later_multiple: 8,
            min_part: least,
        };
        Self::new(limits.for_windows(), shares)
    }

    /// A budget for streams that a peer with these limits has not answered yet, which takes a round
    /// trip. However many a client opens, another one can send 2.5 MB in its first round trip, with
    /// the default memory.
    pub(crate) fn for_openings(limits: &PeerLimits) -> Self {
        let least = limits.min_opening_window();
        let shares = ShareRules {
            first_divisor: 2,
            divisor_per_other: 1,
            first_eighths: 6,
            later_divisor: 32,
            later_multiple: 1,
            min_part: least,
        };
        Self::new(limits.for_openings(), shares)
    }

    fn new(whole: u64, shares: ShareRules) -> Self {
        Self { whole, taken: 0, unproven: 0, clients: BTreeMap::new(), shares }
    }

    /// Maximum size of a client's next part, `is_proven` or not (Flow control, rules 2, 3, 5 and
    /// 6). 0 if less than four minimum parts are left, or if the client holds nearly everything.
    pub(crate) fn share(&self, client: IpAddr, is_proven: bool) -> u64 {
        let left = self.left();
        let ClientUsage { bytes, unproven } = self.of(client);
        let ShareRules {
            first_divisor: first,
            divisor_per_other: per_other,
            first_eighths: until,
            later_divisor: then,
            later_multiple: most,
            min_part: least,
        } = self.shares;
        if !self.has_room() || bytes > left.saturating_mul(MAX_HOLDING_RATIO) {
            return 0;
        }
        // A fraction of what is left, not of the whole, so that a lone client has nearly all of it
        // (dynamic thresholds: Choudhury and Hahne 1998).
        let others = self.clients.len() - usize::from(self.has(client));
        let divisor = (first + per_other * others as u64).min(then);
        let is_first = bytes.saturating_mul(until) < left.saturating_mul(8 - until);
        // The last eighth is kept for minimum parts, and for the first parts of few clients.
        let part = if is_first && (left > self.whole / 8 || divisor < then) {
            left / divisor
        } else if left > self.whole / 8 {
            left.min(left.saturating_mul(most).saturating_sub(bytes)) / then
        } else {
            0
        };
        // Connections that are never made must not take what others need (rule 3).
        let is_bounded = !is_proven && unproven >= left / 8;
        if is_bounded {
            let of_all =
                left.saturating_sub(self.unproven).max((left / 4).saturating_sub(unproven));
            let free = (left / 2).saturating_sub(unproven).min(of_all);
            return part.min(free / UNPROVEN_DIVISOR).max(least);
        }
        part.max(least)
    }

    /// Returns `true` if at least four minimum parts are left, as a new part requires.
    pub(crate) fn has_room(&self) -> bool {
        self.left() >= 4 * self.shares.min_part
    }

    /// Maximum growth of one of the client's parts (Flow control, rule 4).
    pub(crate) fn growth(&self, client: IpAddr) -> u64 {
        let left = self.left();
        let held = self.of(client).bytes;
        match left {
            _ if left <= self.whole / 8 => 0,
            _ if held < left => left / 8,
            _ if held < left.saturating_mul(MAX_GROWING_RATIO) => left / 32,
            _ => 0,
        }
    }

    /// Returns `true` if a client holds less than a quarter of what the others leave.
    pub(crate) fn is_fresh(&self, client: IpAddr) -> bool {
        self.of(client).bytes.saturating_mul(3) < self.left()
    }

    /// Replaces a client's part by one of another size.
    pub(crate) fn replace(&mut self, client: IpAddr, old: ClientUsage, new: ClientUsage) {
        debug_assert!(self.taken - old.bytes + new.bytes <= self.whole, "no more than there is");
        self.taken = self.taken - old.bytes + new.bytes;
        self.unproven = self.unproven - old.unproven + new.unproven;
        let usage = self.clients.entry(client).or_default();
        usage.bytes = usage.bytes - old.bytes + new.bytes;
        usage.unproven = usage.unproven - old.unproven + new.unproven;
        if *usage == ClientUsage::default() {
            self.clients.remove(&client);
        }
    }

    pub(crate) fn left(&self) -> u64 {
        self.whole - self.taken
    }

    /// Returns `true` if the client holds something.
    pub(crate) fn has(&self, client: IpAddr) -> bool {
        self.clients.contains_key(&client)
    }

    /// Number of clients that hold something.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Sum of the unproven parts of all clients.
    #[cfg(test)]
    pub(crate) fn unproven(&self) -> u64 {
        assert_eq!(self.clients.values().map(|usage| usage.unproven).sum::<u64>(), self.unproven);
        self.unproven
    }

    fn of(&self, client: IpAddr) -> ClientUsage {
        self.clients.get(&client).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// In bytes: what a window for 1¼ round trips takes of a hub that sends at 50 Mbit/s.
    const WINDOW: u64 = 4_700_000;
    /// The largest object that must not need a second round trip.
    const OBJECT: u64 = 2_500_000;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn budget() -> MemoryBudget {
        MemoryBudget::for_windows(&PeerLimits::new(256_000_000, 64_000_000, 65_536))
    }

    /// Takes a part for a client, of at most `most` bytes.
    fn take(budget: &mut MemoryBudget, of: u8, most: u64, is_proven: bool) -> u64 {
        let bytes = budget.share(client(of), is_proven).min(most);
        budget.replace(client(of), ClientUsage::default(), ClientUsage::part(bytes, is_proven));
        bytes
    }

    #[test]
    fn sixty_windows_leave_a_megabyte_however_large_they_are() {
        for mbit in [1, 5, 20, 50, 100, 250, 1000, 10_000] {
            let mut budget = budget();
            // In 1¼ round trips of 610 ms.
            (0..60).for_each(|_| _ = take(&mut budget, 1, mbit * 95_000, true));
            let share = budget.share(client(1), true);
            assert!(share > 1_050_000, "{share} at {mbit} Mbit/s");
        }
    }

    /// The budget after `clients` have opened 150 streams a second that reach no server, for half a
    /// minute: each gives its window back after 1.6 s, except 8 kB.
    fn beside_dead(clients: u8) -> MemoryBudget {
        let mut budget = budget();
        let mut held = VecDeque::new();
        for number in 0..4500_u32 {
            let of = 100 + (number % u32::from(clients)) as u8;
            held.push_back((of, take(&mut budget, of, WINDOW, false)));
            if held.len() > 240
                && let Some((of, bytes)) = held.pop_front()
            {
                let [old, new] = [bytes, 8000].map(|bytes| ClientUsage::part(bytes, false));
                budget.replace(client(of), old, new);
            }
        }
        budget
    }

    #[test]
    fn streams_that_prove_nothing_leave_other_clients_whole_windows() {
        for (clients, objects, least) in [(1, 4, OBJECT), (2, 3, OBJECT), (10, 4, 1_000_000)] {
            let mut budget = beside_dead(clients);
            assert!(budget.is_fresh(client(1)));
            // Large objects of another client at once.
            for object in 0..objects {
                let part = take(&mut budget, 1, WINDOW, false);
                assert!(part >= least, "{part} for object {object} beside {clients} clients");
            }
            assert!(take(&mut budget, 1, WINDOW, false) > 300_000, "beside {clients} clients");
        }
    }

    #[test]
    fn a_lone_client_s_streams_at_once_get_what_their_objects_take() {
        let mut budget = budget();
        let parts: Vec<u64> = (0..78).map(|_| take(&mut budget, 1, WINDOW, false)).collect();
        assert!(parts[..8].iter().all(|part| *part >= OBJECT), "{parts:?}");
        assert!(parts[..20].iter().all(|part| *part >= 1_000_000), "{parts:?}");
        assert!(parts[..40].iter().all(|part| *part >= 300_000), "{parts:?}");
        // The first proof makes room for the next.
        let bytes = parts[0];
        budget.replace(client(1), ClientUsage::part(bytes, false), ClientUsage::part(bytes, true));
        assert!(budget.share(client(1), false) > parts[77]);
        assert!(budget.share(client(1), true) > 1_000_000, "proven, it gets a whole one");
    }

    #[test]
    fn a_thousand_clients_have_windows() {
        let mut budget = budget();
        for number in 0..1000_u16 {
            let client = IpAddr::from([10, 1, (number / 256) as u8, number as u8]);
            let bytes = budget.share(client, false);
            assert!(bytes >= 16_000, "{bytes} for client {number}");
            budget.replace(client, ClientUsage::default(), ClientUsage::part(bytes, false));
        }
        assert!(budget.has_room());
    }

    #[test]
    fn a_client_that_holds_what_it_can_leaves_others_their_first_windows() {
        let mut budget = budget();
        while take(&mut budget, 1, u64::MAX, true) > 0 {}
        assert!(budget.has_room());
        assert_eq!((budget.share(client(1), true), budget.growth(client(1))), (0, 0));
        let first = budget.share(client(2), false);
        assert!(first > 200_000, "{first}");
    }

    #[test]
    fn what_is_given_back_is_forgotten() {
        let mut budget = budget();
        let part = ClientUsage::part(1000, false);
        budget.replace(client(1), ClientUsage::default(), part);
        budget.replace(client(1), part, ClientUsage::part(2000, true));
        assert_eq!((budget.left(), budget.clients()), (223_998_000, 1));
        budget.replace(client(1), ClientUsage::part(2000, true), ClientUsage::default());
        assert_eq!((budget.left(), budget.clients()), (224_000_000, 0));
    }
}
