//! The measurement, step by step.

use core::time::Duration;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use link::Loss;
use units::BitRate;

use super::asked::Asked;
use super::judge::{Trace, Waiting};
use super::probe::{self, Flow};
use super::report::{DELAY_TOLERANCE, LOSS_CONFIDENCE, RATE_TOLERANCE};
use super::{
    CheckError, CheckReport, DelayReport, DirectionReport, DriverReport, LossReport, OrderReport,
    QueueReport, RateReport, binomial, reach,
};
use crate::tap::Tap;
use crate::{Faults, HOP_DEVICE, Lab, Lateness, Node, Preset, clock};

/// Delay probes are so long, and at least so far apart.
const DELAY_PROBE: usize = 64;
const DELAY_GAP: Duration = Duration::from_millis(2);
const DELAY_TIME: Duration = Duration::from_secs(2);
/// How long the saturating flow lasts.
const FLOOD_TIME: Duration = Duration::from_secs(3);
/// Links on which as little as the least flood, or a full queue, takes longer
/// are not asked for it.
const PATIENCE: Duration = Duration::from_secs(8);
const LEAST_FLOOD: u32 = 16;
/// How long the sender of the saturating flow may sleep without the link's
/// becoming idle, if the queue is long enough.
const RESERVE: Duration = Duration::from_millis(200);
/// How fast a queue is filled: so many times the link's rate, if possible.
const FILL: u32 = 3;
/// How long after the last arrival that is due one may still come.
const GRACE: Duration = Duration::from_millis(100);
/// How often the taps are emptied; at 150,000 packets a second their rings hold
/// 50 ms.
const TICK: Duration = Duration::from_millis(5);
const DIRECTIONS: [&str; 2] = ["forward", "return"];

/// Measures the link of `preset` in labs of its own; the process must have
/// [entered](crate::enter). It takes about 8 s and twice the round-trip time;
/// `progress` is told what is being measured.
///
/// # Errors
/// When the lab does not start or the measuring itself fails; a link that is
/// not as asked is no error but in the report.
pub fn check(
    preset: &Preset,
    seed: u64,
    mut progress: impl FnMut(&str),
) -> Result<CheckReport, CheckError> {
    let links = Asked::of(preset);
    let mut bench = Bench::start(preset, seed)?;
    progress("reachability");
    let reach = reach::reach(&bench.lab, preset.rtt() * 4 + PATIENCE);
    let before = bench.lab.lateness();
    progress("one-way delay");
    let delays = bench.measure(links.each_ref().map(|link| Some(delay_flow(link))))?;
    let late = bench.lab.lateness().since(&before);
    progress("rate, loss and order");
    let dropped = bench.queue_drops();
    let floods = bench.measure(links.each_ref().map(|link| flood(link, preset.mtu)))?;
    let dropped = [0, 1].map(|lane| bench.queue_drops()[lane] - dropped[lane]);
    let mut faults = bench.lab.faults();
    // Which packets the queue drops is only plain where no others are lost.
    if links.iter().any(|link| link.loss != Loss::None) {
        drop(bench);
        bench = Bench::start(&without_losses(preset), seed)?;
    } else {
        faults = Faults::default(); // counted again at the end
    }
    progress("queue");
    let fills = bench.measure(links.each_ref().map(|link| fill(link, preset.mtu)))?;
    let faults = faults.total() + bench.lab.faults().total();
    let directions = [0, 1].map(|lane| Direction {
        name: DIRECTIONS[lane],
        link: &links[lane],
        mtu: preset.mtu,
        delay: &delays[lane],
        flood: &floods[lane],
        dropped: dropped[lane],
        fill: &fills[lane],
    });
    Ok(CheckReport {
        preset: preset.name.clone(),
        directions: directions.map(|direction| direction.report()),
        reach,
        driver: driver(&late, faults),
    })
}

fn without_losses(preset: &Preset) -> Preset {
    let mut clean = preset.clone();
    clean.forward.loss = Loss::None;
    clean.ret.loss = Loss::None;
    clean
}

fn driver(late: &Lateness, faults: u64) -> DriverReport {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    DriverReport {
        late_median_ms: ms(late.quantile(0.5)),
        late_p99_ms: ms(late.quantile(0.99)),
        late_worst_ms: ms(late.worst()),
        faults,
        within: faults == 0,
    }
}

/// The flow whose delays are measured: at most a quarter of the rate.
fn delay_flow(link: &Asked) -> Flow {
    let gap = DELAY_GAP.max(link.time_of(DELAY_PROBE) * 4);
    let count = (DELAY_TIME.as_nanos() / gap.as_nanos()).max(20) as u32;
    Flow { len: DELAY_PROBE, count, burst: 0, gap }
}

/// The flow that is never out of packets and never overflows the queue: the
/// link's rate exactly, behind a reserve.
fn flood(link: &Asked, mtu: u16) -> Option<Flow> {
    let len = usize::from(mtu);
    let gap = link.time_of(len);
    let most = |time: Duration| (time.as_nanos() / gap.as_nanos().max(1)) as u32;
    let burst = (link.queue_packets(len) / 2).min(u64::from(most(RESERVE))).max(1) as u32;
    let count = burst + most(FLOOD_TIME).max(LEAST_FLOOD);
    (gap * count <= PATIENCE).then_some(Flow { len, count, burst, gap })
}

/// The flow that fills the queue; no faster than needed, lest the driver's own
/// buffer overflow.
fn fill(link: &Asked, mtu: u16) -> Option<Flow> {
    let len = usize::from(mtu);
    let (each, limit) = (link.time_of(len), link.queue_packets(len));
    // 1 / (1 − 1/FILL) of the limit comes before the first drop.
    let count = u32::try_from(limit * 3 / 2 + 50).ok()?;
    let flow = Flow { len, count, burst: 0, gap: each / FILL };
    (each.checked_mul(count)? <= PATIENCE).then_some(flow)
}

/// A lab with taps and sockets for probes.
struct Bench {
    lab: Lab,
    /// On terminal and hub.
    taps: [Tap; 2],
    /// On hub and terminal: the senders of the forward and the return link.
    sockets: [UdpSocket; 2],
    delays: [Duration; 2],
}

/// The hosts that have [`Bench::taps`], and where [`Bench::sockets`] are.
const TAPPED: [Node; 2] = [Node::Terminal, Node::Hub];
const SENDERS: [Node; 2] = [Node::Hub, Node::Terminal];

impl Bench {
    fn start(preset: &Preset, seed: u64) -> Result<Self, CheckError> {
        let lab = Lab::start(preset, seed)?;
        let tap = |node: Node| {
            let opened = lab.node(node).run(|| Tap::open(HOP_DEVICE, preset.mtu));
            opened.map_err(|cause| CheckError::Socket { node, cause })
        };
        let taps = [tap(TAPPED[0])?, tap(TAPPED[1])?];
        let socket = |node: Node| {
            // Nobody reads here: probes that find the buffer full are dropped,
            // without an ICMP message, and the tap has seen them.
            let bound = lab.node(node).run(|| UdpSocket::bind((node.address4(), probe::PORT)));
            bound.map_err(|cause| CheckError::Socket { node, cause })
        };
        let sockets = [socket(SENDERS[0])?, socket(SENDERS[1])?];
        for (socket, peer) in sockets.iter().zip([SENDERS[1], SENDERS[0]]) {
            socket
                .connect((peer.address4(), probe::PORT))
                .map_err(|cause| CheckError::Socket { node: peer, cause })?;
        }
        let delays = [preset.forward.delay, preset.ret.delay];
        Ok(Self { lab, taps, sockets, delays })
    }

    /// Packets that the full queues have dropped, forward and return.
    fn queue_drops(&self) -> [u64; 2] {
        let (forward, ret) = self.lab.counters();
        [forward, ret].map(|counters| counters.dropped_queue.packets)
    }

    /// Sends a flow in each direction at once; what became of it.
    fn measure(&mut self, flows: [Option<Flow>; 2]) -> Result<[Trace; 2], CheckError> {
        let stop = AtomicBool::new(false);
        let (sockets, taps, lab) = (&self.sockets, &mut self.taps, &self.lab);
        let longest = self.delays[0].max(self.delays[1]);
        let traces = thread::scope(|scope| {
            let collector = scope.spawn(|| collect(taps, &stop));
            let senders: Vec<_> = flows
                .iter()
                .zip(sockets)
                .filter_map(|(flow, socket)| Some((*flow.as_ref()?, socket)))
                .map(|(flow, socket)| scope.spawn(move || flow.send(socket)))
                .collect();
            senders.into_iter().for_each(|sender| drop(sender.join()));
            wait_until_empty(lab, longest);
            stop.store(true, Ordering::Relaxed);
            collector.join()
        });
        let traces = traces.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (tap, node) in self.taps.iter_mut().zip(TAPPED) {
            let missed = tap.missed();
            if missed > 0 {
                return Err(CheckError::Blind { node, missed });
            }
        }
        Ok(traces)
    }
}

/// Waits until both links have given out all they hold.
fn wait_until_empty(lab: &Lab, delay: Duration) {
    let deadline = clock::now() + delay + PATIENCE + PATIENCE;
    thread::sleep(GRACE); // what was sent is on its way to the driver
    let inside = || {
        let (forward, ret) = lab.counters();
        forward.inside.packets + ret.inside.packets
    };
    while inside() > 0 && clock::now() < deadline {
        thread::sleep(GRACE);
    }
    thread::sleep(GRACE);
}

/// Empties the taps until told to stop; the probes of the forward link and of
/// the return link.
fn collect(taps: &mut [Tap; 2], stop: &AtomicBool) -> [Trace; 2] {
    let mut traces = [Trace::default(), Trace::default()];
    loop {
        let last = stop.load(Ordering::Relaxed);
        for (side, tap) in taps.iter_mut().enumerate() {
            tap.drain(|frame| {
                let Some(seq) = probe::parse(frame.bytes) else { return };
                // The terminal (side 0) sends on the return link (1).
                if frame.outgoing {
                    traces[1 - side].sent.push((seq, frame.wall));
                } else {
                    traces[side].arrived.push((seq, frame.wall));
                }
            });
        }
        if last {
            return traces;
        }
        thread::sleep(TICK);
    }
}

/// What is known of one direction.
struct Direction<'a> {
    name: &'static str,
    link: &'a Asked,
    mtu: u16,
    delay: &'a Trace,
    flood: &'a Trace,
    /// Of the flood, by the queue.
    dropped: u64,
    fill: &'a Trace,
}

impl Direction<'_> {
    fn report(&self) -> DirectionReport {
        DirectionReport {
            direction: self.name,
            delay: self.delay(),
            rate: self.rate(),
            loss: self.loss(),
            order: self.order(),
            queue: self.queue(),
        }
    }

    fn delay(&self) -> Option<DelayReport> {
        let asked = self.link.delay + self.link.time_of(DELAY_PROBE);
        let measured = self.delay.delays(asked)?;
        Some(DelayReport {
            asked_ms: asked.as_secs_f64() * 1e3,
            median_ms: measured.median,
            p99_error_ms: measured.p99_error,
            worst_error_ms: measured.worst_error,
            samples: measured.samples,
            within: measured.p99_error <= DELAY_TOLERANCE,
        })
    }

    fn rate(&self) -> Option<RateReport> {
        let measured = self.flood.rate(self.mtu.into(), self.link.delay)?;
        let asked = BitRate::bits_per_second(self.link.rate) as f64;
        let within = (measured / asked - 1.0).abs() <= RATE_TOLERANCE;
        Some(RateReport { asked_bit_s: asked, measured_bit_s: measured, within })
    }

    fn loss(&self) -> Option<LossReport> {
        let asked = probability(&self.link.loss, self.mtu)?;
        let sent = (self.flood.sent.len() as u64).saturating_sub(self.dropped);
        let lost = self.flood.missing().saturating_sub(self.dropped);
        let expected = binomial::interval(sent, asked, LOSS_CONFIDENCE);
        let (least, most) = (*expected.start(), *expected.end());
        let within = expected.contains(&lost);
        (sent > 0).then_some(LossReport { asked, sent, lost, least, most, within })
    }

    fn order(&self) -> OrderReport {
        let traces = [self.delay, self.flood, self.fill];
        let arrived = traces.iter().map(|trace| trace.arrived.len() as u64).sum();
        let out_of_order = traces.iter().map(|trace| trace.out_of_order()).sum();
        OrderReport { arrived, out_of_order, within: out_of_order == 0 }
    }

    fn queue(&self) -> Option<QueueReport> {
        let len = usize::from(self.mtu);
        let asked_packets = self.link.queue_packets(len);
        let each = self.link.time_of(len);
        let (measured_packets, full) = match self.fill.full_queue(each)? {
            Waiting::AtDrops(waiting) => (waiting, true),
            // The sender was too slow to fill the queue.
            Waiting::NoDrop(most) if most <= asked_packets => return None,
            Waiting::NoDrop(most) => (most, false),
        };
        let within = full && measured_packets == asked_packets;
        Some(QueueReport { asked_packets, measured_packets, full, within })
    }
}

/// The probability with which a packet of `len` bytes is lost, where packets
/// are lost independently of each other.
fn probability(loss: &Loss, len: u16) -> Option<f64> {
    match loss {
        Loss::None => Some(0.0),
        Loss::Per(per) => Some(per.get()),
        // 1 − (1 − b)^bits
        Loss::Ber(ber) => Some(-(f64::from(len) * 8.0 * (-ber.get()).ln_1p()).exp_m1()),
        _ => None,
    }
}
