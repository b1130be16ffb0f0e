//! Transfer of bundles over streams of the hop (`docs/slacp.md`, Bundles).

use std::future::{pending, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bundles::transfer::{
    ReceivedPiece, TransferAnnouncement, TransferError, TransferReception, TransferReplies,
    TransferReply, digest, explain,
};
use bundles::{BundleOrigin, BundleRefusal, OfferDecision, PeerId, ReturnReason};
use slacp::{Destination, ReadOutcome, ResetReason, SessionId, StreamOpening};
use tokio::time::timeout;

use super::incoming::{IncomingBundle, StoreOutcome};
use super::node::{BundleNode, OutgoingTransfer};
use crate::hop::{Hop, SessionStream};
use crate::process::clock;

/// Time limit for a peer's next step. A session survives fades of up to 15 minutes.
const STEP_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Size of a read, in bytes.
const READ_SIZE: usize = 64 << 10;

/// Sends a bundle over a session with `peer`.
///
/// # Errors
/// The reason for which the bundle stays here.
pub(super) async fn send(
    node: &BundleNode,
    peer: PeerId,
    hop: &Hop,
    session: SessionId,
    outgoing: OutgoingTransfer,
) -> Result<(), ReturnReason> {
    let OutgoingTransfer { id, asks, bytes } = outgoing;
    // Hashing a large bundle takes tens of milliseconds: on the store's thread it delays no
    // connection.
    let digested = node.store.run(move |_| Ok((digest(&bytes), bytes)));
    let (digest, bytes) = digested.await.map_err(|_| ReturnReason::Lost)?;
    let source = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let open = StreamOpening { destination: Destination::Bundles, source, dscp: None };
    // Each bundle has a stream of its own. Without `asks`, its data leaves with the opening.
    let stream = hop.open(clock::now(), session, open).map_err(|_| ReturnReason::Lost)?;
    let announced = TransferAnnouncement { id, digest, length: bytes.len() as u64, asks };
    match transfer(&stream, announced, &bytes).await {
        Ok(TransferReply::Stored) => Ok(()),
        Ok(TransferReply::Refused(code)) => {
            node.warnings.unwanted(&node.name(BundleOrigin::Peer(peer)), &explain(code));
            let passing = TransferReply::is_passing(code);
            Err(if passing { ReturnReason::NoRoom } else { ReturnReason::Unwanted })
        }
        Ok(TransferReply::From(_)) | Err(_) => Err(ReturnReason::Lost),
    }
}

async fn transfer(
    stream: &SessionStream,
    announced: TransferAnnouncement,
    bytes: &[u8],
) -> Result<TransferReply, ResetReason> {
    let mut answers = ReplyReader { stream, replies: TransferReplies::default(), read: Vec::new() };
    write(stream, &announced.encode()).await?;
    let mut offset = 0;
    if announced.asks {
        match answers.next().await? {
            TransferReply::From(from) => offset = from,
            last => return Ok(last),
        }
    }
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let rest = rest.ok_or(ResetReason::Prohibited)?;
    let written = async {
        if write(stream, rest).await.is_ok() {
            // A reset also ends the wait for the reply.
            let _ = poll_fn(|context| stream.poll_finish(context)).await;
        }
        // The reply decides: sending has ended, or the peer refuses the rest.
        pending::<()>().await;
    };
    tokio::select! {
        reply = answers.next() => reply,
        () = written => unreachable!("it never ends"),
    }
}

/// Reads the receiver's replies on a stream.
struct ReplyReader<'a> {
    stream: &'a SessionStream,
    replies: TransferReplies,
    read: Vec<u8>,
}

impl ReplyReader<'_> {
    async fn next(&mut self) -> Result<TransferReply, ResetReason> {
        loop {
            // A read may end within a reply: the rest of the bytes is kept for the next one.
            let mut input = &self.read[..];
            let reply = self.replies.handle(&mut input).map_err(prohibited)?;
            self.read = input.to_vec();
            if let Some(reply) = reply {
                return Ok(reply);
            }
            let mut buffer = [0; 64];
            let count = read(self.stream, &mut buffer).await?.ok_or(ResetReason::Reset)?;
            self.read.extend_from_slice(&buffer[..count]);
        }
    }
}

/// Reads available bytes; [`None`] at the end of the stream.
async fn read(stream: &SessionStream, buffer: &mut [u8]) -> Result<Option<usize>, ResetReason> {
    let read = timeout(STEP_TIMEOUT, poll_fn(|context| stream.poll_read(context, buffer))).await;
    match read.map_err(|_| ResetReason::TimedOut)?? {
        ReadOutcome::Data(count) => Ok(Some(count)),
        ReadOutcome::End | ReadOutcome::Blocked => Ok(None),
    }
}

async fn write(stream: &SessionStream, bytes: &[u8]) -> Result<(), ResetReason> {
    let mut left = bytes;
    while !left.is_empty() {
        let taken = poll_fn(|context| stream.poll_write(context, left)).await?;
        left = &left[taken..];
    }
    Ok(())
}

/// Receives the bundle that a peer's stream carries.
pub(super) async fn receive(node: Arc<BundleNode>, peer: PeerId, stream: SessionStream) {
    // The opener does not wait for this.
    let _ = stream.accept();
    let from = BundleOrigin::Peer(peer);
    let reception = TransferReception::default();
    let answered =
        BundleReceiver { node, from, stream: &stream, reception, incoming: None }.run().await;
    match answered {
        // Read to the end, so that both directions end in order.
        Ok(()) => drain(&stream).await,
        Err(reason) => stream.reset(reason),
    }
}

/// Receives one bundle on a stream.
struct BundleReceiver<'a> {
    node: Arc<BundleNode>,
    from: BundleOrigin,
    stream: &'a SessionStream,
    reception: TransferReception,
    incoming: Option<IncomingBundle>,
}

impl BundleReceiver<'_> {
    /// Runs the transfer to its last reply.
    ///
    /// # Errors
    /// The reason of the peer's reset, or of ours.
    async fn run(mut self) -> Result<(), ResetReason> {
        let mut buffer = vec![0; READ_SIZE];
        let reply = loop {
            let read = read(self.stream, &mut buffer).await?;
            let count = read.ok_or(ResetReason::Reset)?;
            if let Some(last) = self.handle(&buffer[..count]).await? {
                break last;
            }
            if self.reception.is_whole()
                && let Some(incoming) = self.incoming.take()
            {
                break match incoming.finish(self.from).await {
                    Ok(StoreOutcome::Stored(_) | StoreOutcome::AlreadyStored(_)) => {
                        TransferReply::Stored
                    }
                    Err(why) => TransferReply::refusal(why),
                };
            }
        };
        write(self.stream, &reply.encode()).await?;
        poll_fn(|context| self.stream.poll_finish(context)).await
    }

    /// Handles received bytes. Returns the last reply once the outcome is known.
    async fn handle(&mut self, mut input: &[u8]) -> Result<Option<TransferReply>, ResetReason> {
        while let Some(received) = self.reception.handle(&mut input).map_err(prohibited)? {
            let last = match received {
                ReceivedPiece::Announced(announced) => self.begin(announced).await?,
                ReceivedPiece::Data(data) => match &mut self.incoming {
                    Some(incoming) => {
                        incoming.append(data.to_vec()).await.err().map(TransferReply::refusal)
                    }
                    None => None,
                },
            };
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// Decides on an announced bundle. Returns the last reply if the bundle is not to be sent.
    async fn begin(
        &mut self,
        announced: TransferAnnouncement,
    ) -> Result<Option<TransferReply>, ResetReason> {
        let TransferAnnouncement { id, digest, length, asks } = announced;
        let known = Some((id, digest));
        let mut begun = self.node.begin(self.from, known, length, asks).await;
        if matches!(&begun, Ok(OfferDecision::Take((_, offset))) if *offset > length) {
            // The partial file does not hold these bytes; starting anew empties it.
            begun = Err(BundleRefusal::Damaged);
            let anew = self.node.begin(self.from, known, length, false).await;
            if matches!(anew, Ok(OfferDecision::Take(_))) {
                begun = anew;
            }
        }
        match begun {
            Ok(OfferDecision::Take((incoming, offset))) => {
                self.incoming = Some(incoming);
                self.reception.start(offset);
                if asks {
                    write(self.stream, &TransferReply::From(offset).encode()).await?;
                }
                Ok(None)
            }
            // A duplicate is acknowledged, or its sender would send it again.
            Ok(OfferDecision::Duplicate) => Ok(Some(TransferReply::Stored)),
            Err(why) => Ok(Some(TransferReply::refusal(why))),
        }
    }
}

/// Logs an invalid transfer, and returns the reason for a reset.
fn prohibited(error: TransferError) -> ResetReason {
    tracing::debug!("bundles: {error}");
    ResetReason::Prohibited
}

/// Reads until the opener has seen the reply and ended the stream.
async fn drain(stream: &SessionStream) {
    let mut buffer = vec![0; READ_SIZE];
    while let Ok(Some(_)) = read(stream, &mut buffer).await {}
}
