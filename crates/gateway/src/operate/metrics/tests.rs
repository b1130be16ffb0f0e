//! The server over loopback, with a gateway that answers each status.

use std::io::{Read, Write};
use std::net::TcpStream;

use control::Role;
use control::status::ConnectionStatus;
use units::Instant;

use super::*;

/// Answers like a solo gateway with one connection.
async fn gateway(mut calls: mpsc::Receiver<ControlCall>) {
    let connection =
        ConnectionStatus { destination: "192.0.2.9:443".to_owned(), ..Default::default() };
    while let Some(call) = calls.recv().await {
        let answer = match call.request {
            ControlRequest::Status { connections } => {
                ControlAnswer::Status(Box::new(GatewayStatus {
                    role: Role::Solo,
                    connections: connections.then(|| vec![connection.clone()]),
                    ..GatewayStatus::default()
                }))
            }
            ControlRequest::Connections { .. } => {
                ControlAnswer::Connections { most_moved: vec![connection.clone()], total: 1 }
            }
            _ => ControlAnswer::Error("no".to_owned()),
        };
        call.answer(answer);
    }
}

fn config(token: Option<&tempfile::NamedTempFile>) -> MetricsConfig {
    MetricsConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        token_file: token.map(|file| file.path().to_owned()),
        allow: Vec::new(),
        hosts: Vec::new(),
        hide_destinations: true,
    }
}

/// A server without the task that asks each second, and its address.
async fn serve(
    config: &MetricsConfig,
    slowest: Duration,
) -> (SocketAddr, Arc<LiveStatus>, JoinSet<()>) {
    let (sender, calls) = mpsc::channel(4);
    let live = LiveStatus::new(Instant::ZERO, config.hide_destinations);
    let access = Arc::new(MetricsAccess::new(config).unwrap());
    let listener = listen(config.listen, slowest).unwrap();
    let at = listener.local_addr().unwrap();
    let router =
        router(MetricsShared { calls: sender, live: live.clone(), access: access.clone() });
    let mut tasks = JoinSet::new();
    tasks.spawn(gateway(calls));
    tasks.spawn(server::serve(listener, router, access));
    (at, live, tasks)
}

/// The whole answer to a request with these headers.
async fn ask_for(at: SocketAddr, request: &str, headers: &str) -> String {
    let text = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    let whole = move || {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    };
    tokio::task::spawn_blocking(whole).await.unwrap()
}

/// Connects and says this.
async fn say(at: SocketAddr, text: &str) -> tokio::net::TcpStream {
    let mut socket = tokio::net::TcpStream::connect(at).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, text.as_bytes()).await.unwrap();
    socket
}

/// What is said until it contains `text`.
async fn hear(socket: &mut tokio::net::TcpStream, text: &str) -> String {
    let (mut said, mut part) = (String::new(), [0; 4096]);
    while !said.contains(text) {
        let got = tokio::io::AsyncReadExt::read(socket, &mut part).await.unwrap();
        assert!(got > 0, "{said}");
        said += &String::from_utf8_lossy(&part[..got]);
    }
    said
}

/// What is said until the connection ends, within this time.
async fn hear_all(socket: &mut tokio::net::TcpStream, within: Duration) -> String {
    let mut said = String::new();
    let reading = tokio::io::AsyncReadExt::read_to_string(socket, &mut said);
    timeout(within, reading).await.expect("the connection ends").unwrap();
    said
}

const FOLLOW: &str = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

const TOKEN: &str = "0123456789abcdef";

#[tokio::test]
async fn both_text_formats_are_served() {
    let (at, _, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    let old = ask_for(at, "GET /metrics", "Host: localhost\r\n").await;
    assert!(old.contains("text/plain; version=0.0.4") && !old.contains("# EOF"), "{old}");
    let accept = "Host: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n";
    let new = ask_for(at, "GET /metrics", accept).await;
    assert!(new.contains("application/openmetrics-text") && new.contains("# EOF"), "{new}");
}

#[tokio::test]
async fn a_foreign_host_is_refused_everywhere() {
    let (at, _, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    for path in ["/", "/metrics", "/status.json", "/events"] {
        let refused = ask_for(at, &format!("GET {path}"), "Host: evil.example\r\n").await;
        assert_eq!(code(&refused), "421", "{path}: {refused}");
        assert!(refused.contains("[metrics] hosts"), "{refused}");
    }
    let page = ask_for(at, "GET /", "Host: 127.0.0.1:9590\r\n").await;
    assert!(code(&page) == "200" && page.contains("<title>skyhop</title>"), "{page}");
    for header in ["cache-control: no-store", "nosniff", "no-referrer", "same-origin"] {
        assert!(page.contains(header), "{header}");
    }
    assert_eq!(code(&ask_for(at, "POST /metrics", "Host: localhost\r\n").await), "405");
}

#[tokio::test]
async fn nothing_is_shown_without_the_token() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TOKEN.as_bytes()).unwrap();
    let (at, _, _tasks) = serve(&config(Some(&file)), STALL_TIMEOUT).await;
    for path in ["/metrics", "/status.json", "/events", "/metrics?token=0123456789abcdef"] {
        let refused = ask_for(at, &format!("GET {path}"), "Host: hub\r\n").await;
        assert_eq!(code(&refused), "401", "{path}: {refused}");
        assert!(refused.contains("www-authenticate: Bearer"), "{refused}");
    }
    let form = ask_for(at, "GET /", "Host: hub\r\n").await;
    assert!(code(&form) == "401" && form.contains("type=\"password\""), "{form}");
    let bearer = format!("Host: hub\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(code(&ask_for(at, "GET /metrics", &bearer).await), "200");
    // A browser exchanges the token for a cookie, and loses it from its address.
    let body = format!("token={TOKEN}");
    let head = |body: &str| {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        format!("Host: hub\r\n{kind}\r\nContent-Length: {}\r\n", body.len())
    };
    let posted = format!("{}Connection: close\r\n\r\n{body}", head(&body));
    let by_form = ask_for(at, "POST /login", &posted).await;
    let by_address = ask_for(at, &format!("GET /?token={TOKEN}"), "Host: hub\r\n").await;
    for given in [by_form, by_address] {
        assert!(code(&given) == "303" && given.contains("location: /\r\n"), "{given}");
        let cookie = given.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let shown = ask_for(at, "GET /", &format!("Host: hub\r\nCookie: {cookie}\r\n")).await;
        assert!(code(&shown) == "200" && shown.contains("id=\"sessions\""), "{shown}");
    }
    let wrong = ask_for(at, "GET /?token=0123456789abcdeg", "Host: hub\r\n").await;
    assert!(code(&wrong) == "401" && wrong.contains("not the token"), "{wrong}");
}

#[tokio::test]
async fn hidden_destinations_are_in_no_answer() {
    let (at, live, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    let status = ask_for(at, "GET /status.json", "Host: localhost\r\n").await;
    assert!(status.contains("\"destination\":\"hidden\"") && !status.contains("192.0.2.9"));
    let (calls, answered) = mpsc::channel(4);
    let mut tasks = JoinSet::new();
    tasks.spawn(gateway(answered));
    live.publish(
        Instant::ZERO,
        GatewayStatus { role: Role::Solo, ..GatewayStatus::default() },
        [].into(),
    );
    let mut socket = say(at, FOLLOW).await;
    tasks.spawn(live.clone().follow(calls));
    let said = hear(&mut socket, "\"connections\":{\"rows\"").await;
    assert!(said.contains("text/event-stream") && said.contains("\"hidden\""), "{said}");
    assert!(!said.contains("192.0.2.9"), "{said}");
}

/// A viewer who reads nothing loses the connection, and others get the place.
#[tokio::test]
async fn a_viewer_who_reads_nothing_loses_its_place() {
    let (at, live, _tasks) = serve(&config(None), Duration::from_millis(200)).await;
    let viewers: Vec<TcpStream> = (0..live::MAX_VIEWERS)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let socket = socket.unwrap();
            socket.set_recv_buffer_size(1024).unwrap();
            socket.connect(&at.into()).unwrap();
            let mut socket = TcpStream::from(socket);
            socket.write_all(FOLLOW.as_bytes()).unwrap();
            socket
        })
        .collect();
    let full = async || loop {
        let answer = ask_for(at, "HEAD /events", "Host: localhost\r\n").await;
        if code(&answer) == "503" {
            return;
        }
    };
    full().await;
    // Statuses with more than the kernel holds, until a place is free.
    let long = GatewayStatus { version: "v".repeat(100_000), ..GatewayStatus::default() };
    for second in 1.. {
        live.publish(Instant::ZERO + Duration::from_secs(second), long.clone(), [].into());
        let answer = ask_for(at, "HEAD /events", "Host: localhost\r\n").await;
        if code(&answer) == "200" {
            break;
        }
    }
    drop(viewers);
}

/// A crowd that connects and never finishes a request locks nobody out, nor a viewer of before.
#[tokio::test]
async fn the_oldest_connection_that_follows_nothing_gives_way_to_the_newest() {
    let (at, live, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    let mut viewer = say(at, FOLLOW).await;
    hear(&mut viewer, "text/event-stream").await;
    let mut crowd = Vec::new();
    for _ in 0..server::MAX_SERVED + 2 {
        crowd.push(say(at, "GET /").await);
    }
    let answer = ask_for(at, "GET /metrics", "Host: localhost\r\n").await;
    assert_eq!(code(&answer), "200");
    for oldest in &mut crowd[..3] {
        assert_eq!(hear_all(oldest, REQUEST_TIMEOUT / 2).await, "");
    }
    live.publish(
        Instant::ZERO,
        GatewayStatus { role: Role::Solo, ..GatewayStatus::default() },
        [].into(),
    );
    hear(&mut viewer, "\"gateway\"").await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_in_time_if_its_request_does_not_come() {
    let (at, _, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    let form = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 22\r\n\r\ntoken=";
    let whole = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (said, answer) in [("", ""), ("GET /metrics HTTP", ""), (form, "408"), (whole, "200")] {
        let began = tokio::time::Instant::now();
        let mut socket = say(at, said).await;
        let heard = hear_all(&mut socket, 3 * REQUEST_TIMEOUT).await;
        assert_eq!(code(&heard), answer, "{said:?}: {heard}");
        let lasted = began.elapsed();
        assert!((REQUEST_TIMEOUT..2 * REQUEST_TIMEOUT).contains(&lasted), "{said:?}: {lasted:?}");
    }
}

#[tokio::test]
async fn a_form_longer_than_any_token_is_refused() {
    let (at, _, _tasks) = serve(&config(None), STALL_TIMEOUT).await;
    let head = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n";
    let mut socket = say(at, &format!("{head}{}", "t".repeat(2000))).await;
    assert_eq!(code(&hear(&mut socket, "\r\n\r\n").await), "413");
}
