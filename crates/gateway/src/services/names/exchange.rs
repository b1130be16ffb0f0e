//! A DNS message each way on a stream of the hop (`docs/slacp.md`, Streams): its length in two bytes,
//! then the message, then the end.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use slacp::{Destination, Open, Read, ResetReason, SessionId};
use tokio::time::timeout;

use crate::clock;
use crate::hop::{Hop, Stream};

/// The longest message with its length.
const LONGEST: usize = 2 + u16::MAX as usize;
/// A little more than the resolver waits.
const LIMIT: Duration = Duration::from_secs(12);

/// The hub's answer to the question of a client; [`None`] if there is none. Other clients may have the
/// same question; it counts as that of the first.
pub(super) async fn ask(
    hop: Hop,
    session: SessionId,
    (client, message): (IpAddr, &[u8]),
) -> Option<Vec<u8>> {
    let source = SocketAddr::new(client, 0);
    let open = Open { destination: Destination::Resolver, source, dscp: None };
    let stream = hop.open(clock::now(), session, open).ok()?;
    let asked = timeout(LIMIT, async {
        write(&stream, message).await?;
        read(&stream).await
    });
    match asked.await {
        Ok(Ok(reply)) => Some(reply),
        Ok(Err(reason)) => {
            tracing::debug!("the hub does not answer a question: {reason:?}");
            None
        }
        Err(_) => None,
    }
}

/// Reads a message to the end of the stream.
///
/// # Errors
/// If the stream is reset, or holds anything else.
pub(super) async fn read(stream: &Stream) -> Result<Vec<u8>, ResetReason> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
            Read::Data(count) => said.extend_from_slice(&buffer[..count]),
            Read::End => break,
            Read::Blocked => {}
        }
        if said.len() > LONGEST {
            return Err(ResetReason::Prohibited);
        }
    }
    match said.split_first_chunk() {
        Some((length, message)) if usize::from(u16::from_be_bytes(*length)) == message.len() => {
            Ok(message.to_vec())
        }
        _ => Err(ResetReason::Prohibited),
    }
}

/// Writes a message, and ends our direction.
///
/// # Errors
/// If the stream is reset.
pub(super) async fn write(stream: &Stream, message: &[u8]) -> Result<(), ResetReason> {
    let Ok(length) = u16::try_from(message.len()) else { return Err(ResetReason::Prohibited) };
    let whole = [&length.to_be_bytes(), message].concat();
    let mut left = &whole[..];
    while !left.is_empty() {
        let taken = poll_fn(|context| stream.poll_write(context, left)).await?;
        left = &left[taken..];
    }
    poll_fn(|context| stream.poll_finish(context)).await
}
