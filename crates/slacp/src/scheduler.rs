//! Divides a session's rate among classes by guarantee and weight, and within a class between
//! streams and packet channels (`docs/slacp.md`, Scheduling).
//!
//! Streams and channels choose among their own flows: each side keeps a [`FairQueue`] per class.
//! [`pacer`] decides when the next packet may leave, and [`session_share`] is the part of a hub's
//! link that a session may use.

mod class;
mod fair;
pub(crate) mod pacer;
mod queue;
pub(crate) mod session_share;
mod shares;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use self::pacer::Pacer;
use crate::ClassId;
use crate::event::stats::ClassStats;
use shares::FairShares;

pub use class::{ClassConfig, ClassRates};
pub(crate) use class::{MAX_CLASSES, control_dscp};
pub(crate) use fair::FairQueue;
pub(crate) use queue::{QueueTicket, RemovableQueue};

/// Maximum guarantee that a class may save up: longer than a few packets of others take, so that a
/// class that is served late still gets its full guarantee.
const MAX_SAVED: Duration = Duration::from_millis(20);
/// Burst by which a class may exceed its maximum, as in the pacer.
const BURST: Duration = Duration::from_millis(4);
/// Time for which a guarantee counts as in use after a packet that was sent by it: the length of a
/// pause in a call.
const IN_USE: Duration = Duration::from_secs(1);

/// The backlog of one kind of traffic in a class.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClassBacklog {
    /// Number of flows with data.
    pub(crate) flows: usize,
    /// Set if one of them is sparse: it has not used up a quantum since it was quiet.
    pub(crate) sparse: bool,
}

/// The two kinds of traffic in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrafficKind {
    Streams,
    Packets,
}

/// The backlog of a class: streams, then packet channels.
pub(crate) type Waiting = [ClassBacklog; 2];

/// The class and the kind of traffic to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextTurn {
    pub(crate) class: usize,
    pub(crate) side: TrafficKind,
    /// Number of flows of that kind that wait in the class.
    pub(crate) flows: usize,
}

/// Divides a session's rate among classes.
#[derive(Debug)]
pub(crate) struct ClassScheduler {
    classes: Vec<ClassState>,
    /// Shares among classes that have not had their guarantees.
    claims: FairShares,
    /// Shares of the rate that the guarantees leave.
    shares: FairShares,
    /// Sum of all guarantees, in bit/s.
    guaranteed: u64,
    /// Code point of packets without new data.
    control_dscp: u8,
}

#[derive(Debug)]
struct ClassState {
    weight: u64,
    dscp: u8,
    link: Option<u8>,
    /// Its part of all guarantees, in thousandths: its weight in `ClassScheduler::claims`.
    claim: u64,
    rates: ClassRates,
    guaranteed: Option<Pacer>,
    maximum: Option<Pacer>,
    /// The last time that a packet was sent by the guarantee.
    guarantee_used: Option<Instant>,
    /// Shares of streams and of packet channels, in this order.
    sides: FairShares,
    stats: ClassStats,
}

impl ClassState {
    fn new(config: &ClassConfig) -> Self {
        let mut class = Self {
            weight: u64::from(config.weight),
            dscp: config.dscp,
            link: config.link,
            claim: 0,
            rates: ClassRates::default(),
            guaranteed: None,
            maximum: None,
            guarantee_used: None,
            sides: FairShares::new(2),
            stats: ClassStats::default(),
        };
        class.set_rates(config.rates());
        class
    }

    /// Changes the rates. Saved and overdrawn amounts are forgotten.
    fn set_rates(&mut self, rates: ClassRates) {
        let bucket = |rate: Option<BitRate>, burst| {
            let rate = rate.filter(|rate| rate.bits_per_second() > 0);
            rate.map(|rate| Pacer::new(rate, burst))
        };
        self.rates = rates;
        self.guaranteed = bucket(rates.guaranteed, MAX_SAVED);
        self.maximum = bucket(rates.maximum, BURST);
    }

    /// The class's guarantee in bit/s, 0 if it has none.
    fn bits(&self) -> u64 {
        self.rates.guaranteed.map_or(0, BitRate::bits_per_second)
    }

    /// The time from which on its maximum lets the class send.
    fn open_at(&self) -> Instant {
        self.maximum.as_ref().map_or(Instant::ZERO, Pacer::ready_at)
    }

    /// The time from which on its guarantee lets the class go first, if it has one.
    fn claims_at(&self) -> Option<Instant> {
        self.guaranteed.as_ref().map(Pacer::ready_at)
    }

    /// Returns `true` if the class has a guarantee that is not used up.
    fn has_claim(&self, now: Instant) -> bool {
        self.claims_at().is_some_and(|at| at <= now)
    }

    /// The kind of traffic to send next: one with a sparse flow if there is any.
    fn side(&self, waiting: &Waiting) -> Option<TrafficKind> {
        let ready = |side: &usize| waiting[*side].flows > 0;
        let sparse = |side: &usize| ready(side) && waiting[*side].sparse;
        // A sparse flow goes first, of whichever kind it is.
        let first = self.sides.first((0..2).filter(sparse));
        let side = first.or_else(|| self.sides.first((0..2).filter(ready)))?;
        Some(if side == 0 { TrafficKind::Streams } else { TrafficKind::Packets })
    }
}

impl ClassScheduler {
    /// A scheduler for these classes. There must be at least one.
    pub(crate) fn new(classes: &[ClassConfig]) -> Self {
        let mut scheduler = Self {
            classes: classes.iter().map(ClassState::new).collect(),
            claims: FairShares::new(classes.len()),
            shares: FairShares::new(classes.len()),
            guaranteed: 0,
            control_dscp: control_dscp(classes),
        };
        scheduler.weigh_claims();
        scheduler
    }

    fn weigh_claims(&mut self) {
        self.guaranteed = self.classes.iter().map(ClassState::bits).sum();
        for class in &mut self.classes {
            class.claim = class.bits() * 1000 / self.guaranteed.max(1);
        }
    }

    /// Gives a class other rates than those of its configuration; `false` if it does not exist.
    pub(crate) fn set_rates(&mut self, class: ClassId, rates: ClassRates) -> bool {
        let Some(class) = self.classes.get_mut(usize::from(class.0)) else { return false };
        // New pacers would forget what is saved up or overdrawn.
        if class.rates != rates {
            class.set_rates(rates);
            self.weigh_claims();
        }
        true
    }

    pub(crate) fn rates(&self, class: ClassId) -> Option<ClassRates> {
        Some(self.classes.get(usize::from(class.0))?.rates)
    }

    /// Sum of the guarantees of all classes, in bit/s.
    pub(crate) fn guaranteed(&self) -> u64 {
        self.guaranteed
    }

    /// The time from which on the guarantee of a class with data lets it go before others.
    pub(crate) fn claims_at(&self, waits: impl Fn(usize) -> bool) -> Option<Instant> {
        let waiting = self.classes.iter().zip(0..).filter(|(_, index)| waits(*index));
        // A guarantee does not lift the maximum.
        let claims = |class: &ClassState| Some(class.claims_at()?.max(class.open_at()));
        waiting.filter_map(|(class, _)| claims(class)).min()
    }

    /// Sum of the guarantees of classes that have data, or have used their guarantee within
    /// [`IN_USE`], in bit/s.
    pub(crate) fn guaranteed_in_use(&self, now: Instant, waits: impl Fn(usize) -> bool) -> u64 {
        let lately = |class: &ClassState| class.guarantee_used.is_some_and(|at| now < at + IN_USE);
        let used = |(class, index): &(&ClassState, usize)| waits(*index) || lately(class);
        self.classes.iter().zip(0..).filter(used).map(|(class, _)| class.bits()).sum()
    }

    /// The code point (DSCP) of packets with new data of a class.
    pub(crate) fn dscp(&self, index: usize) -> u8 {
        self.classes[index].dscp
    }

    /// Returns `true` if the class has a maximum rate.
    pub(crate) fn is_limited(&self, index: usize) -> bool {
        self.classes[index].maximum.is_some()
    }

    /// The number of the link that a class is bound to.
    pub(crate) fn link(&self, index: usize) -> Option<u8> {
        self.classes[index].link
    }

    /// The code point of packets without new data.
    pub(crate) fn control_dscp(&self) -> u8 {
        self.control_dscp
    }

    /// Returns `true` if packets are marked, so that new data of classes with different code points
    /// must not share a packet.
    pub(crate) fn marks(&self) -> bool {
        self.control_dscp != 0
    }

    /// Replaces the classes. The class named by `successor` inherits the statistics of the old one,
    /// and its shares of streams and channels.
    pub(crate) fn configure(
        &mut self,
        classes: &[ClassConfig],
        successor: &dyn Fn(ClassId) -> Option<ClassId>,
    ) {
        let old = core::mem::replace(self, Self::new(classes));
        for (id, class) in (0..).map(ClassId).zip(old.classes) {
            let heir = successor(id).and_then(|id| self.classes.get_mut(usize::from(id.0)));
            if let Some(heir) = heir {
                (heir.sides, heir.stats) = (class.sides, class.stats);
            }
        }
    }

    pub(crate) fn classes(&self) -> usize {
        self.classes.len()
    }

    pub(crate) fn stats(&self, class: ClassId) -> Option<ClassStats> {
        Some(self.classes.get(usize::from(class.0))?.stats.clone())
    }

    /// The time at which a class with data may send.
    pub(crate) fn ready_at(&self, waits: impl Fn(usize) -> bool) -> Option<Instant> {
        let waiting = self.classes.iter().enumerate().filter(|(index, _)| waits(*index));
        waiting.map(|(_, class)| class.open_at()).min()
    }

    /// Chooses the class with the earliest virtual time among those with data, at first among those
    /// that have not had their guarantees.
    pub(crate) fn next(
        &self,
        now: Instant,
        waiting: impl Fn(usize) -> Waiting,
    ) -> Option<NextTurn> {
        let waiting = self.classes.iter().enumerate().map(|(index, class)| {
            // `false` sorts first: the two kinds of virtual time are never compared.
            let start = match class.has_claim(now) {
                true => (false, self.claims.start(index)),
                false => (true, self.shares.start(index)),
            };
            (start, index, waiting(index))
        });
        let open = waiting.filter(|(_, index, waiting)| {
            waiting.iter().any(|side| side.flows > 0) && self.classes[*index].open_at() <= now
        });
        let (_, class, waiting) = open.min_by_key(|(start, index, _)| (*start, *index))?;
        let side = self.classes[class].side(&waiting)?;
        Some(NextTurn { class, side, flows: waiting[side as usize].flows })
    }

    /// Charges a class for `bytes` of an IP packet that it sent in turn `next`.
    pub(crate) fn charge(&mut self, now: Instant, next: NextTurn, bytes: usize) {
        let NextTurn { class: index, side, flows } = next;
        let class = &mut self.classes[index];
        let size = ByteCount::new(bytes as u64);
        class.stats.bytes_sent += bytes as u64;
        if let Some(maximum) = &mut class.maximum {
            maximum.charge(now, size);
        }
        class.sides.charge(side as usize, bytes, flows as u64);
        let claimed = class.has_claim(now);
        // Each packet counts in one of the two: what the guarantee did not cover is shared by
        // weight.
        match &mut class.guaranteed {
            Some(guaranteed) if claimed => {
                class.stats.guaranteed_bytes_sent += bytes as u64;
                class.guarantee_used = Some(now);
                guaranteed.charge(now, size);
                self.claims.charge(index, bytes, class.claim);
            }
            _ => self.shares.charge(index, bytes, class.weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 1500;

    fn mbit(rate: u64) -> Option<BitRate> {
        Some(BitRate::from_mbit(rate))
    }

    /// How many of 10 Mbit/s each class gets if those in `on` always have data.
    fn divide(classes: &[ClassConfig], on: &[usize]) -> Vec<f64> {
        let mut scheduler = ClassScheduler::new(classes);
        let mut link = Pacer::new(BitRate::from_mbit(10), BURST);
        let mut sent = vec![0; classes.len()];
        let waiting = |class: usize| {
            let flows = usize::from(on.contains(&class));
            [ClassBacklog { flows, sparse: false }, ClassBacklog::default()]
        };
        let mut now = Instant::from_nanos(1_000_000_000);
        let end = now + Duration::from_secs(10);
        while now < end {
            let ready = scheduler.ready_at(|class| on.contains(&class)).unwrap();
            now = now.max(link.ready_at()).max(ready);
            let next = scheduler.next(now, waiting).unwrap();
            scheduler.charge(now, next, PACKET);
            link.charge(now, ByteCount::new(PACKET as u64));
            sent[next.class] += PACKET;
        }
        sent.iter().map(|bytes| *bytes as f64 * 8.0 / 10e6).collect()
    }

    fn assert_near(got: &[f64], want: &[f64]) {
        for (got_one, want_one) in got.iter().zip(want) {
            assert!((got_one - want_one).abs() < 0.02, "{got:?}, not {want:?}");
        }
    }

    #[test]
    fn guarantees_first_then_weights() {
        let plain = ClassConfig::default();
        let classes = [
            plain,
            ClassConfig { guaranteed: mbit(2), ..plain },
            ClassConfig { weight: 2, ..plain },
        ];
        assert_near(&divide(&classes, &[0, 1, 2]), &[2.0, 4.0, 4.0]);
        assert_near(&divide(&classes, &[0, 2]), &[10.0 / 3.0, 0.0, 20.0 / 3.0]);
        assert_near(&divide(&classes, &[1]), &[0.0, 10.0, 0.0]);
    }

    #[test]
    fn a_maximum_is_kept_even_on_an_idle_link() {
        let plain = ClassConfig::default();
        let classes = [plain, ClassConfig { weight: 1000, maximum: mbit(3), ..plain }];
        assert_near(&divide(&classes, &[0, 1]), &[7.0, 3.0]);
        assert_near(&divide(&classes, &[1]), &[0.0, 3.0]);
    }

    #[test]
    fn guarantees_beyond_the_rate_share_it() {
        let class = ClassConfig { guaranteed: mbit(10), ..ClassConfig::default() };
        assert_near(&divide(&[class, class], &[0, 1]), &[5.0, 5.0]);
    }

    #[test]
    fn streams_and_channels_share_by_flows_and_the_sparse_goes_first() {
        let mut scheduler = ClassScheduler::new(&[ClassConfig::default()]);
        let mut waiting =
            [ClassBacklog { flows: 3, sparse: false }, ClassBacklog { flows: 1, sparse: false }];
        let mut packets = 0;
        for _ in 0..400 {
            let next = scheduler.next(Instant::ZERO, |_| waiting).unwrap();
            packets += usize::from(next.side == TrafficKind::Packets);
            scheduler.charge(Instant::ZERO, next, PACKET);
        }
        assert_eq!(packets, 100);
        let packets = NextTurn { class: 0, side: TrafficKind::Packets, flows: 1 };
        (0..10).for_each(|_| scheduler.charge(Instant::ZERO, packets, PACKET));
        waiting[1].sparse = true;
        assert_eq!(scheduler.next(Instant::ZERO, |_| waiting), Some(packets));
    }
}
