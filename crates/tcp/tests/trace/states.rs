//! The state machine (RFC 9293 §3.3.2, §3.5, §3.6, §3.10), RFC 5961, RFC 7323.

use tcp::{AbortReason, Config, ConnectionEvent, KeepaliveConfig, TcpState, WriteError};

use super::kit::{Trace, recv, send};
use super::plain;

/// §3.5, figure 6.
#[test]
fn active_and_passive_open() {
    let mut t = Trace::connecting(plain(1));
    recv!(t, time 0, "S 0:0 win 20000 mss 1000");
    send!(t, time 100, "S. 0:0 ack 1");
    recv!(t, time 100, ". 1:1 ack 1");
    assert_eq!((t.state(), t.events()), (TcpState::Established, vec![ConnectionEvent::Connected]));

    let mut t = Trace::listening(plain(1));
    send!(t, time 0, "S 0:0");
    recv!(t, time 0, "S. 0:0 ack 1 mss 1000");
    assert_eq!((t.state(), t.event()), (TcpState::SynReceived, None));
    send!(t, time 100, ". 1:1 ack 1");
    recv!(t, time 100);
    assert_eq!((t.state(), t.event()), (TcpState::Established, Some(ConnectionEvent::Connected)));
}

/// RFC 7323 §1.3, RFC 2018 §2, RFC 3168 §6.1.1: an option is used if both offer
/// it.
#[test]
fn options_are_offered_and_answered() {
    let config = || Config { ecn: true, ..Config::default() };
    let mut t = Trace::connecting(config());
    recv!(t, time 0, "SEW 0:0 win 65535 mss 1460 ws 9 sackok ts 0,0");
    send!(t, time 100, "SE. 0:0 ack 1 mss 1400 ws 2 sackok ts 77,0");
    recv!(t, time 100, ". 1:1 ack 1 ts 100,77");

    let mut t = Trace::listening(config());
    send!(t, time 0, "SEW 0:0 mss 1400 ws 2 sackok ts 77,0");
    recv!(t, time 0, "SE. 0:0 ack 1 mss 1460 ws 9 sackok ts 0,77");

    // Options that the peer did not offer are not used.
    let mut t = Trace::listening(config());
    send!(t, time 0, "S 0:0");
    recv!(t, time 0, "S. 0:0 ack 1 mss 1460");
}

/// §3.5, figure 7.
#[test]
fn simultaneous_open() {
    let mut t = Trace::connecting(plain(1));
    recv!(t, time 0, "S 0:0");
    send!(t, time 50, "S 0:0");
    recv!(t, time 50, "S. 0:0 ack 1");
    assert_eq!(t.state(), TcpState::SynReceived);
    send!(t, time 100, "S. 0:0 ack 1");
    recv!(t, time 100);
    assert_eq!((t.state(), t.event()), (TcpState::Established, Some(ConnectionEvent::Connected)));
}

/// §3.6, figure 12: this side closes first.
#[test]
fn closing_first() {
    let mut t = Trace::established(plain(4), "mss 1000");
    t.write(10);
    t.close();
    recv!(t, time 100, "F. 1:11 ack 1");
    assert_eq!(t.state(), TcpState::FinWait1);
    assert_eq!(t.tcp.write(&bytes::Bytes::from_static(b"x")), Err(WriteError::Finished));
    send!(t, time 200, ". 1:1 ack 12");
    assert_eq!(t.state(), TcpState::FinWait2);
    // Half-closed: the peer keeps sending.
    send!(t, time 250, ". 1:501 ack 12");
    recv!(t, time 290, ". 12:12 ack 501");
    send!(t, time 300, "F. 501:601 ack 12");
    recv!(t, time 300, ". 12:12 ack 602");
    assert_eq!(t.state(), TcpState::TimeWait);
    assert_eq!(
        t.events(),
        [ConnectionEvent::Readable, ConnectionEvent::Finished, ConnectionEvent::Closed]
    );
    assert_eq!(t.read_all(), 600);
    // The peer's FIN again: acknowledged, and 2·MSL restarts (§3.6.1).
    send!(t, time 1300, "F. 601:601 ack 12");
    recv!(t, time 1300, ". 12:12 ack 602");
    recv!(t, time 61_299);
    assert_eq!(t.state(), TcpState::TimeWait);
    recv!(t, time 61_300);
    assert_eq!(t.state(), TcpState::Closed);
}

/// §3.6: the peer closes first.
#[test]
fn closing_second() {
    let mut t = Trace::established(plain(4), "mss 1000");
    send!(t, time 200, "F. 1:1 ack 1");
    recv!(t, time 200, ". 1:1 ack 2");
    assert_eq!((t.state(), t.event()), (TcpState::CloseWait, Some(ConnectionEvent::Finished)));
    t.write(10);
    recv!(t, time 200, ". 1:11 ack 2");
    t.close();
    recv!(t, time 200, "F. 11:11 ack 2");
    assert_eq!(t.state(), TcpState::LastAck);
    send!(t, time 300, ". 2:2 ack 12");
    assert_eq!((t.state(), t.event()), (TcpState::Closed, Some(ConnectionEvent::Closed)));
}

/// §3.6, figure 13.
#[test]
fn simultaneous_close() {
    let mut t = Trace::established(plain(4), "mss 1000");
    t.close();
    recv!(t, time 100, "F. 1:1 ack 1");
    send!(t, time 150, "F. 1:1 ack 1");
    recv!(t, time 150, ". 2:2 ack 2");
    assert_eq!(t.state(), TcpState::Closing);
    send!(t, time 200, ". 2:2 ack 2");
    assert_eq!(
        (t.state(), t.events()),
        (TcpState::TimeWait, vec![ConnectionEvent::Finished, ConnectionEvent::Closed])
    );
}

/// §3.10.7.4: a FIN that overtakes data waits for it.
#[test]
fn a_fin_out_of_order() {
    let mut t = Trace::established(plain(4), "mss 1000");
    send!(t, time 200, "F. 501:1001 ack 1");
    recv!(t, time 200, ". 1:1 ack 1");
    assert_eq!(t.event(), None);
    send!(t, time 210, ". 1:501 ack 1");
    recv!(t, time 210, ". 1:1 ack 1002");
    assert_eq!(t.events(), [ConnectionEvent::Readable, ConnectionEvent::Finished]);
}

/// §3.10.7.3: a refused connection, and a refusal forged by a stranger.
#[test]
fn refusals_in_syn_sent() {
    let mut t = Trace::connecting(plain(1));
    recv!(t, time 0, "S 0:0");
    // Without an acceptable ACK: ignored.
    send!(t, time 50, "R. 0:0 ack 77", "R 0:0");
    recv!(t, time 50);
    send!(t, time 60, "S. 0:0 ack 77");
    recv!(t, time 60, "R 77:77");
    assert_eq!(t.state(), TcpState::SynSent);
    send!(t, time 70, "R. 0:0 ack 1");
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::Refused)))
    );
}

/// §3.5, figure 8: an old duplicate SYN at a listener.
#[test]
fn a_listener_survives_an_old_syn() {
    let mut t = Trace::listening(plain(1));
    send!(t, time 0, ". 0:0 ack 9");
    recv!(t, time 0, "R 9:9");
    send!(t, time 10, "S 500:500");
    recv!(t, time 10, "S. 0:0 ack 501");
    send!(t, time 20, "R 501:501");
    assert_eq!((t.state(), t.event()), (TcpState::Listen, None));
    send!(t, time 30, "S 0:0");
    recv!(t, time 30, "S. 0:0 ack 1");
}

/// A lost SYN: RFC 6298 (2.1), (5.5); a repeated SYN of the peer makes the answer repeat.
#[test]
fn lost_syns_are_sent_again() {
    let mut t = Trace::connecting(plain(4));
    recv!(t, time 0, "S 0:0");
    recv!(t, time 1000, "S 0:0");
    recv!(t, time 3000, "S 0:0");
    send!(t, time 3100, "S. 0:0 ack 1 mss 1000");
    recv!(t, time 3100, ". 1:1 ack 1");
    // RFC 5681 §3.1: the initial window is then one segment.
    t.write(3000);
    recv!(t, time 3100, ". 1:1001 ack 1");

    let mut t = Trace::listening(plain(4));
    send!(t, time 0, "S 0:0");
    recv!(t, time 0, "S. 0:0 ack 1");
    send!(t, time 500, "S 0:0");
    recv!(t, time 500, "S. 0:0 ack 1");
}

/// RFC 5961 §3.2 and §4.2: only the exact number resets; everything else, and any SYN, is
/// challenged; §7: at a limited rate.
#[test]
fn blind_resets_and_syns_are_challenged() {
    let mut t = Trace::established(plain(4), "mss 1000");
    send!(t, time 200, "R 500:500");
    recv!(t, time 200, ". 1:1 ack 1");
    send!(t, time 210, "S 500:500");
    recv!(t, time 210, ". 1:1 ack 1");
    // Outside the window: nothing.
    send!(t, time 220, "R 30000:30000");
    recv!(t, time 220);
    for n in 0..20 {
        t.send("R 500:500");
        if n < 8 {
            t.expect(&[". 1:1 ack 1"]);
        } else {
            t.expect(&[]);
        }
    }
    send!(t, time 5300, "R 500:500");
    recv!(t, time 5300, ". 1:1 ack 1");
    send!(t, time 5310, "R 1:1");
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::Reset)))
    );
}

/// RFC 5961 §5.2: acknowledgements of data never sent, or sent long ago.
#[test]
fn blind_acknowledgements_are_challenged() {
    let mut t = Trace::established(plain(4), "mss 1000 win 3000");
    t.write(1000);
    recv!(t, time 100, ". 1:1001 ack 1");
    send!(t, time 200, ". 1:101 ack 1002 win 3000");
    recv!(t, time 200, ". 1001:1001 ack 1");
    send!(t, time 210, ". 1:101 ack 1001 win 3000");
    recv!(t, time 250, ". 1001:1001 ack 101");
    assert_eq!(t.read_all(), 100);
}

/// RFC 7323 §5.3: a segment with an old timestamp is answered and dropped; §3.2: one without a
/// timestamp is dropped silently.
#[test]
fn paws() {
    let config = Config { timestamps: true, ..plain(4) };
    let mut t = Trace::established(config, "mss 1000 ts 5000,0");
    send!(t, time 200, ". 1:101 ack 1 ts 5100,100");
    recv!(t, time 240, ". 1:1 ack 101 ts 240,5100");
    send!(t, time 300, ". 101:201 ack 1 ts 5099,100");
    recv!(t, time 300, ". 1:1 ack 101 ts 300,5100");
    send!(t, time 310, ". 101:201 ack 1");
    recv!(t, time 400);
    assert_eq!(t.read_all(), 100);
    // §4.3: an out-of-order segment does not change what is echoed.
    send!(t, time 500, ". 301:401 ack 1 ts 5300,240");
    recv!(t, time 500, ". 1:1 ack 101 ts 500,5100");
}

/// §3.8.3: a silent peer, in the handshake and after it.
#[test]
fn the_user_timeout() {
    let config = Config { user_timeout: Some(core::time::Duration::from_secs(10)), ..plain(4) };
    let mut t = Trace::connecting(config.clone());
    recv!(t, time 0, "S 0:0");
    recv!(t, time 1000, "S 0:0");
    recv!(t, time 3000, "S 0:0");
    recv!(t, time 7000, "S 0:0");
    recv!(t, time 10_000);
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::TimedOut)))
    );

    let mut t = Trace::established(config, "mss 1000");
    t.write(10);
    recv!(t, time 100, ". 1:11 ack 1");
    recv!(t, time 1100, ". 1:11 ack 1");
    recv!(t, time 3100, ". 1:11 ack 1");
    recv!(t, time 7100, ". 1:11 ack 1");
    recv!(t, time 10_100);
    assert_eq!(t.event(), Some(ConnectionEvent::Aborted(AbortReason::TimedOut)));
}

/// §3.8.4.
#[test]
fn keepalive() {
    let seconds = core::time::Duration::from_secs;
    let keepalive = KeepaliveConfig { idle: seconds(100), interval: seconds(10), probes: 2 };
    let config = Config { keepalive: Some(keepalive), ..plain(4) };
    let mut t = Trace::established(config, "mss 1000");
    recv!(t, time 100_100, ". 0:0 ack 1");
    send!(t, time 100_200, ". 1:1 ack 1");
    recv!(t, time 200_200, ". 0:0 ack 1");
    recv!(t, time 210_200, ". 0:0 ack 1");
    recv!(t, time 220_200);
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::TimedOut)))
    );
}

/// Nothing else would find out that the peer of a half-closed connection has gone.
#[test]
fn keepalive_after_our_end() {
    let seconds = core::time::Duration::from_secs;
    let keepalive = KeepaliveConfig { idle: seconds(100), interval: seconds(10), probes: 2 };
    let config = Config { keepalive: Some(keepalive), ..plain(4) };
    let mut t = Trace::established(config, "mss 1000");
    t.close();
    recv!(t, time 100, "F. 1:1 ack 1");
    send!(t, time 300, ". 1:1 ack 2");
    recv!(t, time 300);
    assert_eq!(t.state(), TcpState::FinWait2);
    recv!(t, time 100_300, ". 1:1 ack 1");
    send!(t, time 100_400, "R 1:1");
    recv!(t, time 100_400);
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::Reset)))
    );
}

/// §3.10.5.
#[test]
fn abort_tells_the_peer() {
    let mut t = Trace::established(plain(4), "mss 1000");
    t.tcp.abort(super::kit::at(100));
    recv!(t, time 100, "R. 1:1 ack 1");
    assert_eq!(
        (t.state(), t.event()),
        (TcpState::Closed, Some(ConnectionEvent::Aborted(AbortReason::Local)))
    );
    // Later segments get the reset of a closed port (§3.10.7.1).
    send!(t, time 200, ". 1:101 ack 1");
    recv!(t, time 200, "R 1:1");
}

/// §3.10.5, and Linux's `tcp_need_reset`.
#[test]
fn abort_tells_the_peer_unless_the_fin_was_sent() {
    let mut t = Trace::established(plain(4), "mss 1000");
    send!(t, time 100, "F. 1:1 ack 1");
    recv!(t, time 100, ". 1:1 ack 2");
    t.close();
    t.tcp.abort(super::kit::at(100));
    recv!(t, time 100, "R. 1:1 ack 2");

    let mut t = Trace::established(plain(4), "mss 1000");
    send!(t, time 100, "F. 1:1 ack 1");
    recv!(t, time 100, ". 1:1 ack 2");
    t.close();
    recv!(t, time 100, "F. 1:1 ack 2");
    t.tcp.abort(super::kit::at(200));
    recv!(t, time 200);
}
