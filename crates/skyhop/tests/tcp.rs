//! `skyhop tcp` against the kernel, with the real binary in the lab: whatever
//! both agree on and the link loses, every byte arrives.
//!
//! The tests called `inside_…` are programs for the others: they run in a lab.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use lab::{Node, TestObject, find_netns};

use self::common::{as_each_user, as_myself, assert_refused, text};

/// Every pair of settings of any two of the four switches occurs.
const SWITCHES: [[bool; 4]; 6] = [
    [true, true, true, true],
    [false, false, false, false],
    [true, false, false, true],
    [false, true, false, true],
    [false, false, true, true],
    [true, true, true, false],
];
const NAMES: [&str; 4] = ["sack", "timestamps", "window-scaling", "ecn"];
const CONTROLLERS: [&str; 3] = ["cubic", "hybla:rtt0=25ms", "reno"];
/// Packet error rates, and how much is sent.
const LINKS: [(&str, &str); 3] = [("0", "500kB"), ("1%", "200kB"), ("5%", "60kB")];

fn options(number: usize) -> String {
    let word = |on| if on { "on" } else { "off" };
    let switches = NAMES.iter().zip(SWITCHES[number]);
    let switches = switches.map(|(name, on)| format!("{name}={}", word(on)));
    let controller = CONTROLLERS[number % CONTROLLERS.len()];
    format!("cc={controller},{}", switches.collect::<Vec<_>>().join(","))
}

fn link(per: &str) -> [&str; 8] {
    ["--delay", "5ms", "--rate", "100Mbit/s", "--return-rate", "100Mbit/s", "--per", per]
}

#[test]
fn objects_come_whole_from_the_kernel() {
    as_myself(|runner| {
        for (per, size) in LINKS {
            let mut script = "set -e\n".to_owned();
            for number in 0..SWITCHES.len() {
                let (family, options) = (["-4", "-6"][number % 2], options(number));
                let get = format!("\"$SKYHOP\" tcp get {family} http://server/{size} --options");
                script += &format!("{get} '{options}'\n");
            }
            let output = runner.shell(&link(per), &script).output().unwrap();
            let said = text(&output.stdout);
            assert!(output.status.success(), "PER {per}: {output:?}");
            assert_eq!(said.matches("all right").count(), SWITCHES.len(), "PER {per}: {said}");
        }
    });
}

#[test]
fn objects_come_whole_to_the_kernel() {
    as_myself(|runner| {
        for (per, size) in LINKS {
            let mut options = link(per).to_vec();
            options.extend(["--seed", "7"]);
            let script = format!(
                "SIZE={size} exec \"$TESTS\" --ignored --exact inside_the_kernel_gets --nocapture"
            );
            let output = runner.shell(&options, &script).output().unwrap();
            let said = [text(&output.stdout), text(&output.stderr)].join("\n");
            assert!(output.status.success() && said.contains("1 passed"), "PER {per}: {said}");
        }
    });
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_the_kernel_gets() {
    let size = std::env::var("SIZE").unwrap();
    for number in 0..SWITCHES.len() {
        // The kernel has the same switches, the other way round in turn.
        for (setting, on) in KERNEL.iter().zip(SWITCHES[(number + 3) % SWITCHES.len()]) {
            switch_kernel(setting, on);
        }
        let server = Serving::start(&options(number));
        let own: IpAddr = match number % 2 {
            0 => Ipv4Addr::new(10, 2, 0, 102).into(),
            _ => Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x102).into(),
        };
        fetch(SocketAddr::new(own, 80), &size);
        server.end();
    }
}

const KERNEL: [&str; 4] = ["tcp_sack", "tcp_timestamps", "tcp_window_scaling", "tcp_ecn"];

fn switch_kernel(setting: &str, on: bool) {
    let client = find_netns(Node::Client).unwrap();
    let path = format!("/proc/sys/net/ipv4/{setting}");
    client.run(|| fs::write(path, if on { "1" } else { "0" })).unwrap();
}

/// `skyhop tcp serve` on `server`, for one connection.
struct Serving {
    child: Child,
}

impl Serving {
    fn start(options: &str) -> Self {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let server = find_netns(Node::Server).unwrap();
        let mut command: Command = server.command(skyhop);
        command.args(["tcp", "serve", "--connections", "1", "--options", options]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        // One line for each family.
        for _ in 0..2 {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert!(line.starts_with("skyhop: serving on "), "{line}");
        }
        Self { child }
    }

    fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fetch(server: SocketAddr, size: &str) {
    let mut stream = TcpStream::connect(server).unwrap();
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
        assert!(text(&output.stdout).contains("300 kB, all right"), "{output:?}");
    });
}

/// RFC 7413: the second connection saves a round trip of 400 ms, of which the
/// first has two and its FIN none.
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

#[test]
fn the_gateways_carry_it() {
    as_myself(|runner| {
        let script = "exec \"$SKYHOP\" tcp get http://server/2MB";
        let output = runner.shell(&["--gateways", "--per", "1%"], script).output().unwrap();
        assert!(text(&output.stdout).contains("2 MB, all right"), "{output:?}");
    });
}

#[test]
fn what_is_refused_or_wrong_is_said() {
    as_myself(|runner| {
        let script = "\"$SKYHOP\" tcp get http://server:81/1kB";
        let output = runner.shell(&link("0"), script).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("server:81/1kB: the connection ended: Refused"));
        let taken = "\"$SKYHOP\" tcp get http://server/1kB --address 10.1.0.2";
        let output = runner.shell(&link("0"), taken).output().unwrap();
        assert_refused(&output, &["the kernel has the address 10.1.0.2 itself"]);
        for (arguments, parts) in [
            (&["get", "server"][..], &["\"server\"", "expected http://HOST"][..]),
            (&["get", "server/1kB"], &["--device is missing"]),
            (&["get", "server/1kB", "--device", "lo"], &["--address is missing"]),
            (&["serve", "--options", "sack=yes"], &["sack = \"yes\": expected on or off"]),
            (&["serve", "--options", "cc=cubik"], &["\"cubik\": expected one of bbr"]),
        ] {
            let output = runner.skyhop().arg("tcp").args(arguments).output().unwrap();
            assert_refused(&output, parts);
        }
    });
}
