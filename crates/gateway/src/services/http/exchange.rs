//! Forwarding of a request, and the response to it.

use std::borrow::Cow;

use http_cache::{
    BodyFraming, BodyParser, ForwardedRequest, ParsedHead, RequestHead, ResponseAction,
    ResponseHead,
};
use pep::relay::LegSide;
use slacp::ResetReason;
use tokio::time::{Instant, timeout_at};

use super::answer::persist;
use super::conversation::{ConnectionState, HttpConnection, address, wire};
use super::disk::SharedBody;
use super::flight::{LeadingRequest, ResponseReader};
use super::record::BodyRecorder;
use super::upstream::UpstreamConnection;
use super::wire::{
    BodyForm, BodySink, BodySource, ForwardError, ReadBuffer, WireEnd, forward_body,
};
use crate::figures::connections::Registered;
use crate::process::clock;

/// Outcome of one attempt to send a request.
enum AttemptOutcome {
    Over(ConnectionState),
    /// Another request is to be sent instead.
    Again(RequestHead, Box<ForwardedRequest>),
    /// No response, or no connection.
    Failed(ResetReason),
    /// The server had closed a kept-alive connection.
    Stale,
}

/// Result of reading a response's head.
pub(super) enum ReplyHead {
    Head(ResponseHead, usize),
    /// Not HTTP, or ended within the head; the bytes read are kept.
    Malformed,
    /// The connection ended before the first byte.
    Nothing,
}

/// A response whose body is still to be read from its server.
struct UnreadResponse {
    head: ResponseHead,
    framing: BodyFraming,
    upstream: UpstreamConnection,
}

/// Reads a response's head. Interim responses are forwarded to `client`, if it understands them
/// (RFC 9110 §15.2).
pub(super) async fn read_reply(
    wire: WireEnd<'_>,
    inlet: &mut ReadBuffer,
    client: Option<WireEnd<'_>>,
) -> Result<ReplyHead, ResetReason> {
    loop {
        match inlet.head(ResponseHead::parse) {
            // 101 is final: another protocol follows it.
            ParsedHead::Head(head, length) if head.is_interim() && head.status != 101 => {
                if let Some(client) = client {
                    client.write(&inlet.bytes()[..length]).await?;
                }
                inlet.consume(length);
                // Thousands may have arrived at once: other connections get their turn.
                tokio::task::yield_now().await;
            }
            ParsedHead::Head(head, length) => return Ok(ReplyHead::Head(head, length)),
            ParsedHead::Malformed => return Ok(ReplyHead::Malformed),
            ParsedHead::Incomplete if inlet.ended && inlet.is_empty() => {
                return Ok(ReplyHead::Nothing);
            }
            ParsedHead::Incomplete if inlet.ended => return Ok(ReplyHead::Malformed),
            ParsedHead::Incomplete => {
                inlet.fill(wire).await?;
            }
        }
    }
}

/// Encodes a request's head for the next hop, with its connection-specific fields replaced.
/// `keeps`: the server may keep the connection open after its response; a response without a
/// readable end needs the close.
pub(super) fn encode_forwarded(head: &RequestHead, framing: BodyFraming, keeps: bool) -> Vec<u8> {
    let mut head = head.clone();
    // These fields are for one connection only (RFC 9110 §7.6.1).
    head.fields.remove_connection_fields();
    if framing == BodyFraming::Chunked {
        head.fields.push("Transfer-Encoding", "chunked");
    }
    persist(&mut head.fields, head.minor, keeps);
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    bytes
}

impl HttpConnection {
    /// Forwards `head` in place of the client's request until there is a response, and answers the
    /// client.
    pub(super) async fn forward(
        &mut self,
        request: &RequestHead,
        mut head: RequestHead,
        mut asked: ForwardedRequest,
        framing: BodyFraming,
        entry: &Registered<'_>,
    ) -> ConnectionState {
        loop {
            match self.attempt(request, &head, &asked, framing, entry).await {
                AttemptOutcome::Over(state) => return state,
                AttemptOutcome::Again(again, next) => (head, asked) = (again, *next),
                AttemptOutcome::Stale => {}
                AttemptOutcome::Failed(reason) => return self.fail(request, &asked, reason).await,
            }
        }
    }

    /// Handles a request without a response: answers from the cache if a stale response is
    /// permitted, otherwise reports the failure to the client as if there were no cache.
    async fn fail(
        &mut self,
        request: &RequestHead,
        asked: &ForwardedRequest,
        reason: ResetReason,
    ) -> ConnectionState {
        let now = clock::unix_time();
        if let Some(answer) = self.shared.kept.change(|cache| cache.handle_failure(now, asked))
            && let Some(state) = self.answer(request, answer, "hit; detail=unreachable").await
        {
            return state;
        }
        let counters = &self.shared.upstreams.counters;
        // Before the client is reset, so that its next try passes unaccelerated.
        if let Some(address) = address(&self.open.destination) {
            counters.refusals.report(clock::now(), address, reason).await;
        }
        if asked.validates.is_some() {
            // A stored response that must be validated and cannot be is an error of the cache
            // (RFC 9111 §5.2.2.2).
            return self.unavailable(request, "fwd=stale").await;
        }
        ConnectionState::Broken(reason)
    }

    async fn attempt(
        &mut self,
        request: &RequestHead,
        head: &RequestHead,
        asked: &ForwardedRequest,
        framing: BodyFraming,
        entry: &Registered<'_>,
    ) -> AttemptOutcome {
        // Let the server close after the client's last request.
        let keeps = request.keeps_alive();
        let bytes = encode_forwarded(head, framing, keeps);
        let deadline = self.deadline(asked);
        let choosing = self.choose_upstream(head, framing, keeps, &bytes);
        let mut upstream = match within(deadline, choosing).await {
            Some(Ok(upstream)) => upstream,
            Some(Err(reason)) => return AttemptOutcome::Failed(reason),
            None => return self.give_up(),
        };
        // Only a safe request is repeated (RFC 9110 §9.2.2), and no part of a body can be: its
        // bytes are consumed as they are sent.
        let retries = upstream.used && framing == BodyFraming::None && request.is_safe();
        entry.moved(clock::now(), LegSide::Client, bytes.len());
        if !upstream.is_fetch()
            && let Err(reason) = upstream.end.wire().write(&bytes).await
        {
            return if retries { AttemptOutcome::Stale } else { AttemptOutcome::Failed(reason) };
        }
        let mut body = BodyParser::new(framing);
        let heard = self.exchange_bodies(&mut upstream, &mut body, asked, request, entry);
        let Some(heard) = within(deadline, heard).await else { return self.give_up() };
        let reply = match self.reply_of(heard, retries, upstream.is_fetch()) {
            Ok(reply) => reply,
            Err(outcome) => return outcome,
        };
        if !upstream.end.crosses_hop() {
            self.shared.patience().handle_answer();
        }
        if retries && matches!(reply, ReplyHead::Nothing) {
            return AttemptOutcome::Stale;
        }
        self.decide(request, asked, reply, body.is_over(), upstream, entry).await
    }

    /// Returns the response's head, or the outcome of an attempt without a response.
    fn reply_of(
        &mut self,
        heard: ReplyOutcome,
        retries: bool,
        is_fetch: bool,
    ) -> Result<ReplyHead, AttemptOutcome> {
        Err(match heard {
            ReplyOutcome::Reply(reply) => return Ok(reply),
            ReplyOutcome::ClientGone(reason) => {
                AttemptOutcome::Over(ConnectionState::Broken(reason))
            }
            ReplyOutcome::HubGone => AttemptOutcome::Failed(ResetReason::TimedOut),
            ReplyOutcome::Failed(_) if retries => AttemptOutcome::Stale,
            ReplyOutcome::Failed(ResetReason::Prohibited | ResetReason::Limit) if is_fetch => {
                // The hub has no exchanges with this server, or too many: it may still connect.
                self.hub_fetches = false;
                AttemptOutcome::Stale
            }
            ReplyOutcome::Failed(reason) => AttemptOutcome::Failed(reason),
        })
    }

    /// The time limit for a response that does not cross the hop, if a stored one is a substitute.
    fn deadline(&self, asked: &ForwardedRequest) -> Option<Instant> {
        let is_away = self.shared.route.borrow().hub.is_none();
        let may_do = is_away && self.shared.kept.lock().has_fallback(clock::unix_time(), asked);
        may_do.then(|| Instant::now() + self.shared.patience().limit(clock::now()))
    }

    fn give_up(&self) -> AttemptOutcome {
        self.shared.patience().handle_silence(clock::now());
        AttemptOutcome::Failed(ResetReason::TimedOut)
    }

    /// Handles a response to a request. `whole`: the request has been sent completely.
    async fn decide(
        &mut self,
        request: &RequestHead,
        asked: &ForwardedRequest,
        reply: ReplyHead,
        whole: bool,
        mut upstream: UpstreamConnection,
        entry: &Registered<'_>,
    ) -> AttemptOutcome {
        match reply {
            // A stored response may be used instead of none.
            ReplyHead::Nothing if asked.validates.is_some() => {
                AttemptOutcome::Failed(ResetReason::Reset)
            }
            // Relays both directions: the server has answered before it had the whole request, or
            // not by HTTP.
            ReplyHead::Nothing | ReplyHead::Malformed => self.relay_unchanged(upstream).await,
            ReplyHead::Head(head, length) => {
                let verdict = self
                    .shared
                    .kept
                    .change(|cache| cache.handle_response(clock::unix_time(), asked, &head));
                match head.framing(&request.method) {
                    Ok(framing) if whole => {
                        upstream.inlet.consume(length);
                        let response = UnreadResponse { head, framing, upstream };
                        self.apply_verdict(request, asked, response, verdict, entry).await
                    }
                    _ => self.relay_unchanged(upstream).await,
                }
            }
        }
    }

    /// Returns an upstream for the request. If it is the hub's, the request has been sent already.
    async fn choose_upstream(
        &mut self,
        head: &RequestHead,
        framing: BodyFraming,
        keeps: bool,
        bytes: &[u8],
    ) -> Result<UpstreamConnection, ResetReason> {
        let route = *self.shared.route.borrow();
        let upstreams = &self.shared.upstreams;
        // An `https` target has the hub ask by TLS, too.
        let fetched = match &self.secure {
            Some((site, _)) => {
                let target = format!("https://{}{}", site.host, head.target);
                Cow::Owned(encode_forwarded(
                    &RequestHead { target, ..head.clone() },
                    framing,
                    keeps,
                ))
            }
            None => Cow::Borrowed(bytes),
        };
        // Exchanges are GET and HEAD without a body (`docs/slacp.md`), which the hub may repeat.
        let repeats =
            framing == BodyFraming::None && matches!(head.method.as_str(), "GET" | "HEAD");
        if repeats
            && self.hub_fetches
            && let Some(fetch) =
                UpstreamConnection::fetch(upstreams, route, &self.open, &fetched).await?
        {
            return Ok(fetch);
        }
        match self.upstream.take() {
            Some(upstream) => Ok(upstream),
            None => self.connect_upstream().await,
        }
    }

    /// Relays the response unchanged, and all that follows.
    async fn relay_unchanged(&mut self, mut upstream: UpstreamConnection) -> AttemptOutcome {
        if !upstream.is_fetch() {
            self.upstream = Some(upstream);
            return AttemptOutcome::Over(ConnectionState::Plain);
        }
        // A fetch has no request body, and carries one exchange only.
        let UpstreamConnection { end, inlet, .. } = &mut upstream;
        let mut rest = BodyParser::new(BodyFraming::UntilClose);
        let source = BodySource { wire: end.wire(), inlet };
        let sink = BodySink { wire: self.client(), form: BodyForm::Unchanged };
        let passed = forward_body(source, sink, &mut rest, |_| {}, |_| {}).await;
        AttemptOutcome::Over(match passed {
            Ok(_) => ConnectionState::Close,
            Err(ForwardError::Source(reason) | ForwardError::Sink(reason)) => {
                ConnectionState::Broken(reason)
            }
        })
    }

    /// Sends a request's body and waits for the response's head, which may come before the body is
    /// sent.
    async fn exchange_bodies(
        &mut self,
        upstream: &mut UpstreamConnection,
        body: &mut BodyParser,
        asked: &ForwardedRequest,
        request: &RequestHead,
        entry: &Registered<'_>,
    ) -> ReplyOutcome {
        let UpstreamConnection { end, inlet, .. } = upstream;
        let client = wire(&self.leg, &self.secure);
        let mut uploaded = body.is_over();
        let mut gone = false;
        let moved = |count| entry.moved(clock::now(), LegSide::Client, count);
        let source = BodySource { wire: client, inlet: &mut self.inlet };
        let sink = BodySink { wire: end.wire(), form: BodyForm::Unchanged };
        let mut upload = std::pin::pin!(forward_body(source, sink, body, |_| {}, moved));
        // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
        let reading = read_reply(end.wire(), inlet, (request.minor == 1).then_some(client));
        let mut reading = std::pin::pin!(reading);
        let mut route = self.shared.route.clone();
        loop {
            tokio::select! {
                passed = &mut upload, if !uploaded => match passed {
                    Ok(true) => uploaded = true,
                    Ok(false) => return ReplyOutcome::ClientGone(ResetReason::Reset),
                    Err(ForwardError::Source(reason)) => return ReplyOutcome::ClientGone(reason),
                    // The server may refuse a body that is too large, and its response says so.
                    Err(ForwardError::Sink(_)) => uploaded = true,
                },
                reply = &mut reading => return match reply {
                    Ok(reply) => ReplyOutcome::Reply(reply),
                    Err(reason) => ReplyOutcome::Failed(reason),
                },
                () = self.leg.failure(), if !gone => {
                    // Other clients may be waiting for the same response.
                    if !self.lead.as_ref().is_some_and(LeadingRequest::is_followed) {
                        return ReplyOutcome::ClientGone(ResetReason::Reset);
                    }
                    gone = true;
                }
                // A silent hub delays the response for long, and a stored one may be a substitute.
                Ok(()) = route.changed(), if asked.validates.is_some() => {
                    if route.borrow().hub.is_none() && end.crosses_hop() {
                        return ReplyOutcome::HubGone;
                    }
                }
            }
        }
    }

    /// Carries out the cache's decision about a response.
    async fn apply_verdict(
        &mut self,
        request: &RequestHead,
        asked: &ForwardedRequest,
        response: UnreadResponse,
        verdict: ResponseAction<SharedBody>,
        entry: &Registered<'_>,
    ) -> AttemptOutcome {
        match verdict {
            ResponseAction::Pass { store } => {
                AttemptOutcome::Over(self.pass(request, asked, response, store, entry).await)
            }
            ResponseAction::Answer(answer) => {
                self.keep_bodiless(response);
                match self.answer(request, answer, "hit; fwd=stale").await {
                    Some(state) => AttemptOutcome::Over(state),
                    None => {
                        // Without a body a *304* is of no use: ask unconditionally.
                        let asked = ForwardedRequest { validates: None, ..asked.clone() };
                        AttemptOutcome::Again(asked.request.clone(), Box::new(asked))
                    }
                }
            }
            ResponseAction::Again(head, asked) => {
                self.keep_bodiless(response);
                AttemptOutcome::Again(head, Box::new(asked))
            }
        }
    }

    /// Forwards a response to the client, and to others that wait for it.
    async fn pass(
        &mut self,
        request: &RequestHead,
        asked: &ForwardedRequest,
        mut response: UnreadResponse,
        store: bool,
        entry: &Registered<'_>,
    ) -> ConnectionState {
        if !store {
            self.lead.take().into_iter().for_each(LeadingRequest::mark_private);
        }
        if let (BodyFraming::Length(length), Some(lead)) = (response.framing, &self.lead) {
            if lead.announce(asked, &response.head, length) {
                return self.share(request, response, entry).await;
            }
            // No memory to share it: the waiting clients send their own requests.
            self.lead.take().into_iter().for_each(LeadingRequest::mark_private);
        }
        let keeps = response.head.keeps_alive() && response.framing != BodyFraming::UntilClose;
        let state = self.pass_on(request, asked, &mut response, store, entry).await;
        if keeps && matches!(state, ConnectionState::Open) {
            self.keep(response.upstream);
        } else if !matches!(state, ConnectionState::Broken(_)) {
            tokio::spawn(response.upstream.close());
        }
        state
    }

    /// Keeps the connection of a response that is not used, if it has no body.
    fn keep_bodiless(&mut self, response: UnreadResponse) {
        // A body, which is not read here, would precede the next response.
        if response.framing == BodyFraming::None && response.head.keeps_alive() {
            self.keep(response.upstream);
        }
    }

    /// Keeps a connection for the next request, unless the server has sent unsolicited bytes.
    fn keep(&mut self, mut upstream: UpstreamConnection) {
        // A fetch carries one exchange only.
        if upstream.is_fetch() {
            tokio::spawn(upstream.close());
        } else if upstream.inlet.is_empty() && !upstream.inlet.ended {
            upstream.used = true;
            self.upstream = Some(upstream);
        }
    }

    /// Forwards a response's head. Returns whether the client's connection stays open after the
    /// body.
    async fn forward_head(
        &self,
        request: &RequestHead,
        reply: &ResponseHead,
        framing: BodyFraming,
        entry: &Registered<'_>,
    ) -> Result<bool, ResetReason> {
        // HTTP/1.0 has no chunks (RFC 9112 §6.1): its clients see the end by the close.
        let old = request.minor == 0;
        let until_close =
            framing == BodyFraming::UntilClose || (old && framing == BodyFraming::Chunked);
        let keeps = request.keeps_alive() && !until_close;
        let mut head = reply.clone();
        // These fields are for one connection only (RFC 9110 §7.6.1).
        head.fields.remove_connection_fields();
        if framing == BodyFraming::Chunked && !old {
            head.fields.push("Transfer-Encoding", "chunked");
        }
        persist(&mut head.fields, request.minor, keeps);
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        entry.moved(clock::now(), LegSide::Server, bytes.len());
        self.client().write(&bytes).await?;
        Ok(keeps)
    }

    /// Forwards a response that is stored and shared with waiting clients. It is received
    /// completely even if this client stops reading.
    async fn share(
        &mut self,
        request: &RequestHead,
        response: UnreadResponse,
        entry: &Registered<'_>,
    ) -> ConnectionState {
        let UnreadResponse { head, framing, upstream } = response;
        let BodyFraming::Length(length) = framing else {
            return ConnectionState::Broken(ResetReason::Reset);
        };
        let Some(lead) = self.lead.take() else {
            return ConnectionState::Broken(ResetReason::Reset);
        };
        let mut reader = ResponseReader::new(lead.flight.clone());
        let client = self.client();
        let taken = tokio::spawn(lead.receive(upstream, framing));
        let moved = |count| entry.moved(clock::now(), LegSide::Server, count);
        let sent = async {
            let keeps = self.forward_head(request, &head, framing, entry).await?;
            let whole = 0..usize::try_from(length).unwrap_or(usize::MAX);
            Ok(reader.write(client, whole, moved).await? && keeps)
        };
        let keeps = match sent.await {
            Ok(keeps) => keeps,
            Err(reason) => return ConnectionState::Broken(reason),
        };
        // The whole body has arrived.
        if let Ok(Some(upstream)) = taken.await {
            if head.keeps_alive() {
                self.keep(upstream);
            } else {
                tokio::spawn(upstream.close());
            }
        }
        if keeps { ConnectionState::Open } else { ConnectionState::Close }
    }

    /// Forwards a response to the client, and stores it if `store` is set.
    async fn pass_on(
        &mut self,
        request: &RequestHead,
        asked: &ForwardedRequest,
        response: &mut UnreadResponse,
        store: bool,
        entry: &Registered<'_>,
    ) -> ConnectionState {
        let UnreadResponse { head, framing, upstream } = response;
        let framing = *framing;
        let old = request.minor == 0;
        let keeps = match self.forward_head(request, head, framing, entry).await {
            Ok(keeps) => keeps,
            Err(reason) => return ConnectionState::Broken(reason),
        };
        let mut recording = store.then(|| BodyRecorder::new(&self.shared.kept));
        let record = |bytes: &[u8]| recording.iter_mut().for_each(|recorder| recorder.add(bytes));
        let form = if old && framing == BodyFraming::Chunked {
            BodyForm::Content
        } else {
            BodyForm::Unchanged
        };
        let mut body = BodyParser::new(framing);
        let UpstreamConnection { end, inlet, .. } = upstream;
        let moved = |count| entry.moved(clock::now(), LegSide::Server, count);
        let source = BodySource { wire: end.wire(), inlet };
        let sink = BodySink { wire: self.client(), form };
        match forward_body(source, sink, &mut body, record, moved).await {
            Ok(true) => {
                recording.into_iter().for_each(|recorder| recorder.store(asked, head));
                if keeps { ConnectionState::Open } else { ConnectionState::Close }
            }
            // The end was in the chunks, which did not reach the client.
            Ok(false) if form == BodyForm::Content => ConnectionState::Broken(ResetReason::Reset),
            // The end of the connection was the only sign, or came too soon, which the client sees:
            // not stored.
            Ok(false) => ConnectionState::Close,
            Err(ForwardError::Source(reason) | ForwardError::Sink(reason)) => {
                ConnectionState::Broken(reason)
            }
        }
    }
}

/// Outcome of waiting for a response.
enum ReplyOutcome {
    Reply(ReplyHead),
    ClientGone(ResetReason),
    /// The hub is silent, and a stored response may be used.
    HubGone,
    Failed(ResetReason),
}

/// Awaits `work` until the deadline, if there is one; [`None`] if it has passed.
async fn within<R>(deadline: Option<Instant>, work: impl Future<Output = R>) -> Option<R> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::testkit::{Prompt, connected};

    #[tokio::test]
    async fn interim_answers_that_come_at_once_hold_up_nobody() {
        let [near, mut far] = connected().await;
        let said = [
            b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000),
            b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        ];
        let said = said.concat();
        let mut inlet = ReadBuffer::default();
        let reading = Prompt::new(read_reply(WireEnd::Socket(&near), &mut inlet, None));
        let (reply, written) = tokio::join!(reading, far.write_all(&said));
        written.unwrap();
        assert!(matches!(reply, Ok(ReplyHead::Head(head, _)) if head.status == 204));
    }
}
