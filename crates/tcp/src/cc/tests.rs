//! Tests the equations with numbers computed by hand.

use super::*;

const MSS: u64 = 1000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A controller in congestion avoidance, with a window of `segments`.
fn avoiding(text: &str, segments: u64) -> Box<dyn Controller> {
    let window = segments * MSS;
    let start = ControllerParameters { mss: MSS, window, ssthresh: window, seed: 0 };
    text.parse::<ControllerSpec>().unwrap().make(&start)
}

/// Acknowledges all data of a round trip at once.
fn ack(now: Instant, bytes: u64, rtt: Duration, min_rtt: Duration, round: u64) -> AckEvent {
    AckEvent {
        now,
        acked: bytes,
        delivered: bytes,
        total_delivered: 0,
        credit: Credit { slow_start: bytes, avoidance: bytes },
        rtt: Some(rtt),
        smoothed_rtt: rtt,
        min_rtt,
        rate: None,
        prior_in_flight: bytes,
        in_flight: 0,
        is_cwnd_limited: true,
        phase: RepairPhase::Open,
        una: round,
        nxt: round + 1,
    }
}

fn segments(controller: &dyn Controller) -> f64 {
    controller.cwnd().get() as f64 / MSS as f64
}

fn lose(controller: &mut dyn Controller, now: Instant) {
    let flight_size = controller.cwnd().get();
    let in_flight = flight_size;
    let signal = CongestionSignal::Loss;
    controller.on_congestion(&CongestionEvent { now, signal, flight_size, in_flight });
}

/// ρ = 100 ms / 25 ms = 4: 2⁴ − 1 segments for one in slow start; ρ² = 16 per
/// round trip after it.
#[test]
fn hybla() {
    let start = ControllerParameters { mss: MSS, window: 2 * MSS, ssthresh: u64::MAX, seed: 0 };
    let mut it = "hybla".parse::<ControllerSpec>().unwrap().make(&start);
    it.on_ack(&ack(at(0), MSS, ms(100), ms(100), 1));
    assert_eq!(segments(&*it), 17.0);
    let mut it = avoiding("hybla", 10);
    it.on_ack(&ack(at(0), 10 * MSS, ms(100), ms(100), 1));
    assert_eq!(segments(&*it), 26.0);
    // At or below the reference RTT it is Reno.
    let mut it = avoiding("hybla:rtt0=100ms", 10);
    it.on_ack(&ack(at(0), 10 * MSS, ms(80), ms(80), 1));
    assert_eq!(segments(&*it), 11.0);
}

/// A loss at 1000 segments: 700 then, and K = ∛(300 / 0.4) = 9.086 s to come
/// back; half of K later the window is C·(K/2)³ = 37.5 segments short.
#[test]
fn cubic_follows_its_curve() {
    let mut it = avoiding("cubic", 1000);
    lose(&mut *it, at(0));
    assert_eq!(segments(&*it), 700.0);
    let k = 9085.6;
    let mut reached = [0.0; 3];
    for round in 1..=150 {
        let now = round * 100;
        let window = it.cwnd().get();
        it.on_ack(&ack(at(now), window, ms(100), ms(100), round));
        for (slot, share) in reached.iter_mut().zip([0.5, 1.0, 1.5]) {
            if (now as f64) < k * share + 100.0 {
                *slot = segments(&*it);
            }
        }
    }
    for (got, expected) in reached.into_iter().zip([962.5, 1000.0, 1037.5]) {
        assert!((got - expected).abs() < 4.0, "{got} {expected}");
    }
}

/// RFC 9438 §4.7: a loss below the last maximum lowers it further.
#[test]
fn cubic_converges_fast() {
    for (text, w_max) in [("cubic", 700.0 * 0.85), ("cubic:fast-convergence=off", 700.0)] {
        let mut it = avoiding(text, 1000);
        lose(&mut *it, at(0));
        lose(&mut *it, at(100));
        assert_eq!(it.metrics()[0], ("w_max", w_max));
    }
}

/// RFC 9438 §4.3: with a short RTT and a small window the Reno-friendly estimate
/// rules: α = 3·0.3/1.7 segments per round trip.
#[test]
fn cubic_is_as_fast_as_reno() {
    for (text, friendly) in [("cubic", true), ("cubic:reno-friendly=off", false)] {
        let mut it = avoiding(text, 20);
        lose(&mut *it, at(0));
        for round in 1..=6 {
            let window = it.cwnd().get();
            it.on_ack(&ack(at(round * 10), window, ms(10), ms(10), round));
        }
        let grown = segments(&*it) - 14.0;
        let estimate = 6.0 * 0.9 / 1.7;
        assert_eq!((grown - estimate).abs() < 0.1, friendly, "{text} {grown}");
    }
}

/// 21 segments, after a first round like Reno's; `BaseRTT` 100 ms: 110 ms are
/// 1.9 segments in the queue, 120 ms are 3.5, 150 ms are 7.
#[test]
fn vegas_keeps_a_few_segments_in_the_queue() {
    for (rtt, after) in [(110, 22.0), (120, 21.0), (150, 20.0)] {
        let mut it = avoiding("vegas", 20);
        it.on_ack(&AckEvent { una: 1, nxt: 10, ..ack(at(0), MSS, ms(100), ms(100), 0) });
        assert_eq!(segments(&*it), 21.0);
        for una in [3, 6, 9, 10] {
            it.on_ack(&AckEvent { una, nxt: 20, ..ack(at(100 + una), MSS, ms(rtt), ms(100), 0) });
        }
        assert_eq!(segments(&*it), after, "{rtt}");
    }
}

/// Tan et al., eq. 3 to 5: without a queue 100 segments grow by 100^0.75 / 8 = 3.95; a queue of 30
/// segments or more comes off the second window; a loss halves the sum.
#[test]
fn compound_adds_a_window_that_follows_the_delay() {
    let delay_window = |controller: &dyn Controller| controller.metrics()[0].1 / MSS as f64;
    let mut it = avoiding("compound", 100);
    it.on_ack(&ack(at(0), 100 * MSS, ms(500), ms(500), 1));
    assert!((delay_window(&*it) - 2.976).abs() < 0.01, "{}", delay_window(&*it));
    assert!((segments(&*it) - 103.976).abs() < 0.01, "{}", segments(&*it));
    // 105 segments with 20 % of the RTT in the queue are 21; with 40 % they are 42.
    it.on_ack(&ack(at(500), 104 * MSS, ms(625), ms(500), 2));
    assert!((delay_window(&*it) - 6.07).abs() < 0.02, "{}", delay_window(&*it));
    it.on_ack(&ack(at(1200), 108 * MSS, ms(834), ms(500), 3));
    assert_eq!(delay_window(&*it), 0.0);
    assert!((segments(&*it) - 103.0).abs() < 0.1, "{}", segments(&*it));
    // Small windows grow as Reno's.
    let mut small = avoiding("compound", 10);
    small.on_ack(&ack(at(0), 10 * MSS, ms(500), ms(500), 1));
    assert_eq!((segments(&*small), delay_window(&*small)), (11.0, 0.0));
    let before = segments(&*it);
    lose(&mut *it, at(1300));
    assert!((segments(&*it) - before / 2.0).abs() < 0.01);
    assert!(delay_window(&*it) < 0.01);
}

/// 50 segments delivered per 100 ms with a smallest RTT of 80 ms: 40 segments.
#[test]
fn westwood_needs_what_it_measured() {
    let mut it = avoiding("westwood", 100);
    for round in 0..200 {
        it.on_ack(&ack(at(round * 100), 50 * MSS, ms(100), ms(80), round));
    }
    lose(&mut *it, at(20_000));
    assert!((segments(&*it) - 40.0).abs() < 1.0, "{}", segments(&*it));
}

/// The same rate, with an acknowledgement every 2 ms; then in bursts that queues have compressed, which
/// Westwood+ does not mistake for bandwidth.
#[test]
fn tcpw_takes_compressed_acknowledgements_for_bandwidth() {
    let share = |name, compressed: bool| {
        let mut it = avoiding(name, 1000);
        for n in 0..2000 {
            // Within a round of 100 ms: evenly, or 50 in 5 ms and a pause.
            let micros = if compressed { n / 50 * 100_000 + n % 50 * 100 } else { n * 2000 };
            let now = Instant::from_nanos(micros * 1000);
            it.on_ack(&ack(now, MSS, ms(100), ms(80), n));
        }
        lose(&mut *it, at(4000));
        segments(&*it)
    };
    assert!((share("tcpw", false) - 40.0).abs() < 1.0, "{}", share("tcpw", false));
    assert!((share("westwood", true) - 40.0).abs() < 2.0, "{}", share("westwood", true));
    assert!(share("tcpw", true) > 44.0, "{}", share("tcpw", true));
}

/// Below `W_max` a quarter of the way, at most `smax`, at least `smin`.
#[test]
fn bic_searches() {
    let mut it = avoiding("bic", 100);
    lose(&mut *it, at(0));
    assert_eq!(segments(&*it), 80.0);
    let increment = |controller: &dyn Controller| controller.metrics()[1].1;
    assert_eq!(increment(&*it), 5.0);
    it.on_ack(&ack(at(100), 80 * MSS, ms(100), ms(100), 1));
    assert_eq!(segments(&*it), 85.0);
    let mut large = avoiding("bic", 1000);
    lose(&mut *large, at(0));
    assert_eq!(increment(&*large), 16.0);
    for round in 2..100 {
        it.on_ack(&ack(at(round * 100), it.cwnd().get(), ms(100), ms(100), round));
    }
    assert!(segments(&*it) > 110.0, "{}", segments(&*it));
}

/// α falls from 10 without delay to 0.3 at the largest; β rises from 1/8 to 1/2.
#[test]
fn illinois_follows_the_delay() {
    let after = |delays: &[u64]| {
        let mut it = avoiding("illinois", 100);
        for (round, delay) in delays.iter().enumerate() {
            let now = at(round as u64 * 100);
            it.on_ack(&ack(now, MSS, ms(100 + delay), ms(100), round as u64 + 1));
        }
        (it.metrics()[0].1, it.metrics()[1].1)
    };
    assert_eq!(after(&[0]), (10.0, 0.125));
    let (alpha, beta) = after(&[100, 100]);
    assert!((alpha - 0.3).abs() < 1e-9 && beta == 0.5, "{alpha} {beta}");
    let (alpha, beta) = after(&[100, 50]);
    assert!((0.3..10.0).contains(&alpha) && (0.125..0.5).contains(&beta), "{alpha} {beta}");
    // After a delay, the maximum gain returns only after five round trips without.
    assert!(after(&[100, 0, 0, 0]).0 < 10.0);
    assert_eq!(after(&[100, 0, 0, 0, 0, 0]).0, 10.0);
}

/// c·RTT² = 100 · 0.5² = 25 segments per round trip; K = 4.
#[test]
fn other_additive_increases() {
    for (text, grown) in [("constant-rate", 25.0), ("increase-by-k", 4.0)] {
        let mut it = avoiding(text, 100);
        it.on_ack(&ack(at(0), 100 * MSS, ms(500), ms(500), 1));
        assert_eq!(segments(&*it), 100.0 + grown, "{text}");
    }
}

/// RFC 9406 §4.2: eight samples of a round 16 ms above the last: a quarter of the growth, and
/// congestion avoidance after five such rounds, of which the rest of that round is the first.
#[test]
fn hystart_leaves_slow_start() {
    let start = ControllerParameters { mss: MSS, window: 10 * MSS, ssthresh: u64::MAX, seed: 0 };
    let mut it = "cubic".parse::<ControllerSpec>().unwrap().make(&start);
    let round = |it: &mut Box<dyn Controller>, number: u64, rtt: u64| {
        let before = it.cwnd().get();
        for _ in 0..10 {
            it.on_ack(&ack(at(number * 1000), MSS, ms(rtt), ms(500), number * 2));
        }
        (it.cwnd().get() - before) / MSS
    };
    assert_eq!(round(&mut it, 1, 500), 10);
    assert_eq!(round(&mut it, 2, 515), 10);
    // From the eighth sample on.
    assert_eq!(round(&mut it, 3, 531), 7);
    for number in 4..=7 {
        assert_eq!(round(&mut it, number, 531), 2);
    }
    assert_eq!(it.ssthresh().get(), u64::MAX);
    let reached = it.cwnd();
    it.on_ack(&ack(at(8000), MSS, ms(531), ms(500), 16));
    assert_eq!(it.ssthresh(), reached);
}

/// Ha and Rhee 2011, with a minimum round trip of 500 ms: given `at` and `rtt` of the
/// acknowledgements of one round, returns after how many of them slow start ends.
fn left_after(window: u64, acks: impl Iterator<Item = (u64, u64)>) -> Option<usize> {
    let start =
        ControllerParameters { mss: MSS, window: window * MSS, ssthresh: u64::MAX, seed: 0 };
    let mut it = "cubic:hystart=2011".parse::<ControllerSpec>().unwrap().make(&start);
    let mut left = |(time, rtt)| {
        it.on_ack(&ack(at(time), 0, ms(rtt), ms(500), 1));
        it.ssthresh().get() < u64::MAX
    };
    acks.map(&mut left).position(|left| left).map(|before| before + 1)
}

#[test]
fn the_first_hystart_leaves_slow_start_by_train_and_by_delay() {
    // An acknowledgement every 2 ms for more than 250 ms; with gaps of 3 ms, never.
    assert_eq!(left_after(100, (0..200).map(|n| (2 * n, 500))), Some(127));
    assert_eq!(left_after(100, (0..200).map(|n| (3 * n, 500))), None);
    // It is inactive below 16 segments.
    assert_eq!(left_after(15, (0..200).map(|n| (2 * n, 500))), None);
    // The least of eight samples is more than 16 ms above.
    assert_eq!(left_after(100, (0..20).map(|n| (3 * n, 517))), Some(9));
    assert_eq!(left_after(100, (0..20).map(|n| (3 * n, 516))), None);
    assert_eq!(left_after(100, (0..20).map(|n| (3 * n, if n == 5 { 510 } else { 540 }))), None);
}

/// An acknowledgement of one segment, the last of `total`, which was sent when `prior` had been delivered.
fn delivery(total: u64, prior: u64, in_flight: u64, phase: RepairPhase) -> AckEvent {
    let rate = RateSample::of(prior * MSS, (total - prior) * MSS, ms(100));
    let base = ack(at(total), MSS, ms(100), ms(100), 1);
    let total_delivered = total * MSS;
    let in_flight = in_flight * MSS;
    AckEvent { total_delivered, in_flight, phase, rate: Some(rate), ..base }
}

/// Recovery begins a round: packets are conserved until one is acknowledged that was sent after it began, and the
/// round that was under way does not end before.
#[test]
fn bbr_conserves_packets_for_one_round() {
    let start = ControllerParameters { mss: MSS, window: 10 * MSS, ssthresh: u64::MAX, seed: 0 };
    let mut it = "bbr".parse::<ControllerSpec>().unwrap().make(&start);
    it.on_ack(&delivery(10, 0, 15, RepairPhase::Open));
    let now = at(12);
    let signal = CongestionSignal::Loss;
    let flight_size = 16 * MSS;
    let in_flight = 14 * MSS;
    it.on_congestion(&CongestionEvent { now, signal, flight_size, in_flight });
    let mut window = |total, prior, in_flight| {
        it.on_ack(&delivery(total, prior, in_flight, RepairPhase::Recovery));
        segments(&*it)
    };
    assert_eq!(window(13, 3, 14), 15.0);
    // Sent before recovery: what has left may be replaced, no more. The round of before would end here.
    assert_eq!(window(14, 12, 14), 15.0);
    assert_eq!(window(15, 12, 5), 15.0);
    // Sent in recovery.
    assert_eq!(window(16, 13, 5), 16.0);
    assert_eq!(window(17, 14, 5), 17.0);
}
