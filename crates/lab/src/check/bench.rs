//! A lab under measurement, with its taps and probe senders.

use core::time::Duration;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use os::clock::{self, WallClock};
use os::packet::Tap;
use scenario::Preset;

use super::CheckError;
use super::flows::PATIENCE;
use super::judge::ProbeTrace;
use super::probe::{self, ProbeFlow};
use super::span::PathPart;
use crate::preset::PresetLinks as _;
use crate::{Lab, Node};

/// Time to wait for stragglers after the last expected arrival.
const GRACE: Duration = Duration::from_millis(100);
/// Interval at which the taps are emptied. At 150,000 packets a second their rings hold 50 ms.
const TICK: Duration = Duration::from_millis(5);

/// A lab with taps and sockets for probes.
pub(super) struct Bench {
    pub(super) lab: Lab,
    span: PathPart,
    /// Taps at the ends of the forward and the return link.
    taps: [Tap; 2],
    /// Sockets at the beginnings of the forward and the return link.
    sockets: [UdpSocket; 2],
    /// The longer of the two one-way delays.
    delay: Duration,
}

impl Bench {
    /// Starts a separate lab for `preset` to measure `span`.
    pub(super) fn start(preset: &Preset, seed: u64, span: PathPart) -> Result<Self, CheckError> {
        let lab = Lab::start(preset, seed)?;
        let links = span.links();
        let [near, far] = span.ends();
        let (_, mtu) = preset.scale(links[0]);
        let tap = |node: Node| {
            let opened = lab.node(node).run(|| Tap::open(span.device(), mtu));
            opened.map_err(|cause| CheckError::Socket { node, cause })
        };
        let taps = [tap(near)?, tap(far)?];
        let socket = |node: Node| {
            // This socket is never read. Probes that find its buffer full are dropped without an
            // ICMP message, and the tap has seen them already.
            let bound = lab.node(node).run(|| UdpSocket::bind((node.address4(), probe::PORT)));
            bound.map_err(|cause| CheckError::Socket { node, cause })
        };
        let sockets = [socket(far)?, socket(near)?];
        for (socket, peer) in sockets.iter().zip([near, far]) {
            socket
                .connect((peer.address4(), probe::PORT))
                .map_err(|cause| CheckError::Socket { node: peer, cause })?;
        }
        let ways = links.map(|link| preset.spec(link));
        let longest = ways.map(|way| way.delay.greatest() + way.jitter.greatest());
        Ok(Self { lab, span, taps, sockets, delay: longest[0].max(longest[1]) })
    }

    /// Returns the number of packets dropped by full queues, forward and return.
    pub(super) fn queue_drops(&self) -> [u64; 2] {
        self.span.links().map(|link| self.lab.counters_of(link).dropped_queue.packets)
    }

    /// Returns the age of the links in nanoseconds.
    pub(super) fn age(&self) -> u64 {
        clock::now().saturating_since(self.lab.origin()).as_nanos() as u64
    }

    /// Sends a flow in each direction at the same time over empty links; returns their traces.
    pub(super) fn measure(
        &mut self,
        flows: &[Option<ProbeFlow>; 2],
    ) -> Result<[ProbeTrace; 2], CheckError> {
        let stop = AtomicBool::new(false);
        let sockets = &self.sockets;
        let taps = &mut self.taps;
        let lab = &self.lab;
        let span = self.span;
        let longest = self.delay;
        let origin = WallClock::read().wall(lab.origin());
        // Earlier packets may take a long time on a slow link.
        wait_until_empty(lab, span, longest);
        let traces = thread::scope(|scope| {
            let collector = scope.spawn(|| collect(taps, origin, &stop));
            let senders: Vec<_> = flows
                .iter()
                .zip(sockets)
                .filter_map(|(flow, socket)| Some((flow.as_ref()?, socket)))
                .map(|(flow, socket)| scope.spawn(move || flow.send(socket)))
                .collect();
            senders.into_iter().for_each(|sender| drop(sender.join()));
            wait_until_empty(lab, span, longest);
            stop.store(true, Ordering::Relaxed);
            collector.join()
        });
        let traces = traces.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (tap, node) in self.taps.iter_mut().zip(self.span.ends()) {
            let missed = tap.missed();
            // What a tap missed would count as lost on the link.
            if missed > 0 {
                return Err(CheckError::Blind { node, missed });
            }
        }
        Ok(traces)
    }
}

/// Waits until both links have delivered everything they hold.
fn wait_until_empty(lab: &Lab, span: PathPart, delay: Duration) {
    let deadline = clock::now() + delay + PATIENCE + PATIENCE;
    thread::sleep(GRACE); // let packets in flight reach the driver
    let inside =
        || span.links().iter().map(|link| lab.counters_of(*link).inside.packets).sum::<u64>();
    while inside() > 0 && clock::now() < deadline {
        thread::sleep(GRACE);
    }
    thread::sleep(GRACE);
}

/// Empties the taps until `stop` is set; returns the probes of the forward and the return link. The
/// links started at `origin` by the wall clock.
fn collect(taps: &mut [Tap; 2], origin: u64, stop: &AtomicBool) -> [ProbeTrace; 2] {
    let mut traces = [ProbeTrace::default(), ProbeTrace::default()];
    loop {
        // Read before the taps are emptied, so that no probe stays in them.
        let last = stop.load(Ordering::Relaxed);
        for (side, tap) in taps.iter_mut().enumerate() {
            tap.drain(|frame| {
                let Some(seq) = probe::parse(frame.bytes) else { return };
                let at = frame.wall.saturating_sub(origin);
                // The host at the end of the forward link (side 0) sends on the return link (1).
                if frame.outgoing {
                    traces[1 - side].sent.push((seq, at));
                } else {
                    traces[side].arrived.push((seq, at));
                }
            });
        }
        if last {
            return traces;
        }
        thread::sleep(TICK);
    }
}
