//! The rate of an unknown link: found by packet trains, held by the queueing delay
//! (`docs/rate.md`).

mod cruise;
mod member;
mod padding;
mod path;
mod shared;
mod start;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use super::arrivals::{Arrival, Arrivals, Window, micros};
use super::constants::{PACKET, SLOWEST};
use super::law::Law;
use super::train::{Measured, Plan, Train, Unmeasured};
use super::trust::{Claim, ClaimVerdict, Trust};
use super::{Allowance, PathMemory, Spent};
use crate::RateState;
use crate::scheduler::pacer::Pacer;
use cruise::{Cruise, Initial, Passed};
use member::Member;
use padding::Padding;
use start::Start;

/// Rate of a train that is to find an unknown rate, in bit/s.
const TRAIN_RATE: f64 = 2e9;

/// Catch-up allowance for a late driver, in time at the rate.
const BURST: Duration = Duration::from_millis(4);
const TRAIN_BURST: Duration = Duration::from_millis(1);

/// Size of a packet with data or as much padding, in bytes.
const FULL: usize = 1500;

/// The relative error of a train that arrived without jitter.
const STEADY: f64 = 0.02;

/// After this time without data the path is measured again: the capacity of a link under rain
/// changes within minutes.
const SILENCE: Duration = Duration::from_secs(60);

/// A session whose peer is doubted goes on at this multiple, at most, of what is acknowledged.
const DOUBTED_RATE: f64 = 2.0;

/// An honest peer holds an acknowledgement no longer than this, or a quarter of the round trip.
/// More could hide a queue.
const HELD: Duration = Duration::from_millis(25);

/// A link that falls below this part of its rate takes longer to send each packet, and one that rises
/// by as much takes as long as before.
const SLOWER: f64 = 0.75;

/// The content of an acknowledgement that matters for the rate.
#[derive(Debug)]
pub(crate) struct Acknowledged<'a> {
    /// The newly acknowledged packets: number and size.
    pub(crate) packets: &'a [(u64, u16)],
    /// The newest packet acknowledged for the first time, if any.
    pub(crate) newest: Option<Newest>,
    /// The largest number that has arrived.
    pub(crate) largest: u64,
    /// Time for which the peer held back the acknowledgement of the newest one, as it claims.
    pub(crate) held: Duration,
    /// The peer's clock in µs modulo 2^32, and the ages of marked packets, if the peer reports
    /// them.
    pub(crate) times: Option<(u32, Vec<(u64, Duration)>)>,
    /// Number of packets that the path has newly marked as having met congestion (ECN), as far as
    /// the peer reports it.
    pub(crate) marked: u64,
}

/// When a packet was sent, and all bytes sent up to and including it: by the session, and by all
/// sessions that share its link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    pub(crate) sent: Instant,
    pub(crate) sent_bytes: u64,
    pub(crate) link_bytes: u64,
}

/// Finds and tracks the rate of one direction of a path.
#[derive(Debug)]
pub(crate) struct Auto {
    phase: Phase,
    pacer: Pacer,
    /// Most bytes that the pacer lets leave at once; `None` without a limit.
    burst: Option<ByteCount>,
    train: Option<Train>,
    train_pacer: Pacer,
    arrivals: Arrivals,
    trust: Trust,
    /// Sending rate outside trains, in bit/s.
    rate: f64,
    rtt: Duration,
    /// Minimum RTT on this path; `None` before the first sample.
    min_rtt: Option<Duration>,
    /// Time by which the newest acknowledgement came later than that.
    late: Duration,
    /// Bytes sent in all, acknowledged, and neither acknowledged nor lost.
    sent: u64,
    delivered: u64,
    in_flight: u64,
    /// Packets marked by the session's paths.
    marked: u64,
    /// When capacity was last measured.
    measured_at: Option<Instant>,
    memory: Option<PathMemory>,
    ceiling: f64,
    law: Law,
    /// Packets below this number took another path.
    first: u64,
    /// The number of the next packet.
    next: u64,
    /// Packets below this number measured a link that the session shared.
    first_own: u64,
    padding: Padding,
    /// When a train could last have started.
    prepared: Instant,
    /// Its part in a link that it shares with other sessions of the hub.
    member: Option<Member>,
    /// The link's rate as the trains of the start have shown it, in bit/s.
    link: f64,
    /// The last of them, if it came whole.
    passed: Option<Passed>,
}

#[derive(Debug)]
enum Phase {
    Start(Start),
    Cruise(Box<Cruise>),
}

impl Auto {
    /// Starts without a memory, limited to `ceiling`; `probe` as in [`super::Rate::Auto`].
    pub(crate) fn new(ceiling: Option<BitRate>, probe: bool, law: Law) -> Self {
        let ceiling = ceiling.map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        Self::on_path(ceiling, law, 0, Padding::new(probe))
    }

    fn on_path(ceiling: f64, law: Law, first: u64, padding: Padding) -> Self {
        Self {
            phase: Phase::Start(Start::default()),
            pacer: pacer(TRAIN_RATE, BURST),
            burst: None,
            train: None,
            train_pacer: pacer(TRAIN_RATE, TRAIN_BURST),
            arrivals: Arrivals::default(),
            trust: Trust::default(),
            rate: TRAIN_RATE,
            rtt: Duration::from_millis(800),
            min_rtt: None,
            late: Duration::ZERO,
            sent: 0,
            delivered: 0,
            in_flight: 0,
            marked: 0,
            measured_at: None,
            memory: None,
            ceiling,
            law,
            first,
            next: first,
            first_own: first,
            padding,
            prepared: Instant::ZERO,
            member: None,
            link: 0.0,
            passed: None,
        }
    }

    /// Limits what leaves at once besides trains, before anything is sent on the path.
    pub(crate) fn limit_bursts(&mut self, burst: Option<ByteCount>) {
        self.burst = burst;
        self.pacer = pacer(TRAIN_RATE, BURST).with_max_burst(burst);
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.arrivals.free_spare();
        self.trust.free_spare();
        if let Phase::Cruise(cruise) = &mut self.phase {
            cruise.free_spare();
        }
    }

    /// Lets the session measure the path with padding, if the configuration allows it.
    pub(crate) fn grant_padding(&mut self) {
        self.padding.grant();
    }

    /// Sets how much padding the session may send.
    pub(crate) fn set_allowance(&mut self, allowance: Allowance) {
        self.padding.set_allowance(allowance);
    }

    /// Number of bytes of padding that the session may still send.
    pub(crate) fn padding_left(&self) -> u64 {
        self.padding.allowance(self.sent)
    }

    /// Bytes that the session has sent, and of these in padded trains.
    pub(crate) fn spent(&self) -> Spent {
        self.padding.spent(self.sent)
    }

    /// Returns `true` while the session measures the path with padding, or is about to.
    pub(crate) fn is_probing(&self) -> bool {
        match &self.train {
            Some(train) => train.has_padding() && matches!(self.phase, Phase::Start(_)),
            None => self.may_start_padded(),
        }
    }

    /// Returns `true` if a packet of padding should go when there is no data.
    pub(crate) fn wants_padding(&self) -> bool {
        match &self.train {
            Some(train) => train.padding().is_some(),
            None => self.may_start_padded(),
        }
    }

    fn may_start_padded(&self) -> bool {
        let due = matches!(&self.phase, Phase::Start(start) if start.is_due());
        due && self.padding.may_start() && self.may_measure()
    }

    /// Size of the packet of padding that goes next, once [`Self::prepare`] was called.
    pub(crate) fn padding(&self) -> Option<usize> {
        self.train.as_ref()?.padding()
    }

    pub(crate) fn rate(&self) -> BitRate {
        // Before anything is measured: the rate of a first flight.
        let rate = match &self.phase {
            Phase::Start(start) => start.expected(self.rtt),
            Phase::Cruise(_) => self.rate,
        };
        BitRate::from_bits_per_second(rate as u64)
    }

    /// The state of the measurement.
    pub(crate) fn state(&self) -> RateState {
        match &self.phase {
            Phase::Start(start) => start.state(),
            Phase::Cruise(cruise) => cruise.state(),
        }
    }

    /// The capacity of the path for this session, once measured.
    pub(crate) fn capacity(&self) -> Option<BitRate> {
        match &self.phase {
            Phase::Start(_) => None,
            Phase::Cruise(cruise) => Some(BitRate::from_bits_per_second(cruise.share() as u64)),
        }
    }

    /// Queueing delay on the path, as far as known.
    pub(crate) fn queue(&self) -> Duration {
        self.window().map_or(Duration::ZERO, |window| window.queue)
    }

    /// Bytes of the session that wait in the queue of the link, as far as known.
    pub(crate) fn queued(&self) -> ByteCount {
        self.capacity().unwrap_or_default().bytes_in(self.queue())
    }

    fn window(&self) -> Option<Window> {
        let Phase::Cruise(cruise) = &self.phase else {
            return self.arrivals.window(cruise::look(self.rtt));
        };
        let usual = self.arrivals.window(cruise.look(self.rtt));
        // After a fall of the rate only the arrivals of a glance are kept.
        usual.or_else(|| self.arrivals.window(cruise.glance()))
    }

    /// Number of the peer's arrival times that were impossible.
    pub(crate) fn impossible_times(&self) -> u64 {
        self.trust.impossible()
    }

    /// Number of packets that the session's paths have marked as having met congestion.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// When payload may leave; `None` until acknowledgements arrive.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        if self.in_flight as f64 * 8.0 >= self.allowed_in_flight() {
            return None;
        }
        let leaving = self.train.as_ref().is_some_and(Train::is_leaving);
        let pacer = if leaving { &self.train_pacer } else { &self.pacer };
        Some(pacer.ready_at())
    }

    /// Maximum in flight, in bits.
    fn allowed_in_flight(&self) -> f64 {
        match &self.phase {
            // Of many members of a shared link, each with what one alone may send, most would be
            // lost: 32 of them with 64 packets each overflowed 50 Mbit/s.
            Phase::Start(start) if !self.may_measure() => start.allowed_in_flight(0),
            Phase::Start(start) => start.allowed_in_flight(self.delivered),
            Phase::Cruise(cruise) => cruise.allowed_in_flight(self.rtt),
        }
    }

    /// Returns `true` if the packet under construction needs a MARK.
    pub(crate) fn wants_mark(&self) -> bool {
        self.train.as_ref().is_some_and(Train::wants_mark)
    }

    /// Called before payload leaves: takes the current RTT and starts a train if one is due.
    pub(crate) fn prepare(&mut self, now: Instant, rtt: Duration) {
        self.rtt = rtt;
        self.padding.grant();
        let silent = now.saturating_since(self.prepared) > SILENCE;
        self.prepared = now;
        if let Phase::Cruise(cruise) = &mut self.phase
            && silent
        {
            cruise.search_at_once();
        }
        if !self.may_start_train(now) {
            return;
        }
        // An urgent train may replace one that is in flight, but not one that still leaves.
        let urgent = matches!(&self.phase, Phase::Cruise(cruise) if cruise.train_is_urgent());
        if self.train.as_ref().is_some_and(|train| train.is_leaving() || !urgent) {
            return;
        }
        let memory = self.memory.filter(|memory| memory.fits(rtt));
        let plan = match &mut self.phase {
            Phase::Start(start) => start.next_train(memory, rtt),
            Phase::Cruise(cruise) => cruise.next_train(),
        };
        let Some(Plan { packets, rate, padding }) = plan else { return };
        self.train_started(now);
        // Later trains are made of data that would be sent anyway.
        let starting = matches!(self.phase, Phase::Start(_));
        let bytes = (packets * padding) as u64;
        let padded = (starting || silent) && self.padding.start_train(bytes, self.sent);
        self.train = Some(Train::new(packets, padded.then_some(padding)));
        self.train_pacer = pacer(rate, TRAIN_BURST);
        self.set_rate(now);
    }

    /// Records that a packet of `size` bytes left; `counts` if it counts as in flight. Returns all
    /// bytes sent up to and including it over what the session measures: its path, or a link that
    /// it shares.
    pub(crate) fn sent(&mut self, now: Instant, number: u64, size: u16, counts: bool) -> u64 {
        let bytes = ByteCount::new(u64::from(size));
        self.sent += bytes.get();
        self.next = number + 1;
        let all = self.count(bytes);
        let spread = self.spread(size);
        let leaving = self.train.as_mut().filter(|train| counts && train.is_leaving());
        let owed = match (&self.phase, leaving) {
            (_, None) => true,
            (phase, Some(train)) => {
                train.sent(now, number, spread);
                if train.has_padding() {
                    self.padding.sent(bytes.get());
                }
                self.train_pacer.charge(now, bytes);
                matches!(phase, Phase::Cruise(_))
            }
        };
        // A train of the start is sent on top of the paced packets.
        if owed {
            self.pacer.charge(now, bytes);
        }
        if counts {
            self.in_flight += bytes.get();
        }
        all
    }

    /// Records that there is nothing to send for now.
    pub(crate) fn app_limited(&mut self) {
        if let Some(train) = self.train.as_mut().filter(|train| train.is_leaving()) {
            train.cut();
        }
        if let Phase::Cruise(cruise) = &mut self.phase {
            cruise.app_limited();
        }
        self.member.iter_mut().for_each(Member::app_limited);
    }

    /// Records that a packet of `size` bytes was lost.
    pub(crate) fn lost(&mut self, number: u64, size: u16) {
        if number >= self.first {
            self.in_flight = self.in_flight.saturating_sub(size.into());
        }
    }

    pub(crate) fn acknowledged(&mut self, now: Instant, rtt: Duration, ack: &Acknowledged) {
        self.rtt = rtt;
        let bytes = ack.packets.iter();
        let bytes = bytes.filter(|(number, _)| *number >= self.first);
        let bytes: u64 = bytes.map(|(_, size)| u64::from(*size)).sum();
        self.delivered += bytes;
        self.marked += ack.marked;
        if let Phase::Cruise(cruise) = &mut self.phase
            && ack.marked > 0
        {
            cruise.marked(now, rtt);
        }
        self.in_flight = self.in_flight.saturating_sub(bytes);
        // The train is judged by the arrival times that this acknowledgement brings.
        self.enter_times(now, ack);
        let measured = self.take_train(now, ack.largest);
        self.decide(now, measured);
        self.set_rate(now);
    }

    /// Records when packets arrived. For a peer that does not report it, or is doubted, the time of
    /// the acknowledgement stands in.
    fn enter_times(&mut self, now: Instant, ack: &Acknowledged) {
        // Times of the two clocks cannot be compared with each other.
        if self.trust.forgive(now) {
            self.arrivals = Arrivals::default();
        }
        if let Some(train) = &mut self.train {
            ack.packets.iter().for_each(|(number, _)| train.acknowledged(*number));
        }
        let doubted = self.trust.is_doubted();
        let times = ack.times.as_ref().filter(|_| !doubted);
        let clock = match times {
            Some((clock, _)) => self.arrivals.unwrap_clock(*clock),
            None => micros(now),
        };
        let honestly_held = ack.held.min(HELD.max(self.rtt / 4));
        let held = if doubted { honestly_held } else { ack.held };
        if let Some(newest) = ack.newest.filter(|_| ack.largest >= self.first) {
            let Newest { sent, sent_bytes, link_bytes } = newest;
            let path = now.saturating_since(sent).saturating_sub(honestly_held);
            self.late = path.saturating_sub(self.least_rtt());
            let arrived = clock - age(held);
            let claim = Claim { sent, heard: now, arrived, clock, delivered: self.delivered };
            let word = match doubted {
                true => ClaimVerdict::Possible,
                false => self.trust.judge(&claim, self.least_rtt()),
            };
            match word {
                ClaimVerdict::Possible => {}
                ClaimVerdict::Impossible => return,
                ClaimVerdict::Doubted => return self.doubt(now),
            }
            self.took(now, sent, held);
            if ack.largest >= self.comparable_from() {
                let delivered = self.delivered;
                let arrival = Arrival { sent, arrived, sent_bytes, link_bytes, delivered };
                self.arrivals.enter(now, arrival);
            }
        }
        times.inspect(|(_, marks)| self.enter_marks(now, clock, marks));
    }

    fn enter_marks(&mut self, now: Instant, clock: i64, marks: &[(u64, Duration)]) {
        let Some(mut train) = self.train.take() else { return };
        for (number, waited) in marks {
            let arrived = clock - age(*waited);
            let Some(sent) = train.sent_at(*number) else { continue };
            if self.trust.may_arrive(now, sent, arrived) {
                train.arrived(*number, arrived);
                self.took(now, sent, *waited);
            }
        }
        self.train = Some(train);
    }

    /// The least round-trip time, or the present one while there is none.
    fn least_rtt(&self) -> Duration {
        self.min_rtt.unwrap_or(self.rtt)
    }

    /// Goes on without the peer's times, at a rate that acknowledgements justify: to ignore single
    /// times would leave the rate where a false clock has brought it.
    fn doubt(&mut self, now: Instant) {
        self.arrivals = Arrivals::default();
        self.arrivals.enter_delay(now, age(self.least_rtt()));
        self.train.iter_mut().for_each(Train::forget_arrivals);
        let Some(acknowledged) = self.trust.acknowledged(self.least_rtt()) else { return };
        let rate = match &self.phase {
            Phase::Start(start) => start.rate(),
            Phase::Cruise(cruise) => cruise.share(),
        };
        let most = (acknowledged * DOUBTED_RATE).max(SLOWEST);
        if rate > most {
            self.measure_own_path();
            self.phase = Phase::Cruise(Box::new(Cruise::new(
                now,
                Initial::alone(most, self.ceiling),
                self.law,
            )));
        }
    }

    /// Learns the round-trip time of a packet sent at `sent` whose acknowledgement the peer held
    /// back for `held`.
    fn took(&mut self, now: Instant, sent: Instant, held: Duration) {
        let path = now.saturating_since(sent).saturating_sub(held);
        self.min_rtt = Some(self.min_rtt.map_or(path, |least| least.min(path)));
    }

    /// The result of the train, once it is over by packet `largest`.
    fn take_train(&mut self, now: Instant, largest: u64) -> Option<Result<Measured, Unmeasured>> {
        let train = self.train.take_if(|train| train.is_over(largest))?;
        let measured = train.measure();
        // With jitter, the least delay of a few packets is less than a busy link ever has, so only
        // trains without it set the base.
        if measured.is_ok_and(|measured| measured.error < STEADY) {
            train.least_delay().inspect(|delay| self.arrivals.enter_delay(now, *delay));
        }
        self.passed = measured.ok().and_then(|measured| {
            Some(Passed { packets: train.came_whole()? as f64, rate: measured.sent })
        });
        Some(measured)
    }

    /// Learns from the arrivals so far, and from the train that this acknowledgement ends, if any.
    fn decide(&mut self, now: Instant, train: Option<Result<Measured, Unmeasured>>) {
        let Some(before) = self.link() else { return self.search(now, train) };
        self.glance();
        let window = self.window();
        let flight = self.flight();
        let Phase::Cruise(cruise) = &mut self.phase else { return };
        if let Some(train) = train {
            cruise.train_came(train, now + cruise.look(self.rtt));
        }
        let Some(window) = window else { return };
        let Some(flight) = flight else { return };
        self.measured_at = Some(now);
        if let Some(over) = cruise.acknowledged(now, self.rtt, window, flight) {
            self.arrivals.rebase(now, over);
        }
        // A rise gives back what a fall has added: in a crowd, a session that had been pushed down
        // to 0.2 Mbit/s otherwise saw a queue that was 25 ms shorter than the others did.
        let after = cruise.link();
        if after < SLOWER * before || before < SLOWER * after {
            self.arrivals.lengthen(PACKET / after - PACKET / before);
        }
    }

    /// Goes on with the start, or ends it once the capacity is known.
    fn search(&mut self, now: Instant, train: Option<Result<Measured, Unmeasured>>) {
        let window = self.window();
        let Phase::Start(start) = &mut self.phase else { return };
        let policed = train.and_then(|train| train.err()?.bucket());
        let sure = train.and_then(Result::ok).filter(Measured::is_sure);
        self.link = sure.map_or(self.link, |train| self.link.max(train.received));
        let found = train.and_then(|train| start.train_came(train, self.delivered, self.rtt));
        let Some(capacity) = found.or_else(|| start.overtaken(window?)) else { return };
        self.measured_at = Some(now);
        let initial = match policed {
            Some(bucket) => Initial::policed(bucket, self.ceiling),
            None => Initial {
                link: self.link,
                passed: self.passed,
                ..Initial::alone(capacity, self.ceiling)
            },
        };
        self.phase = Phase::Cruise(Box::new(Cruise::new(now, initial, self.law)));
    }

    /// The rate of the whole link in bit/s, once it is known.
    fn link(&self) -> Option<f64> {
        match &self.phase {
            Phase::Start(_) => None,
            Phase::Cruise(cruise) => Some(cruise.link()),
        }
    }

    fn flight(&self) -> Option<cruise::Flight> {
        let last = self.arrivals.last()?;
        Some(cruise::Flight {
            bits: self.total().saturating_sub(last.link_bytes) as f64 * 8.0,
            total: self.total() as f64 * 8.0,
            sent: last.sent,
            min_rtt: self.least_rtt(),
        })
    }

    /// Detects at once that the link has become much slower.
    fn glance(&mut self) {
        let Phase::Cruise(cruise) = &mut self.phase else { return };
        let glance = cruise.glance();
        if self.arrivals.window(glance).is_some_and(|window| cruise.glanced(window)) {
            self.arrivals.forget_before(glance);
        }
    }

    fn set_rate(&mut self, now: Instant) {
        self.rate = match &self.phase {
            Phase::Start(start) => start.rate(),
            Phase::Cruise(cruise) => cruise.rate(),
        }
        .min(self.ceiling)
        .min(self.most())
        .max(SLOWEST);
        self.pacer.set_rate(now, BitRate::from_bits_per_second(self.rate as u64));
    }
}

/// A duration in µs; bounded, because a peer may claim any time.
fn age(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

fn pacer(rate: f64, burst: Duration) -> Pacer {
    Pacer::new(BitRate::from_bits_per_second(rate as u64), burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_burst_holds_on_every_path() {
        for (burst, at_once) in [(Some(3000), 2), (None, 5)] {
            let mut auto = Auto::new(None, false, Law::default());
            auto.limit_bursts(burst.map(ByteCount::new));
            auto.move_to(7);
            // A packet in a millisecond, after a second of rest.
            let now = Instant::from_nanos(1_000_000_000);
            auto.pacer.set_rate(now, BitRate::from_mbit(12));
            let leaves = |_: &u64| {
                let may = auto.pacer.ready_at() <= now;
                if may {
                    auto.pacer.charge(now, ByteCount::new(1500));
                }
                may
            };
            assert_eq!((7..).take_while(leaves).count(), at_once, "{burst:?}");
        }
    }
}
