//! Bundles that programs on this machine send and receive, over the control socket.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bundles::{
    BundleEndpoint, BundleFate, BundleId, BundleOrigin, BundlePurpose, BundleRecord, BundleState,
    FileName, NewBundle, OfferDecision, read,
};
use control::protocol::{
    BundleAnswer, BundleOffer, BundleRequest, ControlAnswer, from_base64, to_base64,
};
use control::status::BundleStatus;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use units::Instant;

use super::incoming::{IncomingBundle, StoreOutcome};
use super::node::{BundleNode, random};
use crate::process::clock;

/// Upper bound of what a bundle's blocks add to its payload, in bytes.
const MAX_OVERHEAD: u64 = 2_000;
/// Limit of uploads, and of downloads, in progress.
const MAX_TRANSFERS: usize = 16;
/// A program that is silent for this long counts as gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the disk to note that a bundle is gone. A client waits for 10 s.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(8);
/// Most payload bytes in one answer.
const MAX_PIECE: u64 = 256 << 10;
/// The source service of bundles from programs: for nodes of the scheme `ipn`, and of `dtn`.
const SENDERS: [&str; 2] = ["1", "outbox"];

/// A bundle that a program is sending piece by piece.
struct PendingUpload {
    incoming: IncomingBundle,
    offer: BundleOffer,
    destination: BundleEndpoint,
    name: Option<FileName>,
    received: u64,
    last_used: Instant,
    _permit: OwnedSemaphorePermit,
}

/// A bundle that a program is receiving piece by piece.
struct PendingDownload {
    payload: Range<usize>,
    last_used: Instant,
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct TransferTable {
    uploads: BTreeMap<u64, PendingUpload>,
    downloads: BTreeMap<BundleId, PendingDownload>,
}

/// Answers the bundle requests of programs.
#[derive(Clone)]
pub(super) struct BundleRequests {
    node: Arc<BundleNode>,
    state: Arc<Mutex<TransferTable>>,
    /// Permits for uploads, and for downloads. A transfer has its permit before it waits for the
    /// disk, so that requests at the same time do not exceed the limit.
    upload_permits: Arc<Semaphore>,
    download_permits: Arc<Semaphore>,
}

impl BundleRequests {
    pub(super) fn new(node: Arc<BundleNode>) -> Self {
        let [upload_permits, download_permits] =
            [(); 2].map(|()| Arc::new(Semaphore::new(MAX_TRANSFERS)));
        Self { node, state: Arc::default(), upload_permits, download_permits }
    }

    fn state(&self) -> MutexGuard<'_, TransferTable> {
        self.state.lock().expect("nobody panics while holding the transfers")
    }

    /// Ends transfers whose programs are gone. Their bundles are offered again.
    fn expire_transfers(&self) {
        let now = clock::now();
        let mut state = self.state();
        let live = |used: Instant| now.saturating_since(used) < IDLE_TIMEOUT;
        state.uploads.retain(|_, upload| live(upload.last_used));
        let gone: Vec<BundleId> = state
            .downloads
            .iter()
            .filter(|(_, download)| !live(download.last_used))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            state.downloads.remove(&id);
            // Fails only if the bundle is not being delivered.
            let _ = self.node.agent().handle_not_delivered(&id);
        }
    }

    /// Answers a program's request.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn answer(&self, request: BundleRequest) -> Result<ControlAnswer, String> {
        self.expire_transfers();
        let asked = match request {
            BundleRequest::Offer(offer) => self.offer(offer).await?,
            BundleRequest::Data { handle, base64 } => self.data(handle, &base64).await?,
            BundleRequest::End { handle } => self.end(handle).await?,
            BundleRequest::List => {
                let agent = self.node.agent();
                let now = clock::unix_millis();
                let rows = agent.list().map(|(record, state)| status(record, state, now));
                BundleAnswer::List(rows.collect())
            }
            BundleRequest::State { id } => {
                let id = BundleId::from_hex(&id).ok_or("an identity has 32 hexadecimal digits")?;
                let known = self.node.agent().whereabouts(&id);
                BundleAnswer::State(known.map(|at| state_name(at).to_owned()))
            }
            BundleRequest::Next { service } => self.next(&service).await?,
            BundleRequest::Read { id, offset } => self.read(&id, offset).await?,
            BundleRequest::Taken { id, taken } => self.taken(&id, taken).await?,
        };
        Ok(ControlAnswer::Bundle(Box::new(asked)))
    }

    async fn offer(&self, offer: BundleOffer) -> Result<BundleAnswer, String> {
        let destination: BundleEndpoint = offer
            .destination
            .parse()
            .map_err(|error| format!("destination {:?}: {error}", offer.destination))?;
        let name = offer.name.as_deref().map(|name| {
            FileName::new(name).ok_or_else(|| format!("{name:?} is no portable file name"))
        });
        let name = name.transpose()?;
        let permit = Arc::clone(&self.upload_permits)
            .try_acquire_owned()
            .map_err(|_| "too many bundles are being sent by programs")?;
        // The offer has the payload's length only; the blocks around it are made at the end.
        let length = offer.length.saturating_add(MAX_OVERHEAD);
        let begun = self.node.begin(BundleOrigin::Here, None, length, false).await;
        let OfferDecision::Take((incoming, _)) = begun.map_err(|why| why.to_string())? else {
            return Err("the gateway has this bundle already".to_owned());
        };
        let handle = random();
        let upload = PendingUpload {
            incoming,
            offer,
            destination,
            name,
            received: 0,
            last_used: clock::now(),
            _permit: permit,
        };
        self.state().uploads.insert(handle, upload);
        Ok(BundleAnswer::Handle(handle))
    }

    fn take_upload(&self, handle: u64) -> Result<PendingUpload, String> {
        let upload = self.state().uploads.remove(&handle);
        upload.ok_or_else(|| "no such upload: it may have been idle too long".to_owned())
    }

    async fn data(&self, handle: u64, base64: &str) -> Result<BundleAnswer, String> {
        // Taken out of the table, so that an error ends the upload.
        let mut upload = self.take_upload(handle)?;
        let bytes = from_base64(base64).map_err(|error| error.to_string())?;
        upload.received += bytes.len() as u64;
        if upload.received > upload.offer.length {
            return Err("the payload is longer than announced".to_owned());
        }
        upload.incoming.append(bytes).await.map_err(|why| why.to_string())?;
        upload.last_used = clock::now();
        self.state().uploads.insert(handle, upload);
        Ok(BundleAnswer::Handle(handle))
    }

    async fn end(&self, handle: u64) -> Result<BundleAnswer, String> {
        let PendingUpload { incoming, offer, destination, name, received, .. } =
            self.take_upload(handle)?;
        if received != offer.length {
            return Err("the payload is shorter than announced".to_owned());
        }
        let node = &self.node.config.agent.node;
        let [number, text] = SENDERS;
        let service = if node.numbers_services() { number } else { text };
        let source = node.service(service).map_err(|error| error.to_string())?;
        // With the same time and number, a repeated upload is a duplicate, not a second bundle.
        let (created, sequence) = offer.made.unwrap_or_else(|| (clock::unix_millis(), random()));
        let lifetime = Duration::from_secs(offer.lifetime_s);
        let purpose = if offer.report { BundlePurpose::Reported } else { BundlePurpose::Data };
        let make = move |payload: Vec<u8>| {
            let bundle = NewBundle {
                source: &source,
                destination: &destination,
                created,
                sequence,
                lifetime,
                file_name: name.as_ref(),
                purpose,
                payload: &payload,
            };
            bundle.encode()
        };
        match incoming.finish_as(make).await {
            Ok(StoreOutcome::Stored(id) | StoreOutcome::AlreadyStored(id)) => {
                Ok(BundleAnswer::Stored(id.to_string()))
            }
            Err(why) => Err(why.to_string()),
        }
    }

    async fn next(&self, service: &str) -> Result<BundleAnswer, String> {
        let permit = Arc::clone(&self.download_permits)
            .try_acquire_owned()
            .map_err(|_| "too many bundles are being received")?;
        let arrived = self.node.agent().take_arrived(Some(service));
        let Some(record) = arrived else { return Ok(BundleAnswer::Next(None)) };
        let id = record.id;
        let summary = self.node.store.run(move |store| {
            let bytes = store.read(&id)?;
            read(&bytes).map(|(summary, _)| summary).map_err(std::io::Error::other)
        });
        let summary = match summary.await {
            Ok(summary) => summary,
            Err(error) => {
                // Fails only if the bundle is not being delivered.
                let _ = self.node.agent().handle_not_delivered(&id);
                return Err(error.to_string());
            }
        };
        let now = clock::unix_millis();
        let length = summary.payload.len() as u64;
        let download =
            PendingDownload { payload: summary.payload, last_used: clock::now(), _permit: permit };
        self.state().downloads.insert(id, download);
        let status = status(&record, BundleState::Arrived, now);
        let file_name = summary.file_name.map(|name| name.to_string());
        Ok(BundleAnswer::Next(Some((status, file_name, length))))
    }

    async fn read(&self, id: &str, offset: u64) -> Result<BundleAnswer, String> {
        const NONE: &str = "no such bundle is being received";
        let id = BundleId::from_hex(id).ok_or(NONE)?;
        let payload = {
            let mut state = self.state();
            let download = state.downloads.get_mut(&id).ok_or(NONE)?;
            download.last_used = clock::now();
            download.payload.clone()
        };
        // An offset beyond the payload reads nothing.
        let begin = (payload.start as u64).saturating_add(offset).min(payload.end as u64);
        let length = (payload.end as u64 - begin).min(MAX_PIECE);
        let bytes = self.node.store.run(move |store| store.read_part(&id, begin, length)).await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        Ok(BundleAnswer::Data(to_base64(&bytes)))
    }

    /// Completes a download. A bundle that was `taken` is confirmed once the disk has noted it, so
    /// that it is not offered again after a power cut.
    async fn taken(&self, id: &str, taken: bool) -> Result<BundleAnswer, String> {
        const NONE: &str = "no such bundle is being received";
        let id = BundleId::from_hex(id).ok_or(NONE)?;
        self.state().downloads.remove(&id).ok_or(NONE)?;
        let done = {
            let mut agent = self.node.agent();
            if taken { agent.handle_delivered(&id) } else { agent.handle_not_delivered(&id) }
        };
        self.node.notify();
        done.map_err(|error| error.to_string())?;
        if taken && timeout(REMOVAL_TIMEOUT, self.node.until_gone(&id)).await.is_err() {
            return Err("the disk is slow to confirm: the bundle may be offered again".to_owned());
        }
        Ok(BundleAnswer::Stored(id.to_string()))
    }
}

fn state_name(at: BundleState) -> &'static str {
    match at {
        BundleState::Waiting => "waiting",
        BundleState::Arrived => "arrived",
        BundleState::Gone(BundleFate::Forwarded) => "forwarded",
        BundleState::Gone(BundleFate::Delivered) => "delivered",
        BundleState::Gone(BundleFate::Expired) => "expired",
    }
}

fn status(record: &BundleRecord, at: BundleState, now: u64) -> BundleStatus {
    BundleStatus {
        id: record.id.to_string(),
        source: record.source.to_string(),
        destination: record.destination.to_string(),
        bytes: record.length,
        age_s: now.saturating_sub(record.arrived) as f64 / 1000.0,
        expires_s: record.expires.saturating_sub(now) as f64 / 1000.0,
        state: state_name(at).to_owned(),
    }
}
