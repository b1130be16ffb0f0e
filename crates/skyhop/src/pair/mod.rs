//! The gateway pair in a lab: this very program as hub and as terminal.

mod child;

use std::fmt::Write as _;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Lab, Node, Preset};
use units::ByteCount;

use self::child::Gateway;

/// UDP port of the hub.
const PORT: u16 = 5900;
/// How long a gateway may take to be in service, besides a few RTT.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// How often the gateways are looked at while a command runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Windows that no link of these rates needs more than.
const LEAST_WINDOW: ByteCount = ByteCount::new(16_000_000);

/// A hub and a terminal, in service.
pub(crate) struct Pair {
    hub: Gateway,
    terminal: Gateway,
}

impl Pair {
    /// Starts both with fresh keys and waits until they carry connections.
    pub(crate) fn start(lab: &Lab, preset: &Preset) -> Result<Self> {
        let (hub_key, terminal_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
        let limit = READY_LIMIT + 5 * preset.rtt();
        let mut hub = start(lab, Node::Hub, &hub_config(preset, &hub_key, &terminal_key))?;
        hub.wait_ready(limit)?;
        let config = terminal_config(lab, preset, &hub_key, &terminal_key);
        let mut terminal = start(lab, Node::Terminal, &config)?;
        terminal.wait_ready(limit)?;
        Ok(Self { hub, terminal })
    }

    /// Sees whether one has failed.
    ///
    /// # Errors
    /// When one has, with what it said.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.terminal.check()?;
        self.hub.check()
    }

    /// Ends both, in order.
    ///
    /// # Errors
    /// When one fails, with what it said.
    pub(crate) fn stop(self) -> Result<()> {
        self.terminal.stop()?;
        self.hub.stop()
    }

    /// Waits for the end of `command`, then ends both. A gateway that fails is
    /// told on stderr when it does: the command goes on without it.
    ///
    /// # Errors
    /// When the command cannot be waited for.
    pub(crate) fn attend(mut self, mut command: Child) -> io::Result<ExitStatus> {
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(command.wait()));
        let mut failed = false;
        let status = loop {
            match ended.recv_timeout(LOOK_INTERVAL) {
                Ok(status) => break status,
                Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::Other.into()),
                Err(RecvTimeoutError::Timeout) if failed => {}
                Err(RecvTimeoutError::Timeout) => failed = self.check().inspect_err(tell).is_err(),
            }
        };
        if !failed {
            let _ = self.stop().inspect_err(tell);
        }
        status
    }
}

fn tell(error: &Error) {
    eprintln!("skyhop: {error:#}");
}

fn start(lab: &Lab, node: Node, config: &str) -> Result<Gateway> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = lab.command(node, program);
    // What it says is shown if it fails, and then only the failure matters.
    command.args([node.name(), "/dev/stdin"]).env("SKYHOP_LOG", "warn");
    Gateway::start(node.name(), command, config)
}

fn hub_config(preset: &Preset, hub: &PrivateKey, terminal: &PrivateKey) -> String {
    let mut config = common(preset, hub, preset.forward.rate);
    let _ = writeln!(config, "listen = \"0.0.0.0:{PORT}\"");
    let key = format_public_key(&terminal.public());
    let _ = writeln!(config, "[[terminal]]\nname = \"terminal\"\nkey = \"{key}\"");
    config
}

fn terminal_config(lab: &Lab, preset: &Preset, hub: &PrivateKey, own: &PrivateKey) -> String {
    let mut config = common(preset, own, preset.ret.rate);
    let _ = writeln!(config, "hub = \"{}:{PORT}\"", lab.address4(Node::Hub));
    let _ = writeln!(config, "hub_key = \"{}\"", format_public_key(&hub.public()));
    let _ = writeln!(config, "[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]");
    config
}

/// What both sides are told: who they are, the rate at which they send, and
/// windows of at least two BDP.
fn common(preset: &Preset, key: &PrivateKey, rate: units::BitRate) -> String {
    let fastest = preset.forward.rate.max(preset.ret.rate);
    let window = fastest.bytes_in(2 * preset.rtt()).max(LEAST_WINDOW);
    let memory = ByteCount::new(window.get().saturating_mul(4));
    format!(
        "private_key = \"{}\"\nrate = \"{rate}\"\nmtu = {}\nstream_window = \"{window}\"\nmemory = \"{memory}\"\n",
        key.to_base64(),
        preset.mtu
    )
}
