//! Recordings of a run for tables and plots.

use core::time::Duration;

use tcp::{ByteRange, Segment, SegmentPayload as _, SeqNr};
use units::Instant;

use crate::ids::{AppId, LinkId};
use crate::slab::SlabKey;

/// Maximum number of marks per connection end; later ones are dropped.
const MARKS: usize = 400_000;

/// All recordings of a run.
#[derive(Debug, Default)]
pub struct RunRecordings {
    pub(crate) interval: Option<Duration>,
    /// Recordings of connection ends, in the order in which they were opened.
    pub senders: Vec<SenderRecording>,
    /// Recordings of the hop's links, in the order in which they were first watched.
    pub links: Vec<LinkRecording>,
}

/// The recording of one end of a connection.
#[derive(Debug)]
pub struct SenderRecording {
    /// The flow's name, the number of the connection's segment, and `client` or `server`.
    pub label: String,
    pub(crate) app: AppId,
    pub(crate) socket: Option<SlabKey>,
    first: Option<SeqNr>,
    /// Periodic samples of its state.
    pub states: Vec<SenderSample>,
    /// Its segments, for a time-sequence graph.
    pub marks: Vec<SegmentMark>,
}

/// A sample of a sender's state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SenderSample {
    /// Time of the sample.
    pub at: Instant,
    /// The congestion window, in bytes.
    pub cwnd: u64,
    /// The slow-start threshold, in bytes; `u64::MAX` while it is unlimited.
    pub ssthresh: u64,
    /// Data sent but not acknowledged, in bytes.
    pub outstanding: u64,
    /// The smoothed round-trip time, once it has been measured.
    pub srtt: Option<Duration>,
    /// Number of retransmission time-outs so far.
    pub timeouts: u64,
    /// Number of reactions to losses or time-outs so far that were undone because they were spurious.
    pub undone: u64,
}

/// A data segment sent, or an acknowledgement received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMark {
    /// Time of sending or receipt.
    pub at: Instant,
    /// Tells data that was sent from an acknowledgement that was received.
    pub kind: MarkKind,
    /// The first byte of the data, or the next byte expected; counted from the initial sequence number.
    pub from: u32,
    /// Size of the data in bytes.
    pub len: u32,
}

impl SegmentMark {
    /// Returns the position after the data, or the next byte expected.
    fn end(&self) -> SeqNr {
        SeqNr::new(self.from).advance(self.len.into())
    }
}

/// The kind of event that a mark records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkKind {
    /// A segment with data was sent.
    Data,
    /// An acknowledgement was received.
    Ack,
}

/// The first loss that a sender repaired. In a long transfer it is usually the overshoot of slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstLoss {
    /// Time from the first data segment to the first retransmission.
    pub after: Duration,
    /// Bytes sent until then, without retransmissions.
    pub sent: u64,
    /// Time from the first retransmission to the acknowledgement of all data sent before it; `None` if that
    /// did not arrive.
    pub recovery: Option<Duration>,
}

/// The recording of one direction of a link.
#[derive(Debug)]
pub struct LinkRecording {
    /// Name of the link, `forward` or `return`.
    pub label: String,
    pub(crate) lane: LinkId,
    /// Periodic samples of its load.
    pub loads: Vec<LinkSample>,
}

/// A sample of a link's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSample {
    /// Time of the sample.
    pub at: Instant,
    /// Number of packets in the queue.
    pub queued: u64,
    /// Number of bytes in the queue.
    pub queued_bytes: u64,
    /// Total bytes delivered so far.
    pub delivered: u64,
}

impl RunRecordings {
    pub(crate) fn watch(&mut self, label: String, app: AppId, socket: SlabKey) -> u32 {
        self.senders.push(SenderRecording {
            label,
            app,
            socket: Some(socket),
            first: None,
            states: Vec::new(),
            marks: Vec::new(),
        });
        self.senders.len() as u32 - 1
    }

    pub(crate) fn unwatch(&mut self, sender: u32) {
        if let Some(sender) = self.senders.get_mut(sender as usize) {
            sender.socket = None;
        }
    }

    pub(crate) fn note_departure(&mut self, id: u32, at: Instant, segment: &Segment<ByteRange>) {
        let Some(sender) = self.senders.get_mut(id as usize) else { return };
        // The first segment is the SYN, so positions count from the initial sequence number.
        let first = *sender.first.get_or_insert(segment.seq);
        if !segment.payload.is_empty() {
            let from = segment.seq.get().wrapping_sub(first.get());
            sender.mark(SegmentMark {
                at,
                kind: MarkKind::Data,
                from,
                len: segment.payload.len() as u32,
            });
        }
    }

    pub(crate) fn note_arrival(&mut self, id: u32, at: Instant, segment: &Segment<ByteRange>) {
        let Some(sender) = self.senders.get_mut(id as usize) else { return };
        if let (Some(first), Some(ack)) = (sender.first, segment.ack) {
            let from = ack.get().wrapping_sub(first.get());
            sender.mark(SegmentMark { at, kind: MarkKind::Ack, from, len: 0 });
        }
    }
}

impl SenderRecording {
    fn mark(&mut self, mark: SegmentMark) {
        if self.marks.len() < MARKS {
            self.marks.push(mark);
        }
    }

    /// Returns the time from the first data segment to the acknowledgement of the last: the duration of a
    /// transfer as its sender sees it, without the handshake. `None` if it sent no data, if some data was not
    /// acknowledged by the end of the run, or if marks were dropped.
    pub fn data_time(&self) -> Option<Duration> {
        if self.marks.len() >= MARKS {
            return None;
        }
        let is_data = |mark: &&SegmentMark| mark.kind == MarkKind::Data;
        let first = self.marks.iter().find(is_data)?;
        // The last mark may be a retransmission, so the end is the furthest position of all.
        let ends = self.marks.iter().filter(is_data).map(SegmentMark::end);
        let end = ends.reduce(|one, other| if other.is_after(one) { other } else { one })?;
        let covers = |mark: &&SegmentMark| mark.kind == MarkKind::Ack && !end.is_after(mark.end());
        let last = self.marks.iter().find(covers)?;
        Some(last.at.saturating_since(first.at))
    }

    /// Returns the first retransmission and the recovery that begins with it; `None` if there was no
    /// retransmission, or if marks were dropped.
    pub fn first_loss(&self) -> Option<FirstLoss> {
        if self.marks.len() >= MARKS {
            return None;
        }
        let begin = self.marks.iter().find(|mark| mark.kind == MarkKind::Data)?;
        let mut sent = SeqNr::new(begin.from);
        // Data that ends no further than all before it has been sent already.
        let mut is_new = |mark: &SegmentMark| {
            let is_new = mark.end().is_after(sent);
            sent = if is_new { mark.end() } else { sent };
            is_new
        };
        let repeats = |mark: &SegmentMark| mark.kind == MarkKind::Data && !is_new(mark);
        let at = self.marks.iter().position(repeats)?;
        let first = &self.marks[at];
        // Recovered when everything sent before the first retransmission is acknowledged.
        let covers = |mark: &&SegmentMark| mark.kind == MarkKind::Ack && !sent.is_after(mark.end());
        let recovered = self.marks[at..].iter().find(covers);
        Some(FirstLoss {
            after: first.at.saturating_since(begin.at),
            sent: sent.get().wrapping_sub(begin.from).into(),
            recovery: recovered.map(|mark| mark.at.saturating_since(first.at)),
        })
    }

    /// Returns true if it sent data; the receiving end of a one-way transfer does not.
    pub fn has_sent(&self) -> bool {
        self.marks.iter().any(|mark| mark.kind == MarkKind::Data)
    }
}

#[cfg(test)]
mod tests {
    use tcp::HeaderFlags;

    use super::*;

    fn sent(seq: u32, len: u64) -> Segment<ByteRange> {
        Segment { seq: SeqNr::new(seq), payload: ByteRange::new(0..len), ..Segment::default() }
    }

    fn acknowledged(ack: u32) -> Segment<ByteRange> {
        Segment { ack: Some(SeqNr::new(ack)), ..Segment::default() }
    }

    fn watching() -> (RunRecordings, u32) {
        let mut probe = RunRecordings::default();
        let id = probe.watch("ftp.1client".into(), AppId(0), SlabKey::default());
        (probe, id)
    }

    #[test]
    fn marks_count_from_the_first_segment_across_the_end_of_the_numbers() {
        let (mut probe, id) = watching();
        // Before the first segment there is nothing to count from.
        probe.note_arrival(id, Instant::ZERO, &acknowledged(5));
        let syn = Segment {
            flags: HeaderFlags { syn: true, ..HeaderFlags::default() },
            ..sent(u32::MAX, 0)
        };
        probe.note_departure(id, Instant::ZERO, &syn);
        assert!(!probe.senders[0].has_sent(), "a SYN is no data");
        probe.note_departure(id, Instant::ZERO, &sent(0, 1000));
        probe.note_arrival(id, Instant::ZERO, &acknowledged(1000));
        let marks = probe.senders[0].marks.iter().map(|mark| (mark.kind, mark.from, mark.len));
        let expected = [(MarkKind::Data, 1, 1000), (MarkKind::Ack, 1001, 0)];
        assert_eq!(marks.collect::<Vec<_>>(), expected);
        assert!(probe.senders[0].has_sent());
    }

    #[test]
    fn the_time_of_data_ends_with_the_acknowledgement_of_the_last() {
        let (mut probe, id) = watching();
        let at = Instant::from_nanos;
        let syn =
            Segment { flags: HeaderFlags { syn: true, ..HeaderFlags::default() }, ..sent(9, 0) };
        probe.note_departure(id, at(0), &syn);
        assert_eq!(probe.senders[0].data_time(), None, "a SYN is no data");
        probe.note_departure(id, at(10), &sent(10, 1000));
        probe.note_departure(id, at(20), &sent(1010, 500));
        // A repetition is not the last of the data.
        probe.note_departure(id, at(25), &sent(10, 1000));
        probe.note_arrival(id, at(30), &acknowledged(1010));
        assert_eq!(probe.senders[0].data_time(), None);
        probe.note_arrival(id, at(45), &acknowledged(1510));
        probe.note_arrival(id, at(60), &acknowledged(1511));
        assert_eq!(probe.senders[0].data_time(), Some(Duration::from_nanos(35)));
    }

    #[test]
    fn the_first_loss_is_the_first_repetition() {
        let (mut probe, id) = watching();
        let at = Instant::from_nanos;
        let syn =
            Segment { flags: HeaderFlags { syn: true, ..HeaderFlags::default() }, ..sent(9, 0) };
        probe.note_departure(id, at(0), &syn);
        for (time, seq) in [(10, 10), (20, 1010), (25, 2010)] {
            assert_eq!(probe.senders[0].first_loss(), None);
            probe.note_departure(id, at(time), &sent(seq, 1000));
        }
        probe.note_departure(id, at(40), &sent(10, 1000));
        // New data during the recovery is not part of it, nor is a later repetition.
        probe.note_departure(id, at(45), &sent(3010, 1000));
        let after = Duration::from_nanos(30);
        let loss = FirstLoss { after, sent: 3000, recovery: None };
        assert_eq!(probe.senders[0].first_loss(), Some(loss));
        probe.note_arrival(id, at(50), &acknowledged(2010));
        probe.note_departure(id, at(55), &sent(2010, 1000));
        probe.note_arrival(id, at(70), &acknowledged(3010));
        let recovery = Some(Duration::from_nanos(30));
        assert_eq!(probe.senders[0].first_loss(), Some(FirstLoss { recovery, ..loss }));
    }

    #[test]
    fn a_long_run_keeps_its_first_marks() {
        let (mut probe, id) = watching();
        for number in 0..MARKS as u32 + 10 {
            probe.note_departure(id, Instant::from_nanos(number.into()), &sent(number, 1));
        }
        let marks = &probe.senders[0].marks;
        assert_eq!((marks.len(), marks[MARKS - 1].from), (MARKS, MARKS as u32 - 1));
    }
}
