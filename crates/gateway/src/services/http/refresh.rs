//! Validates stale responses after they were used (RFC 5861 §3), in the background.

use std::sync::Arc;
use std::time::Duration;

use http_cache::{Asked, Body, Framing, RequestHead, Verdict};
use slacp::{Destination, Open, ResetReason};
use tokio::time::timeout;

use super::Shared;
use super::exchange::{Reply, read_reply, sent_on};
use super::kept::Kept;
use super::record::Recording;
use super::sites::Server;
use super::upstream::Upstream;
use super::wire::{As, Broken, Inlet, Wire, pass};
use crate::clock;

/// Time limit of a background validation.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Sends a validation request, and hands the response to the cache.
pub(super) async fn refresh(
    shared: Arc<Shared>,
    (open, server): (Open<Destination>, Option<Server>),
    head: RequestHead,
    asked: Asked,
) {
    let refreshed =
        timeout(LIMIT, exchange(&shared, (&open, server.as_ref()), &head, &asked)).await;
    if !matches!(refreshed, Ok(Ok(()))) {
        shared.kept.change(|cache| cache.handle_failure(clock::unix_time(), &asked));
    }
}

async fn exchange(
    shared: &Shared,
    (open, server): (&Open<Destination>, Option<&Server>),
    head: &RequestHead,
    asked: &Asked,
) -> Result<(), ResetReason> {
    let _place = shared.kept.refreshes.try_acquire().map_err(|_| ResetReason::Limit)?;
    let route = *shared.route.borrow();
    let mut upstream = Upstream::open(&shared.upstreams, route, open, server).await?;
    let Upstream { end, inlet, .. } = &mut upstream;
    validate(&shared.kept, (end.wire(), inlet), head, asked).await?;
    upstream.close().await;
    Ok(())
}

/// Sends a request to a server, and hands the response to the cache.
pub(super) async fn validate(
    kept: &Kept,
    (wire, inlet): (Wire<'_>, &mut Inlet),
    head: &RequestHead,
    asked: &Asked,
) -> Result<(), ResetReason> {
    // The connection is closed afterwards.
    wire.write(&sent_on(head, Framing::None, false)).await?;
    let reply = read_reply(wire, inlet, None).await?;
    let Reply::Head(reply, length) = reply else { return Err(ResetReason::Reset) };
    inlet.consume(length);
    let verdict = kept.change(|cache| cache.handle_response(clock::unix_time(), asked, &reply));
    let framing = reply.framing(&asked.request.method).map_err(|_| ResetReason::Prohibited)?;
    if verdict == (Verdict::Pass { store: true }) {
        let mut recording = Recording::new(kept);
        let mut body = Body::new(framing);
        let record = |bytes: &[u8]| recording.add(bytes);
        let passed = pass((wire, inlet), (wire, As::Nothing), &mut body, record, |_| {}).await;
        match passed {
            Ok(true) => recording.store(asked, &reply),
            Ok(false) => return Err(ResetReason::Reset),
            Err(Broken::From(reason) | Broken::To(reason)) => return Err(reason),
        }
    }
    Ok(())
}
