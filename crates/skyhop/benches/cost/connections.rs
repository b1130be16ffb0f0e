//! Cost of connections: memory of idle ones, and the rate of new ones.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::{CabledLab, Node};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::way::{Running, Way};
use crate::{Failure, SERVER_PORT, cpu};

/// Clients that connect concurrently.
const CLIENTS: usize = 32;
const TIME: Duration = Duration::from_secs(3);

/// Measures the memory of `count` idle connections, then the rate of new ones.
pub(crate) fn run(count: usize) -> Result<(), Failure> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Exceeds the hard limit if privileged; child processes inherit it.
    let wanted = (count as u64 + 1000).max(most);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted)
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, most, most))?;
    lab::enter()?;
    idle(count)?;
    for way in [Way::Direct, Way::Skyhop] {
        let per_second = fresh(way)?;
        println!("{way}: {per_second:.0} connections/s, each with one byte each way");
    }
    Ok(())
}

fn idle(count: usize) -> Result<(), Failure> {
    let hosts = CabledLab::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let _holder = Running::holder(&hosts, server)?;
    let running = Running::start(&hosts, Way::Skyhop, server)?;
    let pids = running.pids().ok_or("the pair is two processes")?;
    let before = (pids.map(resident), slab());
    let sockets = hosts.node(Node::Client).run(|| hold(count, server))?;
    let after = (pids.map(resident), slab());
    let share = |after: u64, before: u64| after.saturating_sub(before) as f64 / count as f64;
    println!(
        "{} idle connections: terminal {:.2} kB, hub {:.2} kB of resident memory each; the kernel {:.2} kB for the four sockets",
        sockets.len(),
        share(after.0[0], before.0[0]),
        share(after.0[1], before.0[1]),
        share(after.1, before.1)
    );
    let begin = pids.map(|pid| cpu::seconds(pid).unwrap_or(0.0));
    thread::sleep(Duration::from_secs(5));
    for (name, (pid, begin)) in ["terminal", "hub"].iter().zip(pids.iter().zip(begin)) {
        println!("idle for 5 s, the {name} uses {:.2} s of CPU", cpu::seconds(*pid)? - begin);
    }
    Ok(())
}

/// Opens connections and keeps them; each has received a byte.
fn hold(count: usize, server: SocketAddr) -> std::io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let mut socket = TcpStream::connect(server)?;
        socket.read_exact(&mut [0])?;
        Ok(socket)
    };
    (0..count).map(connect).collect()
}

/// A server that sends one byte and keeps all connections open, for ever.
pub(crate) fn holder(listen: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen)?;
    println!("ready");
    let mut sockets = Vec::new();
    for mut socket in listener.incoming().flatten() {
        socket.write_all(&[1])?;
        sockets.push(socket);
    }
    Ok(())
}

/// New connections per second, with each client opening one after the other.
fn fresh(way: Way) -> Result<f64, Failure> {
    let hosts = CabledLab::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let listener = hosts.node(Node::Server).run(|| TcpListener::bind(server))?;
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut byte = [0];
            let _ = socket.read_exact(&mut byte).and_then(|()| socket.write_all(&byte));
        }
    });
    let _running = Running::start(&hosts, way, server)?;
    let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
    let made = thread::scope(|scope| {
        let run = || hosts.node(Node::Client).run(|| repeat(server, &stop, &failure));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no panic")).sum::<usize>()
    });
    match failure.into_inner()? {
        Some(error) => Err(format!("{way}: after {made} connections: {error}").into()),
        None => Ok(made as f64 / TIME.as_secs_f64()),
    }
}

/// Connects repeatedly until told to stop, or until one attempt fails; returns the number.
fn repeat(server: SocketAddr, stop: &AtomicBool, failure: &Mutex<Option<std::io::Error>>) -> usize {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = exchange(server) {
            *failure.lock().expect("nobody panics") = Some(error);
            break;
        }
        made += 1;
    }
    made
}

fn exchange(server: SocketAddr) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(server)?;
    let mut byte = [1];
    socket.write_all(&byte)?;
    socket.read_exact(&mut byte)
}

/// Resident memory of a process in kB.
pub(crate) fn resident(pid: u32) -> u64 {
    figure(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Kernel memory in slabs, in kB.
fn slab() -> u64 {
    figure("/proc/meminfo", "Slab:")
}

fn figure(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
