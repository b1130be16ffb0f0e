//! Gateways that meet another version of SLACP say so in their logs: real programs on loopback. The
//! messages of version 1 are recorded (`crates/slacp/tests/vectors/version-1.toml`).

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use gateway::keys::{PrivateKey, format_public_key};
use ring::hmac;
use slacp::KeyPair;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

fn recorded(name: &str) -> Vec<u8> {
    let lines = include_str!("../../slacp/tests/vectors/version-1.toml").lines();
    let value = lines.filter_map(|line| line.split_once(" = ")).find(|(key, _)| *key == name);
    let hex = value.unwrap().1.trim_matches('"');
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// An unused address.
fn free() -> SocketAddr {
    socket().local_addr().unwrap()
}

/// A gateway with this configuration, killed when dropped.
struct Gateway {
    process: Child,
    /// Its output and log.
    lines: Receiver<String>,
    _directory: TempDir,
}

impl Gateway {
    fn start(role: &str, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.toml");
        let control = directory.path().join("gateway.sock");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        write!(file, "control = {control:?}\n{config}").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_skyhop"));
        let piped = command.arg(role).arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = piped.spawn().unwrap();
        let (sender, lines) = channel();
        pass_on(process.stdout.take().unwrap(), sender.clone());
        pass_on(process.stderr.take().unwrap(), sender);
        Self { process, lines, _directory: directory }
    }

    /// Waits for a line that contains `text`.
    fn wait_for(&self, text: &str) {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return;
            }
            seen.push(line);
        }
        panic!("no {text:?} in {seen:#?}");
    }
}

fn pass_on(output: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
    });
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_hub_answers_a_terminal_of_version_1_and_logs_it() {
    let hub = free();
    let key = PrivateKey::parse(BASE64_OF_01).unwrap();
    let terminal = format_public_key(&KeyPair::from_private([2; 32]).public());
    let gateway = Gateway::start(
        "hub",
        &format!(
            "private_key = \"{}\"\nlisten = \"{hub}\"\nrate = \"10 Mbit/s\"\n\
             [[terminal]]\nname = \"old\"\nkey = \"{terminal}\"\n",
            key.to_base64()
        ),
    );
    gateway.wait_for("ready");
    let old = socket();
    old.send_to(&recorded("initiation_1"), hub).unwrap();
    let mut answer = [0; 100];
    let (length, _) = old.recv_from(&mut answer).unwrap();
    assert_eq!(answer[..length], recorded("answered_with_2"));
    let address = old.local_addr().unwrap();
    gateway.wait_for(&format!("a terminal at {address} speaks SLACP version 1; this hub speaks 2"));
}

/// 32 bytes with the value 1.
const BASE64_OF_01: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// The answer of a version 1 hub to an initiation of any other version, such as `answered_with_1`.
fn refusal(hub_key: &[u8; 32], initiation: &[u8]) -> Vec<u8> {
    let (echo, knock) = (&initiation[2..4], &initiation[initiation.len() - 16..]);
    let answer = [&[4], echo, &[1]].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[b"SLACP knock", &hub_key[..]].concat());
    let tag = hmac::sign(&key, &[&answer, knock].concat());
    [&answer, &tag.as_ref()[..16]].concat()
}

#[test]
fn a_terminal_that_meets_a_hub_of_version_1_logs_it() {
    let hub_key = KeyPair::from_private([1; 32]).public();
    assert_eq!(refusal(&hub_key.0, &recorded("initiation_2")), recorded("answered_with_1"));
    let old = socket();
    let (hub, proxy) = (old.local_addr().unwrap(), free());
    let gateway = Gateway::start(
        "terminal",
        &format!(
            "private_key = \"{}\"\nhub = \"{hub}\"\nhub_key = \"{}\"\nrate = \"1 Mbit/s\"\n\
             [proxy]\nlisten = \"{proxy}\"\n",
            PrivateKey::generate().unwrap().to_base64(),
            format_public_key(&hub_key)
        ),
    );
    let mut initiation = [0; 2000];
    let (length, terminal) = old.recv_from(&mut initiation).unwrap();
    old.send_to(&refusal(&hub_key.0, &initiation[..length]), terminal).unwrap();
    gateway.wait_for("the hub speaks SLACP version 1; this terminal speaks 2");
}
