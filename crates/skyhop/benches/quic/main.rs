//! QUIC through the pair, which cannot split it: a download with quinn over a lossy GEO link, plain
//! and through the packet channel, interleaved.
//!
//! ```text
//! cargo bench -p skyhop --bench quic [-- ROUNDS [PER]]
//! ```
//!
//! Each download moves 5 MB over 50/10 Mbit/s, RTT 600 ms, queues of one BDP, in a new connection.
//! Every round has its own seed, the same for all ways. `PER`, such as `1%`, replaces the default
//! list. A download is given up after a minute.

#[path = "../../tests/common/quic.rs"]
mod client;

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use lab::{Node, find_netns};
use report::{TableColumn, TextTable};
use stats::SampleSpread;

use self::client::Control;

type Failure = Box<dyn Error + Send + Sync>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
const PORT: u16 = 4433;
const BYTES: usize = 5_000_000;
/// Time limit in seconds.
const LIMIT: &str = "60";
const LOSSES: [&str; 4] = ["0", "0.1%", "1%", "5%"];

/// Congestion control of the QUIC sender, and whether the pair carries it.
const WAYS: [(&str, Control, bool); 4] = [
    ("plain, CUBIC", Control::Cubic, false),
    ("pair, CUBIC", Control::Cubic, true),
    ("plain, BBR", Control::Bbr, false),
    ("pair, BBR", Control::Bbr, true),
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["download", control] => {
            download(if *control == "bbr" { Control::Bbr } else { Control::Cubic })
        }
        [] => compare(5, &LOSSES),
        [rounds] => compare(rounds.parse()?, &LOSSES),
        [rounds, losses @ ..] => compare(rounds.parse()?, losses),
    }
}

fn compare(rounds: u64, losses: &[&str]) -> Result<(), Failure> {
    let names = WAYS.map(|(name, ..)| TableColumn::right(name));
    let mut table = TextTable::new([TableColumn::left("PER")].into_iter().chain(names)).title(format!(
        "QUIC, {BYTES} bytes over 50/10 Mbit/s, 600 ms: seconds, {rounds} rounds, medians (and range)"
    ));
    for per in losses {
        let mut times = WAYS.map(|_| Vec::new());
        for round in 1..=rounds {
            for (times, (name, control, pair)) in times.iter_mut().zip(WAYS) {
                eprint!("\r\x1b[KPER {per}, round {round} of {rounds}: {name}");
                times.push(measure(per, control, pair, round)?);
            }
        }
        let cells = times.iter().map(|times| spread(times));
        table.row([(*per).to_owned()].into_iter().chain(cells));
    }
    eprint!("\r\x1b[K");
    print!("{table}");
    Ok(())
}

/// Download time in seconds; infinite beyond the limit.
fn measure(per: &str, control: Control, pair: bool, seed: u64) -> Result<f64, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--per", per, "--seed", &seed.to_string()]);
    command.args(pair.then_some("--gateways"));
    command.args(["--", "timeout", LIMIT]).arg(std::env::current_exe()?);
    command.args(["download", if control == Control::Bbr { "bbr" } else { "cubic" }]);
    let output = command.stderr(Stdio::inherit()).output()?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout)?.trim().parse()?),
        // Exit code of timeout(1) when the limit has passed.
        Some(124) => Ok(f64::INFINITY),
        _ => Err(format!("{command:?}: {}", output.status).into()),
    }
}

/// Inside the lab: one download from `server`; prints its time in seconds.
fn download(control: Control) -> Result<(), Failure> {
    let content: Arc<[u8]> =
        (0..BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bind = |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let listening = find_netns(Node::Server)?.run(|| bind(PORT))?;
    let expected = content.clone();
    thread::spawn(move || client::serve(listening, control, &content));
    let server = (Node::Server.address4(), PORT).into();
    let fetched = client::fetch(bind(0)?, server, control, BYTES)?;
    if fetched.content[..] != expected[..] {
        return Err(format!("received {} bytes, or wrong ones", fetched.content.len()).into());
    }
    eprint!(" (datagrams of {} bytes)", fetched.datagram);
    println!("{}", fetched.time.as_secs_f64());
    Ok(())
}

fn spread(values: &[f64]) -> String {
    let Some(SampleSpread { median, min, max }) = SampleSpread::of(values.iter().copied()) else {
        return String::new();
    };
    let text = |value: f64| {
        if value.is_finite() { format!("{value:.2}") } else { format!("over {LIMIT}") }
    };
    format!("{} ({}–{})", text(median), text(min), text(max))
}
