//! The cache as a machine: what is done with a request, and with the answer to it.

use core::time::Duration;
use std::net::IpAddr;

use units::{ByteCount, UnixTime};

use super::answer::{Part, answer, validation};
use super::directives::Directives;
use super::head::{Framing, RequestHead, ResponseHead};
use super::policy::{Reuse, Stored, is_storable};
use super::store::{EntryId, FileOutput, Key, Store, StoreLimits};

/// Settings of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bounds of what is stored.
    pub limits: StoreLimits,
    /// How long an expired response that does not say so itself may be used while the server cannot be
    /// reached.
    pub stale: Duration,
}

/// What a cache has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Requests that were looked at.
    pub requests: u64,
    /// Those answered from the cache, without asking.
    pub hits: u64,
    /// Those answered from the cache after the server confirmed it.
    pub confirmed: u64,
    /// Those answered with what had expired: while it was validated, or because nothing else could be had.
    pub stale: u64,
    /// Those that the server answered.
    pub misses: u64,
    /// Those that are not a cache's business: other methods, parts of what is not stored.
    pub passed: u64,
    /// Those answered by what was on its way for another client.
    pub collapsed: u64,
    /// Bytes of bodies that did not cross the hop.
    pub saved_bytes: u64,
    /// Responses stored since the start.
    pub stored: u64,
    /// Responses in the cache, with their memory and files.
    pub entries: u64,
    /// Memory in use.
    pub memory: ByteCount,
    /// Files.
    pub disk: ByteCount,
}

/// An answer from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<B> {
    /// The head that the client gets, without fields of the connection.
    pub head: ResponseHead,
    /// The part of the body that it gets; [`None`] gets none.
    pub part: Option<Part>,
    /// The body, if it is in memory.
    pub body: Option<B>,
    /// Where the body is otherwise.
    pub entry: EntryId,
}

/// A request that was sent on, until its answer has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it asks for.
    pub key: Key,
    /// The client's request.
    pub request: RequestHead,
    /// Whether the answer may be stored.
    pub keep: bool,
    /// The response that is being validated.
    pub validates: Option<EntryId>,
    /// Who asked.
    pub client: IpAddr,
    /// When, by our clock.
    pub at: UnixTime,
}

/// What is to be done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan<B> {
    /// Answer it from the cache. If there is a second request, send that for the cache's sake.
    Answer(Answer<B>, Option<(RequestHead, Asked)>),
    /// Send this request instead.
    Ask(RequestHead, Asked),
    /// The client wants an answer only from a cache: it gets 504 (RFC 9111 §5.2.1.7).
    Unavailable,
}

/// What is to be done with the answer to a request that was sent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<B> {
    /// The client gets it. Whether it is to be given back as a whole ([`Cache::store`]).
    Pass {
        /// Whether the cache wants it.
        store: bool,
    },
    /// The client gets this instead; the server's has been dealt with.
    Answer(Answer<B>),
    /// The server has confirmed something else: this is sent to it, and the client waits.
    Again(RequestHead, Asked),
}

/// A cache whose bodies are of type `B`.
#[derive(Debug)]
pub struct Cache<B> {
    config: CacheConfig,
    store: Store<B>,
    stats: CacheStats,
}

impl<B: Clone> Cache<B> {
    /// An empty cache.
    pub fn new(config: CacheConfig) -> Self {
        let store = Store::new(config.limits);
        Self { config, store, stats: CacheStats::default() }
    }

    /// What it has done.
    pub fn stats(&self) -> CacheStats {
        let (memory, disk) =
            (ByteCount::new(self.store.memory()), ByteCount::new(self.store.disk()));
        CacheStats { entries: self.store.len() as u64, memory, disk, ..self.stats }
    }

    /// What is stored.
    pub fn store(&mut self) -> &mut Store<B> {
        &mut self.store
    }

    /// The next wish about files.
    pub fn poll_output(&mut self) -> Option<FileOutput<B>> {
        self.store.poll_output()
    }

    /// Decides about a request of `client` for `key`, whose body ends as `framing` says.
    pub fn handle_request(
        &mut self,
        now: UnixTime,
        key: Key,
        request: &RequestHead,
        framing: Framing,
        client: IpAddr,
    ) -> Plan<B> {
        self.stats.requests += 1;
        self.reconsider(now, key, request, framing, client)
    }

    /// Decides again about a request whose first plan came to nothing.
    pub fn reconsider(
        &mut self,
        now: UnixTime,
        key: Key,
        request: &RequestHead,
        framing: Framing,
        client: IpAddr,
    ) -> Plan<B> {
        // An answer is to what the server sees of the request, and so is what selects it.
        let request = request.end_to_end();
        let cacheable =
            matches!(request.method.as_str(), "GET" | "HEAD") && framing == Framing::None;
        let conditional =
            ["if-match", "if-unmodified-since"].iter().any(|it| request.fields.has(it));
        let asked = Asked { key, request, keep: false, validates: None, client, at: now };
        if !cacheable || conditional {
            self.stats.passed += 1;
            return Plan::Ask(asked.request.clone(), asked);
        }
        match self.store.select(&asked.key, &asked.request) {
            Some(id) => self.plan(now, id, asked),
            None => self.ask(asked),
        }
    }

    fn ask(&mut self, mut asked: Asked) -> Plan<B> {
        if Directives::of(&asked.request.fields).only_if_cached {
            return Plan::Unavailable;
        }
        asked.keep = asked.request.method == "GET" && !asked.request.fields.has("range");
        Plan::Ask(asked.request.clone(), asked)
    }

    fn plan(&mut self, now: UnixTime, id: EntryId, mut asked: Asked) -> Plan<B> {
        let Some((stored, ..)) = self.store.get(id) else { return self.ask(asked) };
        let reuse = stored.reuse(now, &asked.request);
        let validates = stored.has_validator();
        let again = validation(&asked.request, stored);
        match reuse {
            Reuse::Fresh => match self.answer(now, id, &asked.request) {
                Some(answer) => {
                    self.stats.hits += 1;
                    Plan::Answer(answer, None)
                }
                None => self.ask(asked),
            },
            Reuse::WhileRevalidating => {
                let Some(answer) = self.answer(now, id, &asked.request) else {
                    return self.ask(asked);
                };
                self.stats.stale += 1;
                let busy = self.store.set_revalidating(id, true);
                // It is for the cache: whatever part the client wants, the whole is asked for.
                let mut again = again;
                again.method = "GET".to_owned();
                ["range", "if-range"].iter().for_each(|name| again.fields.remove(name));
                asked.request.method.clone_from(&again.method);
                ["range", "if-range"].iter().for_each(|name| asked.request.fields.remove(name));
                (asked.keep, asked.validates) = (true, Some(id));
                Plan::Answer(answer, (!busy).then_some((again, asked)))
            }
            Reuse::Validated => {
                let ranged = asked.request.fields.has("range");
                let is_get = asked.request.method == "GET";
                match self.ask(asked) {
                    // A part of something new would be no use to what is stored.
                    Plan::Ask(request, mut asked) => {
                        asked.validates = (!ranged && is_get).then_some(id);
                        let request =
                            if asked.validates.is_some() && validates { again } else { request };
                        Plan::Ask(request, asked)
                    }
                    other => other,
                }
            }
        }
    }

    fn answer(&mut self, now: UnixTime, id: EntryId, request: &RequestHead) -> Option<Answer<B>> {
        let (stored, body, length) = self.store.get(id)?;
        let (head, part) = answer(now, request, stored, length);
        let body = body.filter(|_| part.is_some()).cloned();
        // What the client has already would have crossed as little.
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some(Answer { head, part, body, entry: id })
    }

    /// Decides about the head of the answer to a request.
    pub fn handle_response(
        &mut self,
        now: UnixTime,
        asked: &Asked,
        response: &ResponseHead,
    ) -> Verdict<B> {
        if response.is_interim() {
            return Verdict::Pass { store: false };
        }
        if !asked.request.is_safe() {
            self.invalidate(asked, response);
            return Verdict::Pass { store: false };
        }
        if let Some(id) = asked.validates {
            self.store.set_revalidating(id, false);
            match response.status {
                304 if self.sent_validator(id) => {
                    return self.handle_confirmation(now, id, asked, response);
                }
                500 | 502 | 503 | 504 => {
                    if let Some(answer) = self.fall_back(now, asked, false) {
                        return Verdict::Answer(answer);
                    }
                }
                _ => {}
            }
        }
        self.stats.misses += u64::from(asked.keep);
        let store = asked.keep && is_storable(&asked.request, response);
        if asked.keep && !store && response.status == 200 {
            // What is stored has been replaced by what must not be.
            asked.validates.into_iter().for_each(|id| self.store.remove(id));
        }
        Verdict::Pass { store }
    }

    fn sent_validator(&self, id: EntryId) -> bool {
        self.store.get(id).is_none_or(|(stored, ..)| stored.has_validator())
    }

    /// A 304 to conditions of ours. If it is not about what we have, or that is gone, the client's own
    /// request is sent.
    fn handle_confirmation(
        &mut self,
        now: UnixTime,
        id: EntryId,
        asked: &Asked,
        response: &ResponseHead,
    ) -> Verdict<B> {
        if self.is_confirmed(id, response)
            && let Some(answer) = self.confirm(now, id, asked, response)
        {
            self.stats.confirmed += 1;
            return Verdict::Answer(answer);
        }
        self.store.remove(id);
        let asked = Asked { validates: None, at: now, ..asked.clone() };
        Verdict::Again(asked.request.clone(), asked)
    }

    /// Answers with what a 304 has confirmed, and keeps of that what others may have. [`None`] if the
    /// body has gone with the rest.
    fn confirm(
        &mut self,
        now: UnixTime,
        id: EntryId,
        asked: &Asked,
        response: &ResponseHead,
    ) -> Option<Answer<B>> {
        let (stored, body, length) = self.store.get(id)?;
        let (mut confirmed, body) = (stored.clone(), body.cloned());
        confirmed.confirm(response, (asked.at, now));
        let (head, part) = answer(now, &asked.request, &confirmed, length);
        match confirmed.for_others(response) {
            Some(kept) => self.store.update(id, |stored| *stored = kept),
            None => self.store.remove(id),
        }
        let is_lost = body.is_none() && self.store.get(id).is_none();
        if is_lost && part.is_some() {
            return None;
        }
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some(Answer { head, part, body: body.filter(|_| part.is_some()), entry: id })
    }

    /// Whether a 304 is about this response (RFC 9111 §4.3.4): its validator, if it has one, is ours.
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

    /// No answer came: what is stored may do.
    pub fn handle_failure(&mut self, now: UnixTime, asked: &Asked) -> Option<Answer<B>> {
        asked.validates.into_iter().for_each(|id| {
            self.store.set_revalidating(id, false);
        });
        self.fall_back(now, asked, true)
    }

    /// Whether what is stored may do if no answer comes ([`Self::handle_failure`]).
    pub fn has_fallback(&self, now: UnixTime, asked: &Asked) -> bool {
        self.fallback(now, asked, true).is_some()
    }

    fn fallback(&self, now: UnixTime, asked: &Asked, disconnected: bool) -> Option<EntryId> {
        let id = asked.validates?;
        let (stored, ..) = self.store.get(id)?;
        let serves = stored.serves_on_error(now, &asked.request, disconnected, self.config.stale);
        serves.then_some(id)
    }

    fn fall_back(&mut self, now: UnixTime, asked: &Asked, disconnected: bool) -> Option<Answer<B>> {
        let id = self.fallback(now, asked, disconnected)?;
        self.stats.stale += 1;
        self.answer(now, id, &asked.request)
    }

    /// Stores the answer to a request, of which [`Self::handle_response`] said that it is wanted, with
    /// its whole body of `length` bytes.
    pub fn handle_body(
        &mut self,
        now: UnixTime,
        asked: &Asked,
        response: &ResponseHead,
        body: B,
        length: u64,
    ) {
        let mut stored = Stored::new(&asked.request, response, (asked.at, now));
        stored.head.fields.remove("content-length");
        let key = asked.key.clone();
        if self.store.insert(key, &asked.request, stored, (body, length), asked.client) {
            self.stats.stored += 1;
        }
    }

    /// What a client gets of the answer to another's request, whose body has `length` bytes: what it would
    /// get from the store (RFC 9111 §4). [`None`] if it must ask for itself.
    pub fn handle_collapsed(
        &mut self,
        now: UnixTime,
        (asked, response): (&Asked, &ResponseHead),
        length: u64,
        request: &RequestHead,
    ) -> Option<(ResponseHead, Option<Part>)> {
        let request = request.end_to_end();
        let mut stored = Stored::new(&asked.request, response, (asked.at, now));
        stored.head.fields.remove("content-length");
        let serves = is_storable(&asked.request, response)
            && stored.is_selected_by(&request)
            && stored.reuse(now, &request) == Reuse::Fresh;
        if !serves {
            return None;
        }
        let (head, part) = answer(now, &request, &stored, length);
        self.stats.collapsed += 1;
        self.stats.saved_bytes += part.map_or(0, |part| part.length);
        Some((head, part))
    }

    /// An unsafe request that succeeded makes what is stored for its target, and for the places that its
    /// answer names on the same host, invalid (RFC 9111 §4.4).
    fn invalidate(&mut self, asked: &Asked, response: &ResponseHead) {
        if !(200..400).contains(&response.status) {
            return;
        }
        self.store.invalidate(&asked.key);
        for name in ["location", "content-location"] {
            let prefix = format!("http://{}", asked.key.host);
            let named = |place: &str| {
                let target = place.strip_prefix(&prefix).unwrap_or(place);
                let is_here = target.starts_with('/') && !target.starts_with("//");
                is_here.then(|| target.split('#').next().unwrap_or(target).to_owned())
            };
            if let Some(target) = response.fields.parsed(name, named) {
                self.store.invalidate(&Key { target, ..asked.key.clone() });
            }
        }
    }
}
