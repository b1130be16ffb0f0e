//! How a session fills the packets that go.

use smallvec::SmallVec;
use units::{ByteCount, Instant};

use super::{Session, Wake, ip_udp_overhead};
use crate::fec::{REPAIR_HEAD, SHARD_OVERHEAD};
use crate::frame::{self, Frame, Repair, STREAM_OVERHEAD, TruncatedOffset};
use crate::packet::{Header, TAG};
use crate::sent::{Cargo, SentPacket};
use crate::streams::Chunk;

/// The peer is told what is settled at the latest after so many packets.
const SETTLE_EVERY: u64 = 64;

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
