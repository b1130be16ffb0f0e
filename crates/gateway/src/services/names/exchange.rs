//! One DNS message in each direction of a stream of the hop (`docs/slacp.md`, Streams): its length
//! in two bytes, the message, and the stream's end.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use slacp::{Destination, ReadOutcome, ResetReason, SessionId, StreamOpening};
use tokio::time::timeout;

use crate::hop::{Hop, SessionStream};
use crate::process::clock;

/// Length of the longest message with its prefix, in bytes.
const MAX_FRAMED: usize = 2 + u16::MAX as usize;
/// Time limit of an exchange: a little longer than the resolver waits.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(12);

/// Asks the hub; [`None`] without an answer. A question that several clients share counts as the
/// first one's.
pub(super) async fn ask(
    hop: Hop,
    session: SessionId,
    client: IpAddr,
    message: &[u8],
) -> Option<Vec<u8>> {
    // A stream of its own (RFC 9250 §4.2): a lost packet then delays one answer only.
    let stream = hop.open(clock::now(), session, opening(client)).ok()?;
    let asked = timeout(EXCHANGE_TIMEOUT, async {
        write(&stream, message).await?;
        read(&stream).await
    });
    match asked.await {
        Ok(Ok(reply)) => Some(reply),
        Ok(Err(reason)) => {
            tracing::debug!("the hub refused a DNS question: {reason:?}");
            None
        }
        Err(_) => None,
    }
}

/// The opening of the stream for a client's question, whose source names the client to the hub.
fn opening(client: IpAddr) -> StreamOpening<Destination> {
    let source = SocketAddr::new(client, 0);
    StreamOpening { destination: Destination::Resolver, source, dscp: None }
}

/// Reads one message and the end of the stream.
///
/// # Errors
/// The reset reason; [`ResetReason::Prohibited`] if the stream holds anything else.
pub(super) async fn read(stream: &SessionStream) -> Result<Vec<u8>, ResetReason> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
            ReadOutcome::Data(count) => received.extend_from_slice(&buffer[..count]),
            ReadOutcome::End => break,
            ReadOutcome::Blocked => {}
        }
        // The other side may send without end.
        if received.len() > MAX_FRAMED {
            return Err(ResetReason::Prohibited);
        }
    }
    match received.split_first_chunk() {
        Some((length, message)) if usize::from(u16::from_be_bytes(*length)) == message.len() => {
            Ok(message.to_vec())
        }
        _ => Err(ResetReason::Prohibited),
    }
}

/// Writes one message, and ends the stream's sending direction.
///
/// # Errors
/// The reset reason.
pub(super) async fn write(stream: &SessionStream, message: &[u8]) -> Result<(), ResetReason> {
    let Ok(length) = u16::try_from(message.len()) else { return Err(ResetReason::Prohibited) };
    let whole = [&length.to_be_bytes(), message].concat();
    let mut left = &whole[..];
    while !left.is_empty() {
        let taken = poll_fn(|context| stream.poll_write(context, left)).await?;
        left = &left[taken..];
    }
    poll_fn(|context| stream.poll_finish(context)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_its_client_to_the_hub() {
        for client in ["10.1.0.7", "2001:db8::7"].map(|text| text.parse().unwrap()) {
            let StreamOpening { destination, source, .. } = opening(client);
            assert_eq!((destination, source.ip()), (Destination::Resolver, client));
        }
    }
}
