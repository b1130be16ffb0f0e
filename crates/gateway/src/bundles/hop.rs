//! Bundles on streams of the hop (`docs/slacp.md`, Bundles).

use std::future::{pending, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pep::bundles::transfer::{Announcement, Received, Reception, Replies, Reply, digest, explain};
use pep::bundles::{Decision, Origin, PeerId, Record, Refusal, Returned};
use slacp::{Destination, Open, Read, ResetReason, SessionId};
use tokio::time::timeout;

use super::incoming::{Incoming, Outcome};
use super::node::Node;
use crate::clock;
use crate::hop::{Hop, Stream};

/// How long a peer may take for a step. A session survives fades of up to 15 minutes.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// Sends a bundle over a session.
///
/// # Errors
/// Why it comes back.
pub(super) async fn send(
    node: &Node,
    (peer, hop, session): (PeerId, &Hop, SessionId),
    record: &Record,
    bytes: &[u8],
) -> Result<(), Returned> {
    let source = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let open = Open { destination: Destination::Bundles, source, dscp: None };
    let stream = hop.open(clock::now(), session, open).map_err(|_| Returned::Lost)?;
    let announced = Announcement {
        id: record.id,
        digest: digest(bytes),
        length: bytes.len() as u64,
        asks: node.was_tried(record),
    };
    match transfer(&stream, announced, bytes).await {
        Ok(Reply::Stored) => Ok(()),
        Ok(Reply::Refused(code)) => {
            node.warnings.unwanted(&node.name(Origin::Peer(peer)), &explain(code));
            let passing = Reply::is_passing(code);
            Err(if passing { Returned::NoRoom } else { Returned::Unwanted })
        }
        Ok(Reply::From(_)) | Err(_) => Err(Returned::Lost),
    }
}

async fn transfer(
    stream: &Stream,
    announced: Announcement,
    bytes: &[u8],
) -> Result<Reply, ResetReason> {
    let mut answers = Answers { stream, replies: Replies::default(), read: Vec::new() };
    write(stream, &announced.encode()).await?;
    let mut offset = 0;
    if announced.asks {
        match answers.next().await? {
            Reply::From(from) => offset = from,
            last => return Ok(last),
        }
    }
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let rest = rest.ok_or(ResetReason::Prohibited)?;
    let written = async {
        if write(stream, rest).await.is_ok() {
            // A reset is seen by whoever waits for the answer.
            let _ = poll_fn(|context| stream.poll_finish(context)).await;
        }
        pending::<()>().await;
    };
    tokio::select! {
        reply = answers.next() => reply,
        () = written => unreachable!("it never ends"),
    }
}

/// The acceptor's replies.
struct Answers<'a> {
    stream: &'a Stream,
    replies: Replies,
    read: Vec<u8>,
}

impl Answers<'_> {
    async fn next(&mut self) -> Result<Reply, ResetReason> {
        loop {
            let mut input = &self.read[..];
            let reply = self.replies.handle(&mut input).map_err(|error| {
                tracing::debug!("bundles: {error}");
                ResetReason::Prohibited
            })?;
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

/// Reads what there is; [`None`] at the end.
async fn read(stream: &Stream, buffer: &mut [u8]) -> Result<Option<usize>, ResetReason> {
    let read = timeout(LIMIT, poll_fn(|context| stream.poll_read(context, buffer))).await;
    match read.map_err(|_| ResetReason::TimedOut)?? {
        Read::Data(count) => Ok(Some(count)),
        Read::End | Read::Blocked => Ok(None),
    }
}

async fn write(stream: &Stream, bytes: &[u8]) -> Result<(), ResetReason> {
    let mut left = bytes;
    while !left.is_empty() {
        let taken = poll_fn(|context| stream.poll_write(context, left)).await?;
        left = &left[taken..];
    }
    Ok(())
}

/// Takes the bundle that a peer's stream carries.
pub(super) async fn receive(node: Arc<Node>, peer: PeerId, stream: Stream) {
    let from = Origin::Peer(peer);
    match answer(&node, from, &stream).await {
        // Read to the end, so that both directions end in order.
        Ok(()) => drain(&stream).await,
        Err(reason) => stream.reset(reason),
    }
}

/// Answers a transfer.
///
/// # Errors
/// If the stream is reset, or is to be.
async fn answer(node: &Arc<Node>, from: Origin, stream: &Stream) -> Result<(), ResetReason> {
    // Nobody waits for it.
    let _ = stream.accept();
    let mut reception = Reception::default();
    let mut incoming: Option<Incoming> = None;
    let mut buffer = vec![0; PIECE];
    let reply = loop {
        let Some(count) = read(stream, &mut buffer).await? else {
            return Err(ResetReason::Reset);
        };
        let mut input = &buffer[..count];
        let mut last = None;
        while last.is_none()
            && let Some(received) = reception.handle(&mut input).map_err(|error| {
                tracing::debug!("bundles: {error}");
                ResetReason::Prohibited
            })?
        {
            match received {
                Received::Announced(said) => match begin(node, from, said, stream).await? {
                    Ok((taken, offset)) => {
                        reception.start(offset);
                        incoming = Some(taken);
                    }
                    Err(reply) => last = Some(reply),
                },
                Received::Data(data) => {
                    let Some(incoming) = &mut incoming else { continue };
                    last = incoming.append(data.to_vec()).await.err().map(Reply::refusal);
                }
            }
        }
        if let Some(last) = last {
            break last;
        }
        if reception.is_whole()
            && let Some(incoming) = incoming.take()
        {
            break match incoming.finish(from).await {
                Ok(Outcome::Stored(_) | Outcome::Had(_)) => Reply::Stored,
                Err(why) => Reply::refusal(why),
            };
        }
    };
    write(stream, &reply.encode()).await?;
    poll_fn(|context| stream.poll_finish(context)).await
}

/// Decides on what was announced. An error is the last reply.
async fn begin(
    node: &Arc<Node>,
    from: Origin,
    said: Announcement,
    stream: &Stream,
) -> Result<Result<(Incoming, u64), Reply>, ResetReason> {
    let begun = node.begin(from, Some((said.id, said.digest)), said.length, said.asks).await;
    let (incoming, mut offset) = match begun {
        Ok(Decision::Take(taken)) => taken,
        Ok(Decision::Have) => return Ok(Err(Reply::Stored)),
        Err(why) => return Ok(Err(Reply::refusal(why))),
    };
    if offset > said.length {
        // Not of these bytes.
        drop(incoming);
        let known = Some((said.id, said.digest));
        match node.begin(from, known, said.length, false).await {
            Ok(Decision::Take((incoming, _))) => {
                offset = 0;
                write(stream, &Reply::From(offset).encode()).await?;
                return Ok(Ok((incoming, offset)));
            }
            _ => return Ok(Err(Reply::refusal(Refusal::Damaged))),
        }
    }
    if said.asks {
        write(stream, &Reply::From(offset).encode()).await?;
    }
    Ok(Ok((incoming, offset)))
}

/// Reads what still comes, until the opener has seen the answer.
async fn drain(stream: &Stream) {
    let mut buffer = vec![0; PIECE];
    while let Ok(Some(_)) = read(stream, &mut buffer).await {}
}
