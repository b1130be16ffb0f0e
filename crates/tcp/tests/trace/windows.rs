//! Flow control: RFC 9293 §3.8.6, RFC 7323 §2, Nagle.

use tcp::Config;
use units::ByteCount;

use super::kit::{Trace, recv, send};
use super::plain;

/// §3.8.6: no more than the window, whatever the congestion window says.
#[test]
fn the_peers_window_is_kept() {
    let mut t = Trace::established(plain(10), "mss 1000 win 2500");
    t.write(10_000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1");
    // 500 bytes are too few for a segment (§3.8.6.2.1).
    send!(t, time 200, ". 1:1 ack 1001 win 2500");
    recv!(t, time 200, ". 2001:3001 ack 1");
    // An old segment's window does not count (§3.10.7.4).
    send!(t, time 210, ". 1:1 ack 1 win 60000");
    recv!(t, time 210);
}

/// RFC 7323 §2.3.
#[test]
fn windows_are_scaled() {
    let config = Config { window_scaling: true, ..plain(100) };
    let mut t = Trace::established(config, "mss 1000 win 1000 ws 3");
    t.write(60_000);
    recv!(t, time 100, ". 1:1001 ack 1");
    send!(t, time 200, ". 1:1 ack 1001 win 500");
    recv!(t, time 200, ". 1001:2001 ack 1", ". 2001:3001 ack 1", ". 3001:4001 ack 1",
        ". 4001:5001 ack 1");

    let receive_buffer = ByteCount::new(1 << 20);
    let config = Config { window_scaling: true, receive_buffer, ..plain(4) };
    let mut t = Trace::listening(config);
    send!(t, time 0, "S 0:0 ws 0");
    recv!(t, time 0, "S. 0:0 ack 1 win 65535 ws 5");
    send!(t, time 10, ". 1:1 ack 1", ". 1:1001 ack 1", ". 1001:2001 ack 1");
    // What is left of 2²⁰, in whole units of 32 bytes.
    recv!(t, time 10, ". 1:1 ack 2001 win 32705");
}

/// §3.8.6.1: a closed window is probed, at growing intervals, for as long as the peer answers.
#[test]
fn window_probes() {
    let mut t = Trace::established(plain(4), "mss 1000 win 1000");
    t.write(5000);
    recv!(t, time 100, ". 1:1001 ack 1");
    send!(t, time 200, ". 1:1 ack 1001 win 0");
    recv!(t, time 1200, ". 1001:1002 ack 1");
    let mut now = 1200;
    for wait in [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000, 60_000, 60_000] {
        send!(t, time now + 100, ". 1:1 ack 1001 win 0");
        now += wait;
        recv!(t, time now, ". 1001:1002 ack 1");
    }
    assert_eq!(t.tcp.stats().timeouts, 0);
    send!(t, time now + 100, ". 1:1 ack 1001 win 3000");
    recv!(t, time now + 100, ". 1001:1002 ack 1", ". 1002:2002 ack 1",
        ". 2002:3002 ack 1");
}

/// §3.8.6.1: a probe that finds room.
#[test]
fn a_probe_finds_room() {
    let mut t = Trace::established(plain(4), "mss 1000 win 1000");
    t.write(5000);
    recv!(t, time 100, ". 1:1001 ack 1");
    send!(t, time 200, ". 1:1 ack 1001 win 0");
    recv!(t, time 1200, ". 1001:1002 ack 1");
    send!(t, time 1300, ". 1:1 ack 1002 win 5000");
    recv!(t, time 1300, ". 1002:2002 ack 1", ". 2002:3002 ack 1", ". 3002:4002 ack 1",
        ". 4002:5001 ack 1");
}

/// §3.8.6.2.1: a window too small for a segment is used when the override timer expires.
#[test]
fn silly_windows_are_avoided() {
    let mut t = Trace::established(plain(4), "mss 1000 win 2000");
    t.write(5000);
    recv!(t, time 100, ". 1:1001 ack 1", ". 1001:2001 ack 1");
    send!(t, time 200, ". 1:1 ack 2001 win 300");
    recv!(t, time 200);
    recv!(t, time 1200, ". 2001:2301 ack 1");
}

/// §3.8.6.2.2, and the update once there is room for two segments.
#[test]
fn a_slow_reader_shuts_the_window() {
    let mut t =
        Trace::established(Config { receive_buffer: ByteCount::new(4000), ..plain(4) }, "mss 1000");
    for n in 0..4 {
        send!(t, time 200 + n, &format!(". {}:{} ack 1", n * 1000 + 1, n * 1000 + 1001));
        t.drain();
    }
    recv!(t, time 300);
    // Nothing more fits, and what does not fit is not accepted.
    send!(t, time 310, ". 4001:4002 ack 1");
    recv!(t, time 310, ". 1:1 ack 4001 win 0");
    t.tcp.read(1000);
    recv!(t, time 320);
    t.tcp.read(1000);
    recv!(t, time 320, ". 1:1 ack 4001 win 2000");
}

/// Data beyond the window is cut off (§3.10.7.4).
#[test]
fn data_beyond_the_window() {
    let config = Config { receive_buffer: ByteCount::new(1500), ..plain(4) };
    let mut t = Trace::established(config, "mss 1000");
    send!(t, time 200, ". 1:1001 ack 1", "F. 1001:2001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1501 win 0");
    assert_eq!(t.read_all(), 1500);
}

/// Data from before the SYN that reaches into the window is not part of the stream.
#[test]
fn data_from_before_the_stream() {
    let mut t = Trace::listening(plain(4));
    send!(t, time 0, "S 100:100");
    recv!(t, time 0, "S. 0:0 ack 101");
    send!(t, time 10, ". 101:101 ack 1");
    recv!(t, time 10);
    send!(t, time 20, "F. 50:201 ack 1");
    recv!(t, time 20, ". 1:1 ack 101");
    assert_eq!(t.read_all(), 0);
}

/// §3.7.4: small data waits while something is outstanding.
#[test]
fn nagle() {
    for nagle in [true, false] {
        let mut t = Trace::established(Config { nagle, ..plain(4) }, "mss 1000");
        t.write(10);
        recv!(t, time 100, ". 1:11 ack 1");
        t.write(10);
        if nagle {
            recv!(t, time 110);
            t.write(10);
            send!(t, time 200, ". 1:1 ack 11");
            recv!(t, time 200, ". 11:31 ack 1");
        } else {
            recv!(t, time 100, ". 11:21 ack 1");
        }
    }
}

/// Minshall: small data waits while other small data is outstanding, not behind full segments.
#[test]
fn the_end_of_a_large_write_does_not_wait() {
    for minshall in [true, false] {
        let mut t = Trace::established(Config { nagle: true, minshall, ..plain(4) }, "mss 1000");
        t.write(1500);
        if !minshall {
            recv!(t, time 100, ". 1:1001 ack 1");
            recv!(t, time 110);
            continue;
        }
        recv!(t, time 100, ". 1:1001 ack 1", ". 1001:1501 ack 1");
        t.write(10);
        recv!(t, time 110);
        send!(t, time 200, ". 1:1 ack 1501");
        recv!(t, time 200, ". 1501:1511 ack 1");
    }
}

/// Neither a full segment nor the end of the stream waits.
#[test]
fn nagle_holds_back_neither_full_segments_nor_the_last() {
    let mut t = Trace::established(Config { nagle: true, ..plain(4) }, "mss 1000");
    t.write(10);
    recv!(t, time 100, ". 1:11 ack 1");
    t.write(1500);
    recv!(t, time 100, ". 11:1011 ack 1");
    t.close();
    recv!(t, time 100, "F. 1011:1511 ack 1");
}
