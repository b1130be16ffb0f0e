//! What the dashboard costs a hub with many terminals: processor time while nobody looks and while
//! viewers follow it, what a viewer is sent, and how long a whole status takes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use report::{TableColumn, TextTable};
use serde_json::Value;

use crate::swarm::{Hub, Server, print_hub_config, start_swarm};
use crate::{Failure, cpu, spread};

const TERMINALS: u32 = 1000;
/// Terminals that download, so that figures change.
const BUSY: u32 = 50;
/// What all of them share.
const RATE: &str = "20 Mbit/s";
/// Viewers at a time.
const VIEWERS: [usize; 3] = [0, 1, 8];
const WINDOW: Duration = Duration::from_secs(10);
/// Time limit for all sessions to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures one hub; the numbers of viewers take turns in `rounds` windows each.
pub(crate) fn run(rounds: usize) -> Result<(), Failure> {
    let server = Server::start()?;
    let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let metrics = format!("[metrics]\nlisten = \"{at}\"\n");
    let sections = metrics + &print_hub_config(TERMINALS, Some(&server))?;
    let hub = Hub::start(RATE, "", &sections)?;
    // More than they can take until the end.
    let _swarm = start_swarm(&hub, &server, TERMINALS, BUSY, 1000)?;
    wait_until_up(at)?;
    let mut costs = VIEWERS.map(|viewers| (viewers, Vec::new(), Vec::new()));
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for (viewers, cpus, sent) in &mut costs {
            eprint!("\rround {round} of {rounds}: {viewers} viewers  ");
            let (cpu, bytes) = watch(&hub, at, *viewers)?;
            cpus.push(cpu * 1e3);
            sent.push(bytes / 1e3);
        }
        let begin = Instant::now();
        sizes.push(get(at, "/status.json")?.len() as f64 / 1e6);
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    eprintln!();
    let names = ["viewers", "hub's CPU, ms each second", "sent to each, kB each second"];
    let title = format!("{TERMINALS} terminals, {BUSY} busy, {rounds} rounds, medians (and range)");
    let mut table = TextTable::new(names.map(TableColumn::right)).title(title);
    for (viewers, cpus, sent) in costs {
        let sent = if viewers == 0 { String::new() } else { spread(sent.into_iter()) };
        table.row([viewers.to_string(), spread(cpus.into_iter()), sent]);
    }
    let [times, sizes] = [times, sizes].map(|figures| spread(figures.into_iter()));
    print!("{table}");
    println!("/status.json takes {times} ms for {sizes} MB");
    Ok(())
}

fn wait_until_up(at: SocketAddr) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let status: Value = serde_json::from_slice(&get(at, "/status.json")?)?;
        let up = status["sessions"].as_array().map_or(0, Vec::len);
        if up == TERMINALS as usize {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("{up} of {TERMINALS} sessions are up").into());
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// The hub's processor seconds, and bytes to each viewer, per second of a window.
fn watch(hub: &Hub, at: SocketAddr, viewers: usize) -> Result<(f64, f64), Failure> {
    let (end, got) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = Vec::new();
    for _ in 0..viewers {
        let mut stream = ask(at, "/events?sort=sent&descending=true")?;
        // What is sent at first, the history, counts once for each page.
        stream.read_exact(&mut [0; 1000])?;
        let (end, got) = (Arc::clone(&end), Arc::clone(&got));
        threads.push(thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !end.load(Ordering::Relaxed)
                && let Ok(count @ 1..) = stream.read(&mut buffer)
            {
                got.fetch_add(count as u64, Ordering::Relaxed);
            }
        }));
    }
    thread::sleep(Duration::from_secs(2));
    let (cpu, bytes, begin) =
        (cpu::seconds(hub.pid())?, got.load(Ordering::Relaxed), Instant::now());
    thread::sleep(WINDOW);
    let past = begin.elapsed().as_secs_f64();
    let moved = (got.load(Ordering::Relaxed) - bytes) as f64;
    let spent = cpu::seconds(hub.pid())? - cpu;
    end.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| _ = thread.join());
    Ok((spent / past, moved / past / viewers.max(1) as f64))
}

/// The whole answer to a request, with its head removed.
fn get(at: SocketAddr, path: &str) -> Result<Vec<u8>, Failure> {
    let mut answer = Vec::new();
    ask(at, path)?.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
    Ok(answer.split_off(head + 4))
}

fn ask(at: SocketAddr, path: &str) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(at)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}
