//! Precision and throughput of the lab's link on this machine:
//!
//! ```text
//! cargo run --release -p skyhop-lab --example measure
//! ```
//!
//! Packets of 1500 bytes go from hub to terminal. The delay is measured from
//! outside the driver: from the sender's clock before send(2) to the kernel's
//! time stamp in the receiver's network stack, less what the link should take.

use core::time::Duration;
use std::error::Error;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Lab, Node, Preset, PresetOverrides};
use link::QueueSize;
use nix::cmsg_space;
use nix::sys::prctl;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use units::{BitRate, ByteCount};

type Failure = Box<dyn Error + Send + Sync>;

/// A UDP payload that makes an IPv4 packet of 1500 bytes.
const PAYLOAD: usize = 1472;
const PACKET: ByteCount = ByteCount::new(1500);
const DELAY: Duration = Duration::from_millis(300);
const TIME: Duration = Duration::from_secs(5);

fn main() -> Result<(), Failure> {
    lab::enter()?;
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "delay error in ms", "p1", "median", "p99", "max");
    for (rate, load) in [(50, 1), (50, 25), (50, 45), (300, 100), (300, 270)] {
        delay(BitRate::from_mbit(rate), BitRate::from_mbit(load))?;
    }
    for offered in [300, 500, 1000, 10_000] {
        flood(BitRate::from_mbit(offered))?;
    }
    Ok(())
}

/// Sends evenly spaced packets at the rate `load` over a link of `rate`.
fn delay(rate: BitRate, load: BitRate) -> Result<(), Failure> {
    let lab = start(rate, DELAY)?;
    let (sender, receiver) = sockets(&lab)?;
    let count = (TIME.as_nanos() / load.time_to_send(PACKET).as_nanos()) as usize;
    let expected = DELAY + rate.time_to_send(PACKET);
    let errors = thread::scope(|scope| {
        scope.spawn(|| send(&sender, load, count, &AtomicBool::new(false)));
        receive(&receiver, count, expected)
    })?;
    let at = |percent| stats::percentile(&errors, percent).unwrap_or(f64::NAN);
    println!(
        "{:<28} {:>8.3} {:>8.3} {:>8.3} {:>8.3}   driver late p99 {:?} worst {:?}; delivered {} of {count}, read {}, {:?}",
        format!("{load} on {rate}"),
        at(1.0),
        at(50.0),
        at(99.0),
        at(100.0),
        lab.lateness().quantile(0.99),
        lab.lateness().worst(),
        lab.counters().0.delivered.packets,
        errors.len(),
        lab.faults(),
    );
    Ok(())
}

/// Sends as fast as possible, up to `offered`, over an unlimited link.
fn flood(offered: BitRate) -> Result<(), Failure> {
    let lab = start(BitRate::from_mbit(10_000), Duration::from_millis(10))?;
    let (sender, _receiver) = sockets(&lab)?;
    let (start, cpu) = (now(), cpu_of_driver());
    let count = (TIME.as_nanos() / offered.time_to_send(PACKET).as_nanos()) as usize;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| send(&sender, offered, count, &stop));
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
    });
    let (time, cpu) = (now() - start, cpu_of_driver() - cpu);
    let (forward, _) = lab.counters();
    println!(
        "offered {offered}: delivered {:.0} Mbit/s, driver {:.0} % of a core, late p99 {:?}, {:?}",
        forward.delivered.bytes.bits() as f64 / time.as_secs_f64() / 1e6,
        100.0 * cpu.as_secs_f64() / time.as_secs_f64(),
        lab.lateness().quantile(0.99),
        lab.faults(),
    );
    Ok(())
}

fn start(rate: BitRate, delay: Duration) -> Result<Lab, Failure> {
    let overrides = PresetOverrides {
        rate: Some(rate),
        delay: Some(delay),
        queue: Some(QueueSize::Bytes(ByteCount::new(10_000_000))),
        ..PresetOverrides::default()
    };
    Ok(Lab::start(&Preset::load("geo")?.with(&overrides)?, 1)?)
}

/// A sender on the hub and a receiver on the terminal, with arrival time stamps.
fn sockets(lab: &Lab) -> Result<(UdpSocket, UdpSocket), Failure> {
    let address = (lab.address4(Node::Terminal), 5000);
    let receiver = lab.node(Node::Terminal).run(|| UdpSocket::bind(address))?;
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let sender = lab.node(Node::Hub).run(|| UdpSocket::bind((lab.address4(Node::Hub), 0)))?;
    sender.connect(address)?;
    Ok((sender, receiver))
}

/// Sends packets that carry their sending time.
fn send(sender: &UdpSocket, load: BitRate, count: usize, stop: &AtomicBool) {
    let _ = prctl::set_timerslack(1);
    let (gap, mut payload) = (load.time_to_send(PACKET), [0; PAYLOAD]);
    let start = now();
    for index in 0..count {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Some(early) = (start + gap * index as u32).checked_sub(now()) {
            thread::sleep(early);
        }
        payload[..16].copy_from_slice(&now().as_nanos().to_le_bytes());
        let _ = sender.send(&payload);
    }
}

/// Delay of each packet less `expected`, in ms.
fn receive(receiver: &UdpSocket, count: usize, expected: Duration) -> Result<Vec<f64>, Failure> {
    let mut errors = Vec::with_capacity(count);
    let (mut payload, mut control) = ([0; PAYLOAD], cmsg_space!(TimeSpec));
    while errors.len() < count {
        let mut parts = [std::io::IoSliceMut::new(&mut payload)];
        let flags = MsgFlags::empty();
        let received = recvmsg::<()>(receiver.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let Ok(message) = received else { break };
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let arrived = stamp.map(wall_to_monotonic).ok_or("no time stamp")?;
        let sent = u128::from_le_bytes(payload[..16].try_into()?);
        let delay = arrived.as_nanos() as f64 - sent as f64;
        errors.push((delay - expected.as_nanos() as f64) / 1e6);
    }
    Ok(errors)
}

fn wall_to_monotonic(stamp: TimeSpec) -> Duration {
    let age = time(ClockId::CLOCK_REALTIME).saturating_sub(stamp.into());
    now().saturating_sub(age)
}

fn now() -> Duration {
    time(ClockId::CLOCK_MONOTONIC)
}

fn time(clock: ClockId) -> Duration {
    clock_gettime(clock).expect("the clock exists").into()
}

/// CPU time of the driver's thread.
fn cpu_of_driver() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).ok();
        let is_driver = read("comm")?.trim() == "skyhop-link";
        let spent = read("schedstat")?.split(' ').next()?.parse::<u64>().ok()?;
        is_driver.then_some(spent)
    });
    Duration::from_nanos(nanos.sum())
}
