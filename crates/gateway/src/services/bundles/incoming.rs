//! A bundle on its way into the store.

use std::io;
use std::sync::Arc;

use bundles::transfer::{Digest, digest};
use bundles::{BundleId, Decision, Happening, Origin, Record, Refusal, Summary, Ticket, read};

use super::node::Node;
use super::store::Spool;
use crate::clock;

/// A bundle that is coming in. Dropping it ends that; what has come may be kept for the next try.
pub(super) struct Incoming {
    node: Arc<Node>,
    ticket: Ticket,
    spool: Spool,
    /// Whether somebody else has the rest of the work.
    over: bool,
}

/// What became of a bundle.
pub(super) enum Outcome {
    /// It is on the disk.
    Stored(BundleId),
    /// It was before.
    Had(BundleId),
}

impl Node {
    /// Takes a bundle of at most `length` bytes in. `known` has its identity and its digest, if somebody
    /// may resume it; `resumed` whether that is wanted. Returns how many bytes are here already.
    ///
    /// # Errors
    /// Why it is not taken.
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

    /// A node's name in the log.
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
    /// Adds bytes.
    ///
    /// # Errors
    /// If the disk does not take them.
    pub(super) async fn append(&mut self, bytes: Vec<u8>) -> Result<(), Refusal> {
        let spool = self.spool;
        let added = self.node.store.run(move |store| store.append(spool, &bytes)).await;
        added.map_err(|error| {
            // It must not be in the way of others.
            self.end(false);
            self.node.disk("take a bundle", &error)
        })
    }

    /// All has come: the bundle is stored, if it is wanted. What has begun is completed even if nobody
    /// waits for it.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) async fn finish(self, from: Origin) -> Result<Outcome, Refusal> {
        self.complete(from, |bytes| Ok((bytes, true))).await
    }

    /// As [`Self::finish`], with a bundle that is made of what has come.
    ///
    /// # Errors
    /// Why it is not taken.
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
        // Reading and checking takes a while, which the store's thread has.
        let whole = self.node.store.run(move |store| {
            let bytes = store.whole(spool)?;
            Ok(checked(spool, &bytes).and_then(|()| make(bytes)).and_then(parsed))
        });
        let parsed = whole.await.map_err(|error| self.node.disk("read a bundle", &error));
        let (summary, other) = match parsed.and_then(|parsed| parsed) {
            Ok(parsed) => parsed,
            Err(why) => {
                // The same bytes are as bad next time.
                self.end(false);
                return Err(why);
            }
        };
        let offered = self.node.agent().offer(self.ticket, clock::unix_millis(), &summary);
        match offered {
            Ok(Decision::Take(record)) => {
                let node = self.node.clone();
                let kept = self.keep(record, other).await;
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

    /// Ends it; what has come is `useful` for the next try, or not.
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

/// Whether bytes are those of the digest that they came under.
fn checked(spool: Spool, bytes: &[u8]) -> Result<(), Refusal> {
    match spool {
        Spool::Digest(expected) if digest(bytes) != expected => Err(Refusal::Damaged),
        _ => Ok(()),
    }
}

type Parsed = (Summary, Option<Vec<u8>>);

/// Reads a bundle; the second is what to store if it is not what has `come`.
fn parsed((bytes, come): (Vec<u8>, bool)) -> Result<Parsed, Refusal> {
    let (summary, other) = read(&bytes).map_err(|error| {
        tracing::debug!("bundles: {error}");
        Refusal::Malformed
    })?;
    let other = other.or_else(|| (!come).then_some(bytes));
    Ok((summary, other))
}
