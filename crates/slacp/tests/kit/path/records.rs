//! The fate of every packet of the forward link, and what can be told from it.

use core::ops::Deref;
use core::time::Duration;

use slacp::Ecn;
use units::Instant;

/// What happened to a packet of the forward link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub flow: usize,
    pub size: usize,
    pub sent: Instant,
    pub arrived: Option<Instant>,
    /// The codepoints that it left with and, once it has arrived, came with.
    pub ecn: [Ecn; 2],
}

impl Record {
    /// How long it waited and was sent, on a path of this delay.
    pub fn queued(&self, delay: Duration) -> Option<Duration> {
        Some(self.arrived?.saturating_since(self.sent).saturating_sub(delay))
    }
}

/// All records in the order of sending, with an index by flow.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: Vec<Record>,
    flows: Vec<Of>,
}

/// Records of one flow, by their index in all.
#[derive(Debug, Default)]
struct Of {
    sent: Vec<usize>,
    /// In the order of arrival.
    arrived: Vec<usize>,
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = &'a Record;
    type IntoIter = core::slice::Iter<'a, Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

impl Records {
    /// Adds a packet that is sent now, and returns its index.
    pub fn sent(&mut self, flow: usize, size: usize, sent: Instant, ecn: Ecn) -> usize {
        self.flows.resize_with(self.flows.len().max(flow + 1), Of::default);
        self.flows[flow].sent.push(self.all.len());
        self.all.push(Record { flow, size, sent, arrived: None, ecn: [ecn; 2] });
        self.all.len() - 1
    }

    /// Notes the arrival of a packet, now.
    pub fn arrived(&mut self, record: usize, now: Instant, ecn: Ecn) {
        (self.all[record].arrived, self.all[record].ecn[1]) = (Some(now), ecn);
        self.flows[self.all[record].flow].arrived.push(record);
    }

    /// A flow's packets that were sent in a time.
    pub fn sent_between(
        &self,
        flow: usize,
        from: Instant,
        to: Instant,
    ) -> impl Iterator<Item = &Record> {
        let sent = self.flows.get(flow).map_or(&[][..], |of| &of.sent);
        self.range(sent, |record| record.sent, from, to)
    }

    /// A flow's packets that arrived in a time.
    pub fn arrived_between(
        &self,
        flow: usize,
        from: Instant,
        to: Instant,
    ) -> impl Iterator<Item = &Record> {
        let arrived = self.flows.get(flow).map_or(&[][..], |of| &of.arrived);
        self.range(arrived, |record| record.arrived.unwrap_or_default(), from, to)
    }

    /// The part of `indices`, sorted by `time`, that falls into a time.
    fn range(
        &self,
        indices: &[usize],
        time: impl Fn(&Record) -> Instant,
        from: Instant,
        to: Instant,
    ) -> impl Iterator<Item = &Record> {
        let before = |limit: Instant| indices.partition_point(|n| time(&self.all[*n]) < limit);
        let (first, end) = (before(from), before(to));
        indices[first.min(end)..end].iter().map(|n| &self.all[*n])
    }
}
