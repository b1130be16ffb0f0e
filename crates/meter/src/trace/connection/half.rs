//! One direction of a connection: what one side sent, and how the other acknowledged it.

use std::time::Duration;

use units::{BitRate, ByteCount, Instant};

use super::delivery::{PayloadClass, PayloadRange, PayloadTracker};
use super::level::{ConditionTimer, TimeWeightedLevel};
use super::rtt::RttSampler;
use super::sequence::SequenceUnwrapper;
use super::window::AdvertisedWindows;
use crate::trace::capture::segment::{CapturedSegment, SegmentOptions};
use crate::trace::plot::{Plot, PlotMark, PlotMarks};
use crate::trace::report::DirectionReport;

/// Maximum payload of a packet that is certain to be a single segment.
const FULL_SEGMENT_MAX: u64 = 1460;

/// One direction of a connection. Both its own packets and those of the other direction, which
/// acknowledge them, are added to it.
#[derive(Debug, Default)]
pub(super) struct DirectionAnalysis {
    unwrap: SequenceUnwrapper,
    /// The first SYN's number and options.
    syn: Option<(u64, SegmentOptions)>,
    /// Start of the payload in the stream, as far as the capture shows.
    base: Option<u64>,
    fin: Option<u64>,
    acked: Option<u64>,
    /// The receiver's last acknowledgement number and unscaled window.
    last_ack: Option<(u64, u16)>,
    /// Set once any payload was acknowledged.
    data_acked: bool,
    counts: DirectionCounts,
    /// A byte sent as a probe, which the receiver may have taken although its window was closed.
    probe: Option<PayloadRange>,
    delivery: PayloadTracker,
    rtt: RttSampler,
    windows: AdvertisedWindows,
    outstanding: TimeWeightedLevel,
    /// The receiver's window, and its right edge, if the scale is known.
    window: Option<(u64, u64)>,
    window_limited: ConditionTimer,
    zero_window: ConditionTimer,
    times: PayloadTimes,
    /// Data for the graph, if wanted.
    pub(super) plot: Option<Box<Plot>>,
}

/// Counters of the direction's packets.
#[derive(Debug, Clone, Copy, Default)]
struct DirectionCounts {
    packets: u64,
    copies: u64,
    data_packets: u64,
    pure_acks: u64,
    duplicate_acks: u64,
    sack_packets: u64,
    sack_blocks: u64,
    dsacks: u64,
    syns_again: u64,
    fins_again: u64,
    resets: u64,
    probes: u64,
    payload_bytes: u64,
    retransmitted_packets: u64,
    needless_packets: u64,
    repair_packets: u64,
    repair_bytes: u64,
    reordered_packets: u64,
    largest_payload: u64,
    initial_window: u64,
    timestamps: bool,
}

/// Times at which payload was sent.
#[derive(Debug, Clone, Copy, Default)]
struct PayloadTimes {
    first: Option<Instant>,
    last: Option<Instant>,
    /// The longest gap, and when it began.
    idle: Option<(Duration, Instant)>,
}

/// Effects of a packet's acknowledgement on the other side's payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckEffect {
    /// Set if it acknowledged something for the first time.
    pub(super) new: bool,
    duplicate: bool,
    sack_blocks: u64,
    dsack: bool,
}

impl DirectionAnalysis {
    /// An empty direction, with a graph if `plotted`.
    pub(super) fn new(plotted: bool) -> Self {
        Self { plot: plotted.then(Box::default), ..Self::default() }
    }

    /// Adds a packet of this side; `said` is what it acknowledged of the other's payload.
    pub(super) fn add_own_packet(&mut self, segment: &CapturedSegment, said: &AckEffect) {
        self.count(segment, said);
        if segment.flags.rst {
            self.counts.resets += 1;
            return;
        }
        let start = self.unwrap.unwrap(segment.sequence);
        let start = if segment.flags.syn { self.open(start, segment) } else { start };
        // The window of a SYN is never scaled (RFC 7323 §2.2), unlike those that are reported.
        if !segment.flags.syn {
            self.windows.advertised(segment.window);
        }
        let end = start + u64::from(segment.length);
        let stamp = segment.options.timestamps.map(|(value, _)| value);
        let range = PayloadRange { time: segment.time, start, end, stamp };
        if self.is_probe(segment, start) {
            self.counts.probes += 1;
            self.probe =
                Some(range).filter(|_| start >= self.delivery.high() && segment.length > 0);
        } else if segment.length > 0 {
            self.payload(&range);
        }
        if segment.flags.fin {
            self.counts.fins_again += u64::from(self.fin.is_some());
            self.fin.get_or_insert(end);
        }
        self.update_outstanding(segment.time);
    }

    fn count(&mut self, segment: &CapturedSegment, said: &AckEffect) {
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.pure_acks += u64::from(segment.is_pure_ack());
        counts.duplicate_acks += u64::from(said.duplicate);
        counts.sack_packets += u64::from(said.sack_blocks > 0);
        counts.sack_blocks += said.sack_blocks;
        counts.dsacks += u64::from(said.dsack);
        counts.timestamps |= segment.options.timestamps.is_some();
    }

    /// Handles a SYN; returns where the payload starts.
    fn open(&mut self, number: u64, segment: &CapturedSegment) -> u64 {
        match self.syn {
            Some((first, _)) => self.counts.syns_again += u64::from(first == number),
            None => self.syn = Some((number, segment.options)),
        }
        self.base.get_or_insert(number + 1);
        self.delivery.begin(number + 1);
        number + 1
    }

    /// Returns true for a keep-alive or window probe (RFC 9293 §3.8.4 and §3.8.6.1): at most one
    /// byte, when everything is acknowledged. It is the last byte again (a keep-alive, or Linux's
    /// window probe), or the next one into a closed window.
    fn is_probe(&self, segment: &CapturedSegment, start: u64) -> bool {
        let high = self.delivery.high();
        let plain = !segment.flags.syn && !segment.flags.fin;
        let all_acked = self.acked.is_some_and(|acked| acked >= high);
        let closed = self.last_ack.is_some_and(|(_, window)| window == 0);
        let next = closed && segment.length == 1 && start == high;
        plain && all_acked && segment.length <= 1 && (start + 1 == high || next)
    }

    fn payload(&mut self, range: &PayloadRange) {
        let PayloadRange { time, start, end, stamp } = *range;
        if self.base.is_none() {
            self.delivery.begin(start);
        }
        // Without a SYN, the first packet in the capture need not be the first of the stream.
        self.base = Some(self.base.map_or(start, |base| base.min(start)));
        let acked = self.acked.unwrap_or(0);
        let fate = self.delivery.add(range, acked, self.rtt.min());
        self.times.sent(time);
        let counts = &mut self.counts;
        counts.data_packets += 1;
        counts.payload_bytes += end - start;
        counts.largest_payload = counts.largest_payload.max(end - start);
        // All that is sent before the first acknowledgement of data is the initial window.
        if !self.data_acked {
            counts.initial_window = self.delivery.unique;
        }
        if let Some(stamp) = stamp {
            self.rtt.stamped(time, stamp);
        }
        match fate {
            PayloadClass::New => self.rtt.sent(time, start, end),
            PayloadClass::Retransmitted { needless } => {
                counts.retransmitted_packets += 1;
                counts.needless_packets += u64::from(needless);
                self.rtt.repaired(start, end);
            }
            PayloadClass::Repair => {
                counts.repair_packets += 1;
                counts.repair_bytes += end - start;
                self.rtt.repaired(start, end);
            }
            PayloadClass::Reordered => counts.reordered_packets += 1,
        }
        self.draw(time, start, end, |plot| match fate {
            PayloadClass::New => &mut plot.data,
            PayloadClass::Retransmitted { .. } | PayloadClass::Repair => &mut plot.retransmissions,
            PayloadClass::Reordered => &mut plot.reordered,
        });
    }

    /// Adds a packet of the other side. `scale` is that of its windows, if known.
    pub(super) fn add_peer_packet(
        &mut self,
        segment: &CapturedSegment,
        scale: Option<u8>,
    ) -> AckEffect {
        let Some(ack) = segment.ack.filter(|_| !segment.flags.rst) else {
            return AckEffect::default();
        };
        // An acknowledgement may be wrong, so it sets the reference only while no payload is known.
        let ack = match self.base {
            Some(_) => self.unwrap.peek(ack),
            None => self.unwrap.unwrap(ack),
        };
        let time = segment.time;
        let mut said = self.sacked(segment, ack);
        let word = Some((ack, segment.window));
        let again = segment.is_pure_ack() && self.last_ack == word;
        said.duplicate = again && self.outstanding_bytes() > 0;
        self.last_ack = word;
        if self.acked.is_none_or(|acked| ack > acked) {
            said.new = true;
            // The receiver has taken the byte of a probe, unless it came again as payload.
            if let Some(probe) = self.probe.take_if(|probe| probe.end <= ack)
                && self.delivery.seen(probe.start, probe.end) == 0
            {
                self.payload(&probe);
            }
            self.acknowledged(segment, ack);
        }
        if let Some(scale) = scale.filter(|_| self.acked == Some(ack)) {
            // The window of a SYN is never scaled (RFC 7323 §2.2).
            let scale = if segment.flags.syn { 0 } else { scale };
            let window = u64::from(segment.window) << scale;
            self.window = Some((window, ack + window));
            self.draw(time, ack + window, ack + window, |plot| &mut plot.window);
        }
        self.update_outstanding(time);
        said
    }

    fn acknowledged(&mut self, segment: &CapturedSegment, ack: u64) {
        self.acked = Some(ack);
        // Without a SYN in the capture, the stream begins at the first acknowledgement.
        let base = *self.base.get_or_insert(ack);
        self.delivery.begin(base);
        self.data_acked |= ack > base;
        self.delivery.acked(ack);
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        self.rtt.acked(segment.time, ack, echo);
        self.draw(segment.time, ack, ack, |plot| &mut plot.acks);
    }

    /// Handles the SACK option (RFC 2018), with its duplicates (RFC 2883 §4).
    fn sacked(&mut self, segment: &CapturedSegment, ack: u64) -> AckEffect {
        let mut said = AckEffect::default();
        let blocks = segment.options.sack.map(|block| {
            let (left, right) = block?;
            let left = self.unwrap.peek(left);
            let right = self.unwrap.peek(right);
            (left < right).then_some((left, right))
        });
        if let Some((left, right)) = blocks[0] {
            let within = |&(low, high): &(u64, u64)| low <= left && right <= high;
            // A first block below the acknowledgement or within the second one (RFC 2883 §4).
            said.dsack = right <= ack || blocks[1].as_ref().is_some_and(within);
        }
        // A duplicate says nothing about what is missing.
        for (left, right) in blocks.into_iter().skip(usize::from(said.dsack)).flatten() {
            said.sack_blocks += 1;
            self.delivery.sack(left.max(ack), right);
            self.draw(segment.time, left, right, |plot| &mut plot.sacks);
        }
        said
    }

    fn outstanding_bytes(&self) -> u64 {
        let from = self.acked.or(self.base).unwrap_or(u64::MAX);
        self.delivery.high().saturating_sub(from)
    }

    /// Updates the outstanding bytes, and whether the receiver's window leaves no room for another
    /// full segment.
    fn update_outstanding(&mut self, time: Instant) {
        let outstanding = self.outstanding_bytes();
        self.outstanding.set(time, outstanding);
        if let Some((window, edge)) = self.window {
            // A capture at the sender may contain many segments in one packet.
            let full = self.counts.largest_payload.clamp(1, FULL_SEGMENT_MAX);
            let little = edge.saturating_sub(self.delivery.high()) < full;
            let more = self.fin.is_none() && outstanding > 0;
            self.window_limited.set(time, little && more);
            self.zero_window.set(time, window == 0);
        }
        if let Some(plot) = self.plot.as_mut().filter(|_| self.acked.is_some()) {
            plot.outstanding.level(time, outstanding);
        }
    }

    fn draw(
        &mut self,
        time: Instant,
        start: u64,
        end: u64,
        of: impl Fn(&mut Plot) -> &mut PlotMarks,
    ) {
        if let Some(plot) = &mut self.plot {
            of(plot).push(PlotMark { time, start, end });
        }
    }

    /// Completes the time-weighted figures at the end of the connection.
    pub(super) fn finish(&mut self, time: Instant) {
        if self.counts.packets > 0 || self.base.is_some() {
            self.update_outstanding(time);
        }
        if let (Some(plot), Some(base)) = (&mut self.plot, self.base) {
            plot.origin = base;
        }
    }

    /// The window scale this side announced; `None` without its SYN.
    pub(super) fn announced_scale(&self) -> Option<Option<u8>> {
        self.syn.map(|(_, options)| options.window_scale)
    }

    /// Returns true if this side's SYN had this sequence number; `None` if no SYN was captured.
    pub(super) fn began_with(&self, sequence: u32) -> Option<bool> {
        self.syn.map(|(number, _)| number as u32 == sequence)
    }

    /// The shortest round-trip time so far.
    pub(super) fn rtt_min(&self) -> Option<Duration> {
        self.rtt.min()
    }

    /// Counts a packet that is a copy of an earlier one.
    pub(super) fn count_copy(&mut self) {
        self.counts.copies += 1;
    }

    /// Handles a step of the capture's clock.
    pub(super) fn clock_was_set(&mut self) {
        self.rtt.forget();
    }

    /// Returns true if this side has sent any packet.
    pub(super) fn has_sent(&self) -> bool {
        self.counts.packets > 0
    }

    /// Returns true if this side has sent a FIN.
    pub(super) fn has_ended(&self) -> bool {
        self.fin.is_some()
    }

    /// Returns true if this side has sent only resets.
    pub(super) fn only_reset(&self) -> bool {
        self.counts.resets > 0 && self.counts.resets == self.counts.packets
    }

    /// Computes the report. `begin` is the time of the connection's first packet; `scale` is that
    /// of this side's windows, if known.
    pub(super) fn report(&self, begin: Instant, scale: Option<u8>) -> DirectionReport {
        let counts = &self.counts;
        let times = &self.times;
        let since = |time: Instant| time.saturating_since(begin);
        let syn = self.syn.map(|(_, options)| options);
        let rate = |bytes, time| BitRate::average(ByteCount::new(bytes), time);
        let sending = times.first.zip(times.last);
        DirectionReport {
            packets: counts.packets,
            copies: counts.copies,
            data_packets: counts.data_packets,
            pure_acks: counts.pure_acks,
            duplicate_acks: counts.duplicate_acks,
            sack_packets: counts.sack_packets,
            sack_blocks: counts.sack_blocks,
            dsacks: counts.dsacks,
            syn_retransmissions: counts.syns_again,
            fin_retransmissions: counts.fins_again,
            resets: counts.resets,
            probes: counts.probes,
            payload_bytes: counts.payload_bytes,
            unique_bytes: self.delivery.unique,
            retransmitted_bytes: counts.payload_bytes.saturating_sub(self.delivery.unique),
            retransmitted_packets: counts.retransmitted_packets,
            needless_packets: counts.needless_packets,
            repair_packets: Some(counts.repair_packets),
            repair_bytes: Some(counts.repair_bytes),
            reordered_packets: Some(counts.reordered_packets),
            missed_bytes: self.missed(),
            mss: syn.and_then(|options| options.mss),
            largest_payload: counts.largest_payload,
            window_scale: syn.and_then(|options| options.window_scale),
            sack_permitted: syn.is_some_and(|options| options.sack_permitted),
            timestamps: counts.timestamps,
            advertised_window: scale.and_then(|scale| self.windows.report(scale)),
            // Known only with the SYN and an acknowledgement of data.
            initial_window_bytes: syn
                .filter(|_| self.data_acked)
                .map(|_| counts.initial_window)
                .filter(|&bytes| bytes > 0),
            // Without any acknowledgement all data would count as outstanding.
            outstanding_max_bytes: self.acked.map(|_| self.outstanding.max()),
            outstanding_mean_bytes: self.acked.and_then(|_| self.outstanding.mean()),
            window_limited: self.window.map(|_| self.window_limited.total()),
            zero_window: self.window.map(|_| self.zero_window.total()),
            rtt: self.rtt.by_ack().durations(),
            timestamp_rtt: self.rtt.by_stamp().durations(),
            first_data: times.first.map(since),
            last_data: times.last.map(since),
            idle: times.idle.map(|(gap, _)| gap),
            idle_start: times.idle.map(|(_, start)| since(start)),
            throughput: sending
                .and_then(|(first, last)| rate(counts.payload_bytes, last.saturating_since(first))),
            goodput: times.last.and_then(|last| rate(self.delivery.unique, since(last))),
        }
    }

    /// Returns the number of payload bytes that were acknowledged but are missing from the capture.
    fn missed(&self) -> u64 {
        let Some(base) = self.base else { return 0 };
        let Some(acked) = self.acked else { return 0 };
        let end = self.fin.map_or(acked, |fin| acked.min(fin));
        end.saturating_sub(base).saturating_sub(self.delivery.seen(base, end))
    }
}

impl PayloadTimes {
    fn sent(&mut self, time: Instant) {
        if let Some(last) = self.last {
            let gap = time.saturating_since(last);
            if self.idle.is_none_or(|(longest, _)| gap > longest) {
                self.idle = Some((gap, last));
            }
        }
        self.first.get_or_insert(time);
        self.last = self.last.max(Some(time));
    }
}
