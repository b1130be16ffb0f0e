//! The pair in a running lab, with the files that `skyhop init` writes and fresh keys.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lab::{LAN_DEVICE, Node, find_netns};
use tempfile::TempDir;

use crate::PROGRAM;
use crate::run::Failure;

const PORT: u16 = 5900;

/// Both gateways in service. Ended when dropped.
pub(crate) struct Pair {
    sides: Vec<Child>,
    _files: TempDir,
}

impl Pair {
    /// Starts both and waits until the session is up. Without rates of forward and return link, both
    /// measure theirs.
    pub(crate) fn start(rates: Option<[&str; 2]>) -> Result<Self, Failure> {
        let files = tempfile::tempdir()?;
        let directory = files.path().join("pair");
        init(&directory, rates)?;
        let mut pair = Self { sides: Vec::new(), _files: files };
        for (node, role) in [(Node::Hub, "hub"), (Node::Terminal, "terminal")] {
            let mut command = find_netns(node)?.command(PROGRAM);
            command.arg(role).arg(directory.join(format!("{role}.toml")));
            command.env("SKYHOP_LOG", "warn").env("SKYHOP_RUN_DIR", pair._files.path());
            pair.sides.push(ready(command)?);
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in self.sides.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn init(directory: &Path, rates: Option<[&str; 2]>) -> Result<(), Failure> {
    let mut command = Command::new(PROGRAM);
    let hub = format!("{}:{PORT}", Node::Hub.address4());
    command.arg("init").arg(directory).args(["--hub", &hub, "--interface", LAN_DEVICE]);
    if let Some([forward, ret]) = rates {
        command.args(["--hub-rate", forward, "--terminal-rate", ret]);
    }
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Starts a gateway and waits until it prints `ready`.
fn ready(mut command: Command) -> Result<Child, Failure> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    match lines.next() {
        Some(Ok(line)) if line == "ready" => Ok(child),
        _ => Err(format!("{command:?} does not start: {}", child.wait()?).into()),
    }
}
