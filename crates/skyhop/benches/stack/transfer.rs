//! One download, inside a lab.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use lab::{HOP_DEVICE, LAN_DEVICE, Node};
use socket2::SockRef;

use crate::inside::{Gateway, addresses, connect, listen, payload};
use crate::{BYTES, Variant};

const PORT: u16 = 7000;
/// Longer than any variant takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Without gateways: the server's kernel sends with BBR.
pub(crate) fn plain() -> bool {
    let listener = listen(PORT);
    SockRef::from(&listener).set_tcp_congestion(b"bbr").expect("the kernel has BBR");
    println!("{}", download(listener).as_secs_f64());
    true
}

/// Through two gateways with these settings on the satellite.
pub(crate) fn through_gateways(variant: &Variant) -> bool {
    let listener = listen(PORT);
    let config = format!(
        "control = \"none\"\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n[wan]\nstack = \"skyhop\"\n\
         interfaces = [\"{HOP_DEVICE}\"]\n[wan.tcp]\n{}",
        variant.tcp
    );
    let mut gateways =
        [Node::Terminal, Node::Hub].map(|node| Gateway::start(node, "solo", &config));
    gateways.iter_mut().for_each(|gateway| gateway.wait_for("ready"));
    let before = gateways[1].cpu_seconds();
    let time = download(listener);
    println!("{} {}", time.as_secs_f64(), gateways[1].cpu_seconds() - before);
    true
}

/// Downloads, verifies every byte, and returns the time from the SYN to the end.
fn download(listener: TcpListener) -> Duration {
    let content = payload(BYTES);
    let expected = content.clone();
    let serving = thread::spawn(move || {
        let (mut server, _) = listener.accept().expect("the client comes");
        server.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        server.write_all(&content).expect("it is taken");
        server
    });
    let begin = Instant::now();
    let mut client = connect(addresses(PORT)[0]);
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut got = vec![0; BYTES];
    client.read_exact(&mut got).expect("all of it");
    let time = begin.elapsed();
    assert!(got == expected, "other bytes came");
    drop(serving.join().expect("the server goes on"));
    time
}

impl Gateway {
    /// Processor time so far, in user and kernel mode (proc_pid_stat(5)).
    fn cpu_seconds(&self) -> f64 {
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it runs");
        let fields = stat.rsplit(')').next().expect("the name ends").split_whitespace();
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<f64>().expect("ticks"));
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }
}
