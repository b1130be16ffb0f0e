//! Checks of a peer's arrival times.
//!
//! A peer with a valid key decides the content of its acknowledgements. It cannot acknowledge
//! packets that it has not received without hitting a skipped number sooner or later, so bytes are
//! hard to invent; times are not. Two facts bound them:
//!
//! - No packet arrives before it was sent, and no acknowledgement is sent after it was received.
//!   Each exchange thus bounds the offset between the two clocks on both sides. The bounds of all
//!   exchanges must agree, apart from drift ([`DRIFT`]). The peer is left with one round trip of
//!   freedom, once: it cannot run its clock slowly for longer than that.
//! - Arrivals cannot, for long, be more than twice as fast as their acknowledgements come here. The
//!   exception is a return path whose delay grows ([`PeerClock::slack`]).
//!
//! A time that breaks the first is ignored. A peer whose times go on breaking it, or break the
//! second, is doubted for a while: then the arrival of its acknowledgements stands for that of the
//! packets.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use super::arrivals::micros;
use crate::spare::FreeSpare as _;

/// Rate at which two clocks may drift apart: twice what the protocol says (`docs/slacp.md`, Arrival
/// times).
const DRIFT: f64 = 200e-6;

/// Maximum age of the time that a driver hands in, in µs: one that reads the clock before it
/// receives may be preempted in between.
const STALE: i64 = 50_000;

/// This many impossible times in a row are no accident.
const IN_A_ROW: u32 = 8;

/// Duration of the first doubt of a peer, and the number of times that it doubles. A clock that has
/// stepped (a machine that slept) costs an honest peer the first.
const DOUBTED: Duration = Duration::from_secs(60);
const DOUBLINGS: u32 = 6;

/// Bounds of the time by which acknowledgements may fall behind the claimed arrivals. Hand-overs
/// and slots of the return link take less than the lower one.
const SLACK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// Acknowledgements closer together than this count as one in the history.
const COARSE: Duration = Duration::from_millis(10);

/// An acknowledgement's claim about the newest packet in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Times at which the packet was sent, and at which this acknowledgement came, by our clock.
    pub(crate) sent: Instant,
    pub(crate) heard: Instant,
    /// Times at which the packet arrived, and at which the acknowledgement was sent, in µs of the
    /// peer's clock.
    pub(crate) arrived: i64,
    pub(crate) clock: i64,
    /// All bytes acknowledged so far.
    pub(crate) delivered: u64,
}

/// Verdict on a [`Claim`] and on the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimVerdict {
    /// It agrees with all exchanges so far.
    Possible,
    /// It contradicts an earlier exchange, and is not used.
    Impossible,
    /// From now on the peer's times are not used.
    Doubted,
}

/// A bound of the clocks' offset in µs, known at a time. It loosens with the drift.
#[derive(Debug, Clone, Copy)]
struct Bound {
    offset: i64,
    known: Instant,
}

impl Bound {
    /// Time by which the clocks may have drifted apart since, in µs.
    fn drift(&self, now: Instant) -> i64 {
        (now.saturating_since(self.known).as_micros() as f64 * DRIFT) as i64
    }
}

/// The peer's clock as far as it can be checked.
#[derive(Debug, Default)]
struct PeerClock {
    /// The peer's clock is ahead of ours by no less than the first and no more than the second.
    least: Option<Bound>,
    most: Option<Bound>,
    /// The last possible claim: the time at which it came, and the arrival.
    last: Option<(Instant, i64)>,
    /// Time by which acknowledgements have fallen behind claimed arrivals at twice their pace, in
    /// µs.
    behind: i64,
    /// Impossible claims in a row.
    impossible: u32,
}

impl PeerClock {
    /// Time by which acknowledgements may fall behind, in µs: a round trip, within which no claim
    /// of the peer can be disproved anyway.
    fn slack(rtt: Duration) -> i64 {
        rtt.clamp(SLACK.0, SLACK.1).as_micros() as i64
    }

    fn least(&self, now: Instant) -> i64 {
        self.least.map_or(i64::MIN, |bound| bound.offset.saturating_sub(bound.drift(now)))
    }

    fn most(&self, now: Instant) -> i64 {
        self.most.map_or(i64::MAX, |bound| bound.offset.saturating_add(bound.drift(now)))
    }

    /// Returns `true` if a packet sent at `sent` may have arrived at `arrived` of the peer's clock.
    fn may_arrive(&self, now: Instant, sent: Instant, arrived: i64) -> bool {
        arrived.saturating_sub(micros(sent)) >= self.least(now).saturating_sub(STALE)
    }

    fn may_be_sent(&self, heard: Instant, clock: i64) -> bool {
        clock.saturating_sub(micros(heard)) <= self.most(heard).saturating_add(STALE)
    }

    fn judge(&mut self, claim: &Claim, rtt: Duration) -> ClaimVerdict {
        let Claim { sent, heard, arrived, clock, .. } = *claim;
        if !self.may_arrive(heard, sent, arrived) || !self.may_be_sent(heard, clock) {
            self.impossible += 1;
            return if self.impossible < IN_A_ROW {
                ClaimVerdict::Impossible
            } else {
                ClaimVerdict::Doubted
            };
        }
        self.impossible = 0;
        // Only possible claims narrow the bounds: a false one would make honest ones impossible.
        self.narrow(claim);
        self.compare_paces(heard, arrived, Self::slack(rtt));
        if self.behind > Self::slack(rtt) { ClaimVerdict::Doubted } else { ClaimVerdict::Possible }
    }

    fn narrow(&mut self, claim: &Claim) {
        let now = claim.heard;
        let least = claim.clock.saturating_sub(micros(now));
        if least > self.least(now) {
            self.least = Some(Bound { offset: least, known: now });
        }
        let most = claim.arrived.saturating_sub(micros(claim.sent));
        if most < self.most(now) {
            self.most = Some(Bound { offset: most, known: now });
        }
    }

    /// A single pause counts for half of the slack at most: an acknowledgement may be held back by
    /// an outage of the return link.
    fn compare_paces(&mut self, heard: Instant, arrived: i64, slack: i64) {
        if let Some((before, then)) = self.last.replace((heard, arrived)) {
            let pause = micros(heard).saturating_sub(micros(before)).min(slack / 2);
            let claimed = arrived.saturating_sub(then).saturating_mul(2);
            self.behind = self.behind.saturating_add(pause).saturating_sub(claimed).max(0);
        }
    }
}

/// The opinion of a peer's arrival times.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    clock: PeerClock,
    /// End of the present doubt, and the number of doubts so far.
    doubted_until: Option<Instant>,
    doubts: u32,
    impossible: u64,
    /// Times at which acknowledgements came, and all bytes acknowledged by then.
    history: VecDeque<(Instant, u64)>,
}

impl Trust {
    /// The same opinion of a peer on another path.
    pub(crate) fn on_new_path(&mut self) -> Self {
        Self {
            doubted_until: self.doubted_until,
            doubts: self.doubts,
            impossible: self.impossible,
            ..Self::default()
        }
    }

    /// Returns `true` while the peer's times are not used.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_until.is_some()
    }

    /// Ends the doubt when its time is over; returns `true` if it has just ended.
    pub(crate) fn forgive(&mut self, now: Instant) -> bool {
        self.doubted_until.take_if(|until| *until <= now).is_some()
    }

    /// Number of arrival times that were impossible, on all paths of the session.
    pub(crate) fn impossible(&self) -> u64 {
        self.impossible
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.history.free_spare();
    }

    /// Judges an acknowledgement's claim, on a path of this least round-trip time.
    pub(crate) fn judge(&mut self, claim: &Claim, rtt: Duration) -> ClaimVerdict {
        self.remember(claim, rtt);
        let word = self.clock.judge(claim, rtt);
        if word != ClaimVerdict::Possible {
            self.impossible += 1;
        }
        if word == ClaimVerdict::Doubted {
            let time = DOUBTED * (1 << self.doubts.min(DOUBLINGS));
            self.doubted_until = Some(claim.heard + time);
            self.doubts += 1;
            // A clock that has stepped agrees with itself from then on.
            self.clock = PeerClock::default();
        }
        word
    }

    /// Returns `true` if a packet sent at `sent` may have arrived at `arrived` of the peer's clock;
    /// counts it as impossible otherwise.
    pub(crate) fn may_arrive(&mut self, now: Instant, sent: Instant, arrived: i64) -> bool {
        let possible = self.clock.may_arrive(now, sent, arrived);
        self.impossible += u64::from(!possible);
        possible
    }

    /// Rate in bit/s that was acknowledged over the last round trip, by our clock; `None` if the
    /// history is too short.
    pub(crate) fn acknowledged(&self, rtt: Duration) -> Option<f64> {
        let &(begin, before) = self.history.front()?;
        let &(end, after) = self.history.back()?;
        let time = end.saturating_since(begin);
        let enough = time * 2 >= rtt.clamp(SLACK.0, SLACK.1);
        enough.then(|| after.saturating_sub(before) as f64 * 8.0 / time.as_secs_f64())
    }

    fn remember(&mut self, claim: &Claim, rtt: Duration) {
        let span = rtt.clamp(SLACK.0, SLACK.1);
        // The first stays, because its time begins the span.
        let many = self.history.len() > 1;
        match self.history.back_mut().filter(|(last, _)| many && *last + COARSE > claim.heard) {
            Some(last) => last.1 = claim.delivered,
            None => self.history.push_back((claim.heard, claim.delivered)),
        }
        while self.history.front().is_some_and(|(first, _)| *first + span < claim.heard) {
            self.history.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    /// A packet of a full link every so often, in µs.
    const EVERY: i64 = 2_000;
    const SECOND: i64 = 1_000_000;

    fn at(micros: i64) -> Instant {
        Instant::from_nanos(micros as u64 * 1000)
    }

    /// A receiver on a link with much variation, in µs; every 15 s the path changes by 50 ms.
    struct Receiver {
        rng: ChaCha20Rng,
        /// One way.
        delay: i64,
        jitter: i64,
        ppm: i64,
        ahead: i64,
        /// Of a hundred acknowledgements.
        lost: i64,
    }

    /// A claim that is true, and when its packet was sent in µs.
    #[derive(Clone, Copy)]
    struct True {
        claim: Claim,
        sent: i64,
    }

    impl Receiver {
        fn new(seed: u64) -> Self {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let mut below = |end: u64| (rng.next_u64() % end) as i64;
            Self {
                delay: [3, 20, 300][seed as usize % 3] * 1000 + 55_000,
                jitter: below(40_000) + 1,
                ppm: below(401) - 200,
                ahead: below(1 << 40) - (1 << 39),
                lost: below(60),
                rng,
            }
        }

        fn below(&mut self, end: i64) -> i64 {
            (self.rng.next_u64() % end as u64) as i64
        }

        /// The receiver's clock at a time of ours.
        fn clock(&self, time: i64) -> i64 {
            time + time * self.ppm / 1_000_000 + self.ahead
        }

        fn path(&mut self, time: i64) -> i64 {
            let step = if time / (15 * SECOND) % 2 == 1 { 50_000 } else { -50_000 };
            self.delay + step + self.below(self.jitter)
        }

        /// The claims of acknowledgements 25 ms apart for a time, in the order in which they come.
        fn claims(&mut self, lasts: i64) -> Vec<True> {
            let (mut claims, mut newest, mut next) = (Vec::new(), 0, 0);
            let mut packets: Vec<(i64, i64)> =
                (0..lasts / EVERY).map(|n| (n * EVERY + self.path(n * EVERY), n * EVERY)).collect();
            packets.sort_unstable();
            for (arrived, sent) in packets {
                if arrived < next || sent < newest {
                    newest = newest.max(sent);
                    continue;
                }
                (newest, next) = (sent, arrived + 25_000);
                if self.below(100) < self.lost {
                    continue;
                }
                let held = self.below(5_000);
                let heard = arrived + held + self.path(arrived);
                let claim = Claim {
                    sent: at(sent),
                    heard: at(heard),
                    arrived: self.clock(arrived),
                    clock: self.clock(arrived + held),
                    delivered: (sent / EVERY * 1500) as u64,
                };
                claims.push(True { claim, sent });
            }
            claims.sort_by_key(|it| it.claim.heard);
            // One that was overtaken has no news.
            let mut last = -1;
            claims.retain(|it| {
                let new = it.sent > last;
                last = last.max(it.sent);
                new
            });
            claims
        }

        fn rtt(&self) -> Duration {
            Duration::from_micros(2 * (self.delay - 50_000) as u64)
        }
    }

    #[test]
    fn an_honest_peer_is_always_believed() {
        for seed in 0..60 {
            let mut receiver = Receiver::new(seed);
            let (mut trust, rtt) = (Trust::default(), receiver.rtt());
            let claims = receiver.claims(120 * SECOND);
            assert!(claims.len() > 1000, "{seed}: {}", claims.len());
            for True { claim, .. } in claims {
                let word = trust.judge(&claim, rtt);
                assert_eq!(word, ClaimVerdict::Possible, "seed {seed}: {claim:?}");
            }
            assert_eq!(trust.impossible(), 0);
        }
    }

    #[test]
    fn an_honest_peer_is_believed_whose_acknowledgements_pause() {
        for seed in 0..60 {
            let mut receiver = Receiver::new(seed);
            let (mut trust, rtt) = (Trust::default(), receiver.rtt());
            for True { mut claim, .. } in receiver.claims(60 * SECOND) {
                // Every 10 s the return link holds for 2 s what it carries.
                let (begin, lasts) = (10 * SECOND, 2 * SECOND);
                let within = micros(claim.heard) % begin;
                if within < lasts {
                    claim.heard += Duration::from_micros((lasts - within) as u64);
                }
                assert_eq!(
                    trust.judge(&claim, rtt),
                    ClaimVerdict::Possible,
                    "seed {seed}: {claim:?}"
                );
            }
        }
    }

    /// What a liar makes of a true claim.
    type Lie = fn(True) -> Claim;

    fn squeezed(it: True, by: i64) -> Claim {
        let Claim { arrived, clock, .. } = it.claim;
        Claim { arrived: arrived / by, clock: clock / by, ..it.claim }
    }

    /// Everything arrived as it was sent, whatever the queue.
    fn prompt(it: True) -> Claim {
        Claim { arrived: it.sent, ..it.claim }
    }

    /// The peer's clock was slow for a second, then leapt.
    fn sawtooth(it: True) -> Claim {
        let slow = |time: i64| time.div_euclid(SECOND) * SECOND + time.rem_euclid(SECOND) / 4;
        Claim { arrived: slow(it.claim.arrived), clock: slow(it.claim.clock), ..it.claim }
    }

    /// A link on which the sender sends `excess` times too fast, into an endless queue.
    fn overloaded(seed: u64, excess: i64) -> (Vec<True>, Duration) {
        let mut receiver = Receiver { ppm: 0, ahead: 0, lost: 0, ..Receiver::new(seed) };
        let mut claims = receiver.claims(20 * SECOND);
        for it in &mut claims {
            it.sent /= excess;
            it.claim.sent = at(it.sent);
        }
        (claims, receiver.rtt())
    }

    /// The claims that are believed until the peer is doubted, and when that is after the first.
    fn believed(claims: &[True], rtt: Duration, lie: Lie) -> (Vec<Claim>, Option<Duration>) {
        let (mut trust, mut believed) = (Trust::default(), Vec::new());
        for it in claims {
            let claim = lie(*it);
            match trust.judge(&claim, rtt) {
                ClaimVerdict::Possible => believed.push(claim),
                ClaimVerdict::Impossible => {}
                ClaimVerdict::Doubted => {
                    let begin = claims[0].claim.heard;
                    return (believed, Some(claim.heard.saturating_since(begin)));
                }
            }
        }
        (believed, None)
    }

    #[test]
    fn a_liar_claims_at_most_twice_what_is_acknowledged_apart_from_a_burst() {
        let lies: [Lie; 4] = [|it| squeezed(it, 2), |it| squeezed(it, 10), prompt, sawtooth];
        for seed in 0..30 {
            for (which, lie) in lies.into_iter().enumerate() {
                for excess in [1, 3, 10] {
                    let (claims, rtt) = overloaded(seed, excess);
                    let (claims, _) = believed(&claims, rtt, lie);
                    let burst = 2 * PeerClock::slack(rtt);
                    for (n, first) in claims.iter().enumerate().step_by(7) {
                        for last in claims[n..].iter().step_by(7) {
                            let acked = micros(last.heard) - micros(first.heard);
                            let claimed = last.arrived - first.arrived;
                            assert!(claimed * 2 >= acked - burst, "lie {which}, seed {seed}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_slow_clock_is_doubted_within_a_few_round_trips() {
        for seed in 0..30 {
            let (claims, rtt) = overloaded(seed, 1);
            for (lie, share) in [((|it| squeezed(it, 2)) as Lie, 0.5), (|it| squeezed(it, 10), 0.9)]
            {
                let (_, after) = believed(&claims, rtt, lie);
                // The peer has a round trip, as variable as the path, to use up.
                let most = (rtt + Duration::from_millis(200)).div_f64(share) + rtt;
                let after = after.expect("a lie");
                assert!(after < most + Duration::from_secs(1), "seed {seed}: {after:?}");
            }
        }
    }

    #[test]
    fn acknowledgements_sent_after_they_came_are_impossible() {
        for seed in 0..30 {
            let (claims, rtt) = overloaded(seed, 1);
            let fast = |it: True| {
                let Claim { arrived, clock, .. } = it.claim;
                Claim { arrived: arrived * 2, clock: clock * 2, ..it.claim }
            };
            let (_, after) = believed(&claims, rtt, fast);
            let after = after.expect("a lie");
            assert!(after < 2 * rtt + Duration::from_secs(1), "seed {seed}: {after:?}");
        }
    }

    #[test]
    fn a_peer_that_hides_a_queue_growing_tenfold_is_doubted() {
        for seed in 0..30 {
            let (claims, rtt) = overloaded(seed, 10);
            let (_, after) = believed(&claims, rtt, prompt);
            let after = after.expect("a lie");
            assert!(after < 3 * rtt + Duration::from_secs(1), "seed {seed}: {after:?}");
        }
    }

    #[test]
    fn arrivals_before_their_sending_are_ignored_and_counted_and_then_doubted() {
        let mut receiver = Receiver::new(2);
        let (mut trust, rtt) = (Trust::default(), receiver.rtt());
        let claims = receiver.claims(60 * SECOND);
        let (before, after) = claims.split_at(100);
        before.iter().for_each(|it| _ = trust.judge(&it.claim, rtt));
        let shifted = |claim: Claim| Claim { arrived: claim.arrived - SECOND, ..claim };
        for it in &after[..7] {
            assert_eq!(trust.judge(&shifted(it.claim), rtt), ClaimVerdict::Impossible);
        }
        assert_eq!(trust.judge(&after[7].claim, rtt), ClaimVerdict::Possible);
        for it in &after[8..15] {
            assert_eq!(trust.judge(&shifted(it.claim), rtt), ClaimVerdict::Impossible);
        }
        assert_eq!(trust.judge(&shifted(after[15].claim), rtt), ClaimVerdict::Doubted);
        assert_eq!(trust.impossible(), 15);
        let now = after[15].claim.heard;
        assert!(trust.is_doubted() && !trust.forgive(now + Duration::from_secs(59)));
        assert!(trust.forgive(now + Duration::from_secs(60)) && !trust.is_doubted());
    }

    #[test]
    fn a_second_doubt_lasts_twice_as_long_and_a_move_ends_none() {
        let (mut trust, rtt) = (Trust::default(), Duration::from_millis(600));
        let claim = |n: i64, arrived: i64| Claim {
            sent: at(n * SECOND),
            heard: at(n * SECOND + 600_000),
            arrived,
            clock: arrived,
            delivered: 0,
        };
        for lasts in [60, 120, 240] {
            assert_eq!(trust.judge(&claim(1, 10 * SECOND), rtt), ClaimVerdict::Possible);
            let mut words = (2..20).map(|n| (n, trust.judge(&claim(n, 0), rtt)));
            let (n, _) = words.find(|(_, word)| *word == ClaimVerdict::Doubted).unwrap();
            trust = trust.on_new_path();
            let end = at(n * SECOND + 600_000) + Duration::from_secs(lasts);
            assert!(!trust.forgive(end - Duration::from_millis(1)) && trust.forgive(end));
        }
    }

    #[test]
    fn what_was_acknowledged_is_measured_by_our_clock_over_a_round_trip() {
        let (claims, rtt) = overloaded(2, 1);
        let mut trust = Trust::default();
        for (n, it) in claims.iter().take(200).enumerate() {
            trust.judge(&squeezed(*it, 10), rtt);
            if n > 60 {
                let rate = trust.acknowledged(rtt).unwrap();
                assert!((rate / 6e6 - 1.0).abs() < 0.2, "{rate}");
            }
        }
    }

    #[test]
    fn no_claim_overflows() {
        let extremes = [i64::MIN, i64::MIN / 2, -1, 0, 1, i64::MAX / 2, i64::MAX];
        for arrived in extremes {
            for clock in extremes {
                let mut trust = Trust::default();
                for n in 0..20 {
                    let (sent, heard) = (at(n * 1000), at(n * 1000 + 1));
                    let sign = if n % 2 == 0 { 1 } else { -1 };
                    let [arrived, clock] = [arrived, clock].map(|time| time.saturating_mul(sign));
                    let claim = Claim { sent, heard, arrived, clock, delivered: 1 };
                    trust.judge(&claim, Duration::ZERO);
                    trust.may_arrive(heard, sent, arrived);
                }
                assert!(trust.history.len() < 30);
            }
        }
    }
}
