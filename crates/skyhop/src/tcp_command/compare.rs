//! `skyhop tcp compare`: our endpoint beside the kernel's, on the same links.
//!
//! Each run has a new lab with the run's seed for every sender, one after the
//! other, so that whatever else the machine does meets all of them. The client
//! is the kernel's in all of them; what differs is who sends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use lab::{LAN_DEVICE, Lab, NetNs, Node, Preset, Station, TestObject, spare_addresses};
use meter::CongestionControl;
use socket2::SockRef;
use tcp::Config;
use tcp::cc::ControllerSpec;
use units::{BitRate, ByteCount};

use super::drive::drive;
use super::serve::Server;
use crate::lab_command::LinkArgs;

const PORT: u16 = 8080;

#[derive(clap::Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// What is sent, such as 10MB.
    #[arg(long, value_name = "SIZE", default_value = "10MB")]
    object: String,
    /// How often.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The congestion control, of those that the kernel has; of ours with its
    /// options.
    #[arg(long = "cc", value_name = "NAME", value_delimiter = ' ', default_values = ["cubic", "reno"])]
    controllers: Vec<ControllerSpec>,
    /// Further options of our endpoint, whose profile is linux.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    options: Config,
}

/// Who sends.
#[derive(Clone)]
enum Sender {
    Kernel(CongestionControl),
    Ours(Box<Config>),
}

/// What one controller came to, in Mbit/s.
struct Row {
    name: String,
    kernel: Vec<f64>,
    ours: Vec<f64>,
}

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let preset = args.link.preset()?;
    let object = TestObject::named(&args.object);
    let object = object.with_context(|| format!("{:?}: expected a size: 10MB", args.object))?;
    ensure!(args.runs > 0, "--runs 0: expected 1 or more");
    lab::enter()?;
    let mut rows = Vec::new();
    for spec in &args.controllers {
        let text = spec.to_string();
        let name = text.split(':').next().unwrap_or_default().to_owned();
        rows.push((spec, name.parse::<CongestionControl>()?, Row::new(text)));
    }
    for run in 0..args.runs {
        let seed = args.link.seed() + u64::from(run);
        for (spec, name, row) in &mut rows {
            let config = Config { controller: spec.clone(), ..args.options.clone() };
            let ours = Sender::Ours(Box::new(config));
            // Who is first changes from run to run.
            let mut both = [(Sender::Kernel(name.clone()), &mut row.kernel), (ours, &mut row.ours)];
            if run % 2 == 1 {
                both.reverse();
            }
            for (sender, samples) in both {
                samples.push(transfer(&preset, seed, sender, object)?);
            }
        }
    }
    let rows: Vec<Row> = rows.into_iter().map(|(.., row)| row).collect();
    crate::print(&table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

impl Row {
    fn new(name: String) -> Self {
        Self { name, kernel: Vec::new(), ours: Vec::new() }
    }
}

/// Medians, with the smallest and the largest run.
fn table(rows: &[Row]) -> String {
    let mut text = "| Mbit/s | kernel | skyhop | skyhop/kernel |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let (kernel, ours) = (middle(&row.kernel), middle(&row.ours));
        let ratio = ours / kernel;
        let cell = |samples: &[f64], middle: f64| {
            let (low, high) = samples
                .iter()
                .fold((f64::MAX, f64::MIN), |(low, high), each| (low.min(*each), high.max(*each)));
            format!("{middle:.2} ({low:.2}–{high:.2})")
        };
        text += &format!(
            "| `{}` | {} | {} | {ratio:.2} |\n",
            row.name,
            cell(&row.kernel, kernel),
            cell(&row.ours, ours)
        );
    }
    text
}

fn middle(samples: &[f64]) -> f64 {
    meter::stats::median(samples).unwrap_or(f64::NAN)
}

/// A transfer from `server` to `client` in a lab of its own. Its goodput, from
/// the first SYN to the last byte.
fn transfer(preset: &Preset, seed: u64, sender: Sender, object: TestObject) -> Result<f64> {
    let lab = Lab::start(preset, seed)?;
    let (ready, started) = sync_channel(1);
    let place = lab.node(Node::Server).clone();
    let server = thread::Builder::new().spawn(move || serve(&place, sender, object, &ready))?;
    let Ok(address) = started.recv() else {
        let ended = server.join().map_err(|_| anyhow!("the server panicked"))?;
        return Err(ended.err().unwrap_or_else(|| anyhow!("the server ended")));
    };
    let begun = Instant::now();
    let stream = lab.node(Node::Client).run(|| TcpStream::connect(address))?;
    fetch(stream, object)?;
    let time = begun.elapsed();
    server.join().map_err(|_| anyhow!("the server panicked"))??;
    let goodput = BitRate::average(ByteCount::new(object.size().get()), time);
    Ok(goodput.map_or(f64::NAN, |rate| rate.bits_per_second() as f64 / 1e6))
}

/// Gets the object and sees that it is it.
fn fetch(mut stream: TcpStream, object: TestObject) -> Result<()> {
    let size = object.size().get();
    write!(stream, "GET /{size}B HTTP/1.1\r\nHost: server\r\n\r\n")?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    let mut got = Vec::new();
    for chunk in object.chunks() {
        got.resize(chunk.len(), 0);
        stream.read_exact(&mut got)?;
        ensure!(got == chunk, "other bytes came than were sent");
    }
    // Ours closes only when all is acknowledged.
    ensure!(stream.read(&mut byte)? == 0, "more bytes came than were sent");
    Ok(())
}

/// Serves one connection on `server`; says where it listens.
fn serve(
    place: &NetNs,
    sender: Sender,
    object: TestObject,
    ready: &SyncSender<SocketAddr>,
) -> Result<()> {
    place.enter()?;
    match sender {
        Sender::Kernel(congestion) => serve_by_kernel(&congestion, object, ready),
        Sender::Ours(config) => {
            let addresses = spare_addresses(LAN_DEVICE)?;
            let mut station = Station::open(LAN_DEVICE, &addresses)?;
            let mut server = Server::new(*config, PORT, Some(1), |_| {});
            let own = addresses.iter().find(|own| own.is_ipv4());
            let own = own.context("the server has no IPv4 address")?;
            let _ = ready.send(SocketAddr::new(*own, PORT));
            drive(&mut station, &mut server)
        }
    }
}

fn serve_by_kernel(
    congestion: &CongestionControl,
    object: TestObject,
    ready: &SyncSender<SocketAddr>,
) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    congestion.apply(&SockRef::from(&listener))?;
    let _ = ready.send(SocketAddr::from((Node::Server.address4(), PORT)));
    let (mut stream, _) = listener.accept()?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    object.chunks().try_for_each(|chunk| stream.write_all(&chunk))?;
    Ok(())
}
