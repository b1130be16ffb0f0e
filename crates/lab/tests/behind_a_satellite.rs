//! A project's test of its own program behind satellite links, to copy. It needs in `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! lab = { package = "skyhop-lab", path = "…" }      # or git = "…"
//!
//! [[test]]
//! name = "behind_a_satellite"
//! harness = false       # a lab needs a process with a single thread
//! ```
//!
//! One test program starts one lab; for several links it starts itself again.

#![allow(missing_docs)]

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use lab::{BuildError, Builder, Lab, Node};

type Failure = Box<dyn Error>;

/// Names the link of a program that this one has started.
const LINK: &str = "BEHIND";
/// The links, with the least round-trip time of each.
const LINKS: [(&str, Duration); 2] =
    [("geo", Duration::from_millis(600)), ("leo", Duration::from_millis(35))];

fn main() -> Result<ExitCode, Failure> {
    if let Ok(link) = env::var(LINK) {
        return behind(&link);
    }
    for (link, _) in LINKS {
        let status = Command::new(env::current_exe()?).env(LINK, link).status()?;
        if !status.success() {
            println!("behind {link}: {status}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn behind(link: &str) -> Result<ExitCode, Failure> {
    let lab = match Builder::new(link).per(0.005).seed(1).start() {
        Err(BuildError::Enter(why)) if env::var("SKYHOP_REQUIRE_LAB").is_err() => {
            println!("SKIPPED: {why}");
            return Ok(ExitCode::SUCCESS);
        }
        lab => lab?,
    };
    let (_, rtt) = LINKS.into_iter().find(|(name, _)| *name == link).ok_or("unknown link")?;
    a_greeting_takes_two_round_trips(&lab, rtt)?;
    a_program_of_the_machine_runs_on_a_host(&lab)?;
    println!("behind {link}: passed");
    Ok(ExitCode::SUCCESS)
}

/// The project's own server, on the lab's host `server`, and its client on `client`: connecting and
/// being greeted take a round trip each, and no third one.
fn a_greeting_takes_two_round_trips(lab: &Lab, rtt: Duration) -> Result<(), Failure> {
    let address: SocketAddr = (lab.address4(Node::Server), 7000).into();
    let listener = lab.node(Node::Server).run(|| TcpListener::bind(address))?;
    let server = thread::spawn(move || -> std::io::Result<()> {
        loop {
            let (mut peer, _) = listener.accept()?;
            let mut name = String::new();
            BufReader::new(peer.try_clone()?).read_line(&mut name)?;
            peer.write_all(format!("hello {name}").as_bytes())?;
        }
    });
    // Losses cost more: the best of a few tries shows the protocol's own round trips.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        let mut stream = lab.node(Node::Client).run(|| TcpStream::connect(address))?;
        stream.write_all(b"ship\n")?;
        let mut greeting = String::new();
        stream.read_to_string(&mut greeting)?;
        assert_eq!(greeting, "hello ship\n");
        best = best.min(begin.elapsed());
    }
    assert!(best >= 2 * rtt, "{best:?}: the link is not there");
    assert!(best < 3 * rtt, "{best:?}: the greeting takes a third round trip");
    assert!(!server.is_finished());
    Ok(())
}

/// Any program can run on a host of the lab. Names of hosts resolve.
fn a_program_of_the_machine_runs_on_a_host(lab: &Lab) -> Result<(), Failure> {
    let output = lab.command(Node::Client, "cat").arg("/etc/hosts").output()?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("server"));
    Ok(())
}
