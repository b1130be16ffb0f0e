//! The modems of a lab's terminals that share a return link: DLEP (RFC 8175) on a TCP socket of the
//! terminal's host, with the grants as the current rate.
//!
//! The rate that a modem reports is not only what is granted, but also keeps its own queue short: if
//! more than two fifths of a packet waits in the MAC buffer, the gateway is to send less, and the
//! other way round.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::thread;
use std::time::Duration;

use lab::{Lab, Node, Preset, ReturnModem};
use link::dama::Frames;
use os::clock;
use pep::dlep::{
    CapacityRequest, DlepOutput, LinkAddress, LinkMetrics, LinkRates, Modem, ModemSettings, PORT,
    ReachableDestination, backlog_of,
};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use units::{BitRate, ByteCount, Instant, Machine};

use super::PairError;

/// Address at which a terminal's modem listens, on the terminal.
pub(super) const MODEM: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
/// Interval of a modem's heartbeats. A router declares a modem lost after two and a half.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time before a superframe begins at which its grants are reported, so that the report has become
/// the gateway's rate by then.
const LEAD: Duration = Duration::from_millis(1);
/// TTL of packets that no router has forwarded (RFC 5082).
const MOST_HOPS: u32 = 255;
/// Part of the difference between the queue and its target that a report corrects.
const CORRECTION: i64 = 4;
/// Samples of the queue in each superframe. A single one would always see the same part of the
/// saw-tooth that full packets make of the queue, and the control would lock packets to
/// superframes.
const LOOKS: u32 = 8;
/// Fifths of a packet that are to wait on average. Half a packet would wait if each came at the very
/// moment at which the one before has left. A little less keeps the longest queue within a superframe
/// on a link where that is one packet, and leaves 0.3 % of the slots empty there (docs/decisions.md).
const FIFTHS: i64 = 2;

/// The running modems; they stop when dropped.
pub(super) struct Modems {
    _stop: oneshot::Sender<()>,
}

impl Modems {
    /// Starts a modem on each of these terminals, if they share a return link.
    ///
    /// # Errors
    /// If a socket or the thread cannot be created.
    pub(super) fn start(
        lab: &Lab,
        preset: &Preset,
        terminals: &[Node],
    ) -> Result<Option<Self>, PairError> {
        if preset.dama.is_none() {
            return Ok(None);
        }
        let servers = terminals.iter().filter_map(|node| ModemServer::open(lab, preset, *node));
        let servers = servers.collect::<io::Result<Vec<_>>>().map_err(PairError::Modem)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(PairError::Modem)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            runtime.block_on(async move {
                for server in servers {
                    tokio::spawn(server.run());
                }
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new().name("skyhop-modem".into()).spawn(body);
        thread.map_err(PairError::Modem)?;
        Ok(Some(Self { _stop: stop }))
    }
}

/// The properties of a modem's link that do not change.
struct ModemLink {
    frames: Frames,
    /// The largest packet, in bytes.
    mtu: u16,
    receive: BitRate,
    latency: Duration,
    origin: Instant,
}

/// The modem of one terminal.
struct ModemServer {
    listener: StdListener,
    link: ReturnModem,
    fixed: ModemLink,
    modem: Modem,
    queue: QueueSamples,
}

/// Samples of the queue since the last report, in cells.
#[derive(Default)]
struct QueueSamples {
    looks: u32,
    sum: u64,
}

impl ModemServer {
    /// Listens on a terminal; `None` if it has a return link of its own.
    fn open(lab: &Lab, preset: &Preset, node: Node) -> Option<io::Result<Self>> {
        let link = lab.return_modem(node.site()?)?;
        let frames = link.frames()?;
        let fixed = ModemLink {
            frames,
            mtu: preset.mtu,
            receive: preset.forward.peak_rate(preset.mtu),
            latency: preset.ret.delay.greatest(),
            origin: lab.origin(),
        };
        let maximum =
            LinkRates { transmit: fixed.rate(frames.slots_per_terminal()), receive: fixed.receive };
        let peer_type = format!("the lab's modem of {node}");
        let settings = ModemSettings { peer_type, heartbeat: HEARTBEAT, maximum };
        let modem = Modem::new(settings, fixed.metrics(BitRate::default()));
        let listener = lab.node(node).run(|| -> io::Result<StdListener> {
            let listener = StdListener::bind(MODEM)?;
            // By default the gateway accepts only a TTL of 255 from its modem (RFC 5082).
            SockRef::from(&listener).set_ttl_v4(MOST_HOPS)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Some(listener.map(|listener| {
            let mut server = Self { listener, link, fixed, modem, queue: QueueSamples::default() };
            // No rate until the grants of a superframe are known.
            server.report_rate(BitRate::default());
            server
        }))
    }

    /// Reports a rate towards the hub, which is the only destination.
    fn report_rate(&mut self, rate: BitRate) {
        // A locally administered address (bit 2), so that it is not a real device's.
        let mac = LinkAddress::new(&[2, 0, 0, 0, 0, 1]).expect("six bytes");
        let how = ReachableDestination { metrics: self.fixed.metrics(rate), networks: Vec::new() };
        self.modem.set_destination(mac, how);
    }

    async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::error!(%error, "a modem of the lab has ended");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener.try_clone()?)?;
        let mut ticks = self.fixed.ticks();
        loop {
            let (router, _) = listener.accept().await?;
            // Nagle's algorithm would delay a report until the last one is acknowledged.
            router.set_nodelay(true)?;
            if self.modem.handle_connected(clock::now()) {
                // Any error ends the session only; the modem then waits for the next router.
                let _ = self.serve_router(router, &mut ticks).await;
                self.modem.handle_closed();
                // A request does not outlive its session.
                self.request_capacity(CapacityRequest::default());
            }
        }
    }

    /// Requests capacity for what waits in the gateway, or is foreseen there.
    fn request_capacity(&self, wanted: CapacityRequest) {
        let none = ByteCount::default();
        let bytes = backlog_of(wanted.rate);
        let [waiting, foreseen] = if wanted.is_foreseen { [none, bytes] } else { [bytes, none] };
        self.link.set_backlog(waiting, foreseen);
    }

    /// Serves a router until its connection ends.
    async fn serve_router(
        &mut self,
        mut router: TcpStream,
        ticks: &mut Interval,
    ) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            tokio::select! {
                read = router.read(&mut bytes) => match read? {
                    0 => return Ok(()),
                    length => self.modem.handle_bytes(clock::now(), &bytes[..length]),
                },
                _ = ticks.tick() => self.sample_queue(),
            }
            while let Some((_, wanted)) = self.modem.poll_request() {
                self.request_capacity(wanted);
            }
            while let Some(output) = self.modem.poll_output() {
                match output {
                    DlepOutput::Send(message) => router.write_all(&message).await?,
                    DlepOutput::Close => return Ok(()),
                    DlepOutput::Signal(_) | DlepOutput::Connect(_) => {}
                }
            }
        }
    }

    /// Samples the queue; when a superframe begins, reports its grants.
    fn sample_queue(&mut self) {
        let now = clock::now();
        self.modem.handle_timeout(now);
        let Some(state) = self.link.state(self.fixed.frames.superframe()) else { return };
        let payload = u64::from(self.fixed.frames.cell.payload.max(1));
        self.queue.sum += u64::from(state.mac_cells) + state.queued.bytes.get() / payload;
        self.queue.looks += 1;
        if self.fixed.is_report_time(now) {
            let QueueSamples { looks, sum } = core::mem::take(&mut self.queue);
            self.report_rate(self.fixed.offer(state.granted, sum / u64::from(looks)));
        }
    }
}

impl ModemLink {
    fn metrics(&self, transmit: BitRate) -> LinkMetrics {
        let rates = LinkRates { transmit, receive: self.receive };
        LinkMetrics { rates, latency: self.latency }
    }

    /// Returns the number of cells of a full packet.
    fn packet(&self) -> u32 {
        self.frames.cell.count(self.mtu.into()).max(1)
    }

    /// Returns the rate of full packets that this number of cells in a superframe carries.
    fn rate(&self, cells: u32) -> BitRate {
        let bits = u128::from(cells) * u128::from(self.mtu) * 8 * 1_000_000_000;
        let time = self.frames.superframe().as_nanos().max(1) * u128::from(self.packet());
        BitRate::from_bits_per_second(u64::try_from(bits / time).unwrap_or(u64::MAX))
    }

    /// Returns the rate that keeps a little less than half a packet waiting: what is granted, and a
    /// part of the difference between the queue and its target.
    fn offer(&self, granted: BitRate, waiting: u64) -> BitRate {
        let payload = u64::from(self.frames.cell.payload.max(1));
        // Rounded, because the rate of whole cells is not a whole number of bit/s.
        let granted = granted.bytes_in(self.frames.superframe()).get() + payload / 2;
        let granted = i64::try_from(granted / payload).unwrap_or(i64::MAX);
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        let target = i64::from(self.packet()) * FIFTHS / 5;
        let offer = granted.saturating_add(target.saturating_sub(waiting) / CORRECTION);
        let offer = offer.clamp(granted / 2, granted + granted / 2);
        self.rate(u32::try_from(offer).unwrap_or(u32::MAX))
    }

    /// Returns the time since the last superframe was to be reported.
    fn phase(&self, now: Instant) -> Duration {
        let since = (now + LEAD).saturating_since(self.origin).as_nanos();
        let phase = since % self.frames.superframe().as_nanos().max(1);
        Duration::from_nanos(u64::try_from(phase).unwrap_or(u64::MAX))
    }

    /// Returns true if a superframe is reported with this sample.
    fn is_report_time(&self, now: Instant) -> bool {
        self.phase(now) < self.frames.superframe() / LOOKS
    }

    /// Returns the timer of the samples, one of which coincides with the report of a superframe.
    fn ticks(&self) -> Interval {
        let superframe = self.frames.superframe();
        let left = superframe - self.phase(clock::now()).min(superframe);
        let first = tokio::time::Instant::now() + left;
        let mut ticks = interval_at(first, superframe / LOOKS);
        // Samples that catch up would all see the same queue.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use link::dama::Cell;

    use super::*;

    /// The SLACP paper's link: 32 cells in a superframe of 106 ms, 31 for a packet of 1450 bytes.
    fn fixed() -> ModemLink {
        let rate = BitRate::from_bits_per_second(128_000);
        let frames = Frames::new(Duration::from_millis(53), 2, 1, rate, Cell::ATM).unwrap();
        let (receive, latency) = (BitRate::from_mbit(1), Duration::ZERO);
        ModemLink { frames, mtu: 1450, receive, latency, origin: Instant::ZERO }
    }

    fn cells(fixed: &ModemLink, granted: u32, waiting: u64) -> u64 {
        let superframe = fixed.frames.superframe();
        let bits = u128::from(granted) * 48 * 8 * 1_000_000_000 / superframe.as_nanos();
        let granted = BitRate::from_bits_per_second(bits as u64);
        let offer = fixed.offer(granted, waiting).bits_per_second();
        let one = fixed.rate(1).bits_per_second();
        (offer + one / 2) / one
    }

    #[test]
    fn a_full_packet_takes_its_cells() {
        let fixed = fixed();
        assert_eq!(fixed.rate(31), BitRate::from_bits_per_second(1450 * 8 * 1_000 / 106));
        assert_eq!(fixed.rate(0), BitRate::default());
    }

    #[test]
    fn a_longer_queue_lowers_the_rate_and_a_shorter_one_raises_it() {
        let fixed = fixed();
        assert_eq!([12, 28, 4, 0].map(|queue| cells(&fixed, 32, queue)), [32, 28, 34, 35]);
        assert_eq!(cells(&fixed, 32, 600), 16, "half at least");
        assert_eq!([0, 31].map(|queue| cells(&fixed, 0, queue)), [0, 0], "no grant, no rate");
    }
}
