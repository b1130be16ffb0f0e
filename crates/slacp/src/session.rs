//! One session: packets in, packets out, between a terminal and a hub
//! (`docs/slacp.md`).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use smallvec::SmallVec;
use units::{ByteCount, Instant, earliest};

use crate::fec::{Decoder, REPAIR_HEAD, SHARD_OVERHEAD};
use crate::flow::Limits;
use crate::frame::{self, Ack, Frame, Repair, STREAM_OVERHEAD, TruncatedOffset};
use crate::handshake::Keys;
use crate::loss::LossMeter;
use crate::packet::{Header, Index, TAG};
use crate::planner::Planner;
use crate::received::{ACK_DELAY, Received};
use crate::rtt::Rtt;
use crate::sent::{Cargo, SentPacket, SentPackets};
use crate::stats::Stats;
use crate::streams::{Chunk, ProtocolError, Streams};
use crate::{Config, Event, PublicKey};

/// How long after it should have been heard the peer counts as unreachable.
const SILENCE: Duration = Duration::from_secs(1);
/// How often an unreachable peer is probed: small enough to resume at once.
const FADE_PROBE: Duration = Duration::from_millis(200);
/// The peer is told what is settled at the latest after so many packets.
const SETTLE_EVERY: u64 = 64;

/// Why a session wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A handshake message is to be sent again.
    Handshake,
    /// The link is free for the next packet.
    Pacing,
    /// An acknowledgement is due.
    Acknowledgement,
    /// A packet is overdue and counts as lost.
    Loss,
    /// Nothing has been acknowledged for too long.
    Probe,
    /// The tail of what was sent is to be protected.
    Repair,
    /// The peer is to be told that we are still there.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
}

/// How a session's peer is reached.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
    /// What the peer calls this session.
    pub(crate) index: Index,
    pub(crate) limits: Limits,
}

/// A session that is set up.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    /// The same on both sides.
    pub(crate) name: u64,
    keys: Keys,
    mtu: usize,
    keepalive: Duration,
    give_up: Duration,
    sent: SentPackets,
    received: Received,
    rtt: Rtt,
    loss: LossMeter,
    pub(crate) streams: Streams,
    decoder: Decoder,
    planner: Planner,
    last_heard: Instant,
    last_sent: Instant,
    /// When the last packet left that the peer should acknowledge.
    last_eliciting: Instant,
    next_probe: Instant,
    probe_pending: bool,
    reachable: bool,
    over: bool,
    settled_told: u64,
    settled_told_at: Instant,
    stats: Stats,
    events: VecDeque<Event>,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        config: &Config,
        keys: Keys,
        peer: Peer,
        opens_odd: bool,
        rtt: Option<Duration>,
    ) -> Self {
        let limits = limits(config);
        let unsent = config.rate.bytes_in(Duration::from_millis(50)).get().max(65_536);
        let mut estimate = Rtt::new();
        if let Some(rtt) = rtt {
            estimate.update(rtt, Duration::ZERO);
        }
        Self {
            name: keys.name,
            keys,
            mtu: usize::from(config.mtu),
            keepalive: config.keepalive,
            give_up: config.give_up,
            sent: SentPackets::default(),
            received: Received::new(),
            rtt: estimate,
            loss: LossMeter::default(),
            streams: Streams::new(u64::from(opens_odd), limits, peer.limits, unsent),
            peer,
            decoder: Decoder::new(usize::try_from(limits.memory / 2).unwrap_or(usize::MAX)),
            planner: Planner::new(config.rate),
            last_heard: now,
            last_sent: now,
            last_eliciting: now,
            next_probe: now,
            probe_pending: false,
            reachable: true,
            over: false,
            settled_told: 0,
            settled_told_at: now,
            stats: Stats::default(),
            events: VecDeque::new(),
        }
    }

    /// The owner's events, then those of the streams; in the order they came.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Whether the peer has been given up or broke the protocol.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable
    }

    pub(crate) fn stats(&self) -> Stats {
        let (to_send, to_read) = self.streams.held();
        Stats {
            rtt: self.rtt.smoothed(),
            loss: self.loss.rate(),
            streams: self.streams.len(),
            held_to_send: ByteCount::new(to_send),
            held_to_read: ByteCount::new(to_read),
            ..self.stats.clone()
        }
    }

    /// Takes the time that the handshake took as the first estimate.
    pub(crate) fn assume_rtt(&mut self, rtt: Duration) {
        self.rtt.update(rtt, Duration::ZERO);
    }

    /// Has the peer acknowledge something soon.
    pub(crate) fn ping(&mut self) {
        self.probe_pending = true;
    }
}

/// The limits that a configuration sets for the peer.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits::new(config.memory.get(), config.stream_window.get(), config.max_streams)
}

/// Receiving.
impl Session {
    /// Takes a data packet from the wire; `from` becomes the peer's address if
    /// the packet is authentic and the newest. Gives whether it was authentic.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        datagram: &mut [u8],
    ) -> bool {
        let expected = self.received.expected();
        let number = header.number(expected);
        if !self.received.is_new(number) {
            self.stats.duplicates += 1;
            return false;
        }
        let size = datagram.len() + ip_udp_overhead(from);
        let Some(frames) = self.keys.recv.open(number, header.len(), datagram) else {
            self.stats.forged += 1;
            return false;
        };
        self.heard(now);
        if number >= expected {
            self.peer.address = from;
        }
        self.stats.packets_received += 1;
        self.stats.bytes_received += size as u64;
        if let Err(error) = self.take_packet(now, number, header.source, frames, size) {
            self.fail(&error);
        }
        true
    }

    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        if !self.reachable {
            self.reachable = true;
            self.events.push_back(Event::Reachable);
        }
    }

    fn fail(&mut self, error: &dyn core::error::Error) {
        self.stats.failure = Some(error.to_string().into());
        self.over = true;
    }

    fn take_packet(
        &mut self,
        now: Instant,
        number: u64,
        source: bool,
        frames: &[u8],
        size: usize,
    ) -> Result<(), Broken> {
        let (eliciting, repair) = self.take_frames(now, frames)?;
        self.received.arrived(now, number, size, eliciting);
        self.decoder.keep(number, if source { frames } else { &[] });
        let mut restored = self.decoder.retry(number);
        if let Some(repair) = repair {
            self.stats.repairs_received += 1;
            restored.extend(self.decoder.repair(number, &repair));
        }
        for (number, frames) in restored {
            if self.received.is_new(number) {
                self.stats.recovered += 1;
                self.received.restored(now, number);
                self.take_frames(now, &frames)?;
            }
        }
        Ok(())
    }

    /// Acts on all frames; whether the packet is to be acknowledged, and the
    /// repair it carries.
    fn take_frames<'a>(
        &mut self,
        now: Instant,
        mut frames: &'a [u8],
    ) -> Result<(bool, Option<Repair<'a>>), Broken> {
        let (mut eliciting, mut repair) = (false, None);
        while let Some(frame) = frame::read(&mut frames)? {
            eliciting |= !matches!(frame, Frame::Ack(_) | Frame::Settled(_));
            match frame {
                Frame::Ping => {}
                Frame::Ack(ack) => self.on_ack(now, &ack),
                Frame::Settled(floor) => {
                    self.received.settle(floor);
                    self.decoder.settle(floor);
                }
                Frame::Repair(found) => repair = Some(found),
                Frame::Open { stream, credit, open } => {
                    self.streams.on_open(stream, credit, open)?;
                }
                Frame::Accept(stream) => self.streams.on_accept(stream),
                Frame::Reset { stream, reason, sent } => {
                    self.streams.on_reset(stream, reason, sent)?;
                }
                Frame::SessionCredit(limit) => self.streams.on_session_credit(limit),
                Frame::StreamCredit { stream, limit } => {
                    self.streams.on_stream_credit(stream, limit);
                }
                Frame::Stream { stream, offset, fin, data } => {
                    self.streams.on_data(stream, offset, data, fin)?;
                }
            }
        }
        Ok((eliciting, repair))
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let Some(acked) = self.sent.acknowledge(ack) else { return };
        if let Some(sent_at) = acked.largest_sent_at {
            self.rtt.update(now.saturating_since(sent_at), ack.held);
        }
        let count = acked.packets.len();
        for cargo in acked.packets.into_iter().flat_map(|packet| packet.cargo) {
            if let Cargo::Stream { stream, range, fin } = cargo {
                self.streams.on_acknowledged(stream, range, fin);
            }
        }
        let lost = self.take_lost(now);
        self.loss.update(count, lost, ack.recovered);
        self.streams.wake_writers();
        if count > 0 {
            self.next_probe = self.probe_at();
        }
    }

    /// Has what was lost sent again; how many packets that was.
    fn take_lost(&mut self, now: Instant) -> usize {
        let lost = self.sent.take_lost(now, self.rtt.loss_delay());
        let count = lost.len();
        self.stats.packets_lost += count as u64;
        lost.into_iter().flat_map(|packet| packet.cargo).for_each(|cargo| self.resend(cargo));
        count
    }

    fn resend(&mut self, cargo: Cargo) {
        match cargo {
            Cargo::Stream { stream, range, fin } => self.streams.on_lost(stream, range, fin),
            Cargo::Control(frame) => self.streams.on_control_lost(frame),
        }
    }
}

/// What ends a session at once.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Malformed(#[from] frame::Malformed),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Time.
impl Session {
    /// When [`Self::handle_timeout`] has something to do. Sending is apart:
    /// [`Self::send_time`].
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let at = |time: Option<Instant>, wake| time.map(|time| (time, wake));
        [
            at(self.sent.loss_time(self.rtt.loss_delay()), Wake::Loss),
            at(self.probe_timeout(), Wake::Probe),
            at(self.repair_timeout(), Wake::Repair),
            at(self.keepalive_timeout(), Wake::Keepalive),
            at(self.silence_timeout(), Wake::Silence),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.sent.loss_time(self.rtt.loss_delay()).is_some_and(|time| time <= now) {
            let lost = self.take_lost(now);
            self.loss.update(0, lost, 0);
        }
        if self.probe_timeout().is_some_and(|time| time <= now) {
            self.probe(now);
        }
        if self.repair_timeout().is_some_and(|time| time <= now) {
            self.planner.plan(now, &self.sent, &self.loss);
        }
        if self.keepalive_timeout().is_some_and(|time| time <= now) {
            self.probe_pending = true;
        }
        if self.silence_timeout().is_some_and(|time| time <= now) {
            self.on_silence(now);
        }
    }
}

impl Session {
    fn keepalive_timeout(&self) -> Option<Instant> {
        (!self.probe_pending).then(|| self.last_sent + self.keepalive)
    }

    fn probe_at(&self) -> Instant {
        self.last_eliciting + self.rtt.probe_delay(ACK_DELAY)
    }

    fn probe_timeout(&self) -> Option<Instant> {
        (!self.sent.is_empty() && !self.probe_pending).then_some(self.next_probe)
    }

    /// Asks for an acknowledgement, and sends the oldest cargo again with the
    /// question (RFC 9002 §6.2.4), unless the link is down.
    fn probe(&mut self, now: Instant) {
        self.probe_pending = true;
        if !self.reachable {
            self.next_probe = now + FADE_PROBE;
            return;
        }
        self.next_probe = now + self.rtt.probe_delay(ACK_DELAY);
        self.stats.probes += 1;
        for cargo in self.sent.oldest_cargo() {
            self.resend(cargo);
        }
    }

    /// The tail is protected once nothing has followed it for a moment.
    fn repair_timeout(&self) -> Option<Instant> {
        if self.streams.wants_to_send() || !self.reachable { None } else { self.planner.due() }
    }

    fn silence_timeout(&self) -> Option<Instant> {
        if !self.reachable {
            return Some(self.last_heard + self.give_up);
        }
        let asked = self.sent.oldest()?.max(self.last_heard);
        Some(asked + self.rtt.probe_delay(ACK_DELAY) + SILENCE)
    }

    fn on_silence(&mut self, now: Instant) {
        if self.reachable {
            self.reachable = false;
            self.next_probe = now;
            self.events.push_back(Event::Unreachable);
        } else {
            self.over = true;
        }
    }
}

/// Sending.
impl Session {
    /// From when on [`Self::transmit`] has something, as far as is known;
    /// [`Instant::ZERO`] for now.
    pub(crate) fn send_time(&self) -> Option<(Instant, Wake)> {
        if self.probe_pending || self.has_payload() {
            return Some((Instant::ZERO, Wake::Pacing));
        }
        let report = self.received.report_at(self.rtt.smoothed())?;
        Some((report, Wake::Acknowledgement))
    }

    fn has_payload(&self) -> bool {
        self.reachable && (self.streams.wants_to_send() || self.planner.next().is_some())
    }

    fn ack_is_due(&self, now: Instant) -> bool {
        self.received.report_at(self.rtt.smoothed()).is_some_and(|time| time <= now)
    }

    /// Builds the next packet in `out`, which is empty; `None` if there is
    /// nothing to send. Gives the size of the IP packet.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<ByteCount> {
        let number = self.sent.next_number();
        let header = Header::new(self.peer.index, number, self.sent.acked_end(), false);
        header.write(out);
        let mut cargo = SmallVec::new();
        let overhead = ip_udp_overhead(self.peer.address);
        let end = self.mtu - overhead - TAG;
        let eliciting = self.fill(now, number, out, end, &mut cargo);
        if out.len() == header.len() {
            out.clear();
            return None;
        }
        let source = !cargo.is_empty();
        if source {
            Header::mark_source(out);
            self.planner.sent_source(now);
        }
        self.enter(now, eliciting, cargo, source.then(|| out[header.len()..].into()));
        self.keys.send.seal(number, header.len(), out);
        let size = out.len() + overhead;
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += size as u64;
        Some(ByteCount::new(size as u64))
    }

    fn enter(
        &mut self,
        now: Instant,
        eliciting: bool,
        cargo: SmallVec<[Cargo; 2]>,
        source: Option<Box<[u8]>>,
    ) {
        self.last_sent = now;
        if !eliciting {
            self.sent.push(None);
            return;
        }
        if self.reachable || self.sent.is_empty() {
            self.last_eliciting = now;
            self.next_probe = self.probe_at();
        }
        self.sent.push(Some(SentPacket { time: now, cargo, source }));
    }

    /// Fills the packet up to length `end`; whether it is to be acknowledged.
    fn fill(
        &mut self,
        now: Instant,
        number: u64,
        out: &mut Vec<u8>,
        end: usize,
        cargo: &mut SmallVec<[Cargo; 2]>,
    ) -> bool {
        let header_len = out.len();
        if self.ack_is_due(now) {
            self.write_ack(now, out, end);
        }
        let ping = core::mem::take(&mut self.probe_pending);
        if ping {
            Frame::Ping.write(out, false);
        }
        if !self.has_payload() {
            if ping {
                self.write_settled(now, out, true);
            }
            return ping;
        }
        self.write_settled(now, out, ping);
        if !self.streams.has_urgent() && self.planner.next().is_some() {
            return self.write_repair(number, out, end) || ping;
        }
        // A repair of this packet must fit in another, whatever its header.
        let spare = REPAIR_HEAD + SHARD_OVERHEAD + Header::MAX_LEN - header_len;
        self.write_streams(out, end - spare, cargo);
        ping || !cargo.is_empty()
    }

    fn write_ack(&mut self, now: Instant, out: &mut Vec<u8>, end: usize) {
        if self.received.is_empty() {
            return;
        }
        let before = out.len();
        let (ranges, held, recovered) = self.received.report(now);
        frame::write_ack(out, ranges, held, recovered, end - before - 16);
        let overhead = ip_udp_overhead(self.peer.address) + Header::MAX_LEN + TAG;
        self.received.reported(now, out.len() - before + overhead);
        self.stats.acknowledgements += 1;
    }

    fn write_settled(&mut self, now: Instant, out: &mut Vec<u8>, always: bool) {
        let settled = self.sent.settled();
        if !always && settled == self.settled_told {
            return;
        }
        let settled = settled.min(self.planner.floor().unwrap_or(u64::MAX));
        let due = settled >= self.settled_told + SETTLE_EVERY
            || (settled > self.settled_told && now >= self.settled_told_at + self.rtt.smoothed());
        if always || due {
            Frame::Settled(settled).write(out, false);
            self.settled_told = settled;
            self.settled_told_at = now;
        }
    }

    /// Whether the next repair fitted. One that does not even fit in a packet
    /// of its own (the peer has moved to a path with longer headers) is dropped.
    fn write_repair(&mut self, number: u64, out: &mut Vec<u8>, end: usize) -> bool {
        let alone = out.len() <= Header::MAX_LEN;
        let Some(next) = self.planner.next() else { return false };
        let fits = out.len() + REPAIR_HEAD + next.shard.len() <= end;
        if !fits && !alone {
            return false;
        }
        let Some(repair) = self.planner.take().filter(|_| fits) else { return false };
        let frame = Repair {
            distance: number - repair.block.base,
            stride: repair.block.stride,
            count: repair.block.count,
            repairs: repair.repairs,
            index: repair.index,
            shard: &repair.shard,
        };
        Frame::Repair(frame).write(out, true);
        self.stats.repairs_sent += 1;
        true
    }

    /// Control frames, then pieces of streams, up to length `end`.
    fn write_streams(&mut self, out: &mut Vec<u8>, end: usize, cargo: &mut SmallVec<[Cargo; 2]>) {
        let mut body = Vec::new();
        while let Some(frame) = self.streams.next_control(|frame| {
            body.clear();
            frame.write(&mut body, false);
            out.len() + body.len() <= end
        }) {
            out.extend_from_slice(&body);
            cargo.push(Cargo::Control(frame));
        }
        while out.len() + STREAM_OVERHEAD < end {
            let space = end - out.len();
            let room = |stream| space - frame::stream_head(stream);
            let Some(chunk) = self.streams.next_chunk(room) else { return };
            let Chunk { stream, range, fin } = chunk;
            let length = (range.end - range.start) as usize;
            // Without room for another frame the length goes without saying.
            let last = frame::stream_head(stream) + length + STREAM_OVERHEAD >= space;
            let said = (!last).then_some(length);
            frame::write_stream_head(out, stream, TruncatedOffset::new(range.start), fin, said);
            self.streams.copy(stream, &range, out);
            cargo.push(Cargo::Stream { stream, range, fin });
            if last {
                return;
            }
        }
    }
}

/// The bytes of IP and UDP headers in front of a datagram to `peer`.
pub(crate) fn ip_udp_overhead(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}
