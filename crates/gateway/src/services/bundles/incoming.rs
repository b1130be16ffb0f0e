//! A bundle being received into the store.

use std::io;
use std::sync::Arc;

use bundles::transfer::{BundleDigest, digest};
use bundles::{
    BundleId, BundleOrigin, BundleRecord, BundleRefusal, BundleSummary, IncomingTicket,
    OfferDecision, ReportedEvent, read,
};

use super::node::BundleNode;
use super::store::PartialId;
use crate::process::clock;

/// A bundle being received. Dropping it abandons the transfer; the bytes so far may be kept for the
/// next try.
pub(super) struct IncomingBundle {
    node: Arc<BundleNode>,
    ticket: IncomingTicket,
    spool: PartialId,
    /// Set once the transfer is completed or abandoned.
    ended: bool,
}

/// Outcome of a received bundle.
pub(super) enum StoreOutcome {
    /// On the disk from now on.
    Stored(BundleId),
    /// Was on the disk before.
    AlreadyStored(BundleId),
}

impl BundleNode {
    /// Begins to receive a bundle of at most `length` bytes. `known` has its identity and digest,
    /// if a sender may resume it; `resumed` says that this one wants to. Returns the number of
    /// bytes that are here already.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn begin(
        self: &Arc<Self>,
        from: BundleOrigin,
        known: Option<(BundleId, BundleDigest)>,
        length: u64,
        resumed: bool,
    ) -> Result<OfferDecision<(IncomingBundle, u64)>, BundleRefusal> {
        let begun = self.agent().begin(from, known.map(|(id, _)| id), length);
        let ticket = match begun {
            Ok(OfferDecision::Take(ticket)) => ticket,
            Ok(OfferDecision::Duplicate) => return Ok(OfferDecision::Duplicate),
            Err(why) => {
                self.refused(&self.name(from), why);
                return Err(why);
            }
        };
        // Only under its digest can a later try find the bytes again.
        let spool = match known {
            Some((_, digest)) => PartialId::Digest(digest),
            None => PartialId::New(self.next_number()),
        };
        let incoming = IncomingBundle { node: self.clone(), ticket, spool, ended: false };
        let begun = self.store.run(move |store| store.begin(spool, resumed)).await;
        let offset = begun.map_err(|error| self.report_disk_error("take a bundle", &error))?;
        Ok(OfferDecision::Take((incoming, offset)))
    }

    /// The node's name for the log.
    pub(super) fn name(&self, origin: BundleOrigin) -> String {
        match origin {
            BundleOrigin::Here => "this machine".to_owned(),
            BundleOrigin::Peer(peer) => {
                let known = self.config.agent.peers.get(peer.0);
                known.map_or_else(|| "nobody".to_owned(), |peer| peer.node.to_string())
            }
        }
    }

    fn report_disk_error(&self, what: &str, error: &io::Error) -> BundleRefusal {
        self.warnings.disk(what, error);
        BundleRefusal::Disk
    }
}

impl IncomingBundle {
    /// Appends received bytes.
    ///
    /// # Errors
    /// The disk has failed.
    pub(super) async fn append(&mut self, bytes: Vec<u8>) -> Result<(), BundleRefusal> {
        let spool = self.spool;
        let added = self.node.store.run(move |store| store.append(spool, &bytes)).await;
        added.map_err(|error| {
            // Release the ticket and the file: the transfer cannot go on.
            self.end(false);
            self.node.report_disk_error("take a bundle", &error)
        })
    }

    /// Stores a bundle that has been received completely. Once begun, this is completed even if the
    /// future is dropped.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn finish(self, from: BundleOrigin) -> Result<StoreOutcome, BundleRefusal> {
        self.complete(from, |bytes| CompleteBundle { bytes, is_received: true }).await
    }

    /// As [`Self::finish`], with a bundle made of the received bytes.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn finish_as(
        self,
        make: impl FnOnce(Vec<u8>) -> Vec<u8> + Send + 'static,
    ) -> Result<StoreOutcome, BundleRefusal> {
        let make = |bytes| CompleteBundle { bytes: make(bytes), is_received: false };
        self.complete(BundleOrigin::Here, make).await
    }

    async fn complete(
        self,
        from: BundleOrigin,
        make: impl FnOnce(Vec<u8>) -> CompleteBundle + Send + 'static,
    ) -> Result<StoreOutcome, BundleRefusal> {
        // A task of its own: it must be completed even if the caller is gone.
        let work = tokio::spawn(async move {
            let name = self.node.name(from);
            let node = self.node.clone();
            let outcome = self.store(from, make).await;
            outcome.as_ref().err().into_iter().for_each(|why| node.refused(&name, *why));
            node.notify();
            outcome
        });
        work.await.unwrap_or(Err(BundleRefusal::Disk))
    }

    async fn store(
        mut self,
        from: BundleOrigin,
        make: impl FnOnce(Vec<u8>) -> CompleteBundle + Send + 'static,
    ) -> Result<StoreOutcome, BundleRefusal> {
        let (summary, other) = match self.parse(make).await {
            Ok(parsed) => parsed,
            Err(why) => {
                // The same bytes would fail again.
                self.end(false);
                return Err(why);
            }
        };
        let offered = self.node.agent().offer(self.ticket, clock::unix_millis(), &summary);
        match offered {
            Ok(OfferDecision::Take(record)) => {
                let node = self.node.clone();
                let kept = self.keep(record, other).await;
                // A bundle that was made here has not been received (RFC 9171 §5.6).
                if kept.is_ok() && from != BundleOrigin::Here {
                    node.send_report(&summary, ReportedEvent::Received);
                }
                kept
            }
            Ok(OfferDecision::Duplicate) => {
                self.end(false);
                Ok(StoreOutcome::AlreadyStored(summary.id))
            }
            Err(why) => {
                // After a passing refusal the sender tries again.
                self.end(why.is_passing());
                Err(why)
            }
        }
    }

    /// Parses the bundle made of the received bytes.
    async fn parse(
        &self,
        make: impl FnOnce(Vec<u8>) -> CompleteBundle + Send + 'static,
    ) -> Result<ParsedBundle, BundleRefusal> {
        let spool = self.spool;
        // Reading and checking a large bundle takes long: the store's thread does it.
        let parsed = self.node.store.run(move |store| {
            let bytes = store.whole(spool)?;
            Ok(verify_digest(spool, &bytes).and_then(|()| parse_bundle(make(bytes))))
        });
        let failed = |error: io::Error| self.node.report_disk_error("read a bundle", &error);
        parsed.await.map_err(failed)?
    }

    async fn keep(
        mut self,
        record: BundleRecord,
        other: Option<Vec<u8>>,
    ) -> Result<StoreOutcome, BundleRefusal> {
        let spool = self.spool;
        let kept = record.clone();
        let id = record.id;
        let stored = self.node.store.run(move |store| store.keep(spool, &kept, other.as_deref()));
        if let Err(error) = stored.await {
            self.end(false);
            return Err(self.node.report_disk_error("store a bundle", &error));
        }
        self.ended = true;
        self.node.agent().stored(self.ticket, record);
        Ok(StoreOutcome::Stored(id))
    }

    /// Abandons the transfer once; `useful` keeps the received bytes for the next try.
    fn end(&mut self, useful: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.node.agent().abandon(self.ticket);
        let spool = self.spool;
        // Not awaited, since `drop` cannot wait.
        self.node.store.submit(move |store| store.abandon(spool, useful));
    }
}

impl Drop for IncomingBundle {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// Compares bytes with the digest under which they were announced.
fn verify_digest(spool: PartialId, bytes: &[u8]) -> Result<(), BundleRefusal> {
    match spool {
        PartialId::Digest(expected) if digest(bytes) != expected => Err(BundleRefusal::Damaged),
        _ => Ok(()),
    }
}

/// The bytes of a whole bundle.
struct CompleteBundle {
    bytes: Vec<u8>,
    /// The bytes are those received, which are on the disk.
    is_received: bool,
}

/// A bundle's summary, and the bytes to store if they differ from those received.
type ParsedBundle = (BundleSummary, Option<Vec<u8>>);

fn parse_bundle(complete: CompleteBundle) -> Result<ParsedBundle, BundleRefusal> {
    let CompleteBundle { bytes, is_received } = complete;
    let (summary, other) = read(&bytes).map_err(|error| {
        tracing::debug!("bundles: {error}");
        BundleRefusal::Malformed
    })?;
    let other = other.or_else(|| (!is_received).then_some(bytes));
    Ok((summary, other))
}
