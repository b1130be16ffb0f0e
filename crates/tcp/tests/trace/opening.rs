//! Data with the SYN: TCP Fast Open (RFC 7413), and without any proof.

use tcp::{Config, SynData, TcpState};

use super::kit::{Trace, cookie, recv, send};
use super::plain;

const COOKIE: &str = "00112233445566ff";

fn fast_open(text: &str) -> Config {
    Config { syn_data: SynData::FastOpen { cookie: cookie(text) }, ..plain(2) }
}

/// §4.1.3, "requesting a Fast Open cookie": a SYN without data asks, and the answer is kept.
#[test]
fn a_client_asks_for_a_cookie() {
    let mut t = Trace::connecting(fast_open("-"));
    t.write(100);
    recv!(t, time 0, "S 0:0 fo -");
    send!(t, time 100, &format!("S. 0:0 ack 1 mss 1000 fo {COOKIE}"));
    recv!(t, time 100, ". 1:101 ack 1");
    assert_eq!(t.tcp.cookie(), &cookie(COOKIE));
}

/// §4.2.1: with a cookie the data goes with the SYN, and the answer acknowledges
/// it.
#[test]
fn data_goes_with_the_syn() {
    let mut t = Trace::connecting(fast_open(COOKIE));
    t.write(100);
    recv!(t, time 0, "S 0:100 fo 00112233445566ff");
    send!(t, time 100, "S. 0:0 ack 101 mss 1000");
    recv!(t, time 100, ". 101:101 ack 1");
    assert_eq!(t.state(), TcpState::Established);
    t.write(50);
    recv!(t, time 100, ". 101:151 ack 1");
}

/// §4.2.1: no more than any peer accepts in one segment.
#[test]
fn only_so_much_goes_with_the_syn() {
    let mut t = Trace::connecting(fast_open(COOKIE));
    t.write(2000);
    recv!(t, time 0, "S 0:536 fo 00112233445566ff");
    send!(t, time 100, "S. 0:0 ack 537 mss 1000");
    recv!(t, time 100, ". 537:1537 ack 1", ". 1537:2001 ack 1");
}

/// §4.2.1: data that was not accepted is retransmitted at once, in segments of the size known by
/// then; that is no sign of congestion.
#[test]
fn data_that_was_not_taken_is_sent_again() {
    for (answer, again) in [("ack 1", ". 1:101 ack 1"), ("ack 31", ". 31:101 ack 1")] {
        let mut t = Trace::connecting(fast_open(COOKIE));
        t.write(100);
        recv!(t, time 0, "S 0:100 fo 00112233445566ff");
        let window = t.cwnd();
        send!(t, time 100, &format!("S. 0:0 {answer} mss 1000"));
        recv!(t, time 100, again);
        assert_eq!(t.cwnd(), window, "{answer}");
    }
    let mut t = Trace::connecting(fast_open(COOKIE));
    t.write(500);
    recv!(t, time 0, "S 0:500 fo 00112233445566ff");
    send!(t, time 100, "S. 0:0 ack 1 mss 300");
    recv!(t, time 100, ". 1:301 ack 1", ". 301:501 ack 1");
}

/// §4.2.1, fallback: a retransmitted SYN has neither data nor cookie, whatever dropped the first
/// one.
#[test]
fn a_lost_syn_is_sent_again_without_data() {
    let mut t = Trace::connecting(fast_open(COOKIE));
    t.write(100);
    recv!(t, time 0, "S 0:100 fo 00112233445566ff");
    recv!(t, time 1000, "S 0:0");
    send!(t, time 1100, "S. 0:0 ack 1 mss 1000");
    recv!(t, time 1100, ". 1:101 ack 1");
}

/// §4.2.2: with the right cookie the data is accepted at once and answered before the handshake
/// completes, within the peer's window and the initial one.
#[test]
fn a_server_answers_early() {
    let mut t = Trace::listening(fast_open(COOKIE));
    send!(t, time 0, "S 0:50 mss 1000 fo 00112233445566ff win 1500");
    assert_eq!((t.state(), t.read_all()), (TcpState::SynReceived, 50));
    t.write(1200);
    recv!(t, time 0, "S. 0:0 ack 51", ". 1:1001 ack 51", ". 1001:1201 ack 51");
    send!(t, time 100, ". 51:51 ack 1201");
    recv!(t, time 100);
    assert_eq!(t.state(), TcpState::Established);
}

/// §4.2.2: an early answer waits for the SYN-ACK, which is retransmitted when lost.
#[test]
fn a_lost_answer_is_repeated() {
    let mut t = Trace::listening(fast_open(COOKIE));
    send!(t, time 0, "S 0:50 mss 1000 fo 00112233445566ff");
    t.write(100);
    recv!(t, time 0, "S. 0:0 ack 51", ". 1:101 ack 51");
    recv!(t, time 1000, "S. 0:0 ack 51");
    // The data was lost too; the time-out has been backed off once (RFC 6298).
    send!(t, time 1100, ". 51:51 ack 1");
    recv!(t, time 3100, ". 1:101 ack 51");
}

/// §4.1.2: a client with no cookie, or a wrong one, gets the right one and a plain handshake.
#[test]
fn without_the_cookie_nothing_is_taken() {
    for shown in ["-", "ffffffff"] {
        let mut t = Trace::listening(fast_open(COOKIE));
        send!(t, time 0, &format!("S 0:50 mss 1000 fo {shown}"));
        assert_eq!(t.read_all(), 0);
        recv!(t, time 0, "S. 0:0 ack 1 fo 00112233445566ff");
        send!(t, time 100, ". 1:51 ack 1");
        assert_eq!(t.read_all(), 50);
    }
    // A SYN without the option gets none, and a server without a cookie ignores the option.
    let mut t = Trace::listening(fast_open(COOKIE));
    send!(t, time 0, "S 0:50 mss 1000");
    recv!(t, time 0, "S. 0:0 ack 1");
    let mut t = Trace::listening(fast_open("-"));
    send!(t, time 0, "S 0:50 mss 1000 fo 00112233445566ff");
    recv!(t, time 0, "S. 0:0 ack 1");
}

/// A transaction of one segment each way takes one round trip.
#[test]
fn without_any_proof() {
    let always = Config { syn_data: SynData::Always, ..plain(2) };
    let mut client = Trace::connecting(always.clone());
    client.write(100);
    recv!(client, time 0, "S 0:100");
    let mut server = Trace::listening(always);
    send!(server, time 50, "S 0:100 mss 1000");
    assert_eq!(server.read_all(), 100);
    server.write(200);
    server.close();
    recv!(server, time 50, "S. 0:0 ack 101", "F. 1:201 ack 101");
    send!(client, time 100, "S. 0:0 ack 101 mss 1000", "F. 1:201 ack 101");
    assert_eq!(client.read_all(), 200);
}
