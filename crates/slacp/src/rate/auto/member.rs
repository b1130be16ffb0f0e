//! A session's part in a link that it shares with other sessions of its hub
//! (`rate/aggregate.rs`).

use crate::SessionId;
use crate::rate::aggregate::SharedLink;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: SessionId,
    pub(super) link: SharedLink,
    /// The packet number from which on it has measured the whole link; `None` while it measures its
    /// own path.
    pub(super) whole_from: Option<u64>,
    /// The share of the link that it paces itself at.
    pub(super) share: f64,
    /// Upper limit of its rate while it measures its own path, in bit/s.
    pub(super) most: f64,
    /// Bytes sent since the last report.
    pub(super) sent: u64,
    /// Nothing waited after the packet sent last; at any time since the last report.
    pub(super) resting: bool,
    pub(super) limited: bool,
    /// Nothing is expected of it until it sends.
    pub(super) asleep: bool,
    /// Bytes sent over the link by the time of the train's last packet so far.
    train: u64,
}

impl Member {
    pub(super) fn new(id: SessionId, link: SharedLink) -> Self {
        Self {
            id,
            link,
            whole_from: None,
            share: 1.0,
            most: f64::INFINITY,
            sent: 0,
            resting: true,
            limited: true,
            asleep: true,
            train: 0,
        }
    }

    /// The same part on another path, which has yet to be measured.
    pub(super) fn on_new_path(self) -> Self {
        Self { whole_from: None, most: f64::INFINITY, ..self }
    }

    /// Counts a packet; returns all bytes sent over the link up to and including it.
    pub(super) fn sent(&mut self, bytes: u64) -> u64 {
        self.sent += bytes;
        self.resting = false;
        self.link.sent(bytes)
    }

    /// Bytes sent over the link since the last packet of the train, this one of `size` included;
    /// `first`: it begins the train.
    pub(super) fn spread(&mut self, first: bool, size: u16) -> u32 {
        let total = self.link.total();
        // What others sent in between leaves the link between the two packets, too.
        let since = total - core::mem::replace(&mut self.train, total);
        if first { u32::from(size) } else { u32::try_from(since).unwrap_or(u32::MAX) }
    }

    pub(super) fn app_limited(&mut self) {
        (self.resting, self.limited) = (true, true);
    }
}
