//! A bundle being received into the store.

use std::io;
use std::sync::Arc;

use bundles::transfer::{Digest, digest};
use bundles::{BundleId, Decision, Happening, Origin, Record, Refusal, Summary, Ticket, read};

use super::node::Node;
use super::store::Spool;
use crate::clock;

/// A bundle being received. Dropping it abandons the transfer; the bytes so far may be kept for the
/// next try.
pub(super) struct Incoming {
    node: Arc<Node>,
    ticket: Ticket,
    spool: Spool,
    /// Set once the transfer is completed or abandoned.
    over: bool,
}

/// Outcome of a received bundle.
pub(super) enum Outcome {
    /// Now on the disk.
    Stored(BundleId),
    /// Was on the disk before.
    Had(BundleId),
}

impl Node {
    /// Begins to receive a bundle of at most `length` bytes. `known` has its identity and digest,
    /// if a sender may resume it; `resumed` says that this one wants to. Returns the number of
    /// bytes that are here already.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn begin(
        self: &Arc<Self>,
        from: Origin,
        known: Option<(BundleId, Digest)>,
        length: u64,
        resumed: bool,
    ) -> Result<Decision<(Incoming, u64)>, Refusal> {
        let begun = self.agent().begin(from, known.map(|(id, _)| id), length);
        let ticket = match begun {
            Ok(Decision::Take(ticket)) => ticket,
            Ok(Decision::Have) => return Ok(Decision::Have),
            Err(why) => {
                self.refused(&self.name(from), why);
                return Err(why);
            }
        };
        let spool = known.map_or_else(|| Spool::New(self.number()), |(_, it)| Spool::Digest(it));
        let incoming = Incoming { node: self.clone(), ticket, spool, over: false };
        let begun = self.store.run(move |store| store.begin(spool, resumed)).await;
        let offset = begun.map_err(|error| self.disk("take a bundle", &error))?;
        Ok(Decision::Take((incoming, offset)))
    }

    /// The node's name for the log.
    pub(super) fn name(&self, origin: Origin) -> String {
        match origin {
            Origin::Here => "this machine".to_owned(),
            Origin::Peer(peer) => {
                let known = self.config.agent.peers.get(peer.0);
                known.map_or_else(|| "nobody".to_owned(), |peer| peer.node.to_string())
            }
        }
    }

    fn disk(&self, what: &str, error: &io::Error) -> Refusal {
        self.warnings.disk(what, error);
        Refusal::Disk
    }
}

impl Incoming {
    /// Appends received bytes.
    ///
    /// # Errors
    /// The disk has failed.
    pub(super) async fn append(&mut self, bytes: Vec<u8>) -> Result<(), Refusal> {
        let spool = self.spool;
        let added = self.node.store.run(move |store| store.append(spool, &bytes)).await;
        added.map_err(|error| {
            // Release the ticket and the file: the transfer cannot go on.
            self.end(false);
            self.node.disk("take a bundle", &error)
        })
    }

    /// Stores a bundle that has been received completely. Once begun, this is completed even if the
    /// future is dropped.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn finish(self, from: Origin) -> Result<Outcome, Refusal> {
        self.complete(from, |bytes| Ok((bytes, true))).await
    }

    /// As [`Self::finish`], with a bundle made of the received bytes.
    ///
    /// # Errors
    /// The reason for which the bundle is refused.
    pub(super) async fn finish_as(
        self,
        make: impl FnOnce(Vec<u8>) -> Vec<u8> + Send + 'static,
    ) -> Result<Outcome, Refusal> {
        self.complete(Origin::Here, |bytes| Ok((make(bytes), false))).await
    }

    async fn complete(
        self,
        from: Origin,
        make: impl FnOnce(Vec<u8>) -> Result<(Vec<u8>, bool), Refusal> + Send + 'static,
    ) -> Result<Outcome, Refusal> {
        // A task of its own: it must be completed even if the caller is gone.
        let work = tokio::spawn(async move {
            let name = self.node.name(from);
            let node = self.node.clone();
            let outcome = self.store(from, make).await;
            outcome.as_ref().err().into_iter().for_each(|why| node.refused(&name, *why));
            node.notify();
            outcome
        });
        work.await.unwrap_or(Err(Refusal::Disk))
    }

    async fn store(
        mut self,
        from: Origin,
        make: impl FnOnce(Vec<u8>) -> Result<(Vec<u8>, bool), Refusal> + Send + 'static,
    ) -> Result<Outcome, Refusal> {
        let spool = self.spool;
        // Reading and checking a large bundle takes long: the store's thread does it.
        let whole = self.node.store.run(move |store| {
            let bytes = store.whole(spool)?;
            Ok(checked(spool, &bytes).and_then(|()| make(bytes)).and_then(parsed))
        });
        let parsed = whole.await.map_err(|error| self.node.disk("read a bundle", &error));
        let (summary, other) = match parsed.and_then(|parsed| parsed) {
            Ok(parsed) => parsed,
            Err(why) => {
                // The same bytes would fail again.
                self.end(false);
                return Err(why);
            }
        };
        let offered = self.node.agent().offer(self.ticket, clock::unix_millis(), &summary);
        match offered {
            Ok(Decision::Take(record)) => {
                let node = self.node.clone();
                let kept = self.keep(record, other).await;
                // A bundle that was made here has not been received (RFC 9171 §5.6).
                if kept.is_ok() && from != Origin::Here {
                    node.tell(&summary, Happening::Received);
                }
                kept
            }
            Ok(Decision::Have) => {
                self.end(false);
                Ok(Outcome::Had(summary.id))
            }
            Err(why) => {
                // After a passing refusal the sender tries again.
                self.end(why.is_passing());
                Err(why)
            }
        }
    }

    async fn keep(mut self, record: Record, other: Option<Vec<u8>>) -> Result<Outcome, Refusal> {
        let (spool, kept, id) = (self.spool, record.clone(), record.id);
        let stored = self.node.store.run(move |store| store.keep(spool, &kept, other.as_deref()));
        if let Err(error) = stored.await {
            self.end(false);
            return Err(self.node.disk("store a bundle", &error));
        }
        self.over = true;
        self.node.agent().stored(self.ticket, record);
        Ok(Outcome::Stored(id))
    }

    /// Abandons the transfer once; `useful` keeps the received bytes for the next try.
    fn end(&mut self, useful: bool) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.node.agent().abandon(self.ticket);
        let spool = self.spool;
        self.node.store.tell(move |store| store.abandon(spool, useful));
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// Compares bytes with the digest under which they were announced.
fn checked(spool: Spool, bytes: &[u8]) -> Result<(), Refusal> {
    match spool {
        Spool::Digest(expected) if digest(bytes) != expected => Err(Refusal::Damaged),
        _ => Ok(()),
    }
}

type Parsed = (Summary, Option<Vec<u8>>);

/// Parses a bundle. The second result is the bytes to store if they differ from those received;
/// `come` says that `bytes` are as received.
fn parsed((bytes, come): (Vec<u8>, bool)) -> Result<Parsed, Refusal> {
    let (summary, other) = read(&bytes).map_err(|error| {
        tracing::debug!("bundles: {error}");
        Refusal::Malformed
    })?;
    let other = other.or_else(|| (!come).then_some(bytes));
    Ok((summary, other))
}
