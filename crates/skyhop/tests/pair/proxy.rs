//! Real clients of the terminal's proxy.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use gateway::keys::{PrivateKey, format_public_key};
use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};

use crate::common::{Runner, as_myself, is_present, skip, text};
use crate::inside::{
    Gateway, PATIENCE, Pair, accept, addresses, assert_reset, assert_same, connect, listen,
    payload, read_all,
};
use crate::unread::assert_nothing_is_overtaken;
use crate::{bare, lossless};

const PORT: u16 = 4000;
/// Nothing listens on this port.
const CLOSED: u16 = 4001;
const PROXY: u16 = 1080;
/// curl's options for each proxy protocol, and its exit code when the connection is refused.
const DIALECTS: [(&[&str], i32); 2] = [
    (&["--socks5-hostname", "terminal:1080"], 97),
    (&["--proxytunnel", "-x", "terminal:1080"], 56),
];

fn section(answer: &str) -> String {
    format!(
        "[proxy]\nlisten = \"[::]:{PROXY}\"\nclients = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
         answer = \"{answer}\""
    )
}

fn check(test: &str) {
    if !is_present("curl") {
        return skip("curl is missing");
    }
    as_myself(|runner| runner.inside(bare(), &format!("proxy::{test}")));
}

fn curl(dialect: &[&str], url: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--globoff", "--max-time", "20"]).args(dialect).arg(url);
    curl.output().unwrap()
}

/// URLs of the same object: by its server's name, and by each of its addresses.
fn urls(object: &str) -> [String; 3] {
    let (v4, v6) = (Node::Server.address4(), Node::Server.address6());
    ["server".to_owned(), v4.to_string(), format!("[{v6}]")]
        .map(|host| format!("http://{host}/{object}"))
}

#[test]
fn curl_gets_there_in_both_dialects_and_with_both_answers() {
    check("inside_curl_asks");
}

pub(crate) fn inside_curl_asks() {
    let pair = Pair::new();
    let hub = pair.hub();
    for answer in ["early", "deferred"] {
        let mut terminal = pair.terminal_with(&section(answer));
        terminal.wait_for("ready");
        for (dialect, _) in DIALECTS {
            for url in urls("1MB") {
                let got = curl(dialect, &url);
                assert!(got.status.success(), "{answer} {url}: {}", text(&got.stderr));
                assert_eq!(digest(&got.stdout), text(&curl(&[], &format!("{url}.sha256")).stdout));
            }
        }
        terminal.end_by(Signal::SIGTERM);
    }
    hub.end_by(Signal::SIGTERM);
}

fn digest(bytes: &[u8]) -> String {
    let mut sum = Command::new("sha256sum");
    sum.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut sum = sum.spawn().unwrap();
    sum.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = text(&sum.wait_with_output().unwrap().stdout);
    output.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_refusal_is_answered_in_the_client_s_protocol() {
    check("inside_a_closed_port");
}

pub(crate) fn inside_a_closed_port() {
    let (pair, url) = (Pair::new(), format!("http://server:{CLOSED}/"));
    let hub = pair.hub();
    let mut terminal = pair.terminal_with(&section("deferred"));
    terminal.wait_for("ready");
    for ((dialect, code), part) in DIALECTS.into_iter().zip(["(5)", "502"]) {
        let refused = curl(dialect, &url);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(part), "{said}");
    }
    terminal.end_by(Signal::SIGTERM);

    // Answered before the server was asked, so a failure is a reset.
    let mut terminal = pair.terminal_with(&section("early"));
    terminal.wait_for("ready");
    for (dialect, _) in DIALECTS {
        let said = text(&curl(dialect, &url).stderr);
        assert!(said.contains("reset"), "{said}");
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Connects to port 4000 of `server` through the proxy.
fn ask(server: IpAddr) -> TcpStream {
    ask_at((Node::Terminal.address4(), PROXY).into(), SocketAddr::new(server, PORT))
}

fn ask_at(proxy: SocketAddr, server: SocketAddr) -> TcpStream {
    let mut client = connect(proxy);
    let mut request = vec![5, 1, 0, 5, 1, 0];
    match server.ip() {
        IpAddr::V4(v4) => request.extend([&[1][..], &v4.octets()].concat()),
        IpAddr::V6(v6) => request.extend([&[4][..], &v6.octets()].concat()),
    }
    request.extend(server.port().to_be_bytes());
    client.write_all(&request).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    client
}

#[test]
fn a_proxied_connection_ends_as_it_is_ended() {
    as_myself(|runner| runner.inside(lossless(), "proxy::inside_ends"));
}

pub(crate) fn inside_ends() {
    let (pair, listener) = (Pair::new(), listen(PORT));
    let hub = pair.hub();
    let mut terminal = pair.terminal_with(&section("early"));
    terminal.wait_for("ready");
    for server in addresses(PORT) {
        assert_ends(server.ip(), || accept(&listener));
    }
    hub.end_by(Signal::SIGKILL);
    terminal.wait_for("new connections pass unaccelerated");
    for server in addresses(PORT) {
        assert_ends(server.ip(), || accept_straight(&listener));
    }
    terminal.end_by(Signal::SIGTERM);
}

/// The next connection, made directly by the terminal.
fn accept_straight(listener: &TcpListener) -> TcpStream {
    let (socket, peer) = listener.accept().unwrap();
    let terminal: [IpAddr; 2] =
        [Node::Terminal.address4().into(), Node::Terminal.address6().into()];
    assert!(terminal.contains(&peer.ip().to_canonical()), "{peer}");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn assert_ends(server: IpAddr, accept: impl Fn() -> TcpStream + Sync) {
    const MUCH: usize = 300_000;
    let sent = payload(MUCH);
    let mut client = ask(server);
    let answering = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = accept();
            let heard = read_all(&server);
            server.write_all(&heard).unwrap();
        });
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&client), &sent);
        server.join()
    });
    answering.unwrap();

    let (client, server_end) = (ask(server), accept());
    crate::inside::reset(client);
    assert_reset(&server_end);
    let (client, server_end) = (ask(server), accept());
    crate::inside::reset(server_end);
    assert_reset(&client);
    assert_nothing_is_overtaken(|| (ask(server), accept()));
}

#[test]
fn names_are_resolved_by_the_hub() {
    check("inside_names");
}

/// A name that only the hub knows, one whose first address may be unused, and one that does not
/// exist.
const NAMES: [&str; 3] = ["far.example", "moved.example", "nowhere.example"];

pub(crate) fn inside_names() {
    let (pair, listener) = (Pair::new(), listen(PORT));
    let (server, nobody) = (Node::Server.address4(), Node::Hub.address4());
    let hosts = format!("{server} {0}\n{nobody} {1}\n{server} {1}\n", NAMES[0], NAMES[1]);
    let hub = pair.hub_that_knows(&hosts);
    for answer in ["early", "deferred"] {
        let mut terminal = pair.terminal_with(&section(answer));
        terminal.wait_for("ready");
        for name in &NAMES[..2] {
            let (mut client, reply) = ask_by_name(name);
            assert_eq!(reply, 0, "{answer} {name}");
            let mut served = accept(&listener);
            client.write_all(b"ping").unwrap();
            let mut heard = [0; 4];
            served.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"ping");
            served.write_all(b"pong").unwrap();
            client.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"pong");
        }
        let (client, reply) = ask_by_name(NAMES[2]);
        match answer {
            "early" => assert_reset(&client),
            _ => assert_eq!(reply, HOST_UNREACHABLE),
        }
        terminal.end_by(Signal::SIGTERM);
    }
    let mut terminal = pair.terminal_with(&(section("early") + "\nnames = \"here\""));
    terminal.wait_for("ready");
    let (_, reply) = ask_by_name(NAMES[0]);
    assert_eq!(reply, HOST_UNREACHABLE, "the terminal does not know the name");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// RFC 1928 §6.
const FAILURE: u8 = 1;
const HOST_UNREACHABLE: u8 = 4;
const TTL_EXPIRED: u8 = 6;

#[test]
fn a_terminal_whose_names_are_slow_has_no_more_resolved_than_its_hub_grants() {
    check("inside_slow_names");
}

pub(crate) fn inside_slow_names() {
    let (pair, directory) = (Pair::new(), tempfile::tempdir().unwrap());
    // A FIFO without a writer: a process that reads it blocks for ever.
    let hosts = directory.path().join("hosts");
    mkfifo(&hosts, Mode::S_IRUSR).unwrap();
    let hub = pair.hub_that_reads(&hosts, "connect_timeout = \"3 s\"", "lookups = 1\n");
    let mut terminal = pair.terminal_with(&section("deferred"));
    terminal.wait_for("ready");
    let (sender, replies) = channel();
    for _ in 0..3 {
        let sender = sender.clone();
        thread::spawn(move || sender.send(ask_by_name(NAMES[0]).1).unwrap());
    }
    // One is being resolved, one waits, one is rejected.
    let replies: Vec<u8> = replies.iter().take(3).collect();
    assert_eq!(replies, [FAILURE, TTL_EXPIRED, TTL_EXPIRED]);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Requests port 4000 of a name; returns the reply.
fn ask_by_name(name: &str) -> (TcpStream, u8) {
    let mut client = connect((Node::Terminal.address4(), PROXY).into());
    let length = u8::try_from(name.len()).unwrap();
    let request = [&[5, 1, 0, 5, 1, 0, 3, length][..], name.as_bytes(), &PORT.to_be_bytes()];
    client.write_all(&request.concat()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    (client, answer[3])
}

#[test]
fn a_stranger_is_not_served() {
    check("inside_a_stranger");
}

pub(crate) fn inside_a_stranger() {
    let pair = Pair::new();
    let terminal = pair.terminal_with(&section("early").replace("10.0.0.0/8", "192.0.2.0/24"));
    let at = find_netns(Node::Client).unwrap();
    // The reset may come while the client still connects.
    let stranger = at.run(|| TcpStream::connect((Node::Terminal.address4(), PROXY)));
    let answer = stranger.and_then(|mut stranger| {
        stranger.set_read_timeout(Some(PATIENCE))?;
        stranger.write_all(&[5, 1, 0])?;
        stranger.read(&mut [0])
    });
    assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    terminal.end_by(Signal::SIGTERM);
}

/// Neither side needs privileges or a lab: everything is on loopback.
#[test]
fn an_ordinary_user_has_a_pair_by_way_of_the_proxy() {
    let user = if Uid::effective().is_root() { Runner::ordinary() } else { Runner::myself() };
    let [hub_key, terminal_key] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let address_in = |line: String| -> SocketAddr {
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect(&line)
    };
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let start = |role: &str, config: String| {
        let path = directory.path().join(role);
        fs::write(&path, config).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, user.user, user.user).unwrap();
        let mut command = user.skyhop();
        command.arg(role).arg(path);
        Gateway::run(command, "")
    };
    let mut hub = start(
        "hub",
        format!(
            "private_key = \"{}\"\nlisten = \"127.0.0.1:0\"\nrate = \"100 Mbit/s\"\n\
             [[terminal]]\nname = \"user\"\nkey = \"{}\"\nreach = [\"127.0.0.1\"]\n",
            hub_key.to_base64(),
            format_public_key(&terminal_key.public())
        ),
    );
    let hub_address = address_in(hub.line_with("serving"));
    let mut terminal = start(
        "terminal",
        format!(
            "private_key = \"{}\"\nhub = \"{hub_address}\"\nhub_key = \"{}\"\n\
             rate = \"100 Mbit/s\"\n[proxy]\nlisten = \"127.0.0.1:0\"\n",
            terminal_key.to_base64(),
            format_public_key(&hub_key.public())
        ),
    );
    let proxy = address_in(terminal.line_with("SOCKS5"));
    terminal.wait_for("ready");

    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    // The hub may connect to its own machine, the terminal never does.
    let mut client = ask_at(proxy, server.local_addr().unwrap());
    client.write_all(b"hello").unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    let mut heard = [0; 5];
    accepted.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
