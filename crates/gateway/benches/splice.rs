//! Cost of relaying between two TCP connections on one machine: `cargo bench -p skyhop-gateway
//! --bench splice`.
//!
//! One connection over the loopback device moves bytes as fast as it can: directly, through a bare
//! splice loop between blocking sockets, and through `skyhop solo` (by its proxy, so that no
//! privilege is needed). CPU seconds are those of the relaying thread. Rounds are interleaved; each
//! line is the median of its rounds.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gateway::config::read_solo;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use nix::sys::socket::{MsgFlags, recv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::pipe;
use report::{TableColumn, TextTable};
use stats::SampleSpread;
use tokio::sync::oneshot;

const BYTES: u64 = 4_000_000_000;
const ROUNDS: usize = 5;
/// The same size as in a relay of solo.
const PIPE: usize = 256 << 10;
const PIECE: usize = 128 << 10;

struct Round {
    gbit_per_second: f64,
    cpu_seconds_per_gb: f64,
}

type Way = fn() -> Round;

fn main() {
    // `cargo test --benches` only checks that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let ways: [(&str, Way); 3] =
        [("direct", direct), ("bare splice loop", bare), ("skyhop solo", solo)];
    let mut rounds: [Vec<Round>; 3] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, way), rounds) in ways.iter().zip(&mut rounds) {
            rounds.push(way());
        }
    }
    let columns = [
        TableColumn::left(""),
        TableColumn::right("Gbit/s"),
        TableColumn::right("relay's CPU s/GB"),
    ];
    let mut table = TextTable::new(columns)
        .title(format!("{} GB over loopback, median of {ROUNDS}", BYTES / 1_000_000_000));
    for ((name, _), rounds) in ways.iter().zip(&rounds) {
        let rate = median(rounds.iter().map(|round| round.gbit_per_second));
        let cost = median(rounds.iter().map(|round| round.cpu_seconds_per_gb));
        table.row([(*name).to_owned(), format!("{rate:.1}"), format!("{cost:.3}")]);
    }
    let [_, bare, solo] = &rounds;
    // Only rounds of about the same time are compared.
    let shares =
        bare.iter().zip(solo).map(|(bare, solo)| solo.gbit_per_second / bare.gbit_per_second);
    println!("{table}skyhop solo moves {:.0} % of what the bare loop does", median(shares) * 100.0);
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    SampleSpread::of(values).expect("there were rounds").median
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// A server that sends to its only client.
fn server() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let piece = vec![7; PIECE];
        let mut left = BYTES;
        while left > 0 {
            let count = left.min(PIECE as u64);
            socket.write_all(&piece[..count as usize]).unwrap();
            left -= count;
        }
    });
    (address, sending)
}

/// Receives and discards everything; returns the rate.
fn receive(socket: &TcpStream) -> f64 {
    let began = Instant::now();
    let (mut got, mut room) = (0, vec![0; 1 << 20]);
    loop {
        // With MSG_TRUNC TCP drops the bytes and writes nowhere.
        let count = recv(socket.as_raw_fd(), &mut room, MsgFlags::MSG_TRUNC);
        match count.expect("the connection is not reset") {
            0 => break,
            count => got += count as u64,
        }
    }
    assert_eq!(got, BYTES);
    got as f64 * 8e-9 / began.elapsed().as_secs_f64()
}

fn direct() -> Round {
    let (address, sending) = server();
    let gbit_per_second = receive(&TcpStream::connect(address).unwrap());
    sending.join().unwrap();
    Round { gbit_per_second, cpu_seconds_per_gb: 0.0 }
}

fn bare() -> Round {
    let (address, sending) = server();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let entrance = listener.local_addr().unwrap();
    let relaying = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(address).unwrap();
        splice_all(&server, &client);
        cpu_time()
    });
    let gbit_per_second = receive(&TcpStream::connect(entrance).unwrap());
    sending.join().unwrap();
    Round { gbit_per_second, cpu_seconds_per_gb: per_gb(relaying.join().unwrap()) }
}

fn splice_all(from: &TcpStream, to: &TcpStream) {
    let (outlet, inlet) = pipe().unwrap();
    fcntl(&inlet, FcntlArg::F_SETPIPE_SZ(PIPE as i32)).unwrap();
    let flags = SpliceFFlags::SPLICE_F_MOVE;
    loop {
        let mut left = splice(from, None, &inlet, None, PIPE, flags).unwrap();
        if left == 0 {
            return;
        }
        while left > 0 {
            left -= splice(&outlet, None, to, None, left, flags).unwrap();
        }
    }
}

fn solo() -> Round {
    let (address, sending) = server();
    let entrance = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("solo.toml");
    let text = format!("allow_loopback = true\n[proxy]\nlisten = \"{entrance}\"\n");
    std::fs::write(&path, text).unwrap();
    let config = read_solo(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let relaying = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async { stopped.await.unwrap_or(()) };
        runtime.block_on(gateway::solo::run(config, stopped)).unwrap();
        cpu_time()
    });
    let socket = ask(entrance, address);
    let gbit_per_second = receive(&socket);
    drop(socket);
    sending.join().unwrap();
    stop.send(()).unwrap();
    Round { gbit_per_second, cpu_seconds_per_gb: per_gb(relaying.join().unwrap()) }
}

/// A connection through the proxy, retried until it listens.
fn ask(proxy: SocketAddr, server: SocketAddr) -> TcpStream {
    let mut socket = loop {
        match TcpStream::connect(proxy) {
            Ok(socket) => break socket,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    };
    write!(socket, "CONNECT {server} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    socket
}

fn per_gb(time: Duration) -> f64 {
    time.as_secs_f64() / (BYTES as f64 / 1e9)
}
