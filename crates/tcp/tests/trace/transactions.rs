//! T/TCP (RFC 1644): the accelerated open, its cache, and the truncation of TIME-WAIT.

use core::time::Duration;

use tcp::{Config, ConnectionEvent, SynData, TaoCache, TcpState, TransactionSettings};

use super::kit::{Trace, recv, send};
use super::plain;

fn transactions(count: u32, received: u32, sent: u32) -> Config {
    let cache = TaoCache { received, sent };
    Config { syn_data: SynData::Transactions(TransactionSettings { count, cache }), ..plain(2) }
}

/// §2.1: the first connection to a peer opens as usual, and its handshake initialises the cache.
#[test]
fn the_first_connection_has_a_handshake() {
    let mut client = Trace::connecting(transactions(7, 0, 0));
    client.write(100);
    recv!(client, time 0, "S 0:0 ccnew 7");
    assert_eq!(client.tcp.tao_cache().sent, 0);
    send!(client, time 100, "S. 0:0 ack 1 mss 1000 cc 50 ccecho 7");
    recv!(client, time 100, ". 1:101 ack 1 cc 7");
    assert_eq!(client.tcp.tao_cache(), TaoCache { received: 0, sent: 7 });

    let mut server = Trace::listening(transactions(50, 0, 0));
    send!(server, time 0, "S 0:0 mss 1000 ccnew 7");
    recv!(server, time 0, "S. 0:0 ack 1 cc 50 ccecho 7");
    assert_eq!(server.tcp.tao_cache().received, 0);
    send!(server, time 100, ". 1:101 ack 1 cc 7");
    assert_eq!(server.tcp.tao_cache().received, 7);
}

/// §2.1: a later SYN carries data, which passes the TAO test and is answered at once.
#[test]
fn a_later_connection_is_accelerated() {
    let mut client = Trace::connecting(transactions(8, 0, 7));
    client.write(100);
    recv!(client, time 0, "S 0:100 cc 8");
    assert_eq!(client.tcp.tao_cache().sent, 8);

    let mut server = Trace::listening(transactions(51, 7, 0));
    send!(server, time 50, "S 0:100 mss 1000 cc 8 win 1500");
    assert_eq!((server.state(), server.read_all()), (TcpState::SynReceived, 100));
    assert_eq!(server.tcp.tao_cache().received, 8);
    server.write(200);
    server.close();
    recv!(server, time 50, "S. 0:0 ack 101 cc 51 ccecho 8", "F. 1:201 ack 101 cc 51");

    send!(client, time 100, "S. 0:0 ack 101 mss 1000 cc 51 ccecho 8", "F. 1:201 ack 101 cc 51");
    assert_eq!(client.read_all(), 200);
    recv!(client, time 100, ". 101:101 ack 202 cc 8");
}

/// §2.1: a count that is not greater than the cached one may be that of an old duplicate, so only a
/// handshake makes it acceptable. Counts wrap around.
#[test]
fn an_old_syn_is_not_believed() {
    for (received, count, passes) in
        [(7, 7, false), (7, 6, false), (7, 8, true), (u32::MAX, 2, true), (2, u32::MAX, false)]
    {
        let mut server = Trace::listening(transactions(50, received, 0));
        send!(server, time 0, &format!("S 0:100 mss 1000 cc {count}"));
        let (ack, newest) = if passes { (101, count) } else { (1, received) };
        assert_eq!(server.read_all(), ack - 1, "{received} {count}");
        recv!(server, time 0, &format!("S. 0:0 ack {ack} cc 50 ccecho {count}"));
        assert_eq!(server.tcp.tao_cache().received, newest);
        // A host that did not send the SYN refuses the answer.
        send!(server, time 100, &format!("R {ack}:{ack}"));
        assert_eq!(server.state(), TcpState::Listen);
    }
}

/// §3.1: CC.NEW, and a SYN without a count, make the cache undefined.
#[test]
fn a_peer_that_starts_again_is_forgotten() {
    for count in [" ccnew 3", ""] {
        let mut server = Trace::listening(transactions(50, 7, 0));
        send!(server, time 0, &format!("S 0:100 mss 1000{count}"));
        assert_eq!((server.read_all(), server.tcp.tao_cache().received), (0, 0));
    }
    // Its counter is behind what was sent before: CC.NEW again.
    let mut client = Trace::connecting(transactions(3, 0, 7));
    client.write(100);
    recv!(client, time 0, "S 0:0 ccnew 3");
}

/// §3.1: a peer without T/TCP answers without counts; then there are none.
#[test]
fn a_peer_without_counts() {
    let mut client = Trace::connecting(transactions(8, 0, 7));
    client.write(100);
    recv!(client, time 0, "S 0:100 cc 8");
    send!(client, time 100, "S. 0:0 ack 1 mss 1000");
    recv!(client, time 100, ". 1:101 ack 1");
    assert_eq!(client.tcp.tao_cache().sent, 0);
}

/// §3.3: the answer to another SYN is refused, and segments of other connections are not taken.
#[test]
fn segments_of_other_connections_are_not_taken() {
    let mut client = Trace::connecting(transactions(8, 0, 0));
    recv!(client, time 0, "S 0:0 ccnew 8");
    send!(client, time 50, "S. 0:0 ack 1 mss 1000 cc 50 ccecho 7");
    recv!(client, time 50, "R 1:1");
    send!(client, time 100, "S. 0:0 ack 1 mss 1000 cc 50 ccecho 8");
    recv!(client, time 100, ". 1:1 ack 1 cc 8");
    for other in [" cc 49", ""] {
        send!(client, time 150, &format!(". 1:101 ack 1{other}"));
        recv!(client, time 150, ". 1:1 ack 1 cc 8");
        assert_eq!(client.read_all(), 0);
    }
    send!(client, time 200, ". 1:101 ack 1 cc 50");
    assert_eq!(client.read_all(), 100);
}

/// Every segment has a count, so that there is less room for data.
#[test]
fn counts_take_room_from_segments() {
    let mut client = Trace::connecting(transactions(7, 0, 0));
    client.write(3000);
    recv!(client, time 0, "S 0:0 ccnew 7");
    send!(client, time 100, "S. 0:0 ack 1 mss 1000 cc 50 ccecho 7");
    recv!(client, time 100, ". 1:993 ack 1 cc 7", ". 993:1985 ack 1 cc 7");
}

/// §2.4: TIME-WAIT lasts 8 retransmission time-outs after a connection shorter than MSL.
#[test]
fn time_wait_is_truncated() {
    let time_wait = Duration::from_secs(60);
    for (count, closes_at, lasts) in [(7, 200, 8_000), (0, 200, 60_000), (7, 40_000, 60_000)] {
        let mut t = Trace::connecting(Config { time_wait, ..transactions(count, 0, 0) });
        t.drain();
        let (cc, echo) = if count == 0 { ("", "") } else { (" cc 50", " cc 50 ccecho 7") };
        send!(t, time 100, &format!("S. 0:0 ack 1 mss 1000{echo}"));
        t.drain();
        t.go_to(closes_at);
        t.close();
        t.drain();
        send!(t, time closes_at + 100, &format!("F. 1:1 ack 2{cc}"));
        t.drain();
        assert_eq!(
            (t.state(), t.events().contains(&ConnectionEvent::Closed)),
            (TcpState::TimeWait, true)
        );
        // The smallest time-out is a second (RFC 6298).
        t.go_to(closes_at + 100 + lasts - 1);
        assert_eq!(t.state(), TcpState::TimeWait);
        t.go_to(closes_at + 100 + lasts);
        assert_eq!(t.state(), TcpState::Closed);
    }
}
