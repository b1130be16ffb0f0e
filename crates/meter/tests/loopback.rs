//! Client and server over loopback, with real sockets.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use meter::protocol::answer::{ANSWER_LEN, Receipt, RequestRefusal, ServerAnswer};
use meter::protocol::frame;
use meter::protocol::payload::{Payload, PayloadSide, flow_key};
use meter::protocol::request::{MeterRequest, REQUEST_LEN, RequestedWork};
use meter::sockets::SocketOptions;
use meter::{
    BulkOptions, BulkReport, Direction, Directions, FlowAmount, FlowOutcome, ProgressCounter,
    RrOptions, Stop, bulk, request_reply, serve,
};
use os::testkit::skip;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use units::{BitRate, ByteCount};

const KEY: u64 = 0x5eed;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// A listener on a free port.
fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port on loopback")
}

/// Starts a server that lives as long as the test's runtime.
fn server() -> SocketAddr {
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { serve(listener).await.expect("serves") });
    address
}

/// Starts a server that handles its only connection with the given function.
fn impostor<F: Future<Output = ()> + Send>(
    behave: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    listener.set_nonblocking(true).expect("non-blocking");
    let listener = tokio::net::TcpListener::from_std(listener).expect("registers");
    tokio::spawn(async move { behave(listener.accept().await.expect("accepts").0).await });
    address
}

fn options(server: SocketAddr, directions: Directions, bytes: u64) -> BulkOptions {
    BulkOptions { directions, ..BulkOptions::new(server, amount(bytes), KEY) }
}

fn amount(bytes: u64) -> FlowAmount {
    FlowAmount::Bytes(ByteCount::new(bytes))
}

fn request(key: u64, work: RequestedWork) -> MeterRequest {
    MeterRequest { key, sockets: SocketOptions::default(), work }
}

fn rr_options(server: SocketAddr) -> RrOptions {
    RrOptions {
        server,
        connections: 3,
        count: 10,
        request: ByteCount::new(1000),
        reply: ByteCount::new(10_000),
        congestion_control: None,
        limit: None,
        key: KEY,
        progress: ProgressCounter::default(),
        stop: Stop::default(),
    }
}

fn error_of(report: &BulkReport) -> &str {
    match &report.flows[0].outcome {
        FlowOutcome::Failed { error } => error,
        outcome => panic!("{outcome:?} is not a failure"),
    }
}

#[test]
fn a_download_is_verified() {
    block_on(async {
        let options = options(server(), Directions::Download, 3_000_001);
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
        let flow = &report.flows[0];
        assert_eq!((flow.moved_bytes, options.progress.get()), (3_000_001, 3_000_001));
        let (connect, first) = (flow.connect.unwrap(), flow.first_byte.unwrap());
        assert!(connect <= first && first <= flow.total && flow.receive.unwrap() <= flow.total);
        assert!(flow.goodput.is_some());
    });
}

#[test]
fn an_upload_gets_a_receipt() {
    block_on(async {
        let options = options(server(), Directions::Upload, 3_000_001);
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!((report.moved_bytes, options.progress.get()), (3_000_001, 3_000_001));
        assert!(report.flows[0].first_byte.unwrap() <= report.flows[0].total);
    });
}

#[test]
fn many_flows_share() {
    block_on(async {
        let options = BulkOptions { flows: 8, ..options(server(), Directions::Download, 100_000) };
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.moved_bytes, 800_000);
        assert!(report.flows.iter().map(|flow| flow.flow).eq(0..8));
        let jain = report.jain_index.unwrap();
        assert!(jain > 0.125 && jain <= 1.0 + 1e-9, "{jain}");
    });
}

#[test]
fn both_directions_at_once() {
    block_on(async {
        let options = BulkOptions { flows: 3, ..options(server(), Directions::Both, 200_000) };
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
        let directions: Vec<Direction> = report.flows.iter().map(|flow| flow.direction).collect();
        assert_eq!(directions[..3], [Direction::Download; 3]);
        assert_eq!(directions[3..], [Direction::Upload; 3]);
        assert_eq!(report.moved_bytes, 1_200_000);
        assert!(report.sums.iter().map(|sum| sum.moved_bytes).eq([600_000; 2]));
    });
}

#[test]
fn the_sender_of_either_direction_tells_its_figures() {
    block_on(async {
        let report = bulk(&options(server(), Directions::Both, 1_000_000)).await;
        for flow in &report.flows {
            let sender = flow.sender.expect("figures");
            assert_eq!(sender.sent_bytes, 1_000_000);
            // On a busy machine acknowledgements are late, and the kernel probes (RFC 8985, 7).
            assert!(sender.retransmitted_segments < sender.segments, "{sender:?}");
            assert!(sender.min_rtt.unwrap() <= sender.mean_rtt.unwrap(), "{sender:?}");
            assert!(flow.client.unwrap().ip().is_loopback());
        }
    });
}

#[test]
fn flows_may_end_by_time() {
    block_on(async {
        let time = Duration::from_millis(200);
        let options = BulkOptions {
            amount: FlowAmount::Time(time),
            cap: Some(BitRate::from_mbit(80)),
            ..options(server(), Directions::Both, 0)
        };
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
        for flow in &report.flows {
            assert!(flow.total >= time && flow.asked_bytes.is_none(), "{flow:?}");
            assert_eq!(flow.moved_bytes, flow.sender.unwrap().sent_bytes);
            // 80 Mbit/s for 200 ms, plus a burst of 20 ms and the last block.
            let most = BitRate::from_mbit(80).bytes_in(flow.total).get() + 200_000 + 16_384;
            assert!(flow.moved_bytes > 0 && flow.moved_bytes <= most, "{flow:?}");
        }
    });
}

#[test]
fn a_stream_without_its_end_is_truncated() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&block(5000)).await.unwrap();
        });
        let amount = FlowAmount::Time(Duration::from_secs(1));
        let report =
            bulk(&BulkOptions { amount, ..options(server, Directions::Download, 0) }).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Truncated);
        assert_eq!(report.moved_bytes, 5000);
    });
}

#[test]
fn a_sender_that_sent_more_than_came_is_no_success() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&block(5000)).await.unwrap();
            stream.write_all(&frame::head(0)).await.unwrap();
            let sent = meter::SenderReport { sent_bytes: 6000, ..Default::default() };
            stream.write_all(&ServerAnswer::Sent(sent).encode()).await.unwrap();
            let _ = stream.read(&mut [0]).await;
        });
        let amount = FlowAmount::Time(Duration::from_secs(1));
        let report =
            bulk(&BulkOptions { amount, ..options(server, Directions::Download, 0) }).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Truncated);
    });
}

#[test]
fn flows_start_one_after_the_other() {
    block_on(async {
        let spacing = Duration::from_millis(30);
        let options = options(server(), Directions::Download, 1000);
        let report = bulk(&BulkOptions { flows: 3, spacing, ..options }).await;
        assert!(report.is_complete(), "{report:?}");
        for (flow, nth) in report.flows.iter().zip(0..) {
            assert!(flow.start >= spacing * nth, "{flow:?}");
        }
        assert!(report.total >= spacing * 2);
    });
}

#[test]
fn buffers_beyond_the_kernels_limit_are_refused() {
    block_on(async {
        let server = server();
        let huge = Some(ByteCount::new(u64::from(u32::MAX)));
        for (directions, told) in [
            (Directions::Upload, "net.core.wmem_max"),
            (
                Directions::Download,
                "the server's kernel does not allow socket buffers of that \
                                    size",
            ),
        ] {
            let options = options(server, directions, 1000);
            let report = bulk(&BulkOptions { send_buffer: huge, ..options }).await;
            assert!(error_of(&report).contains(told), "{}", error_of(&report));
        }
    });
}

#[test]
fn small_buffers_carry_everything_as_well() {
    block_on(async {
        let small = Some(ByteCount::new(8192));
        let options = BulkOptions {
            send_buffer: small,
            receive_buffer: small,
            ..options(server(), Directions::Both, 30_000)
        };
        let report = bulk(&options).await;
        assert!(report.is_complete(), "{report:?}");
    });
}

#[test]
fn nothing_at_all_can_be_moved() {
    block_on(async {
        let server = server();
        for direction in [Directions::Download, Directions::Upload] {
            assert!(bulk(&options(server, direction, 0)).await.is_complete());
        }
    });
}

#[test]
fn works_over_ipv6() {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return skip("this machine has no IPv6 on loopback");
    };
    block_on(async {
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        assert!(bulk(&options(address, Directions::Upload, 10_000)).await.is_complete());
    });
}

#[test]
fn requests_are_answered() {
    block_on(async {
        let options = rr_options(server());
        let report = request_reply(&options).await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!((report.asked(), report.answered(), options.progress.get()), (10, 10, 10));
        let asked: Vec<u32> = report.connections.iter().map(|c| c.asked).collect();
        assert_eq!(asked, [4, 3, 3]);
        assert_eq!(report.response_seconds.unwrap().count, 10);
        for connection in &report.connections {
            assert!(connection.connect.unwrap() <= connection.responses[0].time);
        }
    });
}

#[test]
fn reports_survive_json() {
    block_on(async {
        let server = server();
        let report = bulk(&options(server, Directions::Upload, 5000)).await;
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains("\"goodput_bits_per_second\":"), "{text}");
        let again: BulkReport = serde_json::from_str(&text).unwrap();
        assert_eq!(again.flows[0].outcome, FlowOutcome::Complete);
        assert_eq!(again.flows[0].moved_bytes, 5000);
        let text = serde_json::to_string(&request_reply(&rr_options(server)).await).unwrap();
        assert!(serde_json::from_str::<meter::RrReport>(&text).is_ok(), "{text}");
    });
}

#[test]
fn a_wrong_byte_of_a_download_is_found() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            let mut bytes = block(5000);
            bytes[frame::HEAD_LEN + 4321] ^= 1;
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let report = bulk(&options(server, Directions::Download, 5000)).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Corrupt { offset: 4321 });
    });
}

#[test]
fn an_upload_of_another_key_is_found() {
    block_on(async {
        let mut stream = TcpStream::connect(server()).await.unwrap();
        let work = RequestedWork::Upload { amount: amount(1000) };
        let request = request(1, work);
        let mut bytes = vec![0; 1000];
        Payload::new(2, PayloadSide::Client).fill(0, &mut bytes);
        stream.write_all(&request.encode()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        match answers(stream).await.last() {
            // One byte in 256 is right by chance, but not the first of these.
            Some(ServerAnswer::Receipt(Receipt { bytes: 1000, first_wrong: Some(0), .. })) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_wrong_receipt_is_no_success() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            while stream.read(&mut [0; 4096]).await.unwrap() > 0 {}
            let receipt =
                Receipt { bytes: 5000, first_wrong: Some(17), span: Duration::from_millis(1) };
            stream.write_all(&ServerAnswer::Receipt(receipt).encode()).await.unwrap();
        });
        let report = bulk(&options(server, Directions::Upload, 5000)).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Corrupt { offset: 17 });
    });
}

#[test]
fn a_truncated_download_is_no_success() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            let bytes = block(1234);
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let report = bulk(&options(server, Directions::Download, 5000)).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Truncated);
        assert_eq!(report.moved_bytes, 1234);
    });
}

#[test]
fn an_excess_byte_is_no_success() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            let bytes = block(101);
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let report = bulk(&options(server, Directions::Download, 100)).await;
        assert_eq!(error_of(&report), "received more than the 100 bytes requested");
    });
}

#[test]
fn a_limit_ends_a_transfer_that_does_not_move() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            let bytes = block(1000);
            stream.write_all(&ServerAnswer::Accepted.encode()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            // Keeps the connection open until the client gives up.
            let _ = stream.read(&mut [0]).await;
        });
        let limit = Some(Duration::from_millis(300));
        let report =
            bulk(&BulkOptions { limit, ..options(server, Directions::Download, 5000) }).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Unfinished);
        assert_eq!(report.moved_bytes, 1000);
        assert!(report.total >= Duration::from_millis(300));
        assert!(!report.is_complete());
    });
}

#[test]
fn a_limit_resets_the_connection() {
    block_on(async {
        let (told, seen) = tokio::sync::oneshot::channel();
        let server = impostor(|mut stream| async move {
            // Reads so little that most of the upload stays in the client's buffers.
            stream.read_exact(&mut [0; REQUEST_LEN]).await.unwrap();
            stream.writable().await.unwrap();
            let closed = stream.ready(tokio::io::Interest::ERROR).await;
            let _ = told.send(closed.map(|ready| ready.is_error()));
        });
        let limit = Some(Duration::from_millis(300));
        let report =
            bulk(&BulkOptions { limit, ..options(server, Directions::Upload, 1 << 30) }).await;
        assert_eq!(report.flows[0].outcome, FlowOutcome::Unfinished);
        assert!(seen.await.unwrap().unwrap(), "not reset");
    });
}

#[test]
fn a_limit_ends_requests_without_reply() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            while stream.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        });
        let limit = Some(Duration::from_millis(300));
        let report =
            request_reply(&RrOptions { limit, connections: 1, ..rr_options(server) }).await;
        assert_eq!(report.connections[0].outcome, FlowOutcome::Unfinished);
        assert_eq!((report.answered(), report.response_seconds), (0, None));
    });
}

#[test]
fn garbage_is_refused_and_the_server_lives() {
    block_on(async {
        let server = server();
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        stream.write_all(&[b'x'; 10_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(answers(stream).await, [ServerAnswer::Refused(RequestRefusal::Malformed)]);

        let mut version = request(1, RequestedWork::Upload { amount: amount(1) }).encode();
        version[4] = 99;
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(&version).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(answers(stream).await, [ServerAnswer::Refused(RequestRefusal::Version)]);

        assert!(bulk(&options(server, Directions::Download, 10_000)).await.is_complete());
    });
}

#[test]
fn a_client_that_leaves_does_not_end_the_server() {
    block_on(async {
        let server = server();
        let work = RequestedWork::Download { amount: amount(1 << 40), cap: None };
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = request(1, work);
        stream.write_all(&request.encode()).await.unwrap();
        stream.read_exact(&mut [0; 1000]).await.unwrap();
        drop(stream);
        assert!(bulk(&options(server, Directions::Upload, 10_000)).await.is_complete());
    });
}

#[test]
fn congestion_control_is_chosen_by_the_sender() {
    block_on(async {
        let server = server();
        for direction in [Directions::Download, Directions::Upload] {
            let reno = Some("reno".parse().unwrap());
            let options = options(server, direction, 10_000);
            let report = bulk(&BulkOptions { congestion_control: reno, ..options.clone() }).await;
            assert!(report.is_complete(), "{report:?}");

            let unknown = Some("no-such-cc".parse().unwrap());
            let report = bulk(&BulkOptions { congestion_control: unknown, ..options }).await;
            let error = error_of(&report);
            assert!(error.contains("has no") && error.contains("congestion control"), "{error}");
        }
    });
}

#[test]
fn another_program_is_not_taken_for_a_meter() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n").await.unwrap();
            let _ = stream.read(&mut [0; REQUEST_LEN]).await;
        });
        let report = bulk(&options(server, Directions::Download, 100)).await;
        assert!(error_of(&report).starts_with("not a meter server"), "{}", error_of(&report));
    });
}

#[test]
fn a_missing_server_is_an_error() {
    block_on(async {
        let address = listener().local_addr().unwrap();
        let report = bulk(&options(address, Directions::Upload, 100)).await;
        let expected = format!("cannot connect to {address}: ");
        assert!(error_of(&report).starts_with(&expected), "{}", error_of(&report));
    });
}

/// The first block of the first flow's download.
fn block(length: usize) -> Vec<u8> {
    let mut payload = vec![0; length];
    Payload::new(flow_key(KEY, 0), PayloadSide::Server).fill(0, &mut payload);
    [&frame::head(length)[..], &payload].concat()
}

/// All answers until the server closes.
async fn answers(mut stream: TcpStream) -> Vec<ServerAnswer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("an orderly close");
    let answers = bytes.chunks(ANSWER_LEN).map(|chunk| {
        ServerAnswer::decode(chunk.try_into().expect("whole answers")).expect("an answer")
    });
    answers.collect()
}

#[test]
fn a_stopped_measurement_reports_what_it_has() {
    block_on(async {
        let server = server();
        // No time limit: without the stop this would go on for an hour.
        let hour = FlowAmount::Time(Duration::from_secs(3600));
        for directions in [Directions::Download, Directions::Upload] {
            let options = BulkOptions { directions, ..BulkOptions::new(server, hour, KEY) };
            let measured = async {
                while options.progress.get() == 0 {
                    tokio::task::yield_now().await;
                }
                options.stop.stop();
            };
            let (report, ()) = tokio::join!(bulk(&options), measured);
            assert_eq!(report.flows[0].outcome, FlowOutcome::Interrupted);
            assert!(report.moved_bytes > 0 && report.goodput.is_some(), "{report:?}");
        }
        let options = RrOptions { count: 1_000_000_000, ..rr_options(server) };
        let answered = async {
            while options.progress.get() == 0 {
                tokio::task::yield_now().await;
            }
            options.stop.stop();
        };
        let (report, ()) = tokio::join!(request_reply(&options), answered);
        assert!(report.connections.iter().all(|it| it.outcome == FlowOutcome::Interrupted));
        assert!(report.answered() > 0, "{report:?}");
    });
}
