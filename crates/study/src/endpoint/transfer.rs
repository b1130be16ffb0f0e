//! Bulk transfers between two stations, both ends with endpoints of `tcp`. Each station runs its
//! ends in one loop; the receiver verifies every byte.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use meter::protocol::payload::{Payload, PayloadSide as Stream};
use sim::SenderSample as Sample;
use tcp::{Config, Connection, ConnectionEvent, Segment, SeqNr, wire};
use units::{ByteCount, Instant, Machine};

use super::drive::{ConnectionOwner, reverse};
use super::random;

/// Bytes written ahead of what can be sent.
const AHEAD: ByteCount = ByteCount::new(256 << 10);
/// Bytes of payload generated at once.
const CHUNK: u64 = 64 << 10;
/// Interval at which a station checks whether the other one has ended its transfers.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The amount that a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferAmount {
    /// This many bytes.
    Bytes(u64),
    /// As much as arrives until then.
    Until(Instant),
}

/// The way in which an end gets its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionOpening {
    /// Opens it at `at`, from a port of its own to the peer.
    Active { at: Instant, from: SocketAddr, to: SocketAddr },
    /// Waits for it on this port.
    Passive { port: u16 },
}

/// One end of a transfer.
pub(crate) struct TransferEnd {
    /// Settings of the TCP endpoint.
    pub(crate) config: Config,
    /// Active or passive opening.
    pub(crate) opening: ConnectionOpening,
    /// Set if it sends; otherwise it receives.
    pub(crate) sends: bool,
    /// The amount to move.
    pub(crate) amount: TransferAmount,
    /// Key of the payload, the same at both ends.
    pub(crate) key: u64,
    /// Set once the transfer is over; shared by both ends.
    pub(crate) over: Arc<AtomicBool>,
}

/// One end's record of its transfer.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndRecord {
    /// Number of bytes received.
    pub(crate) bytes: u64,
    /// Arrival time of the first of them.
    pub(crate) first: Option<Instant>,
    /// Arrival time of the last of them.
    pub(crate) last: Option<Instant>,
    /// Time at which the receiver had everything, or its time was over.
    pub(crate) complete: Option<Instant>,
    /// The reason why the connection did not end well.
    pub(crate) failure: Option<String>,
    /// The sender's state at regular intervals.
    pub(crate) samples: Vec<Sample>,
}

/// All ends of transfers on one station.
pub(crate) struct StationEnds {
    running: Vec<RunningEnd>,
    every: Duration,
    /// Time of the senders' next sample.
    sample_at: Instant,
    /// Time at which all transfers are given up.
    end: Instant,
    now: Instant,
}

impl StationEnds {
    /// Prepares ends on the station with the address `own`, sampled at this interval from `begin`
    /// on and given up at `end`.
    pub(crate) fn new(
        own: IpAddr,
        ends: Vec<TransferEnd>,
        every: Duration,
        [begin, end]: [Instant; 2],
    ) -> Self {
        let running = ends.into_iter().map(|end| RunningEnd::new(own, end)).collect();
        Self { running, every, sample_at: begin, end, now: begin }
    }

    /// Returns the record of each end.
    pub(crate) fn seen(self) -> Vec<EndRecord> {
        self.running.into_iter().map(|running| running.seen).collect()
    }
}

impl ConnectionOwner for StationEnds {
    /// Segments of other connections belong to others on the device.
    fn handle_segment(&mut self, now: Instant, path: &wire::SegmentPath, segment: &Segment<Bytes>) {
        let mine = |running: &&mut RunningEnd| running.is_for(path, segment);
        if let Some(running) = self.running.iter_mut().find(mine) {
            // A passive end learns its peer from the first SYN.
            running.way.get_or_insert_with(|| reverse(path));
            if let Some(tcp) = &mut running.tcp {
                tcp.handle_segment(now, segment);
            }
            running.service(now);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let timers = self.running.iter().filter_map(RunningEnd::next_wake);
        // The other station's thread sets `over`, which does not wake this one.
        timers.chain([self.sample_at, self.end, self.now + LOOK_INTERVAL]).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while self.sample_at <= now {
            // The regular time, because waking late must not shift the series.
            let at = self.sample_at;
            self.running.iter_mut().for_each(|running| running.sample(at));
            self.sample_at += self.every;
        }
        for running in &mut self.running {
            running.wake(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(wire::SegmentPath, Segment<Bytes>)> {
        self.running.iter_mut().find_map(|running| running.emit(now))
    }

    fn is_over(&self) -> bool {
        // Relaxed is enough: the records are read only after all threads have been joined.
        let is_over = |running: &RunningEnd| running.end.over.load(Ordering::Relaxed);
        self.now >= self.end || self.running.iter().all(is_over)
    }
}

/// An end of a transfer while it runs.
struct RunningEnd {
    end: TransferEnd,
    payload: Payload,
    /// `None` until it opens its connection.
    tcp: Option<Connection<Bytes>>,
    /// From here to the peer, once known.
    way: Option<wire::SegmentPath>,
    connected: bool,
    written: u64,
    /// The part of the payload that the connection had no room for.
    rest: Bytes,
    seen: EndRecord,
}

impl RunningEnd {
    fn new(own: IpAddr, end: TransferEnd) -> Self {
        let config = super::fit_to_ethernet(&end.config, own);
        let iss = SeqNr::new(random() as u32);
        let (tcp, way) = match end.opening {
            ConnectionOpening::Passive { .. } => (Some(Connection::listen(config, iss)), None),
            ConnectionOpening::Active { from, to, .. } => (
                None,
                Some(wire::SegmentPath {
                    from: from.ip(),
                    from_port: from.port(),
                    to: to.ip(),
                    to_port: to.port(),
                }),
            ),
        };
        Self {
            payload: Payload::new(end.key, Stream::Server),
            end,
            tcp,
            way,
            connected: false,
            written: 0,
            rest: Bytes::new(),
            seen: EndRecord::default(),
        }
    }

    fn is_for(&self, path: &wire::SegmentPath, segment: &Segment<Bytes>) -> bool {
        match (self.way, self.end.opening) {
            (Some(way), _) => reverse(path) == way,
            (None, ConnectionOpening::Passive { port }) => {
                path.to_port == port && segment.flags.syn
            }
            (None, ConnectionOpening::Active { .. }) => false,
        }
    }

    /// Returns the time at which it is to open its connection, if it has not.
    fn opens_at(&self) -> Option<Instant> {
        match self.end.opening {
            ConnectionOpening::Active { at, .. } if self.tcp.is_none() => Some(at),
            _ => None,
        }
    }

    /// Returns the time at which the receiver's time is over.
    fn until(&self) -> Option<Instant> {
        match self.end.amount {
            TransferAmount::Until(until) if !self.end.sends && self.seen.complete.is_none() => {
                Some(until)
            }
            _ => None,
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let timer = self.tcp.as_ref().and_then(|tcp| Some(tcp.poll_timeout()?.0));
        [timer, self.opens_at(), self.until()].into_iter().flatten().min()
    }

    fn wake(&mut self, now: Instant) {
        if let (Some(at), Some(way)) = (self.opens_at(), self.way)
            && at <= now
        {
            let config = super::fit_to_ethernet(&self.end.config, way.from);
            self.tcp = Some(Connection::connect(config, SeqNr::new(random() as u32)));
        }
        if let Some(tcp) = &mut self.tcp
            && tcp.poll_timeout().is_some_and(|(at, _)| at <= now)
        {
            tcp.handle_timeout(now);
        }
        self.service(now);
        if let Some(until) = self.until()
            && until <= now
        {
            self.complete(until);
            if let Some(tcp) = &mut self.tcp {
                // A reset, because after a close the sender would go on.
                tcp.abort(now);
            }
        }
    }

    fn complete(&mut self, at: Instant) {
        self.seen.complete = Some(at);
        self.end.over.store(true, Ordering::Relaxed);
    }

    fn fail(&mut self, why: String) {
        // Once the transfer is over, the end of its connection is not a failure.
        if !self.end.over.swap(true, Ordering::Relaxed) {
            self.seen.failure = Some(why);
        }
    }

    /// Reads and writes as much as possible.
    fn service(&mut self, now: Instant) {
        let Some(tcp) = &mut self.tcp else { return };
        let mut finished = false;
        let mut aborted = None;
        while let Some(event) = tcp.poll_event() {
            match event {
                ConnectionEvent::Connected => self.connected = true,
                ConnectionEvent::Finished => finished = true,
                ConnectionEvent::Aborted(why) => aborted = Some(format!("{why:?}")),
                _ => {}
            }
        }
        while let Some(data) = tcp.read(usize::MAX) {
            if self.payload.first_difference(self.seen.bytes, &data).is_some() {
                return self.fail("received bytes differ from those sent".to_owned());
            }
            self.seen.bytes += data.len() as u64;
            self.seen.first.get_or_insert(now);
            self.seen.last = Some(now);
        }
        if finished {
            tcp.close();
        }
        // Before the abort: a connection that breaks after its last byte has not failed.
        let whole = self.end.amount == TransferAmount::Bytes(self.seen.bytes);
        if !self.end.sends && whole && self.seen.complete.is_none() {
            self.complete(now);
        }
        if let Some(why) = aborted {
            self.fail(format!("the connection ended: {why}"));
        } else if finished && !self.end.sends && !whole {
            self.fail("the stream ended early".to_owned());
        }
        self.write();
    }

    /// Writes until enough is queued.
    fn write(&mut self) {
        let Some(tcp) = self.tcp.as_mut().filter(|_| self.connected && self.end.sends) else {
            return;
        };
        let total = match self.end.amount {
            TransferAmount::Bytes(bytes) => bytes,
            TransferAmount::Until(_) => u64::MAX,
        };
        while tcp.unsent() < AHEAD {
            if self.rest.is_empty() {
                let length = CHUNK.min(total - self.written);
                // As in the simulator, the connection stays open until the last byte has arrived.
                if length == 0 {
                    return;
                }
                let mut chunk = vec![0; length as usize];
                self.payload.fill(self.written, &mut chunk);
                self.rest = chunk.into();
                self.written += length;
            }
            let Ok(taken) = tcp.write(&self.rest) else { return };
            self.rest = self.rest.slice(taken..);
            if !self.rest.is_empty() {
                return;
            }
        }
    }

    fn emit(&mut self, now: Instant) -> Option<(wire::SegmentPath, Segment<Bytes>)> {
        let segment = self.tcp.as_mut()?.poll_transmit(now)?;
        self.write();
        Some((self.way?, segment))
    }

    fn sample(&mut self, at: Instant) {
        let Some(tcp) = self.tcp.as_ref().filter(|_| self.end.sends) else { return };
        let stats = tcp.stats();
        self.seen.samples.push(Sample {
            at,
            cwnd: stats.cwnd.get(),
            ssthresh: stats.ssthresh.get(),
            outstanding: stats.outstanding.get(),
            srtt: stats.smoothed_rtt,
            timeouts: stats.timeouts,
            undone: stats.undone,
        });
    }
}
