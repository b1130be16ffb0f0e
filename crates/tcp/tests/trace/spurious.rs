//! Reactions that are undone: RFC 5682, 3522, 3708.

use tcp::cc::RepairPhase;
use tcp::{Config, LossDetector};

use super::kit::{Trace, recv, send};
use super::plain;

fn four_sent(config: Config, offer: &str) -> Trace {
    let mut t = Trace::established(config, offer);
    t.write(20_000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1",
        ". 3001:4001 ack 1");
    t
}

/// RFC 5682 §2.1: after a pause of the link, the original acknowledgements arrive.
#[test]
fn frto_finds_a_spurious_timeout() {
    let mut t = four_sent(Config { frto: true, ..plain(4) }, "mss 1000");
    recv!(t, time 1100, ". 1:1001 ack 1");
    // Step 2 b: two new segments instead of the second.
    send!(t, time 1500, ". 1:1 ack 1001");
    recv!(t, time 1500, ". 4001:5001 ack 1", ". 5001:6001 ack 1");
    // Step 3 b: spurious. The window is as before the time-out, plus one segment.
    send!(t, time 1510, ". 1:1 ack 2001");
    recv!(t, time 1510, ". 6001:7001 ack 1");
    let stats = t.tcp.stats();
    assert_eq!((stats.phase, stats.undone, t.cwnd()), (RepairPhase::Open, 1, 5000));
    assert_eq!((t.ssthresh(), stats.retransmissions), (u64::MAX, 1));
}

/// RFC 5682 §2.1 steps 2 a and 3 a: the loss was real.
#[test]
fn frto_lets_real_losses_be_repaired() {
    let mut t = four_sent(Config { frto: true, ..plain(4) }, "mss 1000");
    recv!(t, time 1100, ". 1:1001 ack 1");
    send!(t, time 1200, ". 1:1 ack 1001");
    recv!(t, time 1200, ". 4001:5001 ack 1", ". 5001:6001 ack 1");
    send!(t, time 1300, ". 1:1 ack 1001");
    assert_eq!(t.tcp.stats().undone, 0);
    recv!(t, time 1300, ". 1001:2001 ack 1", ". 2001:3001 ack 1");
    send!(t, time 1400, ". 1:1 ack 6001");
    recv!(t, time 1400, ". 6001:7001 ack 1", ". 7001:8001 ack 1", ". 8001:9001 ack 1");
}

/// RFC 5682 §3.1: with SACK, the arrival of any original is proof.
#[test]
fn frto_with_sack() {
    let config = Config { frto: true, sack: true, detection: LossDetector::Sack, ..plain(4) };
    let mut t = four_sent(config, "mss 1000 sackok");
    recv!(t, time 1100, ". 1:1001 ack 1");
    send!(t, time 1500, ". 1:1 ack 2001");
    // Segment 1 was not retransmitted, and has arrived.
    assert_eq!(t.tcp.stats().undone, 1);
    recv!(t, time 1500, ". 4001:5001 ack 1", ". 5001:6001 ack 1", ". 6001:7001 ack 1");
}

/// RFC 3522 §3.2: the echoed timestamp is the original's.
#[test]
fn eifel() {
    for (echo, undone) in [(100, 1), (1100, 0)] {
        let config = Config { timestamps: true, eifel: true, ..plain(4) };
        let mut t = Trace::established(config, "mss 1012 ts 5000,0");
        t.write(3000);
        recv!(t, time 100, ". 1:989 ack 1", ". 989:1977 ack 1", ". 1977:2965 ack 1",
            ". 2965:3001 ack 1");
        recv!(t, time 1100, ". 1:989 ack 1");
        send!(t, time 1500, &format!(". 1:1 ack 989 ts 6400,{echo}"));
        assert_eq!(t.tcp.stats().undone, undone, "{echo}");
    }
}

/// RFC 3708 §3, RFC 2883: three segments overtook the first, which was retransmitted needlessly.
#[test]
fn dsack() {
    let config = |dsack_undo| Config {
        sack: true,
        dsack: true,
        dsack_undo,
        detection: LossDetector::Sack,
        ..plain(4)
    };
    for (dsack_undo, cwnd) in [(true, 4000), (false, 2000)] {
        let mut t = four_sent(config(dsack_undo), "mss 1000 sackok");
        send!(t, time 200, ". 1:1 ack 1 sack 1001:4001");
        recv!(t, time 200, ". 1:1001 ack 1", ". 4001:5001 ack 1");
        assert_eq!(t.cwnd(), 2000);
        send!(t, time 210, ". 1:1 ack 4001");
        t.drain();
        send!(t, time 310, ". 1:1 ack 4001 sack 1:1001");
        assert_eq!(t.cwnd(), cwnd);
    }
}
