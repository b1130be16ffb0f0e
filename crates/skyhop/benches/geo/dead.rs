//! Downloads of a client through the pair while another client of the same terminal opens connections
//! to a server that does not answer, as BitTorrent clients do.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{LAN_DEVICE, Node, find_netns};
use os::netlink::RouteSocket;
use report::{TableColumn, TextTable};
use socket2::{Domain, Socket, Type};
use stats::SampleSpread;

use crate::meter::{self, seconds};
use crate::pair::Pair;
use crate::run::Failure;
use crate::{PROGRAM, progress};

/// Connections opened in vain, per second.
const PACES: [u32; 3] = [0, 30, 150];
const SIZES: [&str; 2] = ["100kB", "5MB"];
/// How long they have been opened when the downloads begin.
const BEFORE: Duration = Duration::from_secs(25);
/// How long each stays open.
const KEPT: Duration = Duration::from_secs(30);
/// Bytes that each sends, a handshake of BitTorrent.
const FIRST: [u8; 68] = [19; 68];
/// The client that opens them.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);
const PORT: u16 = 6881;
/// Seconds after which a run is given up.
const LIMIT: &str = "180";
/// What another client's connections may cost: a share of the time, and seconds.
const MOST: (f64, f64) = (1.1, 0.1);

/// Measures and prints all; returns how many bounds were missed.
pub(crate) fn compare(rounds: u64) -> Result<usize, Failure> {
    let columns = [TableColumn::left("in vain")].into_iter();
    let columns = columns.chain(SIZES.map(TableColumn::right)).chain([TableColumn::left("")]);
    let mut table = TextTable::new(columns).title(format!(
        "downloads beside a client that connects in vain, per second: seconds, {rounds} rounds, \
         medians (and range)"
    ));
    let (mut alone, mut missed) = ([f64::INFINITY; 2], 0);
    for pace in PACES {
        let mut all = Vec::new();
        for round in 1..=rounds {
            progress(&format!("round {round} of {rounds}: {pace} a second in vain"))?;
            all.push(measure(pace, round)?);
        }
        let spread = |at: usize| SampleSpread::of(all.iter().map(|it: &[f64; 2]| it[at]));
        let times = [spread(0).ok_or("no rounds")?, spread(1).ok_or("no rounds")?];
        if pace == 0 {
            alone = [times[0].median, times[1].median];
        }
        let is_near = |(time, alone): (&SampleSpread, f64)| {
            time.median <= (alone * MOST.0).min(alone + MOST.1)
        };
        let reached = times.iter().zip(alone).all(is_near);
        missed += usize::from(!reached);
        let verdict = if reached { "reached" } else { "MISSED" };
        let cells = times.map(|time| format!("{time:.2}"));
        table.row([pace.to_string()].into_iter().chain(cells).chain([verdict.to_owned()]));
    }
    eprintln!();
    print!("{table}");
    Ok(missed)
}

fn measure(pace: u32, seed: u64) -> Result<[f64; 2], Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--seed", &seed.to_string(), "--", "timeout", LIMIT]);
    command.arg(std::env::current_exe()?).args(["inside-dead", &pace.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    let printed = String::from_utf8(output.stdout)?;
    let times: Result<Vec<f64>, _> = printed.split_whitespace().map(str::parse).collect();
    times?.try_into().map_err(|_| format!("two times, not {printed:?}").into())
}

/// Inside a lab: prints the time of each download.
pub(crate) fn inside(arguments: &[&str]) -> Result<(), Failure> {
    let [pace] = arguments else { return Err("one argument".into()) };
    let pace: u32 = pace.parse()?;
    let _pair = Pair::start(Some(["50Mbit/s", "10Mbit/s"]))?;
    let _silent = if pace > 0 { Some(begin(pace)?) } else { None };
    for size in SIZES {
        let report = meter::run("bulk", &["--bytes", size, "--limit", "60s"])?;
        print!("{} ", seconds(&report, "/sums/0/total_seconds")?);
    }
    println!();
    Ok(())
}

/// Starts to open connections in vain, and waits until there are many. Returns the server that does
/// not answer.
fn begin(pace: u32) -> Result<(Socket, Vec<TcpStream>), Failure> {
    let server = find_netns(Node::Server)?.run(silent)?;
    let add = || RouteSocket::open()?.add_address(LAN_DEVICE, OTHER.into(), 24);
    find_netns(Node::Client)?.run(add)?;
    thread::spawn(move || find_netns(Node::Client).map(|netns| netns.run(|| open(pace))));
    thread::sleep(BEFORE);
    Ok(server)
}

/// A listener whose queue is full, so that its host answers no further SYN; and what fills it.
fn silent() -> std::io::Result<(Socket, Vec<TcpStream>)> {
    let address = SocketAddr::from((Node::Server.address4(), PORT));
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&address.into())?;
    listener.listen(0)?;
    let wait = Duration::from_millis(300);
    let connect = || TcpStream::connect_timeout(&address, wait).ok();
    Ok((listener, std::iter::from_fn(connect).collect()))
}

/// Opens connections in vain for ever.
fn open(pace: u32) {
    let (mut kept, mut next) = (VecDeque::new(), Instant::now());
    loop {
        if let Ok(socket) = connect() {
            let _ = (&socket).write(&FIRST);
            kept.push_back((Instant::now(), socket));
        }
        while kept.pop_front_if(|(since, _)| since.elapsed() > KEPT).is_some() {}
        next += Duration::from_secs(1) / pace;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn connect() -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((IpAddr::from(OTHER), 0)).into())?;
    let server = SocketAddr::from((Node::Server.address4(), PORT));
    socket.connect_timeout(&server.into(), Duration::from_millis(100))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
