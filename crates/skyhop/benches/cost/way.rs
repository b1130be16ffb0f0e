//! The ways from client to server, and their processes.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use gateway::keys::{PrivateKey, format_public_key};
use lab::{CabledLab, LAN_DEVICE, Lab, NetNs, Node};

use crate::{Failure, SERVER_PORT, cpu};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
const HOP_PORT: u16 = 5900;
const FIRST_PROXY: u16 = 2000;
/// More than any machine carries.
const FULL_SPEED: &str = "20 Gbit/s";

/// Address of the hub in all labs.
pub(crate) fn hub_address() -> SocketAddr {
    (Node::Hub.address4(), HOP_PORT).into()
}

/// What connects client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Copy,
    Quic,
    Skyhop,
    /// With one class, whose streams are not compressed, or are.
    Class {
        compress: bool,
    },
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Copy, Self::Quic, Self::Skyhop];
    pub(crate) const COMPRESSION: [Self; 2] =
        [Self::Class { compress: false }, Self::Class { compress: true }];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "kernel TCP",
            Self::Copy => "copying relay",
            Self::Quic => "quinn relay",
            Self::Skyhop => "skyhop",
            Self::Class { compress: false } => "as it is",
            Self::Class { compress: true } => "compress",
        })
    }
}

/// What the files of both gateways say.
pub(crate) struct Settings<'a> {
    pub(crate) rate: &'a str,
    /// Further lines at the beginning, and sections at the end.
    pub(crate) keys: &'a str,
    pub(crate) sections: &'a str,
}

/// The running processes of a way. Killed when dropped.
pub(crate) struct Running {
    /// Where the client connects.
    pub(crate) entrance: SocketAddr,
    /// The terminal's and the hub's process.
    sides: Vec<Child>,
}

impl Running {
    /// Starts them and waits until they are in service.
    pub(crate) fn start(hosts: &CabledLab, way: Way, server: SocketAddr) -> Result<Self, Failure> {
        let relay = (hosts.address4(Node::Terminal), SERVER_PORT).into();
        let hub = hub_address();
        let own = |node, role: &str, from: SocketAddr, to: SocketAddr| {
            let mut command = hosts.command(node, std::env::current_exe()?);
            command.args([role, &from.to_string(), &to.to_string()]);
            ready(command, "")
        };
        let (entrance, sides) = match way {
            Way::Direct => (server, Vec::new()),
            Way::Copy => {
                let far = own(Node::Hub, "copy", hub, server)?;
                (relay, vec![own(Node::Terminal, "copy", relay, hub)?, far])
            }
            Way::Quic => {
                let far = own(Node::Hub, "quic-hub", hub, server)?;
                (relay, vec![own(Node::Terminal, "quic-terminal", relay, hub)?, far])
            }
            Way::Skyhop => return Self::beside(hosts, server, &PrivateKey::generate()?, &[]),
            Way::Class { compress } => {
                let class = format!("[[class]]\nname = \"default\"\ncompress = {compress}\n");
                return Self::usual(hosts, server, &PrivateKey::generate()?, &[], &class);
            }
        };
        Ok(Self { entrance, sides })
    }

    /// Starts the pair, with a hub that serves further terminals.
    pub(crate) fn beside(
        hosts: &CabledLab,
        server: SocketAddr,
        hub: &PrivateKey,
        others: &[PrivateKey],
    ) -> Result<Self, Failure> {
        Self::usual(hosts, server, hub, others, "")
    }

    /// Starts the pair on these hosts, with further sections in the files of both.
    fn usual(
        hosts: &CabledLab,
        server: SocketAddr,
        hub: &PrivateKey,
        others: &[PrivateKey],
        sections: &str,
    ) -> Result<Self, Failure> {
        let command = |node, program: &str| hosts.command(node, program);
        let settings = Settings { rate: FULL_SPEED, keys: "", sections };
        Self::pair(command, server, &settings, hub, others)
    }

    /// Starts the pair on hosts on which `command` runs a program.
    pub(crate) fn pair(
        command: impl Fn(Node, &str) -> Command,
        server: SocketAddr,
        settings: &Settings<'_>,
        hub: &PrivateKey,
        others: &[PrivateKey],
    ) -> Result<Self, Failure> {
        let Settings { rate, keys, sections } = settings;
        let own = PrivateKey::generate()?;
        let served = others.iter().chain([&own]);
        let config = format!("{keys}{}{sections}", hub_config(hub, rate, served));
        let far = ready(gateway(command(Node::Hub, PROGRAM), "hub"), &config)?;
        let intercept = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n{sections}");
        let config = format!("{keys}{}", terminal_config(&own, hub, rate, &intercept));
        let near = ready(gateway(command(Node::Terminal, PROGRAM), "terminal"), &config)?;
        Ok(Self { entrance: server, sides: vec![near, far] })
    }

    /// Starts a hub in a lab, at its link's 50 Mbit/s.
    pub(crate) fn hub(lab: &Lab, key: &PrivateKey, served: &[PrivateKey]) -> Result<Self, Failure> {
        let config = hub_config(key, "50 Mbit/s", served);
        let hub = ready(gateway(lab.command(Node::Hub, PROGRAM), "hub"), &config)?;
        Ok(Self { entrance: hub_address(), sides: vec![hub] })
    }

    /// Starts terminals on a host without waiting. They have an unused proxy.
    pub(crate) fn terminals(
        host: &NetNs,
        keys: &[PrivateKey],
        hub: &PrivateKey,
        rate: &str,
    ) -> Result<Self, Failure> {
        let mut running = Self { entrance: hub_address(), sides: Vec::new() };
        for (port, key) in (FIRST_PROXY..).zip(keys) {
            let proxy = format!("[proxy]\nlisten = \"127.0.0.1:{port}\"\n");
            let config = terminal_config(key, hub, rate, &proxy);
            running.sides.push(spawn(gateway(host.command(PROGRAM), "terminal"), &config)?);
        }
        Ok(running)
    }

    /// Waits, once, until all of those terminals are in service.
    pub(crate) fn wait(&mut self) -> Result<(), Failure> {
        self.sides.iter_mut().try_for_each(wait)
    }

    /// A server that keeps connections open.
    pub(crate) fn holder(hosts: &CabledLab, address: SocketAddr) -> Result<Self, Failure> {
        let mut command = hosts.command(Node::Server, std::env::current_exe()?);
        command.args(["hold", &address.to_string()]);
        Ok(Self { entrance: address, sides: vec![ready(command, "")?] })
    }

    /// CPU seconds of the terminal's and the hub's process.
    pub(crate) fn cpu(&self) -> Result<[f64; 2], Failure> {
        match self.pids() {
            None => Ok([0.0; 2]),
            Some([terminal, hub]) => Ok([cpu::seconds(terminal)?, cpu::seconds(hub)?]),
        }
    }
}

impl Running {
    /// Process ids of terminal and hub.
    pub(crate) fn pids(&self) -> Option<[u32; 2]> {
        match self.sides.as_slice() {
            [terminal, hub] => Some([terminal.id(), hub.id()]),
            _ => None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.sides {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Settings common to both gateways. The stream's window limits the data in flight to what fits
/// into the sockets' buffers, since nothing else limits the rate.
fn common(key: &PrivateKey, rate: &str) -> String {
    let key = key.to_base64();
    format!(
        "private_key = \"{key}\"\ncontrol = \"none\"\nrate = \"{rate}\"\nstream_window = \"8 MB\"\n"
    )
}

fn hub_config<'a>(
    key: &PrivateKey,
    rate: &str,
    served: impl IntoIterator<Item = &'a PrivateKey>,
) -> String {
    let terminal = |(number, key): (usize, &PrivateKey)| {
        let key = format_public_key(&key.public());
        format!("[[terminal]]\nname = \"{number}\"\nkey = \"{key}\"\n")
    };
    let terminals: String = (1..).zip(served).map(terminal).collect();
    let (common, listen) = (common(key, rate), hub_address());
    format!("{common}listen = \"{listen}\"\n[limits]\nconnections_per_second = 100000\n{terminals}")
}

fn terminal_config(key: &PrivateKey, hub: &PrivateKey, rate: &str, entrance: &str) -> String {
    let (common, hub, address) =
        (common(key, rate), format_public_key(&hub.public()), hub_address());
    format!("{common}hub = \"{address}\"\nhub_key = \"{hub}\"\n{entrance}")
}

/// A command that reads its configuration from standard input.
fn gateway(mut command: Command, role: &str) -> Command {
    command.args([role, "/dev/stdin"]).env("SKYHOP_LOG", "warn");
    command
}

/// Starts a process and waits until it prints `ready`.
fn ready(command: Command, stdin: &str) -> Result<Child, Failure> {
    let mut child = spawn(command, stdin)?;
    wait(&mut child).map(|()| child)
}

fn spawn(mut command: Command, stdin: &str) -> Result<Child, Failure> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(stdin.as_bytes())?;
    Ok(child)
}

fn wait(child: &mut Child) -> Result<(), Failure> {
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    match lines.next() {
        Some(Ok(line)) if line == "ready" => Ok(()),
        _ => Err(format!("a process does not start: {:?}", child.wait()?).into()),
    }
}
