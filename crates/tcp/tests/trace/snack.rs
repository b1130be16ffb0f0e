//! Negative acknowledgements of SCPS-TP (CCSDS 714.0-B-2, short form), and losses attributed to
//! corruption (§3.2.4).

use tcp::Config;

use super::kit::{Trace, recv, send};
use super::plain;

fn config() -> Config {
    Config { snack: true, ..plain(10) }
}

const SYN: &str = "mss 1000 scps 64";

/// §3.2.3: the SYN offers SNACK; both sides must.
#[test]
fn snack_is_agreed_on() {
    let mut t = Trace::connecting(config());
    recv!(t, time 0, "S 0:0 scps 64");
    let mut t = Trace::listening(config());
    send!(t, time 0, "S 0:0 mss 1000 scps 64");
    recv!(t, time 0, "S. 0:0 ack 1 scps 64");
    let mut t = Trace::listening(config());
    send!(t, time 0, "S 0:0 mss 1000 scps 32");
    recv!(t, time 0, "S. 0:0 ack 1");
    let mut t = Trace::established(config(), "mss 1000");
    send!(t, time 200, ". 1001:2001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1");
}

/// Holes are reported in whole segments from the acknowledgement number, each in turn.
#[test]
fn holes_are_reported_in_turn() {
    let mut t = Trace::established(config(), SYN);
    send!(t, time 200, ". 1001:2001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1 snack 0,1");
    send!(t, time 201, ". 4001:5001 ack 1");
    recv!(t, time 201, ". 1:1 ack 1 snack 2,2");
    send!(t, time 202, ". 6001:6501 ack 1");
    recv!(t, time 202, ". 1:1 ack 1 snack 5,1");
    send!(t, time 203, ". 6501:7001 ack 1");
    recv!(t, time 203, ". 1:1 ack 1 snack 0,1");
    // The first hole is filled; the others remain.
    send!(t, time 204, ". 1:1001 ack 1");
    recv!(t, time 204, ". 1:1 ack 2001 snack 0,2");
    send!(t, time 205, ". 2001:4001 ack 1", ". 5001:6001 ack 1");
    recv!(t, time 205, ". 1:1 ack 7001");
}

/// A hole is repaired when first reported: two duplicates earlier than in RFC 5681. The window is
/// reduced once.
#[test]
fn a_hole_is_repaired_at_once() {
    let mut t = Trace::established(config(), SYN);
    t.write(6000);
    assert_eq!(t.drain().len(), 6);
    send!(t, time 200, ". 1:1 ack 1 snack 0,1");
    recv!(t, time 200, ". 1:1001 ack 1");
    assert_eq!((t.ssthresh(), t.cwnd()), (3000, 3000));
    // Reported again before the repair can have arrived.
    send!(t, time 201, ". 1:1 ack 1 snack 0,1", ". 1:1 ack 1 snack 0,1");
    recv!(t, time 201);
    send!(t, time 310, ". 1:1 ack 6001");
    recv!(t, time 310);
    assert_eq!(t.tcp.stats().recoveries, 1);
}

/// A lost repair is repeated after another round trip, without a time-out.
#[test]
fn a_lost_repair_is_reported_again() {
    let mut t = Trace::established(config(), SYN);
    t.write(6000);
    assert_eq!(t.drain().len(), 6);
    // As the five segments behind the hole arrive.
    let hole = ". 1:1 ack 1 snack 0,1";
    send!(t, time 200, hole, hole, hole, hole, hole);
    recv!(t, time 200, ". 1:1001 ack 1");
    send!(t, time 400, ". 1:1 ack 1 snack 0,1");
    recv!(t, time 400, ". 1:1001 ack 1");
    assert_eq!(t.tcp.stats().timeouts, 0);
}

/// §3.2.4: corruption is repaired without reducing the window: all holes at once.
#[test]
fn corruption_is_no_congestion() {
    let mut t = Trace::established(Config { assume_corruption: true, ..config() }, SYN);
    t.write(6000);
    assert_eq!(t.drain().len(), 6);
    let window = t.cwnd();
    send!(t, time 200, ". 1:1 ack 1 snack 0,1");
    recv!(t, time 200, ". 1:1001 ack 1");
    send!(t, time 201, ". 1:1 ack 1 snack 3,2");
    recv!(t, time 201, ". 3001:4001 ack 1", ". 4001:5001 ack 1");
    assert_eq!(t.cwnd(), window);
}

/// Nonsense is ignored: holes beyond what was sent, or of no length.
#[test]
fn impossible_holes_are_ignored() {
    let mut t = Trace::established(config(), SYN);
    t.write(3000);
    assert_eq!(t.drain().len(), 3);
    for line in ["snack 0,0", "snack 3,1", "snack 65535,65535"] {
        send!(t, time 200, &format!(". 1:1 ack 1001 {line}"));
        recv!(t, time 200);
    }
}
