//! Responses that the gateway sends to a client itself: from the cache, or as an error.

use http_cache::{CachedResponse, HeaderFields, RequestHead, ResponseHead};

use super::conversation::{ConnectionState, HttpConnection};
use super::disk::SharedBody;

/// Up to this many bytes of a body are written together with its head.
const MAX_BODY_WITH_HEAD: usize = 16 << 10;

impl HttpConnection {
    /// Answers from the cache. Returns [`None`], with nothing sent, if the body can no longer be
    /// read from disk. `how` goes into the field `Cache-Status` (RFC 9211).
    pub(super) async fn answer(
        &self,
        request: &RequestHead,
        answer: CachedResponse<SharedBody>,
        how: &str,
    ) -> Option<ConnectionState> {
        let CachedResponse { head, part, body, entry } = answer;
        let Some(part) = part else {
            return Some(self.send_response(request, head, None, how).await);
        };
        let body = match body {
            Some(body) => body,
            None => self.shared.kept.body(entry).await?,
        };
        let from = usize::try_from(part.from).ok()?;
        let part = body.get(from..from + usize::try_from(part.length).ok()?)?;
        Some(self.send_response(request, head, Some(part), how).await)
    }

    /// Answers *504 Gateway Timeout* (RFC 9110 §15.6.5).
    pub(super) async fn unavailable(&self, request: &RequestHead, how: &str) -> ConnectionState {
        let mut head = ResponseHead::own(504, "Gateway Timeout");
        head.fields.push("Content-Length", "0");
        self.send_response(request, head, None, how).await
    }

    /// Answers *421 Misdirected Request*: this connection's TLS is for another host
    /// (RFC 9110 §15.5.20).
    pub(super) async fn misdirected(&self, request: &RequestHead) -> ConnectionState {
        let mut head = ResponseHead::own(421, "Misdirected Request");
        head.fields.push("Content-Length", "0");
        match self.send_response(request, head, None, "fwd=bypass").await {
            // The client is to retry on another connection (RFC 9110 §15.5.20).
            ConnectionState::Open => ConnectionState::Close,
            state => state,
        }
    }

    /// Sends a complete response whose head gives its length.
    pub(super) async fn send_response(
        &self,
        request: &RequestHead,
        mut head: ResponseHead,
        body: Option<&[u8]>,
        how: &str,
    ) -> ConnectionState {
        let keeps = request.keeps_alive();
        head.fields.push("Cache-Status", format!("skyhop; {how}"));
        persist(&mut head.fields, request.minor, keeps);
        let mut first = Vec::new();
        head.write(&mut first);
        let body = body.unwrap_or_default();
        let (with, rest) = body.split_at(body.len().min(MAX_BODY_WITH_HEAD));
        first.extend_from_slice(with);
        let client = self.client();
        let sent = async {
            client.write(&first).await?;
            client.write(rest).await
        };
        match sent.await {
            Ok(()) if keeps => ConnectionState::Open,
            Ok(()) => ConnectionState::Close,
            Err(reason) => ConnectionState::Broken(reason),
        }
    }
}

/// Adds the field `Connection` that a message from or to a peer of this HTTP/1 minor version needs
/// to state whether the connection persists (RFC 9112 §9.3).
pub(super) fn persist(fields: &mut HeaderFields, minor: u8, keeps: bool) {
    match (keeps, minor) {
        (false, _) => fields.push("Connection", "close"),
        (true, 0) => fields.push("Connection", "keep-alive"),
        (true, _) => {}
    }
}
