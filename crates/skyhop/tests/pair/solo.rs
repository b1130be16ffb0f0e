//! A solo gateway: connections are split on the terminal, and the hub is an ordinary router.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Node, find_netns};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::clean_up::path;
use crate::common::{as_each_user, as_myself, assert_takes, connect_time, is_present, skip, text};
use crate::inside::{
    Gateway, Mirror, PATIENCE, accept, addresses, assert_reset, assert_same, connect, exchange,
    listen, payload, read_all, reset,
};
use crate::operate::{Sockets, connections, get, skyhop, status, wait_for};
use crate::{bare, lossless};

const PORT: u16 = 4000;
/// Nothing listens on this port.
const CLOSED: u16 = 4001;
/// Round-trip time of the links of these tests, in seconds.
const RTT: f64 = 0.1;
/// Both interfaces of the terminal: its own packets are not intercepted again.
const CONFIG: &str = "[intercept]\ninterfaces = [\"lan0\", \"sat0\"]\n\
                      [lan]\ncongestion_control = \"reno\"\n\
                      [wan]\nsend_buffer = \"4 MB\"\nreceive_buffer = \"4 MB\"\n";

fn solo(config: &str) -> Gateway {
    let mut solo = Gateway::start(Node::Terminal, "solo", config);
    solo.wait_for("ready");
    solo
}

#[test]
fn files_arrive_whole_in_both_directions() {
    if !["curl", "sha256sum"].into_iter().all(is_present) {
        return skip("curl or sha256sum is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "solo::inside_files"));
}

pub(crate) fn inside_files() {
    let solo = solo(CONFIG);
    // The gateway answers, not the server.
    let mut connections = 6;
    for server in addresses(80) {
        assert_takes(Duration::ZERO, Duration::from_secs_f64(RTT / 2.0), || {
            connections += 1;
            connect_time(server)
        });
    }
    let script = "set -e; cd $(mktemp -d); trap 'rm -r \"$PWD\"' EXIT
        for family in -4 -6; do
            curl=\"curl -sS --max-time 30 $family\"
            $curl -o object http://server/3MB
            digest=$($curl http://server/3MB.sha256)
            test \"$(sha256sum < object)\" = \"$digest  -\"
            test \"$($curl -T object http://server/upload)\" = \"3000000 $digest\"
        done";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Three files per family, and no connection counted twice.
    let counted = solo.end_with(Signal::SIGTERM);
    assert!(counted.contains(&format!("connections {connections} (")), "{counted}");
    assert!(counted.contains("reset 0, failed 0)"), "{counted}");
}

#[test]
fn connections_end_as_they_are_ended() {
    as_myself(|runner| runner.inside(lossless(), "solo::inside_ends"));
}

pub(crate) fn inside_ends() {
    let (listener, solo) = (listen(PORT), solo(CONFIG));
    for address in addresses(PORT) {
        let open = || (connect(address), accept(&listener));
        assert_answer_after_end(open());
        assert_slow_reader(open());
        let (client, server) = open();
        client.shutdown(Shutdown::Read).unwrap();
        reset(client);
        assert_reset(&server);
        let (client, server) = open();
        reset(server);
        assert_reset(&client);
    }
    for address in addresses(CLOSED) {
        let mut client = connect(address);
        match client.write_all(b"a request") {
            Ok(()) => assert_reset(&client),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    solo.end_by(Signal::SIGTERM);
}

fn assert_answer_after_end((mut client, mut server): (TcpStream, TcpStream)) {
    let sent = payload(500_000);
    thread::scope(|scope| {
        scope.spawn(move || {
            let received = read_all(&server);
            server.write_all(&received).unwrap();
        });
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&client), &sent);
    });
}

fn assert_slow_reader((client, mut server): (TcpStream, TcpStream)) {
    let sent = payload(2_000_000);
    setsockopt(&client, sockopt::RcvBuf, &8_192).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            server.write_all(&sent).unwrap();
            drop(server);
        });
        let mut back = Vec::new();
        let mut part = [0; 1000];
        loop {
            match (&client).read(&mut part).unwrap() {
                0 => break,
                count => back.extend_from_slice(&part[..count]),
            }
        }
        assert_same(&back, &sent);
    });
}

#[test]
fn a_gateway_alone_reports_its_status_and_obeys() {
    as_each_user(|runner| runner.inside(bare(), "solo::inside_it_is_operated"));
}

pub(crate) fn inside_it_is_operated() {
    let (mirror, sockets) = (Mirror::start(PORT), Sockets::new());
    let (file, control) = (sockets.path("solo.toml"), sockets.path("solo"));
    let heard = UnixDatagram::bind(sockets.path("systemd")).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let metrics = "max_connections = 2\n[metrics]\nlisten = \"127.0.0.1:9590\"";
    let config = format!("{}\n{metrics}\n{CONFIG}", sockets.key("solo"));
    fs::write(&file, &config).unwrap();
    let skyhop_solo = std::env::var_os("SKYHOP").unwrap();
    let mut command = find_netns(Node::Terminal).unwrap().command(skyhop_solo);
    command.arg("solo").arg(&file).env("NOTIFY_SOCKET", sockets.path("systemd"));
    command.env("WATCHDOG_USEC", "1000000");
    let mut gateway = Gateway::run(command, "");
    gateway.wait_for("ready");
    for said in ["READY=1", "WATCHDOG=1\nSTATUS=0 connections", "WATCHDOG=1"] {
        assert!(next_datagram(&heard).starts_with(said), "{said}");
    }

    let mut client = mirror.connect_carried();
    exchange(&mut client);
    let seen = status(&control);
    assert_eq!((&seen["role"], &seen["interception"]["on"]), (&"solo".into(), &true.into()));
    let one = &connections(&seen)[0];
    assert_eq!(one["client"], client.local_addr().unwrap().to_string());
    // "ping" one way, 'c' and "ping" the other.
    assert_eq!((&one["to_hop_bytes"], &one["from_hop_bytes"]), (&4.into(), &5.into()));
    let rtt = one["wan_rtt_ms"].as_f64().unwrap();
    assert!(rtt >= RTT * 1e3 && one["lan_rtt_ms"].as_f64().unwrap() < rtt, "{one}");
    let counted = get(Node::Terminal, "/metrics");
    for line in ["skyhop_connections 1.0", "skyhop_relayed_bytes_total{direction=\"down\"} 5"] {
        assert!(counted.lines().any(|there| there == line), "{line}: {counted}");
    }
    let told = skyhop(&["rate", "1Mbit/s", "--for", "1s"], &control);
    assert!(text(&told.stderr).contains("no hop"), "{told:?}");

    // Room for two connections, then for more.
    let second = mirror.connect_carried();
    wait_for(&control, "full", |status| status["interception"]["why"] == "connections");
    mirror.assert_passes_by();
    fs::write(&file, config.replace("max_connections = 2", "max_connections = 3")).unwrap();
    let reloaded = skyhop(&["reload"], &control);
    assert!(text(&reloaded.stdout).contains("reloaded"), "{reloaded:?}");
    wait_for(&control, "room", |status| status["interception"]["on"] == true);
    drop(mirror.connect_carried());
    fs::write(&file, config.replace("reno", "fast")).unwrap();
    let refused = skyhop(&["reload"], &control);
    assert!(text(&refused.stderr).contains("lan.congestion_control = \"fast\""), "{refused:?}");
    drop(second);

    wait_for(&control, "one left", |status| connections(status).len() == 1);
    let drained = skyhop(&["drain"], &control);
    assert!(text(&drained.stdout).contains("1 left"), "{drained:?}");
    wait_for(&control, "bypass", |status| status["interception"]["why"] == "draining");
    mirror.assert_passes_by();
    exchange(&mut client);
    drop(client);
    gateway.wait_for_end();
    while next_datagram(&heard) != "STOPPING=1" {}
}

fn next_datagram(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 200];
    let length = socket.recv(&mut buffer).expect("it tells how it is");
    text(&buffer[..length])
}

#[test]
fn each_side_has_the_initial_window_of_its_route() {
    if path("ip").is_none() {
        return skip("ip is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "solo::inside_windows"));
}

pub(crate) fn inside_windows() {
    let (listener, sockets) = (listen(PORT), Sockets::new());
    set_windows("lan0", "24");
    set_windows("sat0", "48");
    let config = format!("{}\n[intercept]\ninterfaces = [\"lan0\"]\n", sockets.key("solo"));
    let gateway = solo(&config);
    let seen: Vec<_> = addresses(PORT).map(|to| (connect(to), accept(&listener))).into();
    let now = status(&sockets.path("solo"));
    assert_eq!(connections(&now).len(), 2);
    for one in connections(&now) {
        let windows = ["lan_window_segments", "wan_window_segments"].map(|key| &one[key]);
        assert_eq!(windows, [24, 48], "{one}");
    }
    for pair in seen {
        assert_answer_after_end(pair);
    }
    gateway.end_by(Signal::SIGTERM);
}

/// Changes the routes by a device of the terminal as docs/solo.md says.
fn set_windows(device: &str, segments: &str) {
    let netns = find_netns(Node::Terminal).unwrap();
    let ip = |arguments: &[&str]| {
        let output = netns.command(path("ip").unwrap()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    for family in ["-4", "-6"] {
        let routes = ip(&[family, "route", "show", "dev", device]);
        // The kernel's own routes to link-local addresses lead to no client or server.
        for route in routes.lines().filter(|route| !route.starts_with("fe80:")) {
            let words = route.split_whitespace().filter(|word| *word != "linkdown");
            let mut change = vec![family, "route", "change"];
            change.extend(words.chain(["dev", device, "initcwnd", segments]));
            ip(&change);
        }
    }
}

/// A link without noticeable delay: anything late is waiting for an ACK.
const NEAR: [&str; 2] = ["--delay", "1ms"];
/// The kernel delays an ACK by at least 40 ms, measured by a clock that ticks at least every 10 ms.
const DELAYED: Duration = Duration::from_millis(30);

#[test]
fn each_side_acknowledges_at_once_if_asked() {
    as_myself(|runner| runner.inside(&NEAR, "solo::inside_quick_ack"));
}

pub(crate) fn inside_quick_ack() {
    let listener = listen(PORT);
    for (lan, wan) in [(false, false), (true, false), (false, true)] {
        let config = "[intercept]\ninterfaces = [\"lan0\"]\n";
        let solo = solo(&format!("{config}[lan]\nquick_ack = {lan}\n[wan]\nquick_ack = {wan}\n"));
        for address in addresses(PORT) {
            let (mut client, mut server) = (connect(address), accept(&listener));
            assert_eq!(is_acknowledged_at_once(&mut client, &mut server), lan, "client's");
            assert_eq!(is_acknowledged_at_once(&mut server, &mut client), wan, "server's");
        }
        solo.end_by(Signal::SIGTERM);
    }
}

/// Whether the first part of a message is acknowledged before the second is sent, by a sender that
/// waits for it (Nagle's algorithm). Each message has a reply, for which the other side would delay
/// its ACK.
fn is_acknowledged_at_once(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    let mut message = || {
        let began = Instant::now();
        from.write_all(b"he").unwrap();
        from.write_all(b"llo").unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
        let taken = began.elapsed();
        to.write_all(b"!").unwrap();
        from.read_exact(&mut [0]).unwrap();
        taken
    };
    let mut median = || {
        let mut times: Vec<_> = (0..9).map(|_| message()).collect();
        times.sort();
        times[4]
    };
    // The kernel acknowledges the first segments at once whatever the setting, and a busy machine
    // delays some ACKs.
    median();
    median();
    (0..3).any(|_| median() < DELAYED)
}

#[test]
fn clients_pass_by_while_there_is_no_memory() {
    as_myself(|runner| runner.inside(bare(), "solo::inside_memory_runs_out"));
}

pub(crate) fn inside_memory_runs_out() {
    let (mirror, sockets) = (Mirror::start(PORT), Sockets::new());
    let at = sockets.path("solo");
    // A socket buffer smaller than a pipe leaves data in the pipe.
    let config = format!(
        "{}\ntotal_memory = \"500 kB\"\n[intercept]\ninterfaces = [\"lan0\"]\n\
         [proxy]\nlisten = \"0.0.0.0:1080\"\nclients = [\"0.0.0.0/0\"]\n\
         [lan]\nsend_buffer = \"100 kB\"\n[wan]\nsend_buffer = \"100 kB\"\n",
        sockets.key("solo")
    );
    let solo = solo(&config);
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    // These do not read the echo.
    let greedy: Vec<_> = (0..6).map(|_| mirror.connect_carried()).collect();
    greedy.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let part = payload(100_000);
    wait_for(&at, "memory", |status| {
        greedy.iter().for_each(|mut socket| while socket.write(&part).is_ok() {});
        status["interception"]["why"] == "memory"
    });
    assert!(status(&at)["memory"]["held_bytes"].as_u64() >= Some(500_000));
    mirror.assert_passes_by();
    assert_eq!(socks_reply(addresses(PORT)[0]), GENERAL_FAILURE);
    exchange(&mut held);
    drop(greedy);
    wait_for(&at, "room", |status| status["interception"]["on"] == true);
    wait_for(&at, "nothing held", |status| status["memory"]["held_bytes"] == 0);
    drop(mirror.connect_carried());
    assert_eq!(socks_reply(addresses(PORT)[0]), SUCCEEDED);
    exchange(&mut held);
    solo.end_by(Signal::SIGTERM);
}

/// Replies of SOCKS5 (RFC 1928 §6).
const SUCCEEDED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;

/// Reply of the gateway's proxy to a client that requests this destination.
fn socks_reply(to: SocketAddr) -> u8 {
    let mut proxy = connect((Node::Terminal.address4(), 1080).into());
    proxy.write_all(&[5, 1, 0]).unwrap();
    proxy.read_exact(&mut [0; 2]).unwrap();
    let SocketAddr::V4(to) = to else { panic!("{to} is not of IPv4") };
    let request = [&[5, 1, 0, 1], &to.ip().octets()[..], &to.port().to_be_bytes()].concat();
    proxy.write_all(&request).unwrap();
    let mut reply = [0; 10];
    proxy.read_exact(&mut reply).unwrap();
    reply[1]
}

#[test]
fn clients_pass_by_while_there_are_no_descriptors() {
    as_myself(|runner| runner.inside(bare(), "solo::inside_descriptors_run_out"));
}

pub(crate) fn inside_descriptors_run_out() {
    const MOST: usize = 80;
    let mirror = Mirror::start(PORT);
    let config = format!("{CONFIG}[proxy]\nlisten = \"0.0.0.0:1080\"\nclients = [\"0.0.0.0/0\"]\n");
    let mut gateway = Gateway::start_poor(Node::Terminal, "solo", &config, MOST);
    gateway.wait_for("ready");
    let mut held = mirror.connect_carried();
    exchange(&mut held);
    // Silent clients of the proxy hold all descriptors, for ten seconds.
    let terminal = (Node::Terminal.address4(), 1080);
    let silent: Vec<_> = (0..MOST).map(|_| TcpStream::connect(terminal).unwrap()).collect();
    let began = Instant::now();
    while mirror.try_connect(PATIENCE / 20).is_none_or(|(_, carried)| carried) {
        assert!(began.elapsed() < PATIENCE, "nothing passes by");
    }
    mirror.assert_passes_by();
    exchange(&mut held);
    drop(silent);
    while mirror.try_connect(PATIENCE / 20).is_none_or(|(_, carried)| !carried) {
        assert!(began.elapsed() < PATIENCE, "nothing is carried");
    }
    exchange(&mut held);
    gateway.end_by(Signal::SIGTERM);
}

#[test]
fn a_server_sees_the_client_if_asked() {
    as_myself(|runner| runner.inside(bare(), "solo::inside_transparent"));
}

pub(crate) fn inside_transparent() {
    let listener = listen(PORT);
    let solo = solo(&format!("transparent = true\n{CONFIG}"));
    for address in addresses(PORT) {
        let mut client = connect(address);
        let (server, peer) = accept_any(&listener);
        let [one, other] = [client.local_addr().unwrap(), peer].map(|address| address.ip());
        assert_eq!(one.to_canonical(), other.to_canonical());
        client.write_all(b"who am I").unwrap();
        drop(client);
        assert_same(&read_all(&server), b"who am I");
    }
    solo.end_by(Signal::SIGTERM);
}

fn accept_any(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (socket, peer) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, peer)
}

#[test]
fn policies_decide_what_a_gateway_alone_splits() {
    as_myself(|runner| runner.inside(bare(), "solo::inside_policies"));
}

pub(crate) fn inside_policies() {
    let (split, past) = (Mirror::start(PORT), Mirror::start(PORT + 1));
    let sockets = Sockets::new();
    let (file, control) = (sockets.path("solo.toml"), sockets.path("solo"));
    let policy =
        |action| format!("[[policy]]\nname = \"past\"\nports = [4001]\naction = \"{action}\"\n");
    let write = |policies: &str| {
        fs::write(&file, format!("{}\n{CONFIG}{policies}", sockets.key("solo"))).unwrap();
    };
    write(&policy("bypass"));
    let mut solo = Gateway::start_from(Node::Terminal, "solo", &file);
    solo.wait_for("ready");
    let mut held = split.connect_carried();
    let (mut passing, carried) = past.connect();
    assert!(!carried, "the policy says otherwise");
    let seen = status(&control);
    assert_eq!(
        (&seen["policies"][0]["name"], &seen["policies"][0]["connections"]),
        (&"past".into(), &1.into())
    );

    write(&policy("split"));
    skyhop(&["reload"], &control);
    drop(past.connect_carried());
    let everything = "[[policy]]\nname = \"all\"\naction = \"bypass\"\n";
    write(everything);
    skyhop(&["reload"], &control);
    split.assert_passes_by();
    past.assert_passes_by();
    exchange(&mut held);
    exchange(&mut passing);
    assert_eq!(status(&control)["policies"][0]["name"], "all");

    write(&policy("tunnel"));
    let refused = skyhop(&["reload"], &control);
    assert!(!refused.status.success() && text(&refused.stderr).contains("tunnel"), "{refused:?}");
    assert_eq!(status(&control)["policies"][0]["name"], "all");
    solo.end_by(Signal::SIGTERM);
}
