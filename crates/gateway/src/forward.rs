//! Joins two streams of the hop: a connection between clients of two terminals, through the hub.
//! End, reset with its reason, and acceptance pass from one stream to the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::ready;

use slacp::{Open, Read, ResetReason, SessionId};

use crate::connections::Registered;
use crate::counters::Counters;
use crate::gateway::Admission;
use crate::hop::{Hop, Stream};
use crate::scratch;

/// Carries a stream from one peer to the peer of `session` until both directions end.
pub(crate) async fn forward(
    hop: Hop,
    near: Stream,
    session: SessionId,
    open: Open,
    admission: Admission,
    counters: Arc<Counters>,
) {
    counters.connections.increment();
    let _entry = Registered::new(&counters, near.session(), open, admission.origin);
    let far = match hop.open(session, open) {
        Ok(far) => far,
        Err(error) => {
            counters.failed.increment();
            counters.reasons.count(ResetReason::Limit);
            tracing::debug!(destination = %open.destination, "no stream: {error}");
            return near.reset(ResetReason::Limit);
        }
    };
    match join(&near, &far).await {
        Ok(()) => counters.closed.increment(),
        Err(reason) => {
            counters.reset.increment();
            counters.reasons.count(reason);
            // One of the two is already gone: the one that was reset.
            near.reset(reason);
            far.reset(reason);
        }
    }
}

async fn join(near: &Stream, far: &Stream) -> Result<(), ResetReason> {
    let both = async {
        tokio::try_join!(pass(near, far), pass(far, near), pass_acceptance(far, near)).map(|_| ())
    };
    // A stream being written to may be reset while nothing reads it.
    tokio::select! {
        ended = both => ended,
        reason = near.reset_by_peer() => Err(reason),
        reason = far.reset_by_peer() => Err(reason),
    }
}

async fn pass_acceptance(far: &Stream, near: &Stream) -> Result<(), ResetReason> {
    far.accepted().await?;
    near.accept()
}

/// Copies one direction, including its end. Reads at most one buffer more than the other stream has
/// room for.
async fn pass(from: &Stream, to: &Stream) -> Result<(), ResetReason> {
    loop {
        let moved = poll_fn(|context| {
            scratch::with(|buffer| {
                let Read::Data(count) = ready!(from.poll_read(context, buffer))? else {
                    return Ok(None).into();
                };
                let taken = to.write(&buffer[..count])?;
                Ok::<_, ResetReason>(Some(buffer[taken..count].to_vec())).into()
            })
        });
        let Some(rest) = moved.await? else { return to.finish() };
        to.write_all(&rest).await?;
        tokio::task::yield_now().await;
    }
}
