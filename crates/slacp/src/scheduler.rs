//! Divides a session's rate: among classes by guarantee and weight, and within a class between
//! streams and packet channels (`docs/slacp.md`, Scheduling).
//!
//! Which stream or flow is next is up to each of them: they keep a [`FairQueue`] per class.

mod class;
mod fair;
mod shares;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::pacer::Pacer;
use crate::stats::ClassStats;
use shares::Shares;

pub use class::{ClassConfig, ClassId};
pub(crate) use class::{MAX_CLASSES, control_dscp};
pub(crate) use fair::FairQueue;

/// Maximum guarantee a class may save up: longer than a few packets of others, so that a class
/// served late still gets its full guarantee.
const SAVED: Duration = Duration::from_millis(20);
/// How far a class may exceed its maximum in one burst, like the pacer.
const BURST: Duration = Duration::from_millis(4);

/// The backlog of a class, of one kind of traffic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backlog {
    /// Number of flows with data.
    pub(crate) flows: usize,
    /// Whether one of them was quiet until now.
    pub(crate) sparse: bool,
}

/// The two kinds of traffic in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Streams,
    Packets,
}

/// The backlog of a class: streams, then packet channels.
pub(crate) type Waiting = [Backlog; 2];

/// Divides a session's rate among classes.
#[derive(Debug)]
pub(crate) struct Scheduler {
    classes: Vec<Class>,
    /// Shares of the guarantees when these exceed the rate.
    claims: Shares,
    /// Shares of what the guarantees leave.
    shares: Shares,
    /// Code point of packets without new data.
    control_dscp: u8,
}

#[derive(Debug)]
struct Class {
    weight: u64,
    dscp: u8,
    link: Option<u8>,
    /// Its fraction of all guarantees, in thousandths.
    claim: u64,
    guaranteed: Option<Pacer>,
    maximum: Option<Pacer>,
    /// Shares of streams and packet channels.
    sides: Shares,
    stats: ClassStats,
}

impl Class {
    /// A class, where all classes together are guaranteed `all` bit/s.
    fn new(config: &ClassConfig, all: u64) -> Self {
        let bucket = |rate: Option<BitRate>, burst| rate.map(|rate| Pacer::new(rate, burst));
        Self {
            weight: u64::from(config.weight),
            dscp: config.dscp,
            link: config.link,
            claim: bits(config) * 1000 / all.max(1),
            guaranteed: bucket(config.guaranteed, SAVED),
            maximum: bucket(config.maximum, BURST),
            sides: Shares::new(2),
            stats: ClassStats::default(),
        }
    }

    /// When the class may send.
    fn open_at(&self) -> Instant {
        self.maximum.as_ref().map_or(Instant::ZERO, Pacer::ready_at)
    }

    /// Whether the class has not yet had its guarantee.
    fn has_claim(&self, now: Instant) -> bool {
        self.guaranteed.as_ref().is_some_and(|guaranteed| guaranteed.ready_at() <= now)
    }

    fn side(&self, waiting: &Waiting) -> Option<Side> {
        let ready = |side: &usize| waiting[*side].flows > 0;
        let sparse = |side: &usize| ready(side) && waiting[*side].sparse;
        let first = self.sides.first((0..2).filter(sparse));
        let side = first.or_else(|| self.sides.first((0..2).filter(ready)))?;
        Some(if side == 0 { Side::Streams } else { Side::Packets })
    }
}

impl Scheduler {
    /// A scheduler for these classes, of which there must be at least one.
    pub(crate) fn new(classes: &[ClassConfig]) -> Self {
        let all = classes.iter().map(bits).sum();
        Self {
            classes: classes.iter().map(|class| Class::new(class, all)).collect(),
            claims: Shares::new(classes.len()),
            shares: Shares::new(classes.len()),
            control_dscp: control_dscp(classes),
        }
    }

    /// The code point of packets with new data of a class.
    pub(crate) fn dscp(&self, index: usize) -> u8 {
        self.classes[index].dscp
    }

    /// The link that a class is bound to.
    pub(crate) fn link(&self, index: usize) -> Option<u8> {
        self.classes[index].link
    }

    /// The code point of packets without new data.
    pub(crate) fn control_dscp(&self) -> u8 {
        self.control_dscp
    }

    /// Whether packets are marked, so that those of different code points must not be mixed.
    pub(crate) fn marks(&self) -> bool {
        self.control_dscp != 0
    }

    /// Replaces the classes. A class named by `successor` inherits the state of the old one.
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

    /// The number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.classes.len()
    }

    pub(crate) fn stats(&self, class: ClassId) -> Option<ClassStats> {
        Some(self.classes.get(usize::from(class.0))?.stats.clone())
    }

    /// When a class with data may send it.
    pub(crate) fn ready_at(&self, waits: impl Fn(usize) -> bool) -> Option<Instant> {
        let waiting = self.classes.iter().enumerate().filter(|(index, _)| waits(*index));
        waiting.map(|(_, class)| class.open_at()).min()
    }

    /// The class and kind of traffic to send next.
    pub(crate) fn next(
        &self,
        now: Instant,
        waiting: impl Fn(usize) -> Waiting,
    ) -> Option<(usize, Side)> {
        let open = |index: &usize| {
            self.classes[*index].open_at() <= now
                && waiting(*index).iter().any(|backlog| backlog.flows > 0)
        };
        let all = || (0..self.classes.len()).filter(open);
        let claimed = all().filter(|index| self.classes[*index].has_claim(now));
        let index = self.claims.first(claimed).or_else(|| self.shares.first(all()))?;
        Some((index, self.classes[index].side(&waiting(index))?))
    }

    /// Charges a class for `bytes` of an IP packet, while `flows` of that kind are waiting.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        index: usize,
        side: Side,
        bytes: usize,
        flows: usize,
    ) {
        let class = &mut self.classes[index];
        let size = ByteCount::new(bytes as u64);
        class.stats.bytes_sent += bytes as u64;
        if let Some(maximum) = &mut class.maximum {
            maximum.sent(now, size);
        }
        class.sides.sent(side as usize, bytes, flows as u64);
        let claimed = class.has_claim(now);
        match &mut class.guaranteed {
            Some(guaranteed) if claimed => {
                class.stats.guaranteed_bytes_sent += bytes as u64;
                guaranteed.sent(now, size);
                self.claims.sent(index, bytes, class.claim);
            }
            _ => self.shares.sent(index, bytes, class.weight),
        }
    }
}

fn bits(class: &ClassConfig) -> u64 {
    class.guaranteed.map_or(0, BitRate::bits_per_second)
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
        let mut scheduler = Scheduler::new(classes);
        let mut link = Pacer::new(BitRate::from_mbit(10), BURST);
        let mut sent = vec![0; classes.len()];
        let waiting = |class: usize| {
            let flows = usize::from(on.contains(&class));
            [Backlog { flows, sparse: false }, Backlog::default()]
        };
        let mut now = Instant::from_nanos(1_000_000_000);
        let end = now + Duration::from_secs(10);
        while now < end {
            let ready = scheduler.ready_at(|class| on.contains(&class)).unwrap();
            now = now.max(link.ready_at()).max(ready);
            let (class, side) = scheduler.next(now, waiting).unwrap();
            scheduler.sent(now, class, side, PACKET, 1);
            link.sent(now, ByteCount::new(PACKET as u64));
            sent[class] += PACKET;
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
        let mut scheduler = Scheduler::new(&[ClassConfig::default()]);
        let mut waiting =
            [Backlog { flows: 3, sparse: false }, Backlog { flows: 1, sparse: false }];
        let mut packets = 0;
        for _ in 0..400 {
            let (class, side) = scheduler.next(Instant::ZERO, |_| waiting).unwrap();
            packets += usize::from(side == Side::Packets);
            scheduler.sent(Instant::ZERO, class, side, PACKET, waiting[side as usize].flows);
        }
        assert_eq!(packets, 100);
        for _ in 0..10 {
            scheduler.sent(Instant::ZERO, 0, Side::Packets, PACKET, 1);
        }
        waiting[1].sparse = true;
        assert_eq!(scheduler.next(Instant::ZERO, |_| waiting), Some((0, Side::Packets)));
    }
}
