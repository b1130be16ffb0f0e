//! Tests of every way a direct connection can end, with clients and servers on loopback.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control::Counter;
use pep::relay::LegStep;
use slacp::StreamOpening;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::task::JoinHandle;

use super::*;
use crate::network::socket_options;
use crate::relay::pipe::CAPACITY;
use crate::testkit::{
    abort, assert_reset, connected, payload, read_all, read_to_reset, speak_urgently,
};

/// A client and a server with a relay between them.
struct Joined {
    client: TcpStream,
    server: TcpStream,
    relay: JoinHandle<()>,
    counters: Arc<GatewayCounters>,
}

async fn joined(first: &[u8]) -> Joined {
    let ([client, near], [far, server]) = (connected().await, connected().await);
    let (counters, first) = (Arc::new(GatewayCounters::default()), first.to_vec());
    let source = near.peer_addr().unwrap();
    let open = StreamOpening { destination: far.peer_addr().unwrap(), source, dscp: None };
    let relay = tokio::spawn({
        let counters = counters.clone();
        async move {
            let entry = Registered::direct(clock::now(), &counters, open);
            direct(TcpLeg::new(near), TcpLeg::new(far), &first, entry, &counters).await;
        }
    });
    Joined { client, server, relay, counters }
}

#[tokio::test]
async fn both_directions_arrive_whole_and_are_counted() {
    const LENGTH: usize = 5_000_000;
    let Joined { mut client, mut server, relay, counters } = joined(b"first").await;
    let (up, down) = (payload(1, LENGTH), payload(2, LENGTH / 2));
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
    let send_up = async {
        to_client.write_all(&up).await?;
        to_client.shutdown().await
    };
    let send_down = async {
        to_server.write_all(&down).await?;
        to_server.shutdown().await
    };
    let (a, b, c, d) = tokio::join!(
        send_up,
        send_down,
        from_server.read_to_end(&mut got_up),
        from_client.read_to_end(&mut got_down)
    );
    a.and(b).and_then(|_| c.map(drop)).and_then(|_| d.map(drop)).unwrap();
    assert!(got_up[..5] == *b"first" && got_up[5..] == up && got_down == down);
    relay.await.unwrap();
    let counts =
        [&counters.traffic.up_bytes, &counters.traffic.down_bytes, &counters.traffic.closed]
            .map(Counter::get);
    assert_eq!(counts, [LENGTH as u64 + 5, LENGTH as u64 / 2, 1]);
    assert_eq!((counters.live.count(), counters.in_pipes.get()), (0, 0));
}

/// What has moved everything waits until there is more, and does not look again before.
#[tokio::test]
async fn a_relay_is_polled_once_for_what_has_arrived() {
    const BYTES: usize = 100;
    let ([mut client, near], [far, mut server]) = (connected().await, connected().await);
    let polls = Arc::new(AtomicUsize::new(0));
    let source = near.peer_addr().unwrap();
    let open = StreamOpening { destination: far.peer_addr().unwrap(), source, dscp: None };
    tokio::spawn({
        let polls = polls.clone();
        async move {
            let counters = GatewayCounters::default();
            let entry = Registered::direct(clock::now(), &counters, open);
            let mut relay =
                pin!(direct(TcpLeg::new(near), TcpLeg::new(far), &[], entry, &counters));
            poll_fn(|context| {
                polls.fetch_add(1, Ordering::Relaxed);
                relay.as_mut().poll(context)
            })
            .await;
        }
    });
    for _ in 0..BYTES {
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= BYTES + BYTES / 10, "{polls} polls");
}

#[tokio::test]
async fn either_side_may_end_first_and_hear_the_other() {
    let Joined { mut client, mut server, .. } = joined(&[]).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await.unwrap(), b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await.unwrap(), b"answer");

    let Joined { mut client, mut server, .. } = joined(&[]).await;
    server.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await.unwrap(), b"");
    client.write_all(b"afterwards").await.unwrap();
    drop(client);
    assert_eq!(read_all(&mut server).await.unwrap(), b"afterwards");
}

#[tokio::test]
async fn a_reset_by_either_side_is_a_reset_at_the_other() {
    let Joined { mut client, mut server, .. } = joined(&[]).await;
    client.write_all(&payload(1, 100_000)).await.unwrap();
    server.read_exact(&mut [0; 50_000]).await.unwrap();
    abort(client);
    assert_reset(read_all(&mut server).await);

    let Joined { mut client, server, counters, relay } = joined(&[]).await;
    abort(server);
    assert_reset(read_all(&mut client).await);
    relay.await.unwrap();
    assert_eq!((counters.traffic.reset.get(), counters.traffic.closed.get()), (1, 0));
}

/// Its kernel resets the connection, because there is data that it has not read.
#[tokio::test]
async fn a_server_that_has_not_read_everything_has_answered_all_the_same() {
    for length in [300, 50_000] {
        let Joined { mut client, mut server, relay, .. } = joined(&[]).await;
        client.write_all(&payload(1, 5000)).await.unwrap();
        server.read_exact(&mut [0; 100]).await.unwrap();
        let answer = payload(2, length);
        server.write_all(&answer).await.unwrap();
        while socket_options::unacknowledged(&server).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        drop(server);
        assert!(read_to_reset(&mut client).await == answer);
        relay.await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_reader_gets_everything_of_a_sender_that_closed_at_once() {
    const LENGTH: usize = 8_000_000;
    let Joined { mut client, mut server, relay, .. } = joined(&[]).await;
    SockRef::from(&client).set_recv_buffer_size(20_000).unwrap();
    let sent = payload(1, LENGTH);
    let expected = sent.clone();
    let sender = tokio::spawn(async move {
        server.write_all(&sent).await.unwrap();
        drop(server);
    });
    let mut received = Vec::with_capacity(LENGTH);
    let mut piece = [0; 10_000];
    loop {
        match client.read(&mut piece).await.unwrap() {
            0 => break,
            count => received.extend_from_slice(&piece[..count]),
        }
        tokio::task::yield_now().await;
    }
    assert!(received == expected, "{} of {LENGTH} bytes", received.len());
    sender.await.unwrap();
    drop(client);
    relay.await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_gone_after_its_reply_does_not_spoil_it() {
    const LENGTH: usize = 1_000_000;
    let Joined { mut client, mut server, .. } = joined(&[]).await;
    let sent = payload(1, LENGTH);
    server.write_all(&sent).await.unwrap();
    server.shutdown().await.unwrap();
    while socket_options::unacknowledged(&server).unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    // Like a kernel that has forgotten the connection and is probed.
    abort(server);
    client.write_all(b"never read").await.unwrap();
    assert!(read_all(&mut client).await.unwrap() == sent);
}

#[tokio::test]
async fn a_stopped_reader_stops_the_sender_and_its_reset_is_noticed() {
    let Joined { client, server, relay, counters } = joined(&[]).await;
    let piece = payload(1, 100_000);
    let mut full = 0;
    while full < 1000 {
        full = if server.try_write(&piece).is_ok() { 0 } else { full + 1 };
        tokio::task::yield_now().await;
    }
    // The relay holds at most a pipe; the rest is in the kernel's buffers.
    assert!(counters.traffic.down_bytes.get() < 100_000_000);
    let held = counters.in_pipes.get();
    assert!((1..=CAPACITY as u64).contains(&held), "{held}");
    abort(client);
    server.ready(Interest::ERROR).await.unwrap();
    let error = server.take_error().unwrap().expect("an error is pending");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    relay.await.unwrap();
    assert_eq!(counters.in_pipes.get(), 0);
}

#[tokio::test]
async fn single_bytes_pass_one_by_one() {
    let Joined { mut client, mut server, relay, .. } = joined(&[]).await;
    for byte in 0..=255 {
        client.write_u8(byte).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), byte);
        server.write_u8(!byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), !byte);
    }
    drop((client, server));
    relay.await.unwrap();
}

/// Data after an urgent byte is not delayed, and the byte stays in its place.
#[tokio::test]
async fn urgent_bytes_are_bytes_in_their_place() {
    let Joined { mut client, mut server, relay, counters } = joined(b"").await;
    speak_urgently(&client, &mut server).await;
    speak_urgently(&server, &mut client).await;
    assert_eq!(counters.traffic.urgent.get(), 6);
    drop((client, server));
    relay.await.unwrap();
}

/// The next step of a connection without a pipe, however often it takes to get there.
async fn copied(pair: &mut RelayPair<'_>) -> LegStep {
    poll_fn(|context| match pair.polled(clock::now(), context).copy(LegSide::Client) {
        LegStep::Blocked(_) => Poll::Pending,
        step => Poll::Ready(step),
    })
    .await
}

#[tokio::test]
async fn bytes_are_copied_where_there_is_no_pipe() {
    let ([mut client, near], [far, mut server]) = (connected().await, connected().await);
    let counters = GatewayCounters::default();
    let source = near.peer_addr().unwrap();
    let open = StreamOpening { destination: far.peer_addr().unwrap(), source, dscp: None };
    let entry = Registered::direct(clock::now(), &counters, open);
    let mut pair = RelayPair::direct(
        TcpLeg::new(near).into(),
        TcpLeg::new(far).into(),
        b"",
        &entry,
        &counters,
    );
    client.write_all(b"copied").await.unwrap();
    let mut got = Vec::new();
    while got.len() < 6 {
        assert!(matches!(copied(&mut pair).await, LegStep::Moved(1..)));
        server.read_buf(&mut got).await.unwrap();
    }
    assert_eq!(got, b"copied");
    SockRef::from(&client).send_out_of_band(b"ab").unwrap();
    got.clear();
    while got.len() < 2 {
        assert!(matches!(copied(&mut pair).await, LegStep::Moved(1..)));
        server.read_buf(&mut got).await.unwrap();
    }
    assert_eq!((&got[..], counters.traffic.urgent.get()), (&b"ab"[..], 1));
    drop(client);
    assert_eq!(copied(&mut pair).await, LegStep::End);
}
