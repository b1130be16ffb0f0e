//! The ways from client to server, and the processes on them.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use gateway::keys::{PrivateKey, format_public_key};
use lab::{Cabled, LAN_DEVICE, Node};

use crate::{Failure, SERVER_PORT, cpu};

const HOP_PORT: u16 = 5900;

/// What is between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Copy,
    Quic,
    Skyhop,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Copy, Self::Quic, Self::Skyhop];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "kernel TCP",
            Self::Copy => "copying relay",
            Self::Quic => "quinn relay",
            Self::Skyhop => "skyhop",
        })
    }
}

/// The processes of a way, at work. Killed when dropped.
pub(crate) struct Running {
    /// Where the client connects to.
    pub(crate) entrance: SocketAddr,
    /// The terminal's and the hub's.
    sides: Vec<Child>,
}

impl Running {
    /// Starts them and waits until they are in service.
    pub(crate) fn start(hosts: &Cabled, way: Way, server: SocketAddr) -> Result<Self, Failure> {
        let relay = (hosts.address4(Node::Terminal), SERVER_PORT).into();
        let hub = SocketAddr::from((hosts.address4(Node::Hub), HOP_PORT));
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
            Way::Skyhop => (server, pair(hosts, hub)?),
        };
        Ok(Self { entrance, sides })
    }

    /// A server that keeps connections.
    pub(crate) fn holder(hosts: &Cabled, address: SocketAddr) -> Result<Self, Failure> {
        let mut command = hosts.command(Node::Server, std::env::current_exe()?);
        command.args(["hold", &address.to_string()]);
        Ok(Self { entrance: address, sides: vec![ready(command, "")?] })
    }

    /// CPU-seconds of the terminal's and of the hub's process.
    pub(crate) fn cpu(&self) -> Result<[f64; 2], Failure> {
        match self.pids() {
            None => Ok([0.0; 2]),
            Some([terminal, hub]) => Ok([cpu::seconds(terminal)?, cpu::seconds(hub)?]),
        }
    }
}

impl Running {
    /// The terminal's and the hub's process.
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

/// The gateway pair. What is under way is bounded by the stream's window: it
/// fits into the sockets' buffers, where nothing else bounds the rate.
fn pair(hosts: &Cabled, hub: SocketAddr) -> Result<Vec<Child>, Failure> {
    let keys = [PrivateKey::generate()?, PrivateKey::generate()?];
    let [terminal_public, hub_public] =
        [&keys[0], &keys[1]].map(|key| format_public_key(&key.public()));
    let common = |key: &PrivateKey| {
        let key = key.to_base64();
        format!(
            "private_key = \"{key}\"\ncontrol = \"none\"\nrate = \"20 Gbit/s\"\nstream_window = \"8 MB\"\n"
        )
    };
    let hub_config = format!(
        "{}listen = \"{hub}\"\n[limits]\nconnections_per_second = 100000\n\
         [[terminal]]\nname = \"terminal\"\nkey = \"{terminal_public}\"\n",
        common(&keys[1])
    );
    let terminal_config = format!(
        "{}hub = \"{hub}\"\nhub_key = \"{hub_public}\"\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n",
        common(&keys[0])
    );
    let start = |node, role, config: &str| {
        let mut command = hosts.command(node, env!("CARGO_BIN_EXE_skyhop"));
        command.args([role, "/dev/stdin"]).env("SKYHOP_LOG", "warn");
        ready(command, config)
    };
    let hub = start(Node::Hub, "hub", &hub_config)?;
    Ok(vec![start(Node::Terminal, "terminal", &terminal_config)?, hub])
}

/// Starts a process and waits until it says `ready`.
fn ready(mut command: Command, stdin: &str) -> Result<Child, Failure> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(stdin.as_bytes())?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    match lines.next() {
        Some(Ok(line)) if line == "ready" => Ok(child),
        _ => Err(format!("{command:?} does not start: {:?}", child.wait()?).into()),
    }
}
