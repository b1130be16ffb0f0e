//! T/TCP (RFC 1644): the accelerated open (TAO) and the truncation of TIME-WAIT.
//!
//! The first connection to a peer opens as usual and carries CC.NEW; its handshake puts the count into
//! the peer's cache. Later ones carry CC on the SYN, with data. If the count is greater than the cached
//! one, the SYN is no old duplicate, and the data is accepted at once.
//!
//! Not modelled: a FIN on the SYN; data on the SYN-ACK (it follows in a segment of its own); keeping
//! the data of a SYN that fails the test (it is sent again); the cached MSS (data on a SYN is at most
//! 536 bytes); an end of TIME-WAIT by a new SYN between the same ports, which belong to the owner.

use core::time::Duration;

use units::Instant;

use super::Connection;
use crate::SegmentPayload;
use crate::config::SynData;
use crate::segment::CountOptions;
use crate::sharing::tao::{TaoCache, is_after};

/// RFC 1644 §2.4: TIME-WAIT in retransmission time-outs.
const TRUNCATED: u32 = 8;
/// A count with its alignment, in bytes.
const COUNT_LEN: u64 = 8;

/// The counts of a connection. 0 is undefined.
#[derive(Debug, Clone, Default)]
pub(super) struct TransactionState {
    /// TCB.CCsend: the count of this connection.
    own: u32,
    /// TCB.CCrecv; undefined if either side does without T/TCP.
    peer: u32,
    cache: TaoCache,
    /// True if our SYN carries CC.NEW.
    is_first: bool,
    /// Time at which the first SYN was sent or arrived.
    begun: Option<Instant>,
}

impl TransactionState {
    pub(super) fn new(syn_data: &SynData) -> Self {
        let SynData::Transactions(settings) = syn_data else { return Self::default() };
        Self { own: settings.count, cache: settings.cache, ..Self::default() }
    }

    /// Chooses between CC and CC.NEW for our SYN; returns whether data may go with it.
    pub(super) fn connect(&mut self) -> bool {
        let TaoCache { sent, .. } = self.cache;
        self.is_first = sent == 0 || !is_after(self.own, sent);
        // After CC.NEW undefined until the handshake confirms that the peer has the count.
        self.cache.sent = if self.is_first { 0 } else { self.own };
        self.own != 0 && !self.is_first
    }

    /// Records the start of the connection, on the first SYN in either direction.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// Returns the options of a segment of a synchronised connection.
    #[inline]
    pub(super) fn counts(&self) -> CountOptions {
        let cc = if self.peer == 0 { 0 } else { self.own };
        CountOptions { cc, ..CountOptions::default() }
    }

    /// Returns the options of our SYN, or of our answer to the peer's.
    pub(super) fn counts_of_syn(&self, answers: bool) -> CountOptions {
        match (answers, self.is_first) {
            (true, _) => CountOptions { echo: self.peer, ..self.counts() },
            (false, true) => CountOptions { new: self.own, ..CountOptions::default() },
            (false, false) => CountOptions { cc: self.own, ..CountOptions::default() },
        }
    }

    /// Returns true if a segment with these options belongs to this connection (§3.3).
    #[inline]
    pub(super) fn accepts(&self, counts: &CountOptions) -> bool {
        self.peer == 0 || counts.cc == self.peer || counts.new == self.peer
    }

    /// Performs the TAO test on a SYN that has arrived. A connection that fails it may still be
    /// accepted by the usual handshake.
    pub(super) fn test(&mut self, counts: &CountOptions) -> bool {
        let is_new = self.peer != 0 && self.cache.is_new(counts.cc);
        if is_new {
            self.cache.note_received(counts.cc);
        } else if counts.cc == 0 {
            // With CC.NEW, or without T/TCP, counts start again.
            self.cache.received = 0;
        }
        is_new
    }

    /// Records that the handshake of a passive open is complete, which proves that the SYN was not
    /// an old one.
    pub(super) fn note_accepted(&mut self) {
        if self.peer != 0 {
            self.cache.note_received(self.peer);
        }
    }

    /// Handles the answer to our SYN; returns false if it answers another one.
    pub(super) fn handle_answer(&mut self, counts: &CountOptions) -> bool {
        if self.own == 0 {
            return true;
        }
        if counts.echo != 0 && counts.echo != self.own {
            return false;
        }
        let knows = counts.cc != 0 && counts.echo == self.own;
        // §3.1: a peer without T/TCP answers without counts, and will not remember ours.
        self.cache.sent = if knows { self.own } else { 0 };
        true
    }

    /// Records the count of the peer's SYN.
    pub(super) fn take_syn(&mut self, now: Instant, counts: &CountOptions) {
        self.begin(now);
        if self.own != 0 {
            self.peer = if counts.cc == 0 { counts.new } else { counts.cc };
        }
    }

    /// Bytes that the count takes in every segment; 0 without T/TCP.
    pub(super) fn overhead(&self) -> u64 {
        if self.peer == 0 { 0 } else { COUNT_LEN }
    }
}

impl<P: SegmentPayload> Connection<P> {
    /// T/TCP's cache for this peer as the connection has changed it, to be kept by the owner.
    pub fn tao_cache(&self) -> TaoCache {
        self.transaction.cache
    }

    /// Sets T/TCP's cache for this peer, before a segment of the handshake is handled: other
    /// connections may have changed it since this one was created.
    pub fn set_tao_cache(&mut self, cache: TaoCache) {
        self.transaction.cache = cache;
    }

    /// Returns the duration of TIME-WAIT. RFC 1644 §2.4: a connection shorter than MSL needs only
    /// as long as the peer may take to resend its FIN, because its count protects later ones from
    /// its segments.
    pub(super) fn time_wait(&self, now: Instant) -> Duration {
        let full = self.config.time_wait;
        let age = self.transaction.begun.map(|begun| now.saturating_since(begun));
        if self.transaction.peer != 0 && age.is_some_and(|age| age < full / 2) {
            full.min(TRUNCATED * self.sender.rtt.rto())
        } else {
            full
        }
    }
}
