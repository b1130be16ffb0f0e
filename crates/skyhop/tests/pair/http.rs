//! Cleartext HTTP: answered from a cache, or passed as it came.

pub(crate) mod gone;
mod server;
pub(crate) mod tls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use lab::{LAN_DEVICE, Node};
use nix::sys::signal::Signal;

use self::server::Server;
use self::tls::{Identity, TlsServer, answer, ask, site};
use crate::common::{as_each_user, as_myself, assert_takes, text};
use crate::inside::{Gateway, Mirror, PATIENCE, Pair, addresses, connect, read_all, wait_until};
use crate::names;
use crate::operate::{Sockets, skyhop, status};

/// A geostationary hop without losses.
const LINK: [&str; 6] = ["--rate", "100Mbit/s", "--return-rate", "50Mbit/s", "--delay", "300ms"];
const RTT: Duration = Duration::from_millis(600);
/// What a request may cost beyond its round trip.
const BEYOND: Duration = Duration::from_millis(20);
/// What an answer from the cache may take.
const HIT: Duration = Duration::from_millis(5);
const PORT: u16 = 8000;
/// A port that carries something else.
const OTHER: u16 = 8001;

/// A client's connection that stays open.
struct Client(BufReader<TcpStream>);

/// An answer.
struct Reply {
    status: u16,
    fields: Vec<String>,
    body: String,
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        let of = |line: &&String| {
            line.split_once(": ").is_some_and(|(it, _)| it.eq_ignore_ascii_case(name))
        };
        self.fields.iter().find(of).and_then(|line| Some(line.split_once(": ")?.1))
    }

    fn is_hit(&self) -> bool {
        self.field("cache-status").is_some_and(|it| it.starts_with("skyhop; hit"))
    }
}

impl Client {
    fn new() -> Self {
        Self::to(addresses(PORT)[0])
    }

    fn to(address: SocketAddr) -> Self {
        Self(BufReader::new(connect(address)))
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, target: &str) -> Reply {
        self.get_of("a.example", target)
    }

    fn get_of(&mut self, host: &str, target: &str) -> Reply {
        self.say(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        self.hear()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn hear(&mut self) -> Reply {
        let first = self.line();
        let status =
            first.split(' ').nth(1).unwrap_or_else(|| panic!("{first:?}")).parse().unwrap();
        let fields = std::iter::repeat_with(|| self.line()).take_while(|line| !line.is_empty());
        let mut reply = Reply { status, fields: fields.collect(), body: String::new() };
        let bodiless = status == 304 || status < 200;
        if reply.field("transfer-encoding") == Some("chunked") {
            loop {
                let length = usize::from_str_radix(&self.line(), 16).unwrap();
                reply.body += &self.take(length);
                self.line();
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = reply.field("content-length").filter(|_| !bodiless) {
            reply.body = self.take(length.parse().unwrap());
        } else if !bodiless {
            self.0.read_to_string(&mut reply.body).unwrap();
        }
        reply
    }

    fn take(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

/// The answer to a request on a connection of its own.
fn get(target: &str) -> Reply {
    Client::new().get(target)
}

fn terminal(pair: &Pair, sockets: &Sockets, http: &str) -> Gateway {
    let sections = format!(
        "{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[http]\nports = [{PORT}, {OTHER}]\n{http}",
        sockets.key("terminal")
    );
    let mut terminal = pair.terminal_with(&sections);
    terminal.wait_for("ready");
    terminal
}

fn count(sockets: &Sockets, key: &str) -> u64 {
    status(&sockets.path("terminal"))["http"][key].as_u64().unwrap()
}

fn timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let began = Instant::now();
    let result = work();
    (began.elapsed(), result)
}

fn assert_hits_are_fast(target: &str) {
    assert_takes(Duration::ZERO, HIT, || {
        let (took, reply) = timed(|| get(target));
        assert!(reply.is_hit(), "{:?}", reply.fields);
        took
    });
}

#[test]
fn what_was_fetched_once_is_there_at_once() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_answers_are_cached"));
}

pub(crate) fn inside_answers_are_cached() {
    let server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = pair.hub();
    let terminal = terminal(&pair, &sockets, "");
    let mut number = 0;
    assert_takes(RTT, BEYOND, || {
        number += 1;
        let (took, reply) = timed(|| get(&format!("/fresh/{number}")));
        assert_eq!((reply.status, reply.is_hit()), (200, false));
        took
    });
    assert_hits_are_fast("/fresh/1");
    assert_eq!(server.asked("/fresh/1").len(), 1);
    confirmed_and_private(&server);
    several_on_one_connection(&server);
    let used: Vec<_> = server.asked("/chunks/1").iter().map(|it| it.connection).collect();
    assert_eq!(used, [used[0]; 3]);
    nobody_speaks_for_others(&server);
    together(&server);
    let shown = text(&skyhop(&["status"], &sockets.path("terminal")).stdout);
    println!("{shown}");
    assert!(shown.contains("from the cache") && count(&sockets, "hits") >= 4, "{shown}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

fn confirmed_and_private(server: &Server) {
    let first = get("/old");
    assert_eq!((first.status, &first.body[..]), (200, "/old of a.example"));
    let again = get("/old");
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(server.asked("/old")[1].field("if-none-match"), Some("\"1\""));
    for _ in 0..2 {
        assert!(!get("/private").is_hit());
    }
    assert_eq!(server.asked("/private").len(), 2);
    let mut client = Client::new();
    client.say("GET /fresh/1 HTTP/1.1\r\nHost: a.example\r\nRange: bytes=1-5\r\n\r\n");
    let part = client.hear();
    assert_eq!((part.status, &part.body[..]), (206, "fresh"));
}

/// Requests of one connection, in every framing, with a body, and pipelined.
fn several_on_one_connection(server: &Server) {
    let mut client = Client::new();
    assert_eq!(client.get("/fresh/1").body, "/fresh/1 of a.example");
    assert_eq!(client.get("/chunks/1").body, "/chunks/1 of a.example");
    assert!(client.get("/chunks/1").is_hit());
    client.say(
        "POST /chunks/1 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello\
         GET /fresh/1 HTTP/1.1\r\nHost: a.example\r\n\r\nGET /chunks/1 HTTP/1.1\r\nHost: a.example\r\n\r\n",
    );
    assert_eq!(client.hear().body, "/chunks/1 hello");
    assert!(client.hear().is_hit());
    assert!(!client.hear().is_hit(), "it was changed");
    assert_eq!(server.asked("/chunks/1").len(), 3);
    // It ends with its connection, and is not kept.
    let last = client.get("/close");
    assert_eq!((&last.body[..], last.field("connection")), ("/close of a.example", Some("close")));
    assert!(!get("/close").is_hit());
    let mut old = Client::new();
    old.say("GET /chunks/1 HTTP/1.0\r\nHost: a.example\r\n\r\n");
    let reply = old.hear();
    assert!(reply.is_hit() && reply.field("content-length").is_some());
    assert_eq!(read_all(old.0.get_ref()), b"");
}

/// What several clients ask for at the same time crosses the hop once, if all may have it.
fn together(server: &Server) {
    let [shared, private] = ["/fresh-large/9", "/private/9"].map(|target| {
        let asking = (0..6).map(|_| thread::spawn(move || timed(|| get(target))));
        let asking: Vec<_> = asking.collect();
        asking.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(shared.iter().all(|(_, it)| it.body == "/fresh-large/9".repeat(10_000)));
    let collapsed = |(_, it): &&(Duration, Reply)| {
        it.field("cache-status") == Some("skyhop; fwd=miss; collapsed")
    };
    assert_eq!(
        (shared.iter().filter(collapsed).count(), server.asked("/fresh-large/9").len()),
        (5, 1)
    );
    assert!(private.iter().all(|(_, it)| it.body == "/private/9 of a.example"));
    assert_eq!(
        (private.iter().filter(collapsed).count(), server.asked("/private/9").len()),
        (0, 6)
    );
    // Known by now not to be for others: nobody waits for another's answer first.
    assert_takes(RTT, RTT / 2, || {
        let asking = [(); 3].map(|()| thread::spawn(|| timed(|| get("/private/9"))));
        asking.into_iter().map(|it| it.join().unwrap().0).max().unwrap()
    });
}

/// A host is whoever was connected to: its own answers are its own.
fn nobody_speaks_for_others(server: &Server) {
    let of_bank = |address| Client::to(address).get_of("bank.example", "/fresh/login");
    let [v4, v6] = addresses(PORT);
    assert!(!of_bank(v4).is_hit() && of_bank(v4).is_hit());
    // The same server at another address might be another's.
    assert!(!of_bank(v6).is_hit());
    assert_eq!(server.asked("/fresh/login").len(), 2);
}

#[test]
fn requests_of_all_clients_share_the_hub_s_connections() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_the_hub_fetches"));
}

pub(crate) fn inside_the_hub_fetches() {
    let server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = pair.hub_with_keys(&sockets.key("hub"), "[http]\n");
    let terminal = terminal(&pair, &sockets, "");
    let mut number = 0;
    assert_takes(RTT, BEYOND, || {
        number += 1;
        let (took, reply) = timed(|| get(&format!("/fresh/{number}")));
        assert_eq!((reply.status, reply.is_hit()), (200, false));
        took
    });
    assert_hits_are_fast("/fresh/1");
    confirmed_and_private(&server);
    several_on_one_connection(&server);
    nobody_speaks_for_others(&server);
    for target in ["/fresh/20", "/chunks/20", "/private/20", "/close/20", "/fresh/21"] {
        assert_eq!(get(target).body, format!("{target} of a.example"));
    }
    let used = |target: &str| server.asked(target)[0].connection;
    let shared = [used("/fresh/20"), used("/chunks/20"), used("/private/20"), used("/close/20")];
    assert_eq!(shared, [shared[0]; 4]);
    assert_ne!(used("/fresh/21"), shared[0], "that one was closed");
    let seen = &status(&sockets.path("hub"))["http"];
    assert!(seen["reused"].as_u64().unwrap() >= 6, "{seen}");
    // A server that nobody reaches refuses as it does otherwise.
    let refused = connect(addresses(OTHER)[0]);
    (&refused).write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    crate::inside::assert_reset(&refused);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_hub_s_cache_answers_for_the_servers() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_the_hub_stores"));
}

/// The terminal forgets everything when it restarts; the hub does not.
pub(crate) fn inside_the_hub_stores() {
    let server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let keys = "[http]\ncache = true\npush = true\n";
    let mut hub = pair.hub_with_keys(&sockets.key("hub"), keys);
    hub.wait_for("http.push has no effect");
    let before = terminal(&pair, &sockets, "");
    for target in ["/fresh-large/1", "/chunks/1", "/old", "/private/1"] {
        assert!(!get(target).is_hit());
    }
    before.end_by(Signal::SIGTERM);
    let again = terminal(&pair, &sockets, "");
    assert_eq!(get("/fresh-large/1").body, "/fresh-large/1".repeat(10_000));
    assert_eq!(
        (get("/chunks/1").body, get("/private/1").status),
        ("/chunks/1 of a.example".to_owned(), 200)
    );
    let asked = |target| server.asked(target).len();
    assert_eq!((asked("/fresh-large/1"), asked("/chunks/1"), asked("/private/1")), (1, 1, 2));
    // What has expired is confirmed by the server, and the terminal gets the body.
    assert_eq!(get("/old").body, "/old of a.example");
    assert_eq!(server.asked("/old")[1].field("if-none-match"), Some("\"1\""));
    let seen = &status(&sockets.path("hub"))["http"];
    let count = |key: &str| seen[key].as_u64().unwrap();
    assert!(count("hits") >= 2 && count("confirmed") >= 1 && count("entries") >= 3, "{seen}");
    let shown = text(&skyhop(&["status"], &sockets.path("hub")).stdout);
    assert!(shown.contains("from the cache"), "{shown}");
    again.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_site_whose_certificate_is_ours_is_cached_and_others_pass() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_a_site_by_tls"));
}

pub(crate) fn inside_a_site_by_tls() {
    const ROGUE: u16 = 8444;
    const TLS: u16 = 8443;
    let far = Identity::new(&["mirror.example", "other.example"]);
    let (near, rogue) = (Identity::new(&["mirror.example"]), Identity::new(&["mirror.example"]));
    let (server, _rogue) = (TlsServer::start(TLS, &far), TlsServer::start(ROGUE, &rogue));
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let authorities = far.file("certificate");
    let mut hub = pair.hub_with_keys(
        &sockets.key("hub"),
        &format!("[http]\ncache = true\nauthorities = {authorities:?}\n"),
    );
    let section = site(&near, &authorities, "\"mirror.example\"");
    let mut terminal =
        terminal(&pair, &sockets, &format!("tls_ports = [{TLS}, {ROGUE}]\n{section}"));
    let close = "Connection: close\r\n\r\n";
    let ours = |request: &str| ask((addresses(TLS)[0], "mirror.example"), &near, request).unwrap();
    let get =
        |target: &str| ours(&format!("GET {target} HTTP/1.1\r\nHost: mirror.example\r\n{close}"));
    let (head, body) = get("/large");
    assert!(!head.contains("skyhop; hit") && body == answer("GET /large"), "{head}");
    let (head, again) = get("/large");
    assert!(head.contains("skyhop; hit") && again == body, "{head}");
    assert_eq!(status(&sockets.path("hub"))["http"]["requests"], 1);
    // What changes something crosses the hop in TLS of the terminal's own.
    let post =
        format!("POST /form HTTP/1.1\r\nHost: mirror.example\r\nContent-Length: 5\r\n{close}hello");
    assert_eq!(ours(&post).1, "POST /formhello");
    assert_eq!(server.asked(), ["GET /large", "POST /form"]);
    // Over the connection that the first request has opened.
    assert_eq!(get("/other").1, answer("GET /other"));
    assert_eq!(server.asked()[2..], ["GET /other"]);
    assert!(status(&sockets.path("hub"))["http"]["reused"].as_u64() >= Some(1));
    let (head, _) = ours(&format!("GET / HTTP/1.1\r\nHost: bank.example\r\n{close}"));
    assert!(head.starts_with("HTTP/1.1 421 "), "{head}");
    // Another name: its server's own certificate, and no answer of ours.
    let request = format!("GET /other HTTP/1.1\r\nHost: other.example\r\n{close}");
    let (head, body) = ask((addresses(TLS)[0], "other.example"), &far, &request).unwrap();
    assert!(!head.contains("Cache-Status") && body == "GET /other", "{head}");
    // A server that cannot prove that it is the site, though the client has connected to it.
    for (method, distrustful) in [("GET", &mut hub), ("POST", &mut terminal)] {
        let rogue = ask(
            (addresses(ROGUE)[0], "mirror.example"),
            &near,
            &format!("{method} /new HTTP/1.1\r\nHost: mirror.example\r\n{close}"),
        );
        assert!(rogue.is_err(), "{rogue:?}");
        distrustful.wait_for("cannot verify the certificate of mirror.example");
    }
    assert_eq!(count(&sockets, "stored"), 2);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_host_with_an_instant_name_is_cached_by_its_name() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_names_are_instant"));
}

pub(crate) fn inside_names_are_instant() {
    let (server, _names) = (Server::start(PORT), names::server::DnsServer::start());
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let far = Node::Server.address4();
    let hub =
        pair.hub_with_keys(&sockets.key("hub"), &format!("[http]\n[dns]\nservers = [\"{far}\"]"));
    let terminal = terminal(&pair, &sockets, "[dns]\nanswer = \"instant\"");
    names::route_the_pool();
    let to = |name: &str| names::address(&names::ask(name, RecordType::A));
    let get_by_name =
        |address, host: &str| Client::to((address, PORT).into()).get_of(host, "/fresh/1");
    let [first, other] = ["www.example.", "evil.example."].map(to);
    assert_ne!(first, other);
    assert_eq!(get_by_name(first, "www.example").body, "/fresh/1 of www.example");
    // The same host by another name, which might lead elsewhere.
    assert!(!get_by_name(other, "www.example").is_hit());
    assert_takes(Duration::ZERO, HIT, || {
        let (took, reply) = timed(|| get_by_name(first, "www.example"));
        assert!(reply.is_hit(), "{:?}", reply.fields);
        took
    });
    assert_eq!(server.asked("/fresh/1").len(), 2);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn what_is_no_http_passes_as_it_came() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_others_pass"));
}

pub(crate) fn inside_others_pass() {
    let (server, mirror) = (Server::start(PORT), Mirror::start(OTHER));
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let hub = pair.hub();
    let terminal = terminal(&pair, &sockets, "");
    // A server that speaks first, and a client that speaks something else.
    let mut silent = mirror.connect_carried();
    crate::inside::exchange(&mut silent);
    for said in
        ["SSH-2.0-x\r\n", "GET", "HELO half a line", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
    {
        let mut client = connect(addresses(OTHER)[0]);
        client.write_all(said.as_bytes()).unwrap();
        let mut back = vec![0; 1 + said.len()];
        client.read_exact(&mut back).unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), format!("c{said}"));
        client.write_all(b"more").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_all(&client), b"more");
    }
    let mut client = Client::new();
    assert_eq!(client.get("/fresh/1").status, 200);
    client.say(
        "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly",
    );
    assert_eq!(client.hear().status, 101);
    client.say(" late");
    assert_eq!(client.take(10), "early late");
    smuggled(&server);
    assert!(count(&sockets, "plain") >= 6);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn an_answer_that_no_cache_reads_has_an_end() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_answers_are_strange"));
}

pub(crate) fn inside_answers_are_strange() {
    let _server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    for fetches in [false, true] {
        let hub = pair.hub_with(if fetches { "[http]\n" } else { "" });
        let terminal = terminal(&pair, &sockets, "");
        for target in ["/strange/name", "/strange/many", "/strange/long"] {
            for rest in [
                "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
                "HTTP/1.0\r\nHost: a.example\r\n\r\n",
            ] {
                assert_ends(&format!("GET {target} {rest}"), &format!("{target} of a.example"));
            }
            let posted = "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 2";
            assert_ends(&format!("POST {target} {posted}\r\n\r\nhi"), &format!("{target} hi"));
            // A client that goes on either has its end, too, or its next answer.
            let mut client = Client::new();
            client.say(&format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
            assert_eq!(client.hear().body, format!("{target} of a.example"));
            client.say("GET /other HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
            let mut rest = String::new();
            let end = client.0.read_to_string(&mut rest);
            let is_answered = rest.ends_with("/other of a.example");
            assert!(is_answered || fetches && rest.is_empty(), "{end:?} {rest}");
        }
        terminal.end_by(Signal::SIGTERM);
        hub.end_by(Signal::SIGTERM);
    }
}

/// Asks on a connection of its own, whose end comes after the answer.
fn assert_ends(request: &str, body: &str) {
    let mut client = connect(addresses(PORT)[0]);
    client.write_all(request.as_bytes()).unwrap();
    let answer = String::from_utf8(read_all(&client)).unwrap();
    assert!(answer.ends_with(body), "{answer:.200}");
}

/// What can be framed in two ways reaches the server as it came, and the cache never.
fn smuggled(server: &Server) {
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: 4\r\nContent-Length: 30",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ] {
        let mut client = Client::new();
        client.say(&format!(
            "POST /fresh/poison HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n0\r\n\r\nGET /fresh/2 HTTP/1.1\r\nHost: a.example\r\n\r\n"
        ));
        client.hear();
    }
    let asked = server.asked("/fresh/poison");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|it| it.field("content-length").is_some() || it.fields.len() == 3));
    assert!(!get("/fresh/2").is_hit(), "a smuggled request was answered into the cache");
}

#[test]
fn the_cache_survives_a_restart_and_a_broken_disk() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_a_terminal_restarts"));
}

pub(crate) fn inside_a_terminal_restarts() {
    let server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let directory = tempfile::tempdir().unwrap();
    let keys = format!("directory = {:?}\nmemory = \"64 kB\"", directory.path().join("cache"));
    let hub = pair.hub();
    let before = terminal(&pair, &sockets, &keys);
    for target in ["/fresh/1", "/fresh/2"] {
        assert!(!get(target).is_hit());
    }
    let files = || std::fs::read_dir(directory.path().join("cache")).unwrap().count();
    wait_until(PATIENCE, || files() == 5);
    before.end_by(Signal::SIGKILL);
    let again = terminal(&pair, &sockets, &keys);
    wait_until(PATIENCE, || count(&sockets, "entries") == 2);
    assert_hits_are_fast("/fresh/1");
    assert_eq!(server.asked("/fresh/1").len(), 1);

    // A body that is not what was written.
    for file in std::fs::read_dir(directory.path().join("cache")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|it| it == "body") {
            let length = std::fs::metadata(&path).unwrap().len();
            std::fs::write(path, vec![b'x'; length as usize]).unwrap();
        }
    }
    let reply = get("/fresh/2");
    assert_eq!((&reply.body[..], reply.is_hit()), ("/fresh/2 of a.example", false));
    // No directory any more: what comes stays in memory.
    let [cache, gone] = ["cache", "gone"].map(|name| directory.path().join(name));
    std::fs::rename(cache, gone).unwrap();
    assert!(!get("/fresh/3").is_hit());
    wait_until(PATIENCE, || count(&sockets, "disk_errors") >= 2);
    assert_hits_are_fast("/fresh/3");
    again.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

#[test]
fn a_full_disk_costs_speed_only() {
    as_each_user(|runner| runner.inside(&LINK, "http::inside_a_disk_is_full"));
}

pub(crate) fn inside_a_disk_is_full() {
    let server = Server::start(PORT);
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let directory = tempfile::tempdir().unwrap();
    let hub = pair.hub();
    let config = pair.terminal_config(&format!(
        "{}\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[http]\nports = [{PORT}]\ndirectory = {:?}",
        sockets.key("terminal"),
        directory.path()
    ));
    let mut command = lab::find_netns(Node::Terminal).unwrap().command("unshare");
    let mount = "mount -t tmpfs -o size=64k none \"$1\" && exec \"$SKYHOP\" terminal /dev/stdin";
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(directory.path());
    let mut terminal = Gateway::run(command, &config);
    terminal.wait_for("ready");
    assert!(!get("/fresh-large").is_hit());
    terminal.wait_for("pausing writes");
    let again = get("/fresh-large");
    assert_eq!((again.is_hit(), again.body.len()), (true, "/fresh-large".len() * 10_000));
    assert!(!get("/fresh/1").is_hit());
    assert_hits_are_fast("/fresh/1");
    assert_eq!((server.asked("/fresh-large").len(), count(&sockets, "disk_errors")), (1, 1));
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// The public suite of tests for HTTP caches (github.com/http-tests/cache-tests), a directory of which
/// `CACHE_TESTS` names. It takes node. Tests of `CDN-Cache-Control` (RFC 9213) do not count: that is for caches on
/// behalf of servers. What fails, and how many of each kind pass, is written to `result` there. With
/// `CACHE_TESTS_HUB`, the hub fetches.
#[test]
#[ignore = "needs node and a copy of the public suite"]
fn the_public_suite_passes() {
    as_myself(|runner| runner.inside(crate::lossless(), "http::inside_the_public_suite"));
}

pub(crate) fn inside_the_public_suite() {
    /// Counts results by kind of test, those that depend on a failed one apart.
    const COUNT: &str = "import tests from './tests/index.mjs';
        import { determineTestResult, resultTypes } from './test-engine/lib/results.mjs';
        import fs from 'fs';
        const results = JSON.parse(fs.readFileSync(0));
        const counts = {};
        for (const test of tests.flatMap(suite => suite.tests)) {
            if (test.browser_only || test.id.startsWith('cdn-')) continue;
            const result = determineTestResult(tests, test.id, results);
            const name = Object.keys(resultTypes).find(it => resultTypes[it] === result);
            const kind = test.kind ?? 'required';
            counts[kind] ??= {};
            counts[kind][name] = (counts[kind][name] ?? 0) + 1;
            if (!['pass', 'yes'].includes(name)) console.log(kind, name, test.id, results[test.id]);
        }
        console.log(counts);";
    let suite = std::path::PathBuf::from(std::env::var_os("CACHE_TESTS").expect("CACHE_TESTS"));
    let node = |arguments: &[&str]| {
        let mut node = std::process::Command::new("node");
        node.args(arguments).current_dir(&suite).env("npm_package_config_id", "");
        node.env("npm_package_config_protocol", "http")
            .env("npm_package_config_port", PORT.to_string());
        node.env("npm_package_config_base", format!("http://{}", addresses(PORT)[0]));
        node.env("npm_package_config_pidfile", suite.join("pid"));
        node
    };
    let run =
        || node(&["test-engine/server/server.mjs"]).stdout(std::process::Stdio::null()).spawn();
    let mut server = lab::find_netns(Node::Server).unwrap().run(run).unwrap();
    let (pair, sockets) = (Pair::new(), Sockets::new());
    let fetches = std::env::var_os("CACHE_TESTS_HUB").is_some();
    let hub = pair.hub_with(if fetches { "[http]\n" } else { "" });
    let terminal = terminal(&pair, &sockets, "");
    let results = node(&["--no-warnings", "test-engine/cli.mjs"]).output().unwrap();
    server.kill().and_then(|()| server.wait()).unwrap();
    let mut count = node(&["--input-type=module", "-e", COUNT]);
    let mut count = count
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    count.stdin.take().unwrap().write_all(&results.stdout).unwrap();
    let said = text(&count.wait_with_output().unwrap().stdout);
    std::fs::write(suite.join("result"), &said).unwrap();
    assert!(said.contains("required: { pass: "), "{}", text(&results.stderr));
    assert!(!said.contains("required fail"), "{said}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
