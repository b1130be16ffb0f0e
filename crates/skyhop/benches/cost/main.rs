//! Cost of a gateway pair without a link: Gbit/s, and CPU seconds per GB of each process, for one
//! download between directly cabled hosts.
//!
//! ```text
//! cargo bench -p skyhop --bench cost [-- GIGABYTES [ROUNDS [WAY]]]
//! cargo bench -p skyhop --bench cost -- noise [GIGABYTES [ROUNDS]]
//! cargo bench -p skyhop --bench cost -- connections [COUNT]
//! cargo bench -p skyhop --bench cost -- sessions [GIGABYTES [ROUNDS]]
//! cargo bench -p skyhop --bench cost -- swarm [ROUNDS [RATE]]
//! cargo bench -p skyhop --bench cost -- crash [ROUNDS]
//! cargo bench -p skyhop --bench cost -- workers [ROUNDS]
//! cargo bench -p skyhop --bench cost -- geo [ROUNDS]
//! cargo bench -p skyhop --bench cost -- page [ROUNDS]
//! cargo bench -p skyhop --bench cost -- huge [GIGABYTES]
//! ```
//!
//! Compared with the pair, interleaved: plain kernel TCP, two relays that copy between plain TCP
//! connections, and two relays with QUIC (quinn, GSO on) as the hop. The relays listen; the pair
//! intercepts. `noise` compares the pair with and without compression of streams, for data that does not
//! compress. `sessions` measures a hub with 1, 100 and 400 terminals, one of which carries the
//! download. `swarm` measures a hub with thousands, all in one process, `crash` how soon they are back, and
//! `workers` one with one or two threads. `geo` measures the pair at a satellite link's rate, and `page`
//! what the dashboard of such a hub takes.

mod connections;
mod cpu;
mod crash;
mod geo;
mod huge;
mod page;
mod quic;
mod relay;
mod sessions;
mod swarm;
mod terminals;
#[allow(unreachable_pub, reason = "shared with another benchmark")]
#[path = "../../../slacp/benches/quic/tls.rs"]
mod tls;
mod way;
mod workers;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use lab::{CabledLab, NetNs, Node};
use report::{TableColumn, TextTable};
use stats::SampleSpread;

use self::way::{Running, Way};

type Failure = Box<dyn Error + Send + Sync>;

const SERVER_PORT: u16 = 7000;
const CHUNK: usize = 1 << 16;

/// Figures of one transfer.
struct Figures {
    gbit_per_second: f64,
    /// CPU seconds per GB on the terminal's and on the hub's side.
    terminal: f64,
    hub: f64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["copy", listen, to] => relay::run(listen.parse()?, to.parse()?),
        ["quic-terminal", listen, hub] => quic::terminal(listen.parse()?, hub.parse()?),
        ["quic-hub", listen, to] => quic::hub(listen.parse()?, to.parse()?),
        ["hold", listen] => connections::holder(listen.parse()?),
        ["geo"] => geo::run(5),
        ["geo", rounds, ..] => geo::run(rounds.parse()?),
        ["huge"] => huge::run(5.0),
        ["huge", gigabytes] => huge::run(gigabytes.parse()?),
        ["connections"] => connections::run(20_000),
        ["connections", count] => connections::run(count.parse()?),
        ["sessions"] => sessions::run(1.0, 5),
        ["sessions", gigabytes] => sessions::run(gigabytes.parse()?, 5),
        ["sessions", gigabytes, rounds, ..] => sessions::run(gigabytes.parse()?, rounds.parse()?),
        ["swarm"] => swarm::run(5, swarm::BUSY_RATE),
        ["swarm", rounds] => swarm::run(rounds.parse()?, swarm::BUSY_RATE),
        ["swarm", rounds, rate, ..] => swarm::run(rounds.parse()?, rate),
        ["crash"] => crash::run(3),
        ["crash", rounds, ..] => crash::run(rounds.parse()?),
        ["page"] => page::run(5),
        ["page", rounds, ..] => page::run(rounds.parse()?),
        ["workers"] => workers::run(5),
        ["workers", rounds, ..] => workers::run(rounds.parse()?),
        ["noise"] => noise(1.0, 15),
        ["noise", gigabytes] => noise(gigabytes.parse()?, 15),
        ["noise", gigabytes, rounds, ..] => noise(gigabytes.parse()?, rounds.parse()?),
        [] => usual(2.0, 5, ""),
        [gigabytes] => usual(gigabytes.parse()?, 5, ""),
        [gigabytes, rounds] => usual(gigabytes.parse()?, rounds.parse()?, ""),
        [gigabytes, rounds, way, ..] => usual(gigabytes.parse()?, rounds.parse()?, way),
    }
}

/// Measures all usual ways, or those with `only` in their name.
fn usual(gigabytes: f64, rounds: usize, only: &str) -> Result<(), Failure> {
    let wanted = |way: &Way| way.to_string().contains(only);
    compare(gigabytes, rounds, Way::ALL.into_iter().filter(wanted), [7; CHUNK])
}

/// What compression of streams costs where it saves nothing.
fn noise(gigabytes: f64, rounds: usize) -> Result<(), Failure> {
    let mut chunk = [0; CHUNK];
    getrandom::fill(&mut chunk)?;
    compare(gigabytes, rounds, Way::COMPRESSION.into_iter(), chunk)
}

/// Measures these ways, with a server that repeats `chunk`.
fn compare(
    gigabytes: f64,
    rounds: usize,
    ways: impl Iterator<Item = Way>,
    chunk: [u8; CHUNK],
) -> Result<(), Failure> {
    lab::enter()?;
    let hosts = CabledLab::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let bytes = (gigabytes * 1e9) as u64;
    serve(hosts.node(Node::Server), server, bytes, chunk)?;
    let mut all: Vec<(Way, Vec<Figures>)> = ways.map(|way| (way, Vec::new())).collect();
    for round in 1..=rounds {
        for (way, figures) in &mut all {
            eprint!("\rround {round} of {rounds}: {way:<14}");
            figures.push(measure(&hosts, *way, server, bytes)?);
        }
    }
    eprintln!();
    let names = ["Gbit/s", "terminal CPU-s/GB", "hub CPU-s/GB"].map(TableColumn::right);
    let mut table = TextTable::new([TableColumn::left("")].into_iter().chain(names))
        .title(format!("{gigabytes} GB, {rounds} rounds, medians (and range)"));
    for (way, figures) in &all {
        let column = |of: fn(&Figures) -> f64| spread(figures.iter().map(of));
        let (rate, terminal) = (column(|f| f.gbit_per_second), column(|f| f.terminal));
        table.row([way.to_string(), rate, terminal, column(|f| f.hub)]);
    }
    print!("{table}");
    Ok(())
}

/// Formats the median and range; empty without figures.
fn spread(values: impl Iterator<Item = f64>) -> String {
    SampleSpread::of(values).map_or_else(String::new, |it| it.to_string())
}

/// A server that replies to one byte with `bytes` bytes, in which `chunk` is repeated, and closes.
fn serve(host: &NetNs, address: SocketAddr, bytes: u64, chunk: [u8; CHUNK]) -> Result<(), Failure> {
    let listener = host.run(|| TcpListener::bind(address))?;
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let (mut left, mut request) = (bytes, [0]);
            let _ = socket.read_exact(&mut request);
            while left > 0 {
                let now = left.min(CHUNK as u64);
                if socket.write_all(&chunk[..now as usize]).is_err() {
                    break;
                }
                left -= now;
            }
        }
    });
    Ok(())
}

fn measure(
    hosts: &CabledLab,
    way: Way,
    server: SocketAddr,
    bytes: u64,
) -> Result<Figures, Failure> {
    let running = Running::start(hosts, way, server)?;
    transfer(hosts.node(Node::Client), &running, bytes)
        .map_err(|error| format!("{way}: {error}").into())
}

/// One download.
fn transfer(client: &NetNs, running: &Running, bytes: u64) -> Result<Figures, Failure> {
    let mut socket = client.run(|| TcpStream::connect(running.entrance))?;
    let (before, begin) = (running.cpu()?, Instant::now());
    socket.write_all(&[1])?;
    let (mut buffer, mut got) = (vec![0; 4 * CHUNK], 0);
    loop {
        match socket.read(&mut buffer)? {
            0 => break,
            count => got += count as u64,
        }
    }
    let (time, after) = (begin.elapsed(), running.cpu()?);
    if got != bytes {
        return Err(format!("{got} bytes of {bytes}").into());
    }
    let gigabytes = bytes as f64 / 1e9;
    Ok(Figures {
        gbit_per_second: bytes as f64 * 8.0 / 1e9 / time.as_secs_f64(),
        terminal: (after[0] - before[0]) / gigabytes,
        hub: (after[1] - before[1]) / gigabytes,
    })
}
