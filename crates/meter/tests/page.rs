//! Pages over loopback, with real sockets.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use meter::protocol::payload::{Payload, PayloadSide, flow_key};
use meter::{FlowOutcome, HttpMode, PageOptions, PageReport, ProgressCounter, Stop, page, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use units::ByteCount;

const KEY: u64 = 0x9a6e;
const MODES: [HttpMode; 4] =
    [HttpMode::Http10, HttpMode::Http10KeepAlive, HttpMode::Http11, HttpMode::Http11Pipelined];

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// Starts a server that lives as long as the test's runtime.
fn server() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { serve(listener).await.expect("serves") });
    address
}

/// Starts a server that handles every connection with the given function.
async fn impostor<F: Future<Output = ()> + Send + 'static>(
    behave: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(behave(stream));
        }
    });
    address
}

fn options(server: SocketAddr, mode: HttpMode, objects: &[u64], connections: u32) -> PageOptions {
    PageOptions {
        server,
        mode,
        objects: objects.iter().copied().map(ByteCount::new).collect(),
        connections,
        congestion_control: None,
        fresh: None,
        limit: None,
        key: KEY,
        progress: ProgressCounter::default(),
        stop: Stop::default(),
    }
}

/// Reads this many requests; returns their heads.
async fn requests(stream: &mut TcpStream, count: usize) -> String {
    let mut text = String::new();
    while text.matches("\r\n\r\n").count() < count {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).await.expect("reads");
        assert!(read > 0, "only {text:?}");
        text += std::str::from_utf8(&bytes[..read]).expect("text");
    }
    text
}

/// A correct reply for an object.
fn reply(object: u64, size: usize) -> Vec<u8> {
    let mut body = vec![0; size];
    Payload::new(flow_key(KEY, object), PayloadSide::Server).fill(0, &mut body);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
    [head.as_bytes(), &body].concat()
}

fn outcomes(report: &PageReport) -> Vec<&FlowOutcome> {
    report.objects.iter().map(|object| &object.outcome).collect()
}

#[test]
fn every_mode_loads_every_object() {
    block_on(async {
        let server = server();
        for mode in MODES {
            for connections in [1, 3, 20] {
                let options = options(server, mode, &[5000, 0, 1, 300_000, 70_000], connections);
                let report = page(&options).await;
                assert!(report.is_complete(), "{report:?}");
                assert_eq!((options.progress.get(), report.object_seconds.unwrap().count), (5, 5));
                for object in &report.objects {
                    assert!(object.first_byte.unwrap() <= object.time.unwrap(), "{object:?}");
                    assert!(object.start.unwrap() + object.time.unwrap() <= report.total);
                    assert!(object.connection.unwrap() < connections);
                }
            }
        }
    });
}

#[test]
fn each_mode_asks_in_its_own_way() {
    block_on(async {
        for (mode, at_once, version, connection) in [
            (HttpMode::Http10, 1, "HTTP/1.0\r\n", "Connection: close"),
            (HttpMode::Http10KeepAlive, 1, "HTTP/1.0\r\n", "Connection: keep-alive"),
            (HttpMode::Http11, 1, "HTTP/1.1\r\n", "Connection: keep-alive"),
            // Answers only after all three requests have arrived.
            (HttpMode::Http11Pipelined, 3, "HTTP/1.1\r\n", "Connection: keep-alive"),
        ] {
            let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
            let server = impostor(move |mut stream| {
                let told = told.clone();
                async move {
                    let text = requests(&mut stream, at_once).await;
                    let count = text.matches("GET /object/").count();
                    assert!(text.contains(version) && text.contains(connection), "{text}");
                    told.send(count).expect("the test listens");
                    for object in 0..count as u64 {
                        stream.write_all(&reply(object, 100)).await.expect("writes");
                    }
                    stream.shutdown().await.expect("closes");
                }
            })
            .await;
            let report = page(&options(server, mode, &vec![100; at_once], 1)).await;
            assert!(report.is_complete(), "{mode:?}: {report:?}");
            assert_eq!(seen.recv().await, Some(at_once));
        }
    });
}

#[test]
fn a_wrong_byte_is_found() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            requests(&mut stream, 1).await;
            let mut reply = reply(0, 1000);
            *reply.last_mut().expect("a byte") ^= 1;
            let _ = stream.write_all(&reply).await;
        })
        .await;
        let report = page(&options(server, HttpMode::Http10, &[1000], 1)).await;
        assert_eq!(outcomes(&report), [&FlowOutcome::Corrupt { offset: 999 }]);
        assert!(!report.is_complete());
    });
}

#[test]
fn losses_with_a_pipeline_are_reported() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            requests(&mut stream, 3).await;
            let _ = stream.write_all(&reply(0, 1000)).await;
            let _ = stream.write_all(&reply(1, 1000)[..500]).await;
            let _ = stream.shutdown().await;
        })
        .await;
        let report = page(&options(server, HttpMode::Http11Pipelined, &[1000; 3], 1)).await;
        let outcomes = outcomes(&report);
        assert_eq!(outcomes[..2], [&FlowOutcome::Complete, &FlowOutcome::Truncated]);
        assert!(matches!(outcomes[2], FlowOutcome::Failed { .. }), "{report:?}");
    });
}

#[test]
fn another_answer_is_no_object() {
    block_on(async {
        for (answer, told) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404 Not Found"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", "received more"),
            ("HTTP/1.1 200 OK\r\n\r\n", "object's length"),
        ] {
            let server = impostor(move |mut stream| async move {
                requests(&mut stream, 1).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            })
            .await;
            let report = page(&options(server, HttpMode::Http11, &[1000], 1)).await;
            match outcomes(&report)[..] {
                [FlowOutcome::Failed { error }] => assert!(error.contains(told), "{error}"),
                ref other => panic!("{answer:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn the_limit_ends_a_page() {
    block_on(async {
        let server = impostor(|mut stream| async move {
            requests(&mut stream, 1).await;
            let _ = stream.write_all(&reply(0, 1000)).await;
            while stream.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        })
        .await;
        let limit = Some(Duration::from_millis(200));
        let options = PageOptions { limit, ..options(server, HttpMode::Http11, &[1000; 2], 1) };
        let report = page(&options).await;
        assert_eq!(outcomes(&report), [&FlowOutcome::Complete, &FlowOutcome::Unfinished]);
        assert!(report.total >= Duration::from_millis(200));
    });
}

#[test]
fn the_server_chooses_the_congestion_control_or_says_no() {
    block_on(async {
        let server = server();
        let with = |name: &str| PageOptions {
            congestion_control: Some(name.parse().expect("a name")),
            ..options(server, HttpMode::Http11, &[1000], 1)
        };
        assert!(page(&with("reno")).await.is_complete());
        match outcomes(&page(&with("no-such-cc")).await)[..] {
            [FlowOutcome::Failed { error }] => {
                assert!(error.contains("congestion control"), "{error}");
            }
            ref other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_wrong_request_gets_404_and_the_server_lives() {
    block_on(async {
        let server = server();
        let mut stream = TcpStream::connect(server).await.expect("connects");
        stream.write_all(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("reads");
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        assert!(page(&options(server, HttpMode::Http10, &[10], 1)).await.is_complete());
    });
}
