//! Responses that the gateway sends to a client itself: from the cache, or as an error.

use http_cache::{Answer, Fields, RequestHead, ResponseHead};

use super::conversation::{Conversation, Fate};
use super::disk::Bytes;

/// Up to this many bytes of a body are written together with its head.
const TOGETHER: usize = 16 << 10;

impl Conversation {
    /// Answers from the cache. Returns [`None`], with nothing sent, if the body can no longer be
    /// read from disk. `how` goes into the field `Cache-Status` (RFC 9211).
    pub(super) async fn answer(
        &self,
        request: &RequestHead,
        answer: Answer<Bytes>,
        how: &str,
    ) -> Option<Fate> {
        let Answer { head, part, body, entry } = answer;
        let Some(part) = part else { return Some(self.say(request, head, None, how).await) };
        let body = match body {
            Some(body) => body,
            None => self.shared.kept.body(entry).await?,
        };
        let from = usize::try_from(part.from).ok()?;
        let part = body.get(from..from + usize::try_from(part.length).ok()?)?;
        Some(self.say(request, head, Some(part), how).await)
    }

    /// Answers *504 Gateway Timeout* (RFC 9110 §15.6.5).
    pub(super) async fn unavailable(&self, request: &RequestHead, how: &str) -> Fate {
        let mut head = ResponseHead::own(504, "Gateway Timeout");
        head.fields.push("Content-Length", "0");
        self.say(request, head, None, how).await
    }

    /// Answers *421 Misdirected Request*: this connection's TLS is for another host
    /// (RFC 9110 §15.5.20).
    pub(super) async fn misdirected(&self, request: &RequestHead) -> Fate {
        let mut head = ResponseHead::own(421, "Misdirected Request");
        head.fields.push("Content-Length", "0");
        match self.say(request, head, None, "fwd=bypass").await {
            // The client is to retry on another connection (RFC 9110 §15.5.20).
            Fate::Open => Fate::Close,
            fate => fate,
        }
    }

    /// Sends a complete response whose head gives its length.
    pub(super) async fn say(
        &self,
        request: &RequestHead,
        mut head: ResponseHead,
        body: Option<&[u8]>,
        how: &str,
    ) -> Fate {
        let keeps = request.keeps_alive();
        head.fields.push("Cache-Status", format!("skyhop; {how}"));
        persist(&mut head.fields, request.minor, keeps);
        let mut first = Vec::new();
        head.write(&mut first);
        let body = body.unwrap_or_default();
        let (with, rest) = body.split_at(body.len().min(TOGETHER));
        first.extend_from_slice(with);
        let client = self.client();
        let said = async {
            client.write(&first).await?;
            client.write(rest).await
        };
        match said.await {
            Ok(()) if keeps => Fate::Open,
            Ok(()) => Fate::Close,
            Err(reason) => Fate::Broken(reason),
        }
    }
}

/// Adds the field `Connection` that a message from or to a peer of this HTTP/1 minor version needs
/// to state whether the connection persists (RFC 9112 §9.3).
pub(super) fn persist(fields: &mut Fields, minor: u8, keeps: bool) {
    match (keeps, minor) {
        (false, _) => fields.push("Connection", "close"),
        (true, 0) => fields.push("Connection", "keep-alive"),
        (true, _) => {}
    }
}
