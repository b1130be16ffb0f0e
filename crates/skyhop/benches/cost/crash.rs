//! A hub with thousands of sessions on real sockets is killed and started again: how soon all of them are
//! back. All terminals are behind one address, as behind a translator.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::{PrivateKey, format_public_key};
use tempfile::TempDir;

use crate::swarm::{PROGRAM, RATE, Running, print_hub_config};
use crate::{Failure, spread};

const TERMINALS: u32 = 4000;
/// Time for a hub to have all sessions, and to write down whose they are.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures `rounds` starts and crashes.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let (mut starts, mut crashes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprint!("\rround {round} of {rounds}        ");
        let [start, crash] = measure()?;
        starts.push(start.as_secs_f64());
        crashes.push(crash.as_secs_f64());
    }
    eprintln!();
    let [starts, crashes] = [starts, crashes].map(|times| spread(times.into_iter()));
    println!("{TERMINALS} terminals have sessions {starts} s after they start together, and");
    println!("{crashes} s after the start of a hub whose process before was killed");
    Ok(())
}

/// Time until all terminals have sessions: when they start, and after a crash of the hub.
fn measure() -> Result<[Duration; 2], Failure> {
    let folder = TempDir::new()?;
    let (file, key) = configure(folder.path())?;
    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let text = fs::read_to_string(&file)?;
    fs::write(&file, format!("listen = \"127.0.0.1:{port}\"\n{text}"))?;
    let hub = Hub::start(&file)?;
    let begin = Instant::now();
    // The hub does not know the last one, so the swarm waits for it, and keeps all others.
    let _swarm = swarm(port, &key, TERMINALS + 1)?;
    let start = hub.wait_for_all(begin)?;
    let contacts = folder.path().join("hub-contacts.json");
    while !contacts.exists() {
        if begin.elapsed() > PATIENCE {
            return Err("the hub does not write its contacts".into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    drop(hub);
    let begin = Instant::now();
    let crash = Hub::start(&file)?.wait_for_all(begin)?;
    Ok([start, crash])
}

/// The file of a hub with all terminals but the last, and its public key.
fn configure(folder: &Path) -> Result<(PathBuf, String), Failure> {
    let (file, key) = (folder.join("hub.toml"), PrivateKey::generate()?);
    key.write_file(&folder.join("hub.key"))?;
    let own = format!(
        "private_key_file = \"hub.key\"\ncontrol = \"none\"\nrate = \"{RATE}\"\nstate = {folder:?}\n"
    );
    fs::write(&file, own + &print_hub_config(TERMINALS, None)?)?;
    Ok((file, format_public_key(&key.public())))
}

fn swarm(port: u16, key: &str, terminals: u32) -> Result<Running, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["meter", "swarm", &format!("127.0.0.1:{port}"), "--hub-key", key]);
    command.args(["--terminals", &terminals.to_string(), "--limit", "10min"]);
    Ok(Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// A hub, killed when dropped.
struct Hub {
    _process: Running,
    ups: Receiver<Instant>,
}

impl Hub {
    fn start(file: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(PROGRAM);
        command.arg("hub").arg(file).env("SKYHOP_LOG", "info").stdout(Stdio::null());
        let mut process: Child = command.stderr(Stdio::piped()).spawn()?;
        let lines = BufReader::new(process.stderr.take().ok_or("no log")?).lines();
        let mut lines = lines.map_while(Result::ok);
        // Before, a terminal's socket could take its port.
        lines.find(|line| line.contains("serving")).ok_or("the hub does not serve")?;
        let (sender, ups) = channel();
        thread::spawn(move || {
            for line in lines {
                // Nobody listens after the last one.
                let _ = line.contains("session up with").then(|| sender.send(Instant::now()));
            }
        });
        Ok(Self { _process: Running(process), ups })
    }

    /// Time from `begin` until all terminals have sessions.
    fn wait_for_all(&self, begin: Instant) -> Result<Duration, Failure> {
        let mut last = begin;
        for number in 0..TERMINALS {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            let up = self.ups.recv_timeout(left);
            last = up.map_err(|_| format!("{number} of {TERMINALS} terminals have sessions"))?;
        }
        Ok(last - begin)
    }
}
