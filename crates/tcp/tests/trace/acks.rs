//! When data is acknowledged: RFC 5681 §4.2, RFC 9293 §3.8.6.3, RFC 2760
//! §3.2.3, RFC 2018, RFC 2883, RFC 3168 §6.1.3.

use core::time::Duration;

use tcp::{AckConfig, AfterSlowStart, Config};

use super::kit::{Trace, recv, send};
use super::plain;

fn receiver(acks: AckConfig) -> Trace {
    Trace::established(Config { acks, ..plain(4) }, "mss 1000")
}

/// Every second segment, or after the delay.
#[test]
fn delayed() {
    let delay = Some(Duration::from_millis(200));
    let mut t = receiver(AckConfig { delay, ..AckConfig::default() });
    send!(t, time 200, ". 1:1001 ack 1");
    recv!(t, time 200);
    send!(t, time 210, ". 1001:2001 ack 1");
    recv!(t, time 210, ". 1:1 ack 2001");
    send!(t, time 220, ". 2001:3001 ack 1");
    recv!(t, time 420, ". 1:1 ack 3001");
}

#[test]
fn every_segment_or_every_fourth() {
    let mut t = receiver(AckConfig { delay: None, ..AckConfig::default() });
    send!(t, time 200, ". 1:1001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1001");

    let mut t = receiver(AckConfig { every: 4, ..AckConfig::default() });
    send!(t, time 200, ". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1");
    recv!(t, time 200);
    send!(t, time 210, ". 3001:4001 ack 1");
    recv!(t, time 210, ". 1:1 ack 4001");
}

#[test]
fn quick_at_first() {
    let mut t = receiver(AckConfig { quick: 2, ..AckConfig::default() });
    send!(t, time 200, ". 1:1001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1001");
    send!(t, time 210, ". 1001:2001 ack 1");
    recv!(t, time 210, ". 1:1 ack 2001");
    send!(t, time 220, ". 2001:3001 ack 1");
    recv!(t, time 220);
}

/// RFC 2760 §3.2.3: throughout slow start, which lasts until the first hole.
#[test]
fn delayed_after_slow_start() {
    let mut t =
        receiver(AckConfig { after_slow_start: AfterSlowStart::Assumed, ..AckConfig::default() });
    for n in 0..10 {
        send!(t, time 200 + n, &format!(". {}:{} ack 1", n * 1000 + 1, n * 1000 + 1001));
        recv!(t, time 200 + n, &format!(". 1:1 ack {}", n * 1000 + 1001));
    }
    send!(t, time 300, ". 11001:12001 ack 1");
    recv!(t, time 300, ". 1:1 ack 10001");
    send!(t, time 310, ". 10001:11001 ack 1");
    recv!(t, time 310, ". 1:1 ack 12001");
    send!(t, time 320, ". 12001:13001 ack 1");
    recv!(t, time 320);
}

/// Allman 1998, RFC 2760 §3.2.3: the sender says when it is in slow start, which may be again.
#[test]
fn delayed_after_slow_start_as_the_sender_has_it() {
    let acks = AckConfig { after_slow_start: AfterSlowStart::Signalled, ..AckConfig::default() };
    let mut t = receiver(acks);
    send!(t, time 200, ".L 1:1001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1001");
    send!(t, time 210, ". 1001:2001 ack 1");
    recv!(t, time 210);
    recv!(t, time 250, ". 1:1 ack 2001");
    send!(t, time 300, ".L 2001:3001 ack 1");
    recv!(t, time 300, ". 1:1 ack 3001");
}

/// The mark follows the window: slow start, recovery, congestion avoidance, and slow start again
/// after a time-out.
#[test]
fn a_sender_says_when_it_is_in_slow_start() {
    let acks = AckConfig { after_slow_start: AfterSlowStart::Signalled, ..AckConfig::default() };
    let mut t = Trace::established(Config { acks, ..plain(4) }, "mss 1000");
    t.write(20_000);
    recv!(t, time 100, "L. 1:1001 ack 1", "L. 1001:2001 ack 1", "L. 2001:3001 ack 1",
        "L. 3001:4001 ack 1");
    send!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    recv!(t, time 200, ". 1:1001 ack 1", ". 4001:5001 ack 1");
    send!(t, time 300, ". 1:1 ack 4001");
    recv!(t, time 300, ". 5001:6001 ack 1");
    // After a second without an answer.
    recv!(t, time 1300, "L. 4001:5001 ack 1");
}

/// At once, and one for each segment: the peer counts them.
#[test]
fn out_of_order_and_into_the_hole() {
    let mut t = receiver(AckConfig::default());
    send!(t, time 200, ". 1001:2001 ack 1", ". 2001:3001 ack 1", ". 3001:4001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1", ". 1:1 ack 1", ". 1:1 ack 1");
    send!(t, time 210, ". 1:1001 ack 1");
    recv!(t, time 210, ". 1:1 ack 4001");
    // And data that is already here.
    send!(t, time 220, ". 1:1001 ack 1");
    recv!(t, time 220, ". 1:1 ack 4001");
}

/// RFC 2018 §4, RFC 2883 §4.
#[test]
fn selective_acknowledgements() {
    let config = Config { sack: true, dsack: true, ..plain(4) };
    let mut t = Trace::established(config, "mss 1000 sackok");
    send!(t, time 200, ". 1001:2001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1 sack 1001:2001");
    send!(t, time 210, ". 3001:4001 ack 1");
    recv!(t, time 210, ". 1:1 ack 1 sack 3001:4001,1001:2001");
    send!(t, time 220, ". 3001:4001 ack 1");
    recv!(t, time 220, ". 1:1 ack 1 sack 3001:4001,3001:4001,1001:2001");
    send!(t, time 230, ". 1:1001 ack 1");
    recv!(t, time 230, ". 1:1 ack 2001 sack 3001:4001");
    send!(t, time 240, ". 1:1001 ack 1");
    recv!(t, time 240, ". 1:1 ack 2001 sack 1:1001,3001:4001");
}

/// Data carries the acknowledgement.
#[test]
fn piggybacked() {
    let mut t = receiver(AckConfig::default());
    send!(t, time 200, ". 1:1001 ack 1");
    t.write(100);
    recv!(t, time 200, ". 1:101 ack 1001");
    send!(t, time 300, ". 1001:1001 ack 101");
    recv!(t, time 400);
}

/// RFC 3168 §6.1.3: a mark is echoed until CWR comes.
#[test]
fn marks_are_echoed() {
    let config = Config { ecn: true, ..plain(4) };
    let mut t = Trace::connecting(config);
    recv!(t, time 0, "SEW 0:0");
    send!(t, time 100, "SE. 0:0 ack 1 mss 1000");
    recv!(t, time 100, ". 1:1 ack 1");
    send!(t, time 200, ". 1:1001 ack 1 ce", ". 1001:2001 ack 1 ect");
    recv!(t, time 200, "E. 1:1 ack 2001");
    send!(t, time 210, ". 2001:3001 ack 1 ect", ". 3001:4001 ack 1 ect");
    recv!(t, time 210, "E. 1:1 ack 4001");
    send!(t, time 220, "W. 4001:5001 ack 1 ect", ". 5001:6001 ack 1 ect");
    recv!(t, time 220, ". 1:1 ack 6001");
}

/// As kernels do it: the request does not travel with the end of the handshake, nor our FIN with the
/// acknowledgement of the peer's.
#[test]
fn a_syn_and_a_fin_are_acknowledged_before_the_application_acts() {
    let opened = |control_alone| {
        let acks = AckConfig { control_alone, ..AckConfig::default() };
        let mut t = Trace::connecting(Config { acks, ..plain(4) });
        t.drain();
        send!(t, time 100, "S. 0:0 ack 1 mss 1000");
        t.write(300);
        t
    };
    let mut t = opened(false);
    recv!(t, time 100, "P. 1:301 ack 1");
    send!(t, time 200, "F. 1:1001 ack 301");
    t.close();
    recv!(t, time 200, "F. 301:301 ack 1002");

    let mut t = opened(true);
    recv!(t, time 100, ". 1:1 ack 1", "P. 1:301 ack 1");
    send!(t, time 200, "F. 1:1001 ack 301");
    t.close();
    recv!(t, time 200, ". 301:301 ack 1002", "F. 301:301 ack 1002");
}
