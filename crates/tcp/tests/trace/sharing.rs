//! What connections learn from each other, and about the path at their start: RFC 9040; Hoe,
//! SIGCOMM 1996; a token bucket at the sender.

use core::time::Duration;

use tcp::{Config, ControlBlock};
use units::{BitRate, ByteCount};

use super::kit::{Trace, recv, send};
use super::plain;

/// RFC 9040 §6, temporal sharing: RTT, threshold and window of an earlier
/// connection.
#[test]
fn a_later_connection_begins_where_an_earlier_ended() {
    let mut t = Trace::established(plain(4), "mss 1000");
    t.write(4000);
    assert_eq!(t.drain().len(), 4);
    send!(t, time 300, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 300, ". 1:1001 ack 1");
    send!(t, time 500, ". 1:1 ack 4001");
    recv!(t, time 500);
    let block = t.tcp.control_block();
    assert_eq!(block.ssthresh, Some(ByteCount::new(2000)));
    assert!(block.rtt.is_some() && block.cwnd.is_some(), "{block:?}");

    let ms = Duration::from_millis;
    let block = ControlBlock { rtt: Some((ms(500), ms(50))), ..block };
    let all = Trace::established(Config { shared: Some(block), ..plain(1) }, "mss 1000");
    assert_eq!((all.ssthresh(), all.cwnd()), (2000, block.cwnd.unwrap().get()));
    // The handshake took 100 ms: an eighth of the way from 500.
    assert_eq!(all.tcp.stats().smoothed_rtt, Some(ms(450)));

    let shared = Some(block.ssthresh_only());
    let part = Trace::established(Config { shared, ..plain(1) }, "mss 1000");
    assert_eq!((part.ssthresh(), part.cwnd()), (2000, 1000));
    assert_eq!(part.tcp.stats().smoothed_rtt, Some(ms(100)));
    // Without a loss there is no threshold to share.
    let fresh = Trace::established(plain(1), "mss 1000");
    assert_eq!(fresh.tcp.control_block().ssthresh, None);
    assert_eq!(fresh.tcp.control_block().cwnd, None);
}

/// Hoe: three gaps between four acknowledgements of one flight give the rate; the threshold is one
/// RTT at that rate.
#[test]
fn the_threshold_is_estimated() {
    let config = Config { estimate_ssthresh: true, ..plain(6) };
    let mut t = Trace::established(config, "mss 1000");
    t.write(20_000);
    assert_eq!(t.drain().len(), 6);
    for n in 1..=4 {
        send!(t, time 200 + 10 * n, &format!(". 1:1 ack {}", n * 1000 + 1));
        assert_eq!(t.ssthresh() < 1 << 40, n == 4, "{n}");
        t.drain();
    }
    // 1000 bytes in 10 ms, for 100 ms.
    assert_eq!(t.ssthresh(), 10_000);
}

/// ITU-R S.1711-1: a token bucket at the sender lets its depth leave at once, and
/// the rate after it.
#[test]
fn a_token_bucket() {
    let config = Config {
        max_rate: Some(BitRate::from_bits_per_second(1_000_000)),
        bucket: Some(ByteCount::new(3000)),
        ..plain(10)
    };
    let mut t = Trace::established(config, "mss 1000");
    t.go_to(1000);
    t.write(6000);
    recv!(t, time 1000, ". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1",
        ". 3001:4001 ack 1");
    recv!(t, time 1008, ". 4001:5001 ack 1");
    recv!(t, time 1016, ". 5001:6001 ack 1");
}
