//! Congestion control and loss recovery: RFC 5681, 6582, 6675, 8985, 6937, 3042,
//! 3465, 6298, 3168, 2018.

use core::time::Duration;

use tcp::cc::{FastRecovery, RepairPhase};
use tcp::{AckCounting, Config, LossDetector, PrrBound, RtoConfig};
use units::ByteCount;

use super::kit::{Trace, recv, send};
use super::{controller, plain};

/// A client that has sent `segments` segments of 1000 bytes at 100 ms, all that its initial window
/// allows, and has more to send.
fn sent(config: Config, segments: u64) -> Trace {
    let config = Config { initial_window: segments as u32, ..config };
    let offer = if config.sack { "mss 1000 sackok" } else { "mss 1000" };
    let mut t = Trace::established(config, offer);
    t.write(60_000);
    let lines: Vec<String> = (0..segments).map(|n| data(n, 1)).collect();
    t.expect(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    t
}

/// The line of the n-th segment of data, from 0.
fn data(n: u64, ack: u64) -> String {
    format!(". {}:{} ack {ack}", n * 1000 + 1, n * 1000 + 1001)
}

/// RFC 5681 §3.1: one more segment per acknowledgement.
#[test]
fn slow_start() {
    let mut t = sent(plain(2), 2);
    send!(t, time 200, ". 1:1 ack 1001");
    recv!(t, time 200, ". 2001:3001 ack 1", ". 3001:4001 ack 1");
    send!(t, time 210, ". 1:1 ack 2001");
    recv!(t, time 210, ". 4001:5001 ack 1", ". 5001:6001 ack 1");
    assert_eq!(t.cwnd(), 4000);
}

/// RFC 3465 §2.2 and §2.3; RFC 5681 §3.1 equation 2 is L = 1.
#[test]
fn byte_counting_in_slow_start() {
    for (counting, cwnd) in [
        (AckCounting::Acks, 5000),
        (AckCounting::Bytes { limit: Some(1) }, 5000),
        (AckCounting::Bytes { limit: Some(2) }, 6000),
        (AckCounting::Bytes { limit: None }, 8000),
    ] {
        let mut t = sent(Config { counting, ..plain(4) }, 4);
        send!(t, time 200, ". 1:1 ack 4001");
        assert_eq!(t.cwnd(), cwnd, "{counting:?}");
    }
}

/// RFC 5681 §3.1 equation 3, and RFC 3465 §2.1: one segment per round trip.
#[test]
fn congestion_avoidance() {
    let config = Config { initial_ssthresh: Some(ByteCount::new(4000)), ..plain(4) };
    let mut t = sent(config, 4);
    send!(t, time 200, ". 1:1 ack 1001");
    assert_eq!(t.cwnd(), 4250);
    send!(t, time 200, ". 1:1 ack 4001");
    // 3000 bytes of a window of 4250.
    assert_eq!(t.cwnd(), 4250 + 3000 * 1000 / 4250);
}

/// RFC 5681 §3.1: an unused window does not grow.
#[test]
fn an_unused_window_does_not_grow() {
    let mut t = Trace::established(plain(10), "mss 1000");
    t.write(3000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1");
    send!(t, time 200, ". 1:1 ack 3001");
    assert_eq!(t.cwnd(), 10_000);
}

/// RFC 6582 §3.2: segments 0 and 3 of ten are lost.
#[test]
fn newreno() {
    let mut t = sent(plain(10), 10);
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 200);
    // Step 2 (RFC 5681 §3.2): ssthresh is half of the flight.
    send!(t, time 210, ". 1:1 ack 1");
    recv!(t, time 210, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (5000, 5000));
    // ssthresh + 3 segments, and one for each duplicate: at the sixth there is
    // room beyond the ten.
    send!(t, time 220, ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 220);
    for n in 10..13 {
        t.send(". 1:1 ack 1");
        t.expect(&[&data(n, 1)]);
    }
    // Step 3: a partial acknowledgement sends the next hole, and one new
    // segment.
    send!(t, time 310, ". 1:1 ack 3001");
    recv!(t, time 310, ". 3001:4001 ack 1", ". 13001:14001 ack 1");
    assert_eq!(t.tcp.stats().phase, RepairPhase::Recovery);
    // Full acknowledgement.
    send!(t, time 410, ". 1:1 ack 13001");
    assert_eq!((t.tcp.stats().phase, t.cwnd()), (RepairPhase::Open, 5000));
    recv!(t, time 410, ". 14001:15001 ack 1", ". 15001:16001 ack 1", ". 16001:17001 ack 1",
        ". 17001:18001 ack 1");
}

/// RFC 6582 §3.2 step 2: duplicates caused by the recovery itself.
#[test]
fn newreno_is_careful() {
    let mut t = sent(plain(4), 4);
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 200, ". 1:1001 ack 1", ". 4001:5001 ack 1");
    send!(t, time 300, ". 1:1 ack 4001");
    recv!(t, time 300, ". 5001:6001 ack 1");
    send!(t, time 310, ". 1:1 ack 4001", ". 1:1 ack 4001", ". 1:1 ack 4001");
    recv!(t, time 310);
    assert_eq!(t.tcp.stats().recoveries, 1);
}

/// RFC 2581 §3.2: Reno leaves recovery at the first new acknowledgement and needs the time-out for
/// the second hole.
#[test]
fn reno() {
    let mut t = sent(Config { controller: controller("reno"), ..plain(10) }, 10);
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 200, ". 1:1001 ack 1");
    send!(t, time 300, ". 1:1 ack 3001");
    recv!(t, time 300);
    assert_eq!((t.tcp.stats().phase, t.cwnd()), (RepairPhase::Open, 5000));
    recv!(t, time 1300, ". 3001:4001 ack 1");
    assert_eq!(t.cwnd(), 1000);
}

/// Fall and Floyd 1996, §2: Tahoe restarts at the hole with a window of one segment.
#[test]
fn tahoe() {
    let mut t = sent(Config { controller: controller("tahoe"), ..plain(10) }, 10);
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 200, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (5000, 1000));
    send!(t, time 300, ". 1:1 ack 3001");
    recv!(t, time 300, ". 3001:4001 ack 1", ". 4001:5001 ack 1");
    send!(t, time 400, ". 1:1 ack 10001");
    assert_eq!(t.tcp.stats().phase, RepairPhase::Open);
}

/// The controller's recovery is only a default.
#[test]
fn recovery_can_be_chosen() {
    let recovery = Some(FastRecovery::GoBackN);
    let mut t = sent(Config { recovery, ..plain(10) }, 10);
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    t.expect(&[0, 1, 2, 3, 4].map(|n| data(n, 1)).each_ref().map(String::as_str));
    assert_eq!(t.tcp.stats().phase, RepairPhase::Loss);
}

fn with_sack(detection: LossDetector) -> Config {
    Config { sack: true, detection, ..plain(10) }
}

/// RFC 6675 §5: segments 0 and 3 of ten are lost.
#[test]
fn sack() {
    let mut t = sent(with_sack(LossDetector::Sack), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 1001:2001", ". 1:1 ack 1 sack 1001:3001");
    recv!(t, time 200);
    // IsLost(0): more than two segments above it. Step 4.3: sent at once.
    send!(t, time 210, ". 1:1 ack 1 sack 4001:5001,1001:3001");
    recv!(t, time 210, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (5000, 5000));
    // Seven in the pipe, then six.
    send!(t, time 220, ". 1:1 ack 1 sack 4001:6001,1001:3001");
    recv!(t, time 220);
    // IsLost(3): it leaves the pipe, which then has room for it.
    send!(t, time 230, ". 1:1 ack 1 sack 4001:7001,1001:3001");
    recv!(t, time 230, ". 3001:4001 ack 1");
    send!(t, time 240, ". 1:1 ack 1 sack 4001:8001,1001:3001");
    recv!(t, time 240, ". 10001:11001 ack 1");
    send!(t, time 310, ". 1:1 ack 3001 sack 4001:10001");
    recv!(t, time 310, ". 11001:12001 ack 1", ". 12001:13001 ack 1", ". 13001:14001 ack 1");
    send!(t, time 330, ". 1:1 ack 10001");
    assert_eq!((t.tcp.stats().phase, t.cwnd()), (RepairPhase::Open, 5000));
}

/// Of ten segments the first is lost and retransmitted, and segments 10 to 13 are sent with it.
fn recovering() -> Trace {
    let mut t = sent(with_sack(LossDetector::Sack), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 1001:4001");
    recv!(t, time 200, ". 1:1001 ack 1");
    send!(t, time 210, ". 1:1 ack 1 sack 1001:10001");
    recv!(t, time 210, ". 10001:11001 ack 1", ". 11001:12001 ack 1", ". 12001:13001 ack 1",
        ". 13001:14001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (5000, 5000));
    t
}

/// RFC 6675 §5: a loss above RecoveryPoint is not part of the recovery. Segment 10, the first new
/// one of the recovery from the loss of segment 0, is lost too.
#[test]
fn a_loss_during_recovery_has_a_recovery_of_its_own() {
    let mut t = recovering();
    send!(t, time 300, ". 1:1 ack 10001");
    recv!(t, time 300, ". 14001:15001 ack 1");
    assert_eq!(t.tcp.stats().phase, RepairPhase::Open);
    send!(t, time 310, ". 1:1 ack 10001 sack 11001:14001");
    recv!(t, time 310, ". 10001:11001 ack 1");
    assert_eq!((t.tcp.stats().phase, t.ssthresh()), (RepairPhase::Recovery, 2500));

    // It is detected before the first recovery is over, and retransmitted within it.
    let mut t = recovering();
    send!(t, time 310, ". 1:1 ack 1 sack 11001:14001,1001:10001");
    recv!(t, time 310, ". 10001:11001 ack 1", ". 14001:15001 ack 1", ". 15001:16001 ack 1",
        ". 16001:17001 ack 1");
    assert_eq!((t.tcp.stats().recoveries, t.ssthresh()), (1, 5000));
    send!(t, time 320, ". 1:1 ack 10001 sack 11001:14001");
    assert_eq!(t.tcp.stats().phase, RepairPhase::Recovery);
    assert_eq!((t.tcp.stats().recoveries, t.ssthresh()), (2, 2500));
}

/// RFC 6675 §4, `NextSeg()` rules 3 and 4: nothing new to send.
#[test]
fn sack_without_new_data() {
    let mut t = Trace::established(with_sack(LossDetector::Sack), "mss 1000 sackok");
    t.write(6000);
    assert_eq!(t.tcp.stats().segments, 1);
    t.expect(&[0, 1, 2, 3, 4, 5].map(|n| data(n, 1)).each_ref().map(String::as_str));
    // 0 is lost; 1 may be; 5 was the last one sent.
    send!(t, time 200, ". 1:1 ack 1 sack 2001:3001", ". 1:1 ack 1 sack 2001:4001");
    recv!(t, time 200);
    send!(t, time 210, ". 1:1 ack 1 sack 2001:5001");
    recv!(t, time 210, ". 1:1001 ack 1", ". 1001:2001 ack 1");
    // Rule 4, as soon as the window of three has room.
    send!(t, time 310, ". 1:1 ack 1001 sack 2001:5001");
    recv!(t, time 310, ". 5001:6001 ack 1");
    send!(t, time 320, ". 1:1 ack 5001");
    recv!(t, time 320);
}

/// FACK: three segments between the hole and the highest byte are enough, even
/// if only the last is known to have arrived.
#[test]
fn fack() {
    let mut t = sent(with_sack(LossDetector::Fack), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 2001:3001");
    recv!(t, time 200);
    send!(t, time 210, ". 1:1 ack 1 sack 3001:4001");
    recv!(t, time 210, ". 1:1001 ack 1");
}

/// RFC 8985 §6.2: a quarter of the RTT is allowed for reordering, or none once three segments have
/// overtaken.
#[test]
fn rack() {
    let mut t = sent(with_sack(LossDetector::Rack { tlp: false }), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 1001:2001");
    recv!(t, time 200);
    recv!(t, time 225, ". 1:1001 ack 1");

    let mut t = sent(with_sack(LossDetector::Rack { tlp: false }), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 1001:3001");
    recv!(t, time 200);
    send!(t, time 210, ". 1:1 ack 1 sack 1001:4001");
    recv!(t, time 210, ". 1:1001 ack 1");
}

/// RFC 8985 §6.2 step 3: acknowledgements were lost, not segments reordered. An acknowledgement of
/// two runs, the later one first (RFC 2018 §4), is no sign of reordering, so the third segment that
/// has overtaken starts the recovery at once.
#[test]
fn lost_acknowledgements_are_no_reordering() {
    let mut t = sent(with_sack(LossDetector::Rack { tlp: false }), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 4001:5001,1001:2001");
    recv!(t, time 200);
    send!(t, time 210, ". 1:1 ack 1 sack 4001:6001,1001:2001");
    recv!(t, time 210, ". 1:1001 ack 1");
}

/// RFC 8985 §3.4: a lost retransmission is detected without a time-out.
#[test]
fn rack_finds_lost_retransmissions() {
    let mut t = sent(with_sack(LossDetector::Rack { tlp: false }), 10);
    send!(t, time 200, ". 1:1 ack 1 sack 1001:4001");
    recv!(t, time 200, ". 1:1001 ack 1");
    send!(t, time 210, ". 1:1 ack 1 sack 1001:10001");
    recv!(t, time 210, ". 10001:11001 ack 1", ". 11001:12001 ack 1", ". 12001:13001 ack 1",
        ". 13001:14001 ack 1");
    // What was sent after the retransmission has arrived; the retransmission would have arrived
    // before it.
    send!(t, time 310, ". 1:1 ack 1 sack 1001:11001");
    recv!(t, time 310, ". 1:1001 ack 1", ". 14001:15001 ack 1");
    assert_eq!(t.tcp.stats().timeouts, 0);
}

/// RFC 8985 §7.2 and §7.3.
#[test]
fn tail_loss_probes() {
    let config = || with_sack(LossDetector::Rack { tlp: true });
    let mut t = Trace::established(config(), "mss 1000 sackok");
    t.write(2000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1");
    // Two round trips later, the segment sent last.
    recv!(t, time 300, ". 1001:2001 ack 1");
    // The selective acknowledgement of the probe reveals the rest.
    send!(t, time 400, ". 1:1 ack 1 sack 1001:2001");
    recv!(t, time 400, ". 1:1001 ack 1");
    send!(t, time 500, ". 1:1 ack 2001");
    assert_eq!((t.tcp.stats().timeouts, t.tcp.stats().tail_probes), (0, 1));

    // One segment: allow for a delayed acknowledgement.
    let mut t = Trace::established(config(), "mss 1000 sackok");
    t.write(1000);
    recv!(t, time 100, ". 1:1001 ack 1");
    recv!(t, time 500, ". 1:1001 ack 1");
}

/// RFC 8985 §7.2: where it would come after the time-out, as over a satellite, the probe takes its place.
#[test]
fn a_tail_loss_probe_takes_the_place_of_an_earlier_time_out() {
    let rto = RtoConfig { min: Duration::from_millis(50), ..RtoConfig::default() };
    let config = Config { rto, ..with_sack(LossDetector::Rack { tlp: true }) };
    let mut t = Trace::established(config, "mss 1000 sackok");
    t.write(1000);
    recv!(t, time 100, ". 1:1001 ack 1");
    // SRTT 100 ms and RTTVAR 50 ms: a time-out after 300 ms, a probe after 400.
    recv!(t, time 400, ". 1:1001 ack 1");
    assert_eq!((t.tcp.stats().timeouts, t.tcp.stats().tail_probes), (0, 1));
    // Behind it, the time-out counts from the probe.
    recv!(t, time 700, ". 1:1001 ack 1");
    assert_eq!((t.tcp.stats().timeouts, t.tcp.stats().tail_probes), (1, 1));
}

/// RFC 8985 §7.4.2: a probe that repaired a loss reduces the window; an unnecessary one does not.
#[test]
fn a_probe_that_repaired_a_loss_is_noticed() {
    for (answer, recovers) in [(". 1:1 ack 1001 sack 1:1001", false), (". 1:1 ack 1001", true)] {
        let config = Config { dsack: true, ..with_sack(LossDetector::Rack { tlp: true }) };
        let mut t = Trace::established(config, "mss 1000 sackok");
        t.write(1000);
        recv!(t, time 100, ". 1:1001 ack 1");
        recv!(t, time 500, ". 1:1001 ack 1");
        send!(t, time 600, answer);
        t.write(1000);
        recv!(t, time 600, ". 1001:2001 ack 1");
        send!(t, time 700, ". 1:1 ack 2001");
        assert_eq!(t.cwnd() < 10_000, recovers, "{answer}");
    }
}

/// RFC 6937 §3: one segment for every second acknowledgement, instead of a silent round trip and
/// then one for each.
#[test]
fn proportional_rate_reduction() {
    for (prr, turns) in
        [(None, vec![11, 12, 13, 14]), (Some(PrrBound::SlowStart), vec![6, 8, 10, 12])]
    {
        let mut t = sent(Config { prr, ..with_sack(LossDetector::Sack) }, 20);
        let mut at = Vec::new();
        for turn in 1..=14 {
            send!(t, time 200 + turn, &format!(". 1:1 ack 1 sack 1001:{}", 1001 + turn * 1000));
            let before = t.tcp.stats().segments;
            let resent = t.tcp.stats().retransmissions;
            t.drain();
            assert_eq!(t.tcp.stats().retransmissions > resent, turn == 3);
            if t.tcp.stats().segments > before {
                at.push(turn);
            }
        }
        assert_eq!(at, turns, "{prr:?}");
        assert_eq!(t.ssthresh(), 10_000);
    }
}

/// RFC 3042 §2.
#[test]
fn limited_transmit() {
    let mut t = sent(Config { limited_transmit: true, ..plain(4) }, 4);
    send!(t, time 200, ". 1:1 ack 1");
    recv!(t, time 200, ". 4001:5001 ack 1");
    send!(t, time 210, ". 1:1 ack 1");
    recv!(t, time 210, ". 5001:6001 ack 1");
    assert_eq!(t.cwnd(), 4000);
    send!(t, time 220, ". 1:1 ack 1");
    recv!(t, time 220, ". 1:1001 ack 1");
}

/// RFC 6298 §5 (5.4)–(5.6), RFC 5681 §3.1, and Karn's rule (RFC 6298 §3, §5
/// (5.7)).
#[test]
fn timeouts_back_off_and_slow_start_follows() {
    let mut t = sent(plain(4), 4);
    recv!(t, time 1100, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (2000, 1000));
    recv!(t, time 3100, ". 1:1001 ack 1");
    recv!(t, time 7100, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (2000, 1000));
    send!(t, time 7200, ". 1:1 ack 1001");
    recv!(t, time 7200, ". 1001:2001 ack 1", ". 2001:3001 ack 1");
    // No sample, so the backoff stays.
    assert_eq!(t.tcp.stats().rto.as_secs(), 8);
    send!(t, time 7300, ". 1:1 ack 4001");
    recv!(t, time 7300, ". 4001:5001 ack 1", ". 5001:6001 ack 1", ". 6001:7001 ack 1");
    send!(t, time 7400, ". 1:1 ack 5001");
    assert_eq!(t.tcp.stats().rto.as_secs(), 1);
}

/// RFC 5681 §3.1: slow start follows a time-out even if the window did not limit the first
/// transmission of the data sent again.
#[test]
fn slow_start_follows_the_time_out_of_an_unused_window() {
    let mut t = Trace::established(plain(10), "mss 1000");
    t.write(7000);
    assert_eq!(t.drain().len(), 7);
    recv!(t, time 1100, ". 1:1001 ack 1");
    send!(t, time 1200, ". 1:1 ack 1001");
    recv!(t, time 1200, ". 1001:2001 ack 1", ". 2001:3001 ack 1");
    send!(t, time 1300, ". 1:1 ack 3001");
    recv!(t, time 1300, ". 3001:4001 ack 1", ". 4001:5001 ack 1", ". 5001:6001 ack 1");
}

/// RFC 2018 §8: the receiver has discarded SACKed data.
#[test]
fn reneging() {
    let mut t = Trace::established(with_sack(LossDetector::Sack), "mss 1000 sackok");
    t.write(2000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1");
    send!(t, time 200, ". 1:1 ack 1 sack 1001:2001");
    send!(t, time 210, ". 1:1 ack 1001");
    recv!(t, time 210);
    recv!(t, time 1210, ". 1001:2001 ack 1");
}

/// RFC 3168 §6.1.2: ECE halves the window once per window of data; the next new segment carries
/// CWR. §6.1.5: retransmissions are not ECT.
#[test]
fn ecn_at_the_sender() {
    let config = Config { ecn: true, ..plain(4) };
    let mut t = Trace::connecting(config);
    recv!(t, time 0, "SEW 0:0");
    send!(t, time 100, "SE. 0:0 ack 1 mss 1000");
    t.write(20_000);
    recv!(t, time 100, ". 1:1001 ack 1 ect", ". 1001:2001 ack 1 ect", ". 2001:3001 ack 1 ect",
        ". 3001:4001 ack 1 ect");
    send!(t, time 200, "E. 1:1 ack 1001", "E. 1:1 ack 2001", "E. 1:1 ack 3001");
    recv!(t, time 200, "W. 4001:5001 ack 1 ect");
    assert_eq!((t.cwnd(), t.tcp.stats().ecn_reductions), (2000, 1));
    send!(t, time 210, "E. 1:1 ack 4001");
    recv!(t, time 210, ". 5001:6001 ack 1 ect");
    recv!(t, time 1210, ". 4001:5001 ack 1");
}

/// RFC 5681 §4.1: after an idle time-out the window restarts.
#[test]
fn restart_after_idle() {
    for (restart_after_idle, segments) in [(true, 2), (false, 4)] {
        let mut t = sent(Config { restart_after_idle, ..plain(2) }, 2);
        // 58 more segments, in growing rounds.
        let mut acked = 2;
        while t.tcp.stats().segments < 61 {
            send!(t, time 200 + acked, &format!(". 1:1 ack {}", acked * 1000 + 1));
            t.drain();
            acked = t.tcp.stats().segments - 1;
        }
        send!(t, time 400, ". 1:1 ack 60001");
        t.go_to(5000);
        t.write(4000);
        let before = t.tcp.stats().segments;
        t.drain();
        assert_eq!(t.tcp.stats().segments - before, segments);
    }
}

/// Pacing: four segments of a window and an RTT of 100 ms leave 12.5 ms apart in
/// slow start (two windows per RTT).
#[test]
fn pacing() {
    let config = Config { pacing: true, initial_window: 4, ..plain(4) };
    let mut t = Trace::established(config, "mss 1000");
    t.write(60_000);
    let mut sent = Vec::new();
    for ms in 100..150 {
        t.go_to(ms);
        let before = t.tcp.stats().segments;
        t.drain();
        sent.extend((before..t.tcp.stats().segments).map(|_| ms));
    }
    assert_eq!(sent, [100, 112, 124, 137]);
}
