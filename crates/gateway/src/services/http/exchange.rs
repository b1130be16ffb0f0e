//! A request that is sent on, and the answer to it.

use std::borrow::Cow;

use http_cache::{Asked, Body, Framing, Parsed, RequestHead, ResponseHead, Verdict};
use pep::relay::Side;
use slacp::ResetReason;
use tokio::time::{Instant, timeout_at};

use super::answer::persist;
use super::conversation::{Conversation, Fate, address, wire};
use super::flight::{Lead, Seat};
use super::record::Recording;
use super::upstream::Upstream;
use super::wire::{As, Broken, Inlet, Wire, pass};
use crate::clock;
use crate::figures::connections::Registered;

/// How an attempt has ended.
enum Attempt {
    Over(Fate),
    /// This is to be sent instead.
    Again(RequestHead, Box<Asked>),
    /// No answer came, or not even a connection.
    Failed(ResetReason),
    /// The server had closed a connection that it had kept open.
    Stale,
}

/// The head of an answer, if there is one.
pub(super) enum Reply {
    Head(ResponseHead, usize),
    /// No HTTP, or it ended too soon; what has come is kept.
    Malformed,
    /// Nothing came.
    Nothing,
}

/// Reads the head of an answer. Interim ones are passed on to `client`, if it understands them.
pub(super) async fn read_reply(
    wire: Wire<'_>,
    inlet: &mut Inlet,
    client: Option<Wire<'_>>,
) -> Result<Reply, ResetReason> {
    loop {
        match inlet.head(ResponseHead::parse) {
            Parsed::Head(head, length) if head.is_interim() && head.status != 101 => {
                if let Some(client) = client {
                    client.write(&inlet.bytes()[..length]).await?;
                }
                inlet.consume(length);
                // Any number may have come at once.
                tokio::task::yield_now().await;
            }
            Parsed::Head(head, length) => return Ok(Reply::Head(head, length)),
            Parsed::Malformed => return Ok(Reply::Malformed),
            Parsed::Incomplete if inlet.ended && inlet.is_empty() => {
                return Ok(Reply::Nothing);
            }
            Parsed::Incomplete if inlet.ended => return Ok(Reply::Malformed),
            Parsed::Incomplete => {
                inlet.fill(wire).await?;
            }
        }
    }
}

/// The head of a request as the next one gets it, which keeps the connection open after its answer if it
/// `keeps`. Only a server that closes ends an answer that we cannot read.
pub(super) fn sent_on(head: &RequestHead, framing: Framing, keeps: bool) -> Vec<u8> {
    let mut head = head.clone();
    head.fields.remove_of_connection();
    if framing == Framing::Chunked {
        head.fields.push("Transfer-Encoding", "chunked");
    }
    persist(&mut head.fields, head.minor, keeps);
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    bytes
}

impl Conversation {
    /// Sends `head` in place of the client's request, and answers the client.
    pub(super) async fn ask(
        &mut self,
        request: &RequestHead,
        mut head: RequestHead,
        mut asked: Asked,
        framing: Framing,
        entry: &Registered<'_>,
    ) -> Fate {
        loop {
            match self.attempt(request, &head, &asked, framing, entry).await {
                Attempt::Over(fate) => return fate,
                Attempt::Again(again, next) => (head, asked) = (again, *next),
                Attempt::Stale => {}
                Attempt::Failed(reason) => return self.fail(request, &asked, reason).await,
            }
        }
    }

    /// What the cache has may do. Otherwise the client hears of the failure as it would without us.
    async fn fail(&mut self, request: &RequestHead, asked: &Asked, reason: ResetReason) -> Fate {
        let now = clock::unix_time();
        if let Some(answer) = self.shared.kept.change(|cache| cache.handle_failure(now, asked))
            && let Some(fate) = self.answer(request, answer, "hit; detail=unreachable").await
        {
            return fate;
        }
        let counters = &self.shared.upstreams.counters;
        if let Some(address) = address(&self.open.destination) {
            counters.refusals.report(clock::now(), address, reason).await;
        }
        if asked.validates.is_some() {
            // What must be validated and cannot be is an error of the cache's (RFC 9111 §5.2.2.2).
            return self.unavailable(request, "fwd=stale").await;
        }
        Fate::Broken(reason)
    }

    async fn attempt(
        &mut self,
        request: &RequestHead,
        head: &RequestHead,
        asked: &Asked,
        framing: Framing,
        entry: &Registered<'_>,
    ) -> Attempt {
        // No other request follows the client's last one.
        let keeps = request.keeps_alive();
        let bytes = sent_on(head, framing, keeps);
        let deadline = self.deadline(asked);
        let way = self.way((head, framing, keeps), &bytes);
        let mut upstream = match within(deadline, way).await {
            Some(Ok(upstream)) => upstream,
            Some(Err(reason)) => return Attempt::Failed(reason),
            None => return self.give_up(),
        };
        let retries = upstream.used && framing == Framing::None && request.is_safe();
        entry.moved(clock::now(), Side::Client, bytes.len());
        if !upstream.is_fetch()
            && let Err(reason) = upstream.end.wire().write(&bytes).await
        {
            return if retries { Attempt::Stale } else { Attempt::Failed(reason) };
        }
        let mut body = Body::new(framing);
        let heard = self.hear(&mut upstream, &mut body, asked, request, entry);
        let Some(heard) = within(deadline, heard).await else { return self.give_up() };
        let reply = match heard {
            Heard::Reply(reply) => reply,
            Heard::ClientGone(reason) => return Attempt::Over(Fate::Broken(reason)),
            Heard::HubGone => return Attempt::Failed(ResetReason::TimedOut),
            Heard::Failed(_) if retries => return Attempt::Stale,
            Heard::Failed(ResetReason::Prohibited | ResetReason::Limit) if upstream.is_fetch() => {
                // The hub does not for this server, or has too much to do; it may still connect.
                self.fetches = false;
                return Attempt::Stale;
            }
            Heard::Failed(reason) => return Attempt::Failed(reason),
        };
        if !upstream.end.crosses_hop() {
            self.shared.patience().handle_answer();
        }
        if retries && matches!(reply, Reply::Nothing) {
            return Attempt::Stale;
        }
        let whole = body.is_over();
        self.decide(request, asked, (reply, whole), upstream, entry).await
    }

    /// Until when to wait for an answer without the hop, if what is stored may do instead.
    fn deadline(&self, asked: &Asked) -> Option<Instant> {
        let is_away = self.shared.route.borrow().hub.is_none();
        let may_do = is_away && self.shared.kept.lock().has_fallback(clock::unix_time(), asked);
        may_do.then(|| Instant::now() + self.shared.patience().limit(clock::now()))
    }

    fn give_up(&self) -> Attempt {
        self.shared.patience().handle_silence(clock::now());
        Attempt::Failed(ResetReason::TimedOut)
    }

    /// Deals with an answer to a request, all of which has been sent if it is `whole`.
    async fn decide(
        &mut self,
        request: &RequestHead,
        asked: &Asked,
        (reply, whole): (Reply, bool),
        mut upstream: Upstream,
        entry: &Registered<'_>,
    ) -> Attempt {
        match reply {
            Reply::Nothing if asked.validates.is_some() => Attempt::Failed(ResetReason::Reset),
            // The client hears what the server has said, and what it says when it has more of the request.
            Reply::Nothing | Reply::Malformed => self.passes(upstream).await,
            Reply::Head(reply, length) => {
                let verdict = self
                    .shared
                    .kept
                    .change(|cache| cache.handle_response(clock::unix_time(), asked, &reply));
                match reply.framing(&request.method) {
                    Ok(answered) if whole => {
                        upstream.inlet.consume(length);
                        self.settle(request, asked, (reply, answered, verdict), upstream, entry)
                            .await
                    }
                    _ => self.passes(upstream).await,
                }
            }
        }
    }

    /// A way to the server, on which the request has been sent if it is the hub's.
    async fn way(
        &mut self,
        (head, framing, keeps): (&RequestHead, Framing, bool),
        bytes: &[u8],
    ) -> Result<Upstream, ResetReason> {
        let route = *self.shared.route.borrow();
        let upstreams = &self.shared.upstreams;
        // The hub is to speak TLS, too.
        let fetched = match &self.secure {
            Some((site, _)) => {
                let target = format!("https://{}{}", site.host, head.target);
                Cow::Owned(sent_on(&RequestHead { target, ..head.clone() }, framing, keeps))
            }
            None => Cow::Borrowed(bytes),
        };
        let repeats = framing == Framing::None && matches!(head.method.as_str(), "GET" | "HEAD");
        if repeats
            && self.fetches
            && let Some(fetch) = Upstream::fetch(upstreams, route, &self.open, &fetched).await?
        {
            return Ok(fetch);
        }
        match self.upstream.take() {
            Some(upstream) => Ok(upstream),
            None => self.way_to_server().await,
        }
    }

    /// Lets pass what the server says, and all that follows.
    async fn passes(&mut self, mut upstream: Upstream) -> Attempt {
        if !upstream.is_fetch() {
            self.upstream = Some(upstream);
            return Attempt::Over(Fate::Plain);
        }
        // Its request had no body, and whatever this is, nothing can follow it.
        let Upstream { end, inlet, .. } = &mut upstream;
        let mut rest = Body::new(Framing::UntilClose);
        let to = (self.client(), As::Itself);
        let passed = pass((end.wire(), inlet), to, &mut rest, |_| {}, |_| {}).await;
        Attempt::Over(match passed {
            Ok(_) => Fate::Close,
            Err(Broken::From(reason) | Broken::To(reason)) => Fate::Broken(reason),
        })
    }

    /// Sends the body of a request, and waits for the head of the answer, which may come first.
    async fn hear(
        &mut self,
        upstream: &mut Upstream,
        body: &mut Body,
        asked: &Asked,
        request: &RequestHead,
        entry: &Registered<'_>,
    ) -> Heard {
        let Upstream { end, inlet, .. } = upstream;
        let client = wire(&self.leg, &self.secure);
        let (mut uploaded, mut gone) = (body.is_over(), false);
        let moved = |count| entry.moved(clock::now(), Side::Client, count);
        let ends = ((client, &mut self.inlet), (end.wire(), As::Itself));
        let upload = pass(ends.0, ends.1, body, |_| {}, moved);
        let reading = read_reply(end.wire(), inlet, (request.minor == 1).then_some(client));
        let mut route = self.shared.route.clone();
        let (mut upload, mut reading) = (std::pin::pin!(upload), std::pin::pin!(reading));
        loop {
            tokio::select! {
                passed = &mut upload, if !uploaded => match passed {
                    Ok(true) => uploaded = true,
                    Ok(false) => return Heard::ClientGone(ResetReason::Reset),
                    Err(Broken::From(reason)) => return Heard::ClientGone(reason),
                    // Servers refuse what is too much for them, and say so.
                    Err(Broken::To(_)) => uploaded = true,
                },
                reply = &mut reading => return match reply {
                    Ok(reply) => Heard::Reply(reply),
                    Err(reason) => Heard::Failed(reason),
                },
                () = self.leg.failure(), if !gone => {
                    // Others may wait for the answer, too.
                    if !self.lead.as_ref().is_some_and(Lead::is_followed) {
                        return Heard::ClientGone(ResetReason::Reset);
                    }
                    gone = true;
                }
                // Over a hop that is gone, nothing will come for a while, and the cache may do.
                Ok(()) = route.changed(), if asked.validates.is_some() => {
                    if route.borrow().hub.is_none() && end.crosses_hop() {
                        return Heard::HubGone;
                    }
                }
            }
        }
    }

    /// Does with an answer what the cache has decided.
    async fn settle(
        &mut self,
        request: &RequestHead,
        asked: &Asked,
        (reply, framing, verdict): (ResponseHead, Framing, Verdict<super::disk::Bytes>),
        mut upstream: Upstream,
        entry: &Registered<'_>,
    ) -> Attempt {
        let keeps = reply.keeps_alive();
        match verdict {
            Verdict::Pass { store } => {
                if !store {
                    self.lead.take().into_iter().for_each(Lead::end_alone);
                }
                if let (Framing::Length(length), Some(lead)) = (framing, &self.lead) {
                    if lead.announce(asked, &reply, length) {
                        let answer = (&reply, framing);
                        return Attempt::Over(self.share(request, answer, upstream, entry).await);
                    }
                    // There is no room for it: nobody waits for what will not be there.
                    self.lead.take().into_iter().for_each(Lead::end_alone);
                }
                let answer = (&reply, framing, store);
                let fate = self.pass_on(request, asked, answer, &mut upstream, entry).await;
                if keeps && framing != Framing::UntilClose && matches!(fate, Fate::Open) {
                    self.keep(upstream);
                } else if !matches!(fate, Fate::Broken(_)) {
                    tokio::spawn(upstream.close());
                }
                Attempt::Over(fate)
            }
            Verdict::Answer(answer) => {
                if framing == Framing::None && keeps {
                    self.keep(upstream);
                }
                match self.answer(request, answer, "hit; fwd=stale").await {
                    Some(fate) => Attempt::Over(fate),
                    None => {
                        let asked = Asked { validates: None, ..asked.clone() };
                        Attempt::Again(asked.request.clone(), Box::new(asked))
                    }
                }
            }
            Verdict::Again(head, asked) => {
                if framing == Framing::None && keeps {
                    self.keep(upstream);
                }
                Attempt::Again(head, Box::new(asked))
            }
        }
    }

    /// Keeps a way to the server for the next request, unless it has said more than it was asked.
    fn keep(&mut self, mut upstream: Upstream) {
        if upstream.is_fetch() {
            tokio::spawn(upstream.close());
        } else if upstream.inlet.is_empty() && !upstream.inlet.ended {
            upstream.used = true;
            self.upstream = Some(upstream);
        }
    }

    /// Passes on the head of an answer. Returns whether the connection stays open behind its body.
    async fn begin(
        &self,
        request: &RequestHead,
        reply: &ResponseHead,
        framing: Framing,
        entry: &Registered<'_>,
    ) -> Result<bool, ResetReason> {
        let old = request.minor == 0;
        let until_close = framing == Framing::UntilClose || (old && framing == Framing::Chunked);
        let keeps = request.keeps_alive() && !until_close;
        let mut head = reply.clone();
        head.fields.remove_of_connection();
        if framing == Framing::Chunked && !old {
            head.fields.push("Transfer-Encoding", "chunked");
        }
        persist(&mut head.fields, request.minor, keeps);
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        entry.moved(clock::now(), Side::Server, bytes.len());
        self.client().write(&bytes).await?;
        Ok(keeps)
    }

    /// Passes on an answer that is stored, and that others may have, too. It is taken in even if this client
    /// does not read it.
    async fn share(
        &mut self,
        request: &RequestHead,
        (reply, framing): (&ResponseHead, Framing),
        upstream: Upstream,
        entry: &Registered<'_>,
    ) -> Fate {
        let (Some(lead), Framing::Length(length)) = (self.lead.take(), framing) else {
            return Fate::Broken(ResetReason::Reset);
        };
        let mut seat = Seat::new(lead.flight.clone());
        let client = self.client();
        let taken = tokio::spawn(lead.take_in(upstream, framing));
        let moved = |count| entry.moved(clock::now(), Side::Server, count);
        let said = async {
            let keeps = self.begin(request, reply, framing, entry).await?;
            let whole = (0, usize::try_from(length).unwrap_or(usize::MAX));
            Ok(seat.write(client, whole, moved).await? && keeps)
        };
        let keeps = match said.await {
            Ok(keeps) => keeps,
            Err(reason) => return Fate::Broken(reason),
        };
        // All of it has come.
        if let Ok(Some(upstream)) = taken.await {
            if reply.keeps_alive() {
                self.keep(upstream);
            } else {
                tokio::spawn(upstream.close());
            }
        }
        if keeps { Fate::Open } else { Fate::Close }
    }

    /// Passes an answer on to the client, and stores it if that is wanted.
    async fn pass_on(
        &mut self,
        request: &RequestHead,
        asked: &Asked,
        (reply, framing, store): (&ResponseHead, Framing, bool),
        upstream: &mut Upstream,
        entry: &Registered<'_>,
    ) -> Fate {
        let old = request.minor == 0;
        let keeps = match self.begin(request, reply, framing, entry).await {
            Ok(keeps) => keeps,
            Err(reason) => return Fate::Broken(reason),
        };
        let mut recording = store.then(|| Recording::new(&self.shared.kept));
        let record = |bytes: &[u8]| recording.iter_mut().for_each(|it| it.add(bytes));
        let form = if old && framing == Framing::Chunked { As::Content } else { As::Itself };
        let mut body = Body::new(framing);
        let Upstream { end, inlet, .. } = upstream;
        let moved = |count| entry.moved(clock::now(), Side::Server, count);
        let client = self.client();
        let passed = pass((end.wire(), inlet), (client, form), &mut body, record, moved).await;
        match passed {
            Ok(true) => {
                recording.into_iter().for_each(|it| it.store(asked, reply));
                if keeps { Fate::Open } else { Fate::Close }
            }
            // Chunks that tell where it ends did not reach the client.
            Ok(false) if form == As::Content => Fate::Broken(ResetReason::Reset),
            // Whether it was whole nobody knows, or it ended too soon, which the client sees: it is not
            // stored.
            Ok(false) => Fate::Close,
            Err(Broken::From(reason) | Broken::To(reason)) => Fate::Broken(reason),
        }
    }
}

/// What came of a request.
enum Heard {
    Reply(Reply),
    ClientGone(ResetReason),
    /// The request has gone over a hop whose hub is silent, and something is stored.
    HubGone,
    Failed(ResetReason),
}

/// What comes of `work` before the deadline, if there is one.
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
        let mut inlet = Inlet::default();
        let reading = Prompt::new(read_reply(Wire::Socket(&near), &mut inlet, None));
        let (reply, written) = tokio::join!(reading, far.write_all(&said));
        written.unwrap();
        assert!(matches!(reply, Ok(Reply::Head(head, _)) if head.status == 204));
    }
}
