//! `skyhop tcp` against the kernel, with the real binary in the lab: every byte arrives, with every
//! combination of options and losses.
//!
//! Functions named `inside_…` are [programs](common::program) that tests run in a lab.

mod common;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use lab::{Node, TestObject, find_netns};
use nix::sys::socket::{setsockopt, sockopt};
use os::socket::TcpInfo;
use socket2::{Domain, Socket, Type};

use self::common::program::{Program, programs, run};
use self::common::{Runner, as_each_user, as_myself, assert_refused, text};

/// Number of combinations of the four switches.
const SETTINGS: usize = 16;

fn switches(number: usize) -> [bool; 4] {
    core::array::from_fn(|switch| number >> switch & 1 == 1)
}

const NAMES: [&str; 4] = ["sack", "timestamps", "window-scaling", "ecn"];
const CONTROLLERS: [&str; 3] = ["cubic", "hybla:rtt0=25ms", "reno"];
/// Packet error rates, and transfer sizes.
const LINKS: [(&str, &str); 3] = [("0", "500kB"), ("1%", "200kB"), ("5%", "60kB")];

fn options(number: usize) -> String {
    let word = |on| if on { "on" } else { "off" };
    let switches = NAMES.iter().zip(switches(number));
    let switches = switches.map(|(name, on)| format!("{name}={}", word(on)));
    let controller = CONTROLLERS[number % CONTROLLERS.len()];
    format!("cc={controller},{}", switches.collect::<Vec<_>>().join(","))
}

fn link(per: &str) -> [&str; 8] {
    ["--delay", "5ms", "--rate", "100Mbit/s", "--return-rate", "100Mbit/s", "--per", per]
}

/// Covers IPv4 and IPv6 with each setting of each switch.
fn is_ipv6(number: usize) -> bool {
    number.count_ones() % 2 == 1
}

/// A lab for each of the links, all at once.
fn on_each_link(check: impl Fn(&str, &str) + Sync) {
    thread::scope(|scope| {
        for (per, size) in LINKS {
            let check = &check;
            scope.spawn(move || check(per, size));
        }
    });
}

#[test]
fn objects_come_whole_from_the_kernel() {
    as_myself(|runner| {
        on_each_link(|per, size| {
            let mut script = "set -e\n".to_owned();
            for number in 0..SETTINGS {
                let family = if is_ipv6(number) { "-6" } else { "-4" };
                let options = options(number);
                let get = format!("\"$SKYHOP\" tcp get {family} http://server/{size} --options");
                script += &format!("{get} '{options}'\n");
            }
            let output = runner.shell(&link(per), &script).output().unwrap();
            let said = text(&output.stdout);
            assert!(output.status.success(), "PER {per}: {output:?}");
            assert_eq!(said.matches("verified").count(), SETTINGS, "PER {per}: {said}");
        });
    });
}

#[test]
fn objects_come_whole_to_the_kernel() {
    as_myself(|runner| {
        on_each_link(|per, size| {
            let mut options = link(per).to_vec();
            options.extend(["--seed", "7"]);
            // On the worst link, the two sides have different settings.
            let shift = if per == "5%" { 3 } else { 0 };
            let variables = format!("SHIFT={shift} SIZE={size}");
            runner.inside_with(&options, "inside_the_kernel_gets", &variables);
        });
    });
}

fn inside_the_kernel_gets() {
    let size = std::env::var("SIZE").unwrap();
    let shift: usize = std::env::var("SHIFT").unwrap().parse().unwrap();
    for number in 0..SETTINGS {
        // The kernel has the same switches.
        for (setting, on) in KERNEL.iter().zip(switches((number + shift) % SETTINGS)) {
            switch_kernel(setting, on);
        }
        let mut server = Serving::start(&options(number), 1);
        let own: IpAddr = match is_ipv6(number) {
            false => Ipv4Addr::new(10, 2, 0, 102).into(),
            true => Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x102).into(),
        };
        fetch(TcpStream::connect((own, 80)).unwrap(), &size);
        server.end();
    }
}

const KERNEL: [&str; 4] = ["tcp_sack", "tcp_timestamps", "tcp_window_scaling", "tcp_ecn"];

fn switch_kernel(setting: &str, on: bool) {
    let client = find_netns(Node::Client).unwrap();
    let path = format!("/proc/sys/net/ipv4/{setting}");
    client.run(|| fs::write(path, if on { "1" } else { "0" })).unwrap();
}

/// `skyhop tcp serve` on `server`.
struct Serving {
    child: Child,
}

impl Serving {
    fn start(options: &str, connections: u32) -> Self {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let server = find_netns(Node::Server).unwrap();
        let mut command: Command = server.command(skyhop);
        command.args(["tcp", "serve", "--json", "--options", options, "--connections"]);
        command.arg(connections.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        // One line for each address family.
        for _ in 0..2 {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert!(line.starts_with("skyhop: serving on "), "{line}");
        }
        Self { child }
    }

    /// Its reports on all connections, once they have ended.
    fn end(&mut self) -> Vec<serde_json::Value> {
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fetch(mut stream: TcpStream, size: &str) {
    write!(stream, "GET /{size} HTTP/1.1\r\nHost: server\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let head = reply.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(reply.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&reply[..head]));
    let object = TestObject::named(size).unwrap().chunks().flatten();
    assert!(reply[head..].iter().copied().eq(object), "{} bytes", reply.len() - head);
}

#[test]
fn endpoints_of_our_own_talk_to_each_other() {
    let script = "set -e
        \"$SKYHOP\" lab exec server -- \"$SKYHOP\" tcp serve --connections 1 2>&1 | (
          read line
          \"$SKYHOP\" tcp get http://10.2.0.102/300kB
          cat >/dev/null
        )";
    as_each_user(|runner| {
        let output = runner.shell(&link("0"), script).output().unwrap();
        assert!(text(&output.stdout).contains("300 kB, verified"), "{output:?}");
    });
}

/// RFC 7413: the second connection saves a round trip of 400 ms; the first takes two, without its
/// FIN.
#[test]
fn data_on_the_syn_saves_a_round_trip() {
    let script = "set -e
        \"$SKYHOP\" lab exec server -- \"$SKYHOP\" tcp serve --connections 2 \
            --options syn-data=fast-open 2>&1 | (
          read line
          \"$SKYHOP\" tcp get http://10.2.0.102/1kB --times 2 --options syn-data=fast-open --json
          cat >/dev/null
        )";
    as_myself(|runner| {
        let slow = ["--delay", "200ms", "--rate", "100Mbit/s", "--return-rate", "100Mbit/s"];
        let output = runner.shell(&slow, script).output().unwrap();
        let first_bytes: Vec<f64> = text(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|report| report["first_byte_seconds"].as_f64().unwrap())
            .collect();
        let [first, second] = first_bytes[..] else { panic!("{output:?}") };
        assert!(first >= 0.8, "{first}: a round trip for the handshake, one for the object");
        assert!((0.4..0.8).contains(&second), "{second}: one round trip");
    });
}

/// RFC 7413 with the kernel as client and as server: the first connection gets a cookie, the second
/// sends its request with the SYN.
#[test]
fn fast_open_is_the_kernels() {
    as_myself(|runner| runner.inside(&link("0"), "inside_fast_open"));
}

fn inside_fast_open() {
    let [client, server] = [Node::Client, Node::Server].map(|node| find_netns(node).unwrap());
    for host in [&client, &server] {
        // For clients (1), servers (2), and without asking each listener (0x400).
        host.run(|| fs::write("/proc/sys/net/ipv4/tcp_fastopen", "0x403")).unwrap();
    }
    // The kernel is the client.
    let mut serving = Serving::start("syn-data=fast-open", 2);
    let with_data = [(); 2].map(|()| {
        let stream = client.run(|| connect_fast_open(SERVED_BY_US)).unwrap();
        fetch(stream.try_clone().unwrap(), "100kB");
        TcpInfo::of(&stream).unwrap().has_syn_data()
    });
    assert_eq!(with_data, [false, true]);
    assert_eq!(serving.end().len(), 2);
    // The kernel is the server.
    let listener = server.run(|| TcpListener::bind(("10.2.0.2", 8081))).unwrap();
    let mut getting = client.command(std::env::var_os("SKYHOP").unwrap());
    getting.args(["tcp", "get", "http://10.2.0.2:8081/100kB", "--times", "2"]);
    let child = getting.args(["--options", "syn-data=fast-open"]).stdout(Stdio::piped()).spawn();
    let with_data = [(); 2].map(|()| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").unwrap();
        let object = TestObject::named("100kB").unwrap().chunks().flatten().collect::<Vec<_>>();
        stream.write_all(&object).unwrap();
        TcpInfo::of(&stream).unwrap().has_syn_data()
    });
    assert_eq!(with_data, [false, true]);
    let output = child.unwrap().wait_with_output().unwrap();
    assert_eq!(text(&output.stdout).matches("100 kB, verified").count(), 2, "{output:?}");
}

const SERVED_BY_US: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 2, 0, 102), 80);

/// A connection whose SYN waits for the first data (TCP_FASTOPEN_CONNECT).
fn connect_fast_open(server: (Ipv4Addr, u16)) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    setsockopt(&socket, sockopt::TcpFastOpenConnect, &true)?;
    socket.connect(&SocketAddr::from(server).into())?;
    Ok(socket.into())
}

/// RFC 3168: a queue that marks instead of dropping slows either sender down without losses, at any
/// rate.
#[test]
fn marks_slow_both_down() {
    as_myself(|runner| {
        thread::scope(|scope| {
            for (rate, size) in [("2Mbit/s", "1MB"), ("5Mbit/s", "2MB"), ("20Mbit/s", "8MB")] {
                scope.spawn(move || marks_at(runner, rate, size));
            }
        });
    });
}

fn marks_at(runner: &Runner, rate: &str, size: &str) {
    let mut link = vec!["--delay", "20ms", "--rate", rate, "--queue", "1MB"];
    link.extend(["--discipline", "codel", "--ecn"]);
    runner.inside_with(&link, "inside_marks", &format!("SIZE={size}"));
}

fn inside_marks() {
    let size = std::env::var("SIZE").unwrap();
    let [client, server] = [Node::Client, Node::Server].map(|node| find_netns(node).unwrap());
    for host in [&client, &server] {
        host.run(|| fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")).unwrap();
    }
    let mut serving = Serving::start("ecn=on,cc=reno", 1);
    fetch(client.run(|| TcpStream::connect(SERVED_BY_US)).unwrap(), &size);
    let served = &serving.end()[0];
    assert!(served["ecn_reductions"].as_u64().unwrap() > 0, "{served}");
    // A late machine may cause probes or time-outs, but no packet is lost.
    assert_eq!(served["recoveries"], 0, "{served}");
    // The kernel counts the marks that our endpoint reports.
    let marks = || server.run(marked_deliveries).unwrap();
    let before = marks();
    let mut getting = client.command(std::env::var_os("SKYHOP").unwrap());
    let url = format!("http://server/{size}");
    let output = getting.args(["tcp", "get", &url, "--options", "ecn=on"]).output().unwrap();
    assert!(text(&output.stdout).contains("verified"), "{output:?}");
    assert!(marks() > before);
}

/// `TCPDeliveredCE` of the calling thread's network namespace.
fn marked_deliveries() -> io::Result<u64> {
    let counters = fs::read_to_string("/proc/thread-self/net/netstat")?;
    let lines: Vec<&str> = counters.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let [names, values] = lines[..] else { panic!("{counters}") };
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = both.find(|(name, _)| *name == "TCPDeliveredCE").unwrap();
    Ok(value.parse().unwrap())
}

#[test]
fn the_gateways_carry_it() {
    as_myself(|runner| {
        let script = "exec \"$SKYHOP\" tcp get http://server/2MB";
        let output = runner.shell(&["--gateways", "--per", "1%"], script).output().unwrap();
        assert!(text(&output.stdout).contains("2 MB, verified"), "{output:?}");
    });
}

#[test]
fn a_comparison_says_what_each_run_came_to_and_keeps_its_packets() {
    let directory = tempfile::tempdir().unwrap();
    as_myself(|runner| {
        let mut command = runner.skyhop();
        command.args(["tcp", "compare", "geo", "--delay", "5ms", "--object", "200kB"]);
        command.args(["--runs", "2", "--cc", "reno", "--loss-period", "50", "--json", "--pcap"]);
        let output = command.arg(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = &report["rows"][0];
        assert_eq!(row["controller"], "reno");
        for who in ["kernel", "skyhop"] {
            let goodputs = row[format!("{who}_mbit_per_second")].as_array().unwrap();
            assert!(goodputs.len() == 2 && goodputs.iter().all(|it| it.as_f64() > Some(0.0)));
            for seed in 1..=2 {
                let capture = directory.path().join(format!("reno-{seed}-{who}/hub.pcapng"));
                let trace = runner.skyhop().args(["meter", "trace"]).arg(capture).output().unwrap();
                assert!(trace.status.success() && !trace.stdout.is_empty(), "{trace:?}");
            }
        }
        assert!(row["ratio_ci95"]["low"].as_f64() <= row["ratio_of_means"].as_f64());
    });
}

#[test]
fn refusals_and_errors_are_reported() {
    as_myself(|runner| {
        let script = "\"$SKYHOP\" tcp get http://server:81/1kB";
        let output = runner.shell(&link("0"), script).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("server:81/1kB: the connection ended: Refused"));
        let taken = "\"$SKYHOP\" tcp get http://server/1kB --address 10.1.0.2";
        let output = runner.shell(&link("0"), taken).output().unwrap();
        assert_refused(&output, &["the kernel itself has the address 10.1.0.2"]);
        for (arguments, parts) in [
            (&["get", "server"][..], &["\"server\"", "expected http://HOST"][..]),
            (&["get", "server/1kB"], &["--device is missing"]),
            (&["get", "server/1kB", "--device", "lo"], &["--address is missing"]),
            (&["serve", "--options", "sack=yes"], &["sack = \"yes\": expected on or off"]),
            (&["serve", "--options", "cc=cubik"], &["\"cubik\": expected one of bbr"]),
            (&["compare", "geo", "--object", "9 apples"], &["\"9 apples\": expected a size"]),
            (&["compare", "geo", "--runs", "0"], &["--runs 0: expected 1 or more"]),
        ] {
            let output = runner.skyhop().arg("tcp").args(arguments).output().unwrap();
            assert_refused(&output, parts);
        }
    });
}

const PROGRAMS: &[Program] = programs![inside_the_kernel_gets, inside_fast_open, inside_marks];

/// Runs the program that a test has started in a lab.
#[test]
fn program() {
    run(PROGRAMS);
}
