//! The cache as a state machine: decides about each request and each response.

use core::time::Duration;
use std::net::IpAddr;

use units::{ByteCount, UnixTime};

use super::answer::{BodyRange, build_response, validation_request};
use super::directives::CacheDirectives;
use super::head::{BodyFraming, RequestHead, ResponseHead};
use super::policy::{ReuseMode, StoredResponse, is_storable};
use super::store::{CacheKey, EntryId, FileOutput, ResponseStore, StoreLimits};

/// Settings of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bounds of what is stored.
    pub limits: StoreLimits,
    /// Time after its expiry for which a response may be used while the server cannot be reached, unless the
    /// response itself sets a limit.
    pub stale: Duration,
}

/// Counters of a cache since its start, and its present size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// All requests for which the cache was asked.
    pub requests: u64,
    /// Requests answered from the cache without asking the server.
    pub hits: u64,
    /// Requests answered from the cache after the server confirmed the stored response (304).
    pub confirmed: u64,
    /// Requests answered with an expired response: while it was revalidated, or because the server failed.
    pub stale: u64,
    /// Cacheable requests that the server answered.
    pub misses: u64,
    /// Requests that bypass the cache: with a body, with a method other than GET or HEAD, or with
    /// `If-Match` or `If-Unmodified-Since`.
    pub passed: u64,
    /// Requests answered with the response to another client's request.
    pub collapsed: u64,
    /// Bytes of bodies that did not have to cross the hop.
    pub saved_bytes: u64,
    /// Responses stored since the start.
    pub stored: u64,
    /// Responses in the cache now.
    pub entries: u64,
    /// Memory in use by heads and bodies.
    pub memory: ByteCount,
    /// Disk space in use by files.
    pub disk: ByteCount,
}

/// A response from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedResponse<B> {
    /// The head to send, without connection-specific fields.
    pub head: ResponseHead,
    /// The range of the body to send; [`None`] for no body.
    pub part: Option<BodyRange>,
    /// The complete body, if it is in memory.
    pub body: Option<B>,
    /// The entry whose file holds the body otherwise.
    pub entry: EntryId,
}

/// A request that was sent to the server, kept until its response has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// The key under which its response would be stored.
    pub key: CacheKey,
    /// The client's request, without the fields that `Connection` names.
    pub request: RequestHead,
    /// `true` if the response may be stored.
    pub storable: bool,
    /// The stored response that this request validates.
    pub validates: Option<EntryId>,
    /// The client on whose account the response is stored.
    pub client: IpAddr,
    /// Time of the request by the local clock.
    pub requested: UnixTime,
}

/// Action for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestAction<B> {
    /// Answer from the cache. The second value, if any, is a request that revalidates the stored response
    /// in the background.
    Answer(CachedResponse<B>, Option<(RequestHead, ForwardedRequest)>),
    /// Send this request to the server in place of the client's.
    Ask(RequestHead, ForwardedRequest),
    /// Answer 504, because the request has `only-if-cached` (RFC 9111 §5.2.1.7).
    Unavailable,
}

/// Action for the response to a request that was sent to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseAction<B> {
    /// Pass it to the client.
    Pass {
        /// `true` if the complete response is to be given to [`SharedCache::handle_body`].
        store: bool,
    },
    /// Answer from the cache; drop the server's response.
    Answer(CachedResponse<B>),
    /// Ask again with this request: the confirmation was not for the stored response.
    Again(RequestHead, ForwardedRequest),
}

/// A cache whose bodies are of type `B`.
#[derive(Debug)]
pub struct SharedCache<B> {
    config: CacheConfig,
    store: ResponseStore<B>,
    stats: CacheStats,
}

impl<B: Clone> SharedCache<B> {
    /// Creates an empty cache with these settings.
    pub fn new(config: CacheConfig) -> Self {
        let store = ResponseStore::new(config.limits);
        Self { config, store, stats: CacheStats::default() }
    }

    /// Returns the counters and the present size.
    pub fn stats(&self) -> CacheStats {
        let memory = ByteCount::new(self.store.memory());
        let disk = ByteCount::new(self.store.disk());
        CacheStats { entries: self.store.len() as u64, memory, disk, ..self.stats }
    }

    /// The store of responses and their bodies.
    pub fn store(&mut self) -> &mut ResponseStore<B> {
        &mut self.store
    }

    /// Returns the next file operation to carry out.
    pub fn poll_output(&mut self) -> Option<FileOutput<B>> {
        self.store.poll_output()
    }

    /// Decides about a request of `client` for `key`; `framing` is that of the request's body.
    pub fn handle_request(
        &mut self,
        now: UnixTime,
        key: CacheKey,
        request: &RequestHead,
        framing: BodyFraming,
        client: IpAddr,
    ) -> RequestAction<B> {
        self.stats.requests += 1;
        self.reconsider(now, key, request, framing, client)
    }

    /// Decides again about a request whose first plan could not be carried out. It is not counted again.
    pub fn reconsider(
        &mut self,
        now: UnixTime,
        key: CacheKey,
        request: &RequestHead,
        framing: BodyFraming,
        client: IpAddr,
    ) -> RequestAction<B> {
        // Vary and the stored request refer to the fields that the server receives.
        let request = request.end_to_end();
        let cacheable =
            matches!(request.method.as_str(), "GET" | "HEAD") && framing == BodyFraming::None;
        // These conditions are not applicable to a cache (RFC 9111 §4.3.2).
        let conditional =
            ["if-match", "if-unmodified-since"].iter().any(|name| request.fields.has(name));
        let asked = ForwardedRequest {
            key,
            request,
            storable: false,
            validates: None,
            client,
            requested: now,
        };
        if !cacheable || conditional {
            self.stats.passed += 1;
            return RequestAction::Ask(asked.request.clone(), asked);
        }
        match self.store.select(&asked.key, &asked.request) {
            Some(id) => self.plan_reuse(now, id, asked),
            None => self.plan_forward(asked),
        }
    }

    fn plan_forward(&mut self, mut asked: ForwardedRequest) -> RequestAction<B> {
        if CacheDirectives::of(&asked.request.fields).only_if_cached {
            return RequestAction::Unavailable;
        }
        asked.storable = asked.request.method == "GET" && !asked.request.fields.has("range");
        RequestAction::Ask(asked.request.clone(), asked)
    }

    fn plan_reuse(
        &mut self,
        now: UnixTime,
        id: EntryId,
        asked: ForwardedRequest,
    ) -> RequestAction<B> {
        let Some((stored, ..)) = self.store.get(id) else { return self.plan_forward(asked) };
        let reuse = stored.reuse(now, &asked.request);
        let validates = stored.has_validator();
        let again = validation_request(&asked.request, stored);
        match reuse {
            ReuseMode::Fresh => match self.answer(now, id, &asked.request) {
                Some(answer) => {
                    self.stats.hits += 1;
                    RequestAction::Answer(answer, None)
                }
                None => self.plan_forward(asked),
            },
            ReuseMode::WhileRevalidating => match self.answer(now, id, &asked.request) {
                Some(answer) => {
                    let revalidation = self.plan_revalidation(id, asked, again);
                    RequestAction::Answer(answer, revalidation)
                }
                None => self.plan_forward(asked),
            },
            ReuseMode::Validated => {
                let ranged = asked.request.fields.has("range");
                let is_get = asked.request.method == "GET";
                match self.plan_forward(asked) {
                    // A partial response cannot replace the stored one, so such a request validates
                    // nothing.
                    RequestAction::Ask(request, mut asked) => {
                        asked.validates = (!ranged && is_get).then_some(id);
                        let request =
                            if asked.validates.is_some() && validates { again } else { request };
                        RequestAction::Ask(request, asked)
                    }
                    other => other,
                }
            }
        }
    }

    /// Plans the background request that revalidates an entry while it is used: the validation request
    /// `again`, and the client's own if the stored response has changed. [`None`] if one is under way.
    fn plan_revalidation(
        &mut self,
        id: EntryId,
        mut asked: ForwardedRequest,
        mut again: RequestHead,
    ) -> Option<(RequestHead, ForwardedRequest)> {
        self.stats.stale += 1;
        // One background request for an entry is enough.
        let busy = self.store.set_revalidating(id, true);
        // The revalidation refreshes the cache, so it asks for the complete response whatever the client
        // wants.
        again.method = "GET".to_owned();
        ["range", "if-range"].iter().for_each(|name| again.fields.remove(name));
        asked.request.method.clone_from(&again.method);
        ["range", "if-range"].iter().for_each(|name| asked.request.fields.remove(name));
        (asked.storable, asked.validates) = (true, Some(id));
        (!busy).then_some((again, asked))
    }

    fn answer(
        &mut self,
        now: UnixTime,
        id: EntryId,
        request: &RequestHead,
    ) -> Option<CachedResponse<B>> {
        let (stored, body, length) = self.store.get(id)?;
        let (head, part) = build_response(now, request, stored, length);
        let body = body.filter(|_| part.is_some()).cloned();
        // A 304 to the client counts as nothing saved: from the server it would have been as short.
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some(CachedResponse { head, part, body, entry: id })
    }

    /// Decides about a response from its head.
    pub fn handle_response(
        &mut self,
        now: UnixTime,
        asked: &ForwardedRequest,
        response: &ResponseHead,
    ) -> ResponseAction<B> {
        if response.is_interim() {
            return ResponseAction::Pass { store: false };
        }
        if !asked.request.is_safe() {
            self.invalidate(asked, response);
            return ResponseAction::Pass { store: false };
        }
        if let Some(id) = asked.validates {
            self.store.set_revalidating(id, false);
            match response.status {
                304 if self.sent_validator(id) => {
                    return self.handle_confirmation(now, id, asked, response);
                }
                // The status codes that count as errors for `stale-if-error` (RFC 5861 §4).
                500 | 502 | 503 | 504 => {
                    if let Some(answer) = self.fall_back(now, asked, false) {
                        return ResponseAction::Answer(answer);
                    }
                }
                _ => {}
            }
        }
        self.stats.misses += u64::from(asked.storable);
        let store = asked.storable && is_storable(&asked.request, response);
        if asked.storable && !store && response.status == 200 {
            // The server's new response must not be stored, and it has replaced the stored one.
            asked.validates.into_iter().for_each(|id| self.store.remove(id));
        }
        ResponseAction::Pass { store }
    }

    /// Returns `true` if the request that validates this entry was conditional, as far as is known.
    fn sent_validator(&self, id: EntryId) -> bool {
        self.store.get(id).is_none_or(|(stored, ..)| stored.has_validator())
    }

    /// Handles a 304 to the cache's own conditions. If it is about another response than the stored one, or
    /// the stored one is gone, the client's own request is sent.
    fn handle_confirmation(
        &mut self,
        now: UnixTime,
        id: EntryId,
        asked: &ForwardedRequest,
        response: &ResponseHead,
    ) -> ResponseAction<B> {
        if self.is_confirmed(id, response)
            && let Some(answer) = self.confirm(now, id, asked, response)
        {
            self.stats.confirmed += 1;
            return ResponseAction::Answer(answer);
        }
        self.store.remove(id);
        let asked = ForwardedRequest { validates: None, requested: now, ..asked.clone() };
        ResponseAction::Again(asked.request.clone(), asked)
    }

    /// Answers with the response that a 304 has confirmed, and updates the stored one as far as it may be
    /// shared. [`None`] if the body was only on disk and was removed with the entry.
    fn confirm(
        &mut self,
        now: UnixTime,
        id: EntryId,
        asked: &ForwardedRequest,
        response: &ResponseHead,
    ) -> Option<CachedResponse<B>> {
        let (stored, body, length) = self.store.get(id)?;
        let mut confirmed = stored.clone();
        let body = body.cloned();
        confirmed.confirm(response, asked.requested, now);
        let (head, part) = build_response(now, &asked.request, &confirmed, length);
        match confirmed.shareable(response) {
            Some(kept) => self.store.update(id, |stored| *stored = kept),
            None => self.store.remove(id),
        }
        let is_lost = body.is_none() && self.store.get(id).is_none();
        if is_lost && part.is_some() {
            return None;
        }
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some(CachedResponse { head, part, body: body.filter(|_| part.is_some()), entry: id })
    }

    /// Returns `true` if a 304 is about this entry: it has no entity tag, or the stored one (RFC 9111
    /// §4.3.4).
    fn is_confirmed(&self, id: EntryId, confirmation: &ResponseHead) -> bool {
        let Some((stored, ..)) = self.store.get(id) else { return false };
        if !confirmation.fields.has("etag") {
            return true;
        }
        let weak = |tag: &str| Some(tag.strip_prefix("W/").unwrap_or(tag).to_owned());
        let [theirs, ours] =
            [confirmation, &stored.head].map(|head| head.fields.parsed("etag", weak));
        theirs.is_some() && theirs == ours
    }

    /// Handles a request that got no response. Returns a stored response that may be used instead.
    pub fn handle_failure(
        &mut self,
        now: UnixTime,
        asked: &ForwardedRequest,
    ) -> Option<CachedResponse<B>> {
        asked.validates.into_iter().for_each(|id| {
            self.store.set_revalidating(id, false);
        });
        self.fall_back(now, asked, true)
    }

    /// Returns `true` if [`Self::handle_failure`] would return a stored response.
    pub fn has_fallback(&self, now: UnixTime, asked: &ForwardedRequest) -> bool {
        self.fallback(now, asked, true).is_some()
    }

    fn fallback(
        &self,
        now: UnixTime,
        asked: &ForwardedRequest,
        disconnected: bool,
    ) -> Option<EntryId> {
        let id = asked.validates?;
        let (stored, ..) = self.store.get(id)?;
        let serves = stored.serves_on_error(now, &asked.request, disconnected, self.config.stale);
        serves.then_some(id)
    }

    fn fall_back(
        &mut self,
        now: UnixTime,
        asked: &ForwardedRequest,
        disconnected: bool,
    ) -> Option<CachedResponse<B>> {
        let id = self.fallback(now, asked, disconnected)?;
        self.stats.stale += 1;
        self.answer(now, id, &asked.request)
    }

    /// Stores the response for which [`Self::handle_response`] asked to store it, with its complete body of
    /// `length` bytes.
    pub fn handle_body(
        &mut self,
        now: UnixTime,
        asked: &ForwardedRequest,
        response: &ResponseHead,
        body: B,
        length: u64,
    ) {
        let mut stored = StoredResponse::new(&asked.request, response, asked.requested, now);
        // The body may have been chunked; `answer` sets its length.
        stored.head.fields.remove("content-length");
        let key = asked.key.clone();
        if self.store.insert(key, &asked.request, stored, body, length, asked.client) {
            self.stats.stored += 1;
        }
    }

    /// Answers a client's request with the response to another client's, whose body has `length` bytes, as
    /// if it came from the store (RFC 9111 §4). [`None`] if it does not fit: the client's own request must
    /// be sent.
    pub fn handle_collapsed(
        &mut self,
        now: UnixTime,
        asked: &ForwardedRequest,
        response: &ResponseHead,
        length: u64,
        request: &RequestHead,
    ) -> Option<(ResponseHead, Option<BodyRange>)> {
        let request = request.end_to_end();
        let mut stored = StoredResponse::new(&asked.request, response, asked.requested, now);
        stored.head.fields.remove("content-length");
        let serves = is_storable(&asked.request, response)
            && stored.is_selected_by(&request)
            && stored.reuse(now, &request) == ReuseMode::Fresh;
        if !serves {
            return None;
        }
        let (head, part) = build_response(now, &request, &stored, length);
        self.stats.collapsed += 1;
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some((head, part))
    }

    /// Invalidates the responses for the target of an unsafe request that succeeded, and for the locations
    /// on the same host that its response names (RFC 9111 §4.4).
    fn invalidate(&mut self, asked: &ForwardedRequest, response: &ResponseHead) {
        if !(200..400).contains(&response.status) {
            return;
        }
        self.store.invalidate(&asked.key);
        for name in ["location", "content-location"] {
            let prefix = format!("http://{}", asked.key.host);
            let named = |place: &str| {
                // `//host/path` names another host.
                let target = place.strip_prefix(&prefix).unwrap_or(place);
                let is_here = target.starts_with('/') && !target.starts_with("//");
                is_here.then(|| target.split('#').next().unwrap_or(target).to_owned())
            };
            if let Some(target) = response.fields.parsed(name, named) {
                self.store.invalidate(&CacheKey { target, ..asked.key.clone() });
            }
        }
    }
}
