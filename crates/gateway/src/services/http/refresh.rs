//! Validates stale responses after they were used (RFC 5861 §3), in the background.

use std::sync::Arc;
use std::time::Duration;

use http_cache::{BodyFraming, BodyParser, ForwardedRequest, RequestHead, ResponseAction};
use slacp::{Destination, ResetReason, StreamOpening};
use tokio::time::timeout;

use super::HttpShared;
use super::exchange::{ReplyHead, encode_forwarded, read_reply};
use super::kept::ResponseCache;
use super::record::BodyRecorder;
use super::sites::OriginServer;
use super::upstream::UpstreamConnection;
use super::wire::{
    BodyForm, BodySink, BodySource, ForwardError, ReadBuffer, WireEnd, forward_body,
};
use crate::process::clock;

/// Time limit of a background validation.
pub(super) const REFRESH_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a validation request, and hands the response to the cache.
pub(super) async fn refresh(
    shared: Arc<HttpShared>,
    open: StreamOpening<Destination>,
    server: Option<OriginServer>,
    head: RequestHead,
    asked: ForwardedRequest,
) {
    let exchange = exchange(&shared, &open, server.as_ref(), &head, &asked);
    // Until it hears of the end, the cache lets no other request validate the entry.
    if !matches!(timeout(REFRESH_TIMEOUT, exchange).await, Ok(Ok(()))) {
        shared.kept.change(|cache| cache.handle_failure(clock::unix_time(), &asked));
    }
}

async fn exchange(
    shared: &HttpShared,
    open: &StreamOpening<Destination>,
    server: Option<&OriginServer>,
    head: &RequestHead,
    asked: &ForwardedRequest,
) -> Result<(), ResetReason> {
    let _place = shared.kept.refreshes.try_acquire().map_err(|_| ResetReason::Limit)?;
    let route = *shared.route.borrow();
    let mut upstream = UpstreamConnection::open(&shared.upstreams, route, open, server).await?;
    let UpstreamConnection { end, inlet, .. } = &mut upstream;
    validate(&shared.kept, end.wire(), inlet, head, asked).await?;
    upstream.close().await;
    Ok(())
}

/// Sends a request to a server, and hands the response to the cache.
pub(super) async fn validate(
    kept: &ResponseCache,
    wire: WireEnd<'_>,
    inlet: &mut ReadBuffer,
    head: &RequestHead,
    asked: &ForwardedRequest,
) -> Result<(), ResetReason> {
    // The connection is closed afterwards.
    wire.write(&encode_forwarded(head, BodyFraming::None, false)).await?;
    let reply = read_reply(wire, inlet, None).await?;
    let ReplyHead::Head(reply, length) = reply else { return Err(ResetReason::Reset) };
    inlet.consume(length);
    let verdict = kept.change(|cache| cache.handle_response(clock::unix_time(), asked, &reply));
    let framing = reply.framing(&asked.request.method).map_err(|_| ResetReason::Prohibited)?;
    if verdict == (ResponseAction::Pass { store: true }) {
        let mut recording = BodyRecorder::new(kept);
        let mut body = BodyParser::new(framing);
        let record = |bytes: &[u8]| recording.add(bytes);
        let source = BodySource { wire, inlet };
        let sink = BodySink { wire, form: BodyForm::Discarded };
        match forward_body(source, sink, &mut body, record, |_| {}).await {
            Ok(true) => recording.store(asked, &reply),
            Ok(false) => return Err(ResetReason::Reset),
            Err(ForwardError::Source(reason) | ForwardError::Sink(reason)) => return Err(reason),
        }
    }
    Ok(())
}
