//! A response in flight that several clients wait for: collapsed requests (RFC 9111 §4,
//! `http_cache::InFlightRequests`).
//!
//! Once its head has arrived and gives a length, a task receives the body, and every client gets it
//! at its own speed. So no client waits for the slowest, and the one that asked first may leave.
//! When all have left, the task ends.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http_cache::{BodyFraming, BodyParser, CacheKey, ForwardedRequest, RequestHead, ResponseHead};
use slacp::ResetReason;
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::persist;
use super::conversation::{ConnectionState, HttpConnection};
use super::kept::ResponseCache;
use super::record::BodyReservation;
use super::upstream::UpstreamConnection;
use super::wire::{BodyForm, BodySink, BodySource, WireEnd, forward_body};
use crate::process::clock;

/// Time limit for the head of a response to another client's request.
const SHARED_HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Most bytes of a body written to a client at a time.
const MAX_PIECE: usize = 64 << 10;

/// A response in flight, shared by the clients that wait for it.
#[derive(Default)]
pub(super) struct SharedResponse {
    progress: watch::Sender<ResponseProgress>,
    body: Mutex<Vec<u8>>,
    room: OnceLock<BodyReservation>,
}

#[derive(Debug, Clone, Default)]
struct ResponseProgress {
    /// Set once the response is known to be shared.
    coming: Option<Arc<AnnouncedResponse>>,
    /// Bytes of the body received.
    have: usize,
    /// Set when nothing more will arrive.
    over: bool,
    /// Set if the server ended the body too soon.
    is_short: bool,
}

#[derive(Debug)]
struct AnnouncedResponse {
    asked: ForwardedRequest,
    reply: ResponseHead,
    /// Length of the body in bytes.
    length: usize,
}

impl ResponseProgress {
    /// Returns `true` once waiting clients can go on: the response is coming, or will not come.
    fn is_known(&self) -> bool {
        self.over || self.coming.is_some()
    }

    fn coming(&self) -> Option<Arc<AnnouncedResponse>> {
        let coming = self.coming.clone()?;
        (!self.over || self.have == coming.length).then_some(coming)
    }
}

impl SharedResponse {
    fn add(&self, bytes: &[u8]) {
        self.body().extend_from_slice(bytes);
        self.progress.send_modify(|progress| progress.have += bytes.len());
    }

    fn body(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.body.lock().expect("nobody panics while holding this")
    }
}

/// The client's request that is sent on behalf of all. Dropping it sends the others back to the
/// cache.
pub(super) struct LeadingRequest {
    kept: Arc<ResponseCache>,
    pub(super) flight: Arc<SharedResponse>,
    key: CacheKey,
    number: u64,
}

impl Drop for LeadingRequest {
    fn drop(&mut self) {
        self.kept.flights().finish(&self.key, self.number);
        // Whoever waits goes back to the cache, unless the response has come.
        self.flight.progress.send_modify(|progress| progress.over = true);
    }
}

impl ResponseCache {
    fn flights(
        &self,
    ) -> std::sync::MutexGuard<'_, http_cache::InFlightRequests<Arc<SharedResponse>>> {
        self.flights.lock().expect("nobody panics while holding this")
    }

    /// Decides how a request that the cache wants to forward is sent: for others too, by waiting
    /// for another's, or alone.
    pub(super) fn board(self: &Arc<Self>, asked: &ForwardedRequest) -> RequestRole {
        let flight = Arc::<SharedResponse>::default();
        let found = self.flights().enter(clock::now(), asked, &flight);
        match found {
            http_cache::CollapseDecision::Lead(number) => {
                let kept = self.clone();
                let key = asked.key.clone();
                RequestRole::Lead(LeadingRequest { kept, flight, key, number })
            }
            http_cache::CollapseDecision::Join(flight) => RequestRole::Join(flight),
            http_cache::CollapseDecision::Alone => RequestRole::Alone,
        }
    }
}

impl LeadingRequest {
    /// Returns `true` while other clients wait for the response.
    pub(super) fn is_followed(&self) -> bool {
        self.flight.progress.receiver_count() > 0
    }

    /// Reports that the response is for this client only.
    pub(super) fn mark_private(self) {
        self.kept.flights().mark_unshared(clock::now(), self.key.clone());
    }

    /// Announces a response that will be stored to the waiting clients. Returns `false` if there is
    /// no memory for it.
    pub(super) fn announce(
        &self,
        asked: &ForwardedRequest,
        reply: &ResponseHead,
        length: u64,
    ) -> bool {
        let Some(room) = BodyReservation::new(&self.kept, asked.client, length) else {
            return false;
        };
        let Ok(length) = usize::try_from(length) else { return false };
        let coming =
            Arc::new(AnnouncedResponse { asked: asked.clone(), reply: reply.clone(), length });
        let is_first = self.flight.room.set(room).is_ok();
        self.flight.progress.send_modify(|progress| progress.coming = Some(coming));
        is_first
    }

    /// Receives and stores the body. Returns the server's connection if it can be used again.
    pub(super) async fn receive(
        self,
        mut upstream: UpstreamConnection,
        framing: BodyFraming,
    ) -> Option<UpstreamConnection> {
        let flight = self.flight.clone();
        let UpstreamConnection { end, inlet, .. } = &mut upstream;
        let wire = end.wire();
        let source = BodySource { wire, inlet };
        let sink = BodySink { wire, form: BodyForm::Discarded };
        let mut body = BodyParser::new(framing);
        let add = |bytes: &[u8]| flight.add(bytes);
        let passed = tokio::select! {
            passed = forward_body(source, sink, &mut body, add, |_| {}) => passed,
            // All clients have left.
            () = flight.progress.closed() => return None,
        };
        if passed != Ok(true) {
            flight.progress.send_modify(|progress| progress.is_short = passed == Ok(false));
            return None;
        }
        let coming = flight.progress.borrow().coming.clone()?;
        let body = flight.body().as_slice().into();
        let now = clock::unix_time();
        let AnnouncedResponse { asked, reply, length } = &*coming;
        self.kept.change(|cache| cache.handle_body(now, asked, reply, body, *length as u64));
        Some(upstream)
    }
}

/// Role of a request among identical ones.
pub(super) enum RequestRole {
    Lead(LeadingRequest),
    Join(Arc<SharedResponse>),
    Alone,
}

/// A client's position in the body of a response in flight.
pub(super) struct ResponseReader {
    flight: Arc<SharedResponse>,
    progress: watch::Receiver<ResponseProgress>,
}

impl ResponseReader {
    pub(super) fn new(flight: Arc<SharedResponse>) -> Self {
        let progress = flight.progress.subscribe();
        Self { flight, progress }
    }

    /// Waits for bytes after the first `sent` and returns some of them; [`None`] if they will not
    /// arrive.
    async fn piece(&mut self, sent: usize) -> Option<Vec<u8>> {
        let have = {
            let has_more = |progress: &ResponseProgress| progress.over || progress.have > sent;
            self.progress.wait_for(has_more).await.ok()?.have
        };
        let body = self.flight.body();
        let piece = body.get(sent..have.min(sent + MAX_PIECE))?;
        // Copied: the lock must not be held while the client is written to.
        (!piece.is_empty()).then(|| piece.to_vec())
    }

    /// Writes a part of the body as it arrives. Returns `false` if the server ended it too soon:
    /// the client's connection should then end, too, instead of being reset.
    pub(super) async fn write(
        &mut self,
        to: WireEnd<'_>,
        part: Range<usize>,
        moved: impl Fn(usize),
    ) -> Result<bool, ResetReason> {
        let mut sent = part.start;
        while sent < part.end {
            let Some(mut piece) = self.piece(sent).await else {
                let is_short = self.progress.borrow().is_short;
                return if is_short { Ok(false) } else { Err(ResetReason::Reset) };
            };
            // More of the body may have come than the client has asked for.
            piece.truncate(part.end - sent);
            to.write(&piece).await?;
            moved(piece.len());
            sent += piece.len();
        }
        Ok(true)
    }
}

impl HttpConnection {
    /// Answers with the response to another client's request.
    ///
    /// # Errors
    /// The shared response does not fit this request, or does not come; nothing was sent to the
    /// client.
    pub(super) async fn follow(
        &self,
        flight: Arc<SharedResponse>,
        request: &RequestHead,
    ) -> Result<ConnectionState, SharedWaitError> {
        let mut reader = ResponseReader::new(flight);
        let known = reader.progress.wait_for(ResponseProgress::is_known);
        let coming = tokio::select! {
            known = timeout(SHARED_HEAD_TIMEOUT, known) => match known {
                Ok(Ok(known)) => known.coming(),
                _ => return Err(SharedWaitError::AskServer),
            },
            () = self.leg.failure() => return Ok(ConnectionState::Broken(ResetReason::Reset)),
        };
        let coming = coming.ok_or(SharedWaitError::MayWaitAgain)?;
        let now = clock::unix_time();
        let length = coming.length as u64;
        let served = self.shared.kept.change(|cache| {
            cache.handle_collapsed(now, &coming.asked, &coming.reply, length, request)
        });
        let (mut head, part) = served.ok_or(SharedWaitError::AskServer)?;
        let keeps = request.keeps_alive();
        head.fields.push("Cache-Status", "skyhop; fwd=miss; collapsed");
        persist(&mut head.fields, request.minor, keeps);
        let mut first = Vec::new();
        head.write(&mut first);
        // Without a body there is no part, as in the response to a HEAD.
        let part = part.map_or(0..0, |part| {
            let from = part.from as usize;
            from..from + part.length as usize
        });
        let sent = async {
            self.client().write(&first).await?;
            reader.write(self.client(), part, |_| {}).await
        };
        Ok(match sent.await {
            Ok(true) if keeps => ConnectionState::Open,
            Ok(_) => ConnectionState::Close,
            Err(reason) => ConnectionState::Broken(reason),
        })
    }
}

/// Failure of waiting for another client's response: the client may wait for the next one, or must
/// send its own request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedWaitError {
    MayWaitAgain,
    AskServer,
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http_cache::{CacheConfig, ParsedHead, RequestAction, StoreLimits};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;
    use units::ByteCount;

    use super::*;
    use crate::services::http::upstream::UpstreamTransport;
    use crate::services::http::wire::ReadBuffer;
    use crate::testkit::connected;

    const MEMORY: u64 = 1000;
    const BODY: &[u8; 300] = &[7; 300];

    fn kept() -> Arc<ResponseCache> {
        let size = ByteCount::new(MEMORY);
        let limits = StoreLimits { memory: ByteCount::new(100_000), disk: size, object: size };
        let config = CacheConfig { limits, stale: Duration::ZERO };
        ResponseCache::start(config, None).0
    }

    fn asked(kept: &ResponseCache, target: &str) -> ForwardedRequest {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let ParsedHead::Head(request, _) = RequestHead::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        let key = CacheKey {
            destination: String::new(),
            host: "a".to_owned(),
            target: target.to_owned(),
        };
        let (now, client) = (clock::unix_time(), IpAddr::from([10, 0, 0, 1]));
        match kept
            .change(|cache| cache.handle_request(now, key, &request, BodyFraming::None, client))
        {
            RequestAction::Ask(_, asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    fn reply(length: u64) -> ResponseHead {
        let text = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n"
        );
        let ParsedHead::Head(head, _) = ResponseHead::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        head
    }

    fn lead(kept: &Arc<ResponseCache>, asked: &ForwardedRequest) -> LeadingRequest {
        let RequestRole::Lead(lead) = kept.board(asked) else { panic!("another leads") };
        lead
    }

    /// A flight whose body comes from a socket: its task, the server, and the client that leads.
    async fn flying(
        kept: &Arc<ResponseCache>,
        target: &str,
    ) -> (tokio::task::JoinHandle<Option<UpstreamConnection>>, TcpStream, ResponseReader) {
        let asked = asked(kept, target);
        let lead = lead(kept, &asked);
        assert!(lead.announce(&asked, &reply(300), 300));
        let [near, server] = connected().await;
        let upstream = UpstreamConnection {
            end: UpstreamTransport::Socket(near),
            inlet: ReadBuffer::default(),
            used: false,
        };
        let seat = ResponseReader::new(lead.flight.clone());
        (tokio::spawn(lead.receive(upstream, BodyFraming::Length(300))), server, seat)
    }

    fn join(kept: &Arc<ResponseCache>, target: &str) -> ResponseReader {
        let RequestRole::Join(flight) = kept.board(&asked(kept, target)) else {
            panic!("none flies")
        };
        ResponseReader::new(flight)
    }

    #[tokio::test]
    async fn who_waits_gets_it_though_the_first_has_left_and_one_does_not_read() {
        let kept = kept();
        let (task, mut server, first) = flying(&kept, "/").await;
        let (_asleep, mut second) = (join(&kept, "/"), join(&kept, "/"));
        server.write_all(&BODY[..100]).await.unwrap();
        drop(first);
        assert_eq!(second.piece(0).await.unwrap(), &BODY[..100]);
        server.write_all(&BODY[100..]).await.unwrap();
        assert!(task.await.unwrap().is_some(), "the connection can be used again");
        let [near, mut far] = connected().await;
        assert_eq!(second.write(WireEnd::Socket(&near), 0..300, |_| {}).await, Ok(true));
        drop(near);
        assert_eq!(crate::testkit::read_all(&mut far).await.unwrap(), BODY);
        assert_eq!(kept.stats().0.stored, 1);
        assert!(kept.flights().is_empty());
    }

    #[tokio::test]
    async fn it_is_given_up_when_everybody_has_left() {
        let kept = kept();
        let (task, server, first) = flying(&kept, "/").await;
        let second = join(&kept, "/");
        drop((first, second));
        assert!(task.await.unwrap().is_none());
        assert_eq!(kept.stats().0.stored, 0);
        lead(&kept, &asked(&kept, "/"));
        drop(server);
    }

    #[tokio::test]
    async fn what_is_cut_off_is_an_end_for_all_and_not_stored() {
        let kept = kept();
        let (task, mut server, mut first) = flying(&kept, "/").await;
        server.write_all(&BODY[..100]).await.unwrap();
        assert!(first.piece(0).await.is_some());
        drop(server);
        assert!(task.await.unwrap().is_none());
        let [near, mut far] = connected().await;
        assert_eq!(first.write(WireEnd::Socket(&near), 0..300, |_| {}).await, Ok(false));
        drop(near);
        assert_eq!(crate::testkit::read_all(&mut far).await.unwrap(), &BODY[..100]);
        assert_eq!(kept.stats().0.stored, 0);
    }

    #[tokio::test]
    async fn those_who_wait_are_told_when_the_first_has_nothing_for_them() {
        let kept = kept();
        let asked = asked(&kept, "/");
        let lead = lead(&kept, &asked);
        let second = join(&kept, "/");
        assert!(lead.is_followed());
        lead.mark_private();
        let progress = second.progress.borrow().clone();
        assert!(progress.is_known() && progress.coming().is_none());
        assert!(matches!(kept.board(&asked), RequestRole::Alone));
    }

    #[tokio::test]
    async fn a_client_takes_half_of_the_room_with_what_has_not_come() {
        let kept = kept();
        let longest = kept.lock().store().longest_body();
        let rooms: Vec<_> = (0..)
            .map_while(|_| BodyReservation::new(&kept, [10, 0, 0, 1].into(), longest))
            .collect();
        assert_eq!(rooms.len() as u64, 50_000 / longest);
        assert!(BodyReservation::new(&kept, [10, 0, 0, 2].into(), longest).is_some());
        assert!(BodyReservation::new(&kept, [10, 0, 0, 2].into(), longest + 1).is_none());
        drop(rooms);
        assert!(BodyReservation::new(&kept, [10, 0, 0, 1].into(), longest).is_some());
    }
}
