//! Labs with more than four hosts and two links.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lab::{Node, find_netns};

use crate::common::{
    OWN, as_each_user, as_myself, assert_echo, assert_refused, assert_takes, connect_time, program,
    text,
};

const STAR: [&str; 4] = ["--terminals", "3", "--delay", "20ms"];

#[test]
fn three_terminals_transfer_at_once() {
    as_each_user(|runner| runner.inside(&STAR, "larger::inside_three_clients_transfer_at_once"));
}

pub(crate) fn inside_three_clients_transfer_at_once() {
    let clients = [1, 2, 3].map(|number| Node::client(number).unwrap());
    std::thread::scope(|scope| {
        for (number, client) in clients.into_iter().enumerate() {
            let server = Node::Server;
            for server in [IpAddr::from(server.address4()), server.address6().into()] {
                let there = find_netns(client).unwrap();
                scope.spawn(move || there.run(|| assert_echo((server, 7), 75_000, number as u32)));
            }
        }
    });
}

#[test]
fn clients_reach_each_other_through_the_hub() {
    as_myself(|runner| {
        let options = ["--terminals", "3", "--delay", "20ms", "--on", "client2"];
        runner.inside(&options, "larger::inside_client3_is_two_hops_away");
    });
}

pub(crate) fn inside_client3_is_two_hops_away() {
    let third = Node::client(3).unwrap();
    let (v4, v6): (IpAddr, IpAddr) = (third.address4().into(), third.address6().into());
    let listener = find_netns(third).unwrap().run(|| TcpListener::bind("[::]:5000").unwrap());
    for address in [v4, v6] {
        let mut from = None;
        assert_takes(Duration::from_millis(80), OWN, || {
            let time = connect_time((address, 5000));
            from = Some(listener.accept().unwrap().1);
            time
        });
        let from = from.unwrap();
        let own = Node::client(2).unwrap();
        let own: [IpAddr; 2] = [own.address4().into(), own.address6().into()];
        assert!(own.contains(&from.ip().to_canonical()), "{from}");
    }
    // By name, including the terminals.
    TcpStream::connect("client3:5000").unwrap();
    assert!(
        TcpStream::connect("terminal3:5000")
            .is_err_and(|error| { error.kind() == std::io::ErrorKind::ConnectionRefused })
    );
}

#[test]
fn all_terminals_share_the_forward_link() {
    as_myself(|runner| {
        // Both objects together take at least as long as the forward link needs for them.
        let options = ["--terminals", "2", "--delay", "5ms", "--rate", "8Mbit/s", "--queue", "1MB"];
        runner.inside(&options, "larger::inside_two_downloads_share_8_mbit");
    });
}

pub(crate) fn inside_two_downloads_share_8_mbit() {
    const BYTES: usize = 500_000;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in [1, 2] {
            let there = find_netns(Node::client(number).unwrap()).unwrap();
            scope.spawn(move || there.run(|| download(BYTES)));
        }
    });
    let least = Duration::from_secs_f64(2.0 * BYTES as f64 * 8.0 / 8e6);
    assert!(start.elapsed() > least, "{:?}", start.elapsed());
}

fn download(bytes: usize) {
    let mut connection = TcpStream::connect((Node::Server.address4(), 80)).unwrap();
    write!(connection, "GET /{bytes}B HTTP/1.0\r\nHost: server\r\n\r\n").unwrap();
    let mut all = Vec::new();
    connection.read_to_end(&mut all).unwrap();
    let body = all.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(all.len() - body, bytes);
}

#[test]
fn each_terminal_of_a_star_has_its_gateway() {
    as_myself(|runner| {
        let options = ["--terminals", "2", "--delay", "50ms", "--gateways"];
        runner.inside(&options, "larger::inside_both_clients_are_answered_at_once");
    });
}

pub(crate) fn inside_both_clients_are_answered_at_once() {
    for number in [1, 2] {
        let there = find_netns(Node::client(number).unwrap()).unwrap();
        there.run(|| {
            // Answered by the terminal's gateway; the server is 100 ms away.
            assert_takes(Duration::ZERO, Duration::from_millis(50), || connect_time("server:7"));
            assert_echo((Node::Server.address4(), 7), 75_000, number.into());
        });
    }
}

#[test]
fn the_terrestrial_delay_adds_up() {
    as_each_user(|runner| {
        let options = ["--delay", "30ms", "--terrestrial-delay", "50ms"];
        runner.inside(&options, "larger::inside_server_is_160_ms_away");
    });
}

pub(crate) fn inside_server_is_160_ms_away() {
    for server in [IpAddr::from(Node::Server.address4()), Node::Server.address6().into()] {
        for (from, ms) in [(Node::Client, 160), (Node::Hub, 100)] {
            let connect = || connect_time((server, 7));
            find_netns(from).unwrap().run(|| assert_takes(Duration::from_millis(ms), OWN, connect));
        }
    }
}

#[test]
fn the_terrestrial_link_loses_and_paces_as_configured() {
    as_myself(|runner| {
        let options = [
            "--delay",
            "5ms",
            "--rate",
            "100Mbit/s",
            "--return-rate",
            "100Mbit/s",
            "--terrestrial-rate",
            "4Mbit/s",
            "--terrestrial-per",
            "1%",
            "--terrestrial-delay",
            "10ms",
            "--terrestrial-queue",
            "50 packets",
            "--stats",
        ];
        let script = program::command("larger::inside_500_kb_take_a_second");
        let output = runner.shell(&options, &script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = text(&output.stderr);
        let lost = |link: &str| {
            said.lines().any(|line| {
                let part = line
                    .split(" | ")
                    .find(|part| part.trim_start_matches("skyhop: ").starts_with(link));
                part.is_some_and(|part| !part.contains("lost 0"))
            })
        };
        assert!(lost("terrestrial forward") && !lost("forward"), "{said}");
    });
}

pub(crate) fn inside_500_kb_take_a_second() {
    let start = Instant::now();
    download(500_000);
    assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn impossible_labs_are_refused() {
    as_myself(|runner| {
        let run = |options: &[&str]| {
            let all = [&["run", "geo"], options, &["--", "true"]].concat();
            runner.lab(&all).output().unwrap()
        };
        assert_refused(&run(&["--terminals", "0"]), &["--terminals", "1 to 32"]);
        assert_refused(&run(&["--terminals", "33"]), &["--terminals", "1 to 32"]);
        assert_refused(&run(&["--on", "client2"]), &["client2", "client, terminal, hub, server"]);
        assert_refused(&run(&["--terrestrial-delay", "2h"]), &["--terrestrial-delay", "60 s"]);
        assert_refused(&run(&["--terrestrial-rate", "0"]), &["--terrestrial-rate"]);
    });
}

#[test]
fn a_check_measures_the_terrestrial_link_and_asks_from_every_client() {
    as_myself(|runner| {
        let options =
            ["--delay", "20ms", "--terrestrial-delay", "30ms", "--terrestrial-rate", "20Mbit/s"];
        let all = [&["check", "geo", "--terminals", "2", "--json"], &options[..]].concat();
        let output = runner.lab(&all).output().unwrap();
        // A busy machine may miss the tail of the delay: exit code 1.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let directions = report["directions"].as_array().unwrap();
        let asked = directions.iter().map(|each| {
            let delay = &each["delay"];
            let error = delay["median_ms"].as_f64().unwrap() - delay["asked_ms"].as_f64().unwrap();
            assert!((0.0..0.5).contains(&error), "{each:#}");
            (each["direction"].as_str().unwrap(), delay["asked_ms"].as_f64().unwrap() as u32)
        });
        let expected = [
            ("forward", 20),
            ("return", 20),
            ("terrestrial forward", 30),
            ("terrestrial return", 30),
        ];
        assert_eq!(asked.collect::<Vec<_>>(), expected);
        let reach = report["reach"].as_array().unwrap();
        let answered = reach.iter().filter(|each| each["within"] == true);
        let clients: Vec<&str> = answered.map(|each| each["client"].as_str().unwrap()).collect();
        assert_eq!(clients, ["client", "client", "client2", "client2"], "{reach:#?}");
    });
}

#[test]
fn every_end_of_every_link_is_captured() {
    as_myself(|runner| {
        let directory = tempfile::tempdir().unwrap();
        let options = [
            "--terminals",
            "2",
            "--terrestrial-delay",
            "5ms",
            "--delay",
            "5ms",
            "--pcap",
            directory.path().to_str().unwrap(),
        ];
        runner.inside(&options, "larger::inside_both_clients_echo");
        let empty = |name: &str| {
            let file = std::fs::read(directory.path().join(format!("{name}.pcapng"))).unwrap();
            // 75,000 words each way.
            file.len() < 600_000
        };
        for name in ["terminal", "terminal2", "hub", "hub-lan0", "server"] {
            assert!(!empty(name), "{name}");
        }
    });
}

pub(crate) fn inside_both_clients_echo() {
    for number in [1, 2] {
        let there = find_netns(Node::client(number).unwrap()).unwrap();
        there.run(|| assert_echo((Node::Server.address4(), 7), 75_000, number.into()));
    }
}
