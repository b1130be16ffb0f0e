//! DNS resolver of a terminal's clients.
//!
//! | question | answer |
//! |---|---|
//! | for a name by which clients choose a resolver, with `canary` | no records |
//! | in the cache | from the cache |
//! | new, its name may get an address of the pool, and the hub can be reached | that address, or no records if it asks for service bindings; the hub is asked as well |
//! | being asked already | the reply to the pending query |
//! | new | the hub's, over the hop; without the hop that of a resolver, if the hub cannot be reached or gives no answer |
//! | expired in the cache, and no answer for 1.8 s, or no success within the last 30 s | the expired one, with a TTL of 30 s (RFC 8767) |
//!
//! Answers that come from a resolver without the hop are passed on and not cached. With `hides_http_3` the service
//! bindings of names outside `real` lose HTTP/3 while the hub can be reached, unless the client validates.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::{A, AAAA};
use pep::traffic::IpFamily;
use shaping::TokenBucket;
use slacp::HostName;
use units::{ByteCount, Instant, Machine, earliest_timer};

use super::answer::{RecordAge, ReplyClass, failure};
use super::cache::{CacheEntry, CacheLimits, ReplyCache};
use super::canary::CANARY_TTL;
use super::lifetime;
use super::message::NonQuestion;
use super::pool::{AddressPool, PoolConfig};
use super::question::{Domain, Question, QuestionKey, QuestionKind, may_use_pool};
use super::service_binding::remove_http_3;

/// Time that a client waits before it gets a stale answer (RFC 8767 §5, client response timer).
const PATIENCE: Duration = Duration::from_millis(1800);
/// Pause after a failed refresh, during which stale answers are given at once (RFC 8767 §5, failure recheck
/// timer).
const RECHECK: Duration = Duration::from_secs(30);
/// Time limit of a question (RFC 8767 §5, query resolution timer).
const GIVE_UP: Duration = Duration::from_secs(10);
/// TTL of an instant answer, in seconds: the real one arrives a round trip later.
const INSTANT_TTL: u32 = 2;
/// Most questions that wait, in total and of one client.
const MOST_WAITING: usize = 4096;
const MOST_OF_CLIENT: usize = 256;
/// Most questions of one client that are asked ahead at once: a page has about twenty hosts, and browsers ask
/// for three types of each.
const MOST_AHEAD: usize = 64;
/// Burst of prefetches, in seconds of their rate.
const PREFETCH_BURST: u32 = 10;
/// Settings of a terminal's resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesConfig {
    /// Limits of the cache. Key `cache`.
    pub cache: CacheLimits,
    /// Time after its expiry during which an answer may be used if there is no other. Key `stale`.
    pub stale: Duration,
    /// Prefetches per second; 0 disables them. Key `prefetch`.
    pub prefetch: u32,
    /// Domains whose names never get addresses of the pool. Key `real`.
    pub real: Vec<Domain>,
    /// Placeholder addresses; [`None`] gives real answers only. Key `answer`.
    pub pool: Option<PoolConfig>,
    /// Keeps clients from resolvers of their own, if they leave it to the network. Key `canary`.
    pub canary: bool,
    /// Removes HTTP/3 from service bindings, because QUIC is refused. Key `quic` of the terminal.
    pub hides_http_3: bool,
}

/// The origin of a client's message.
#[derive(Debug, Clone)]
pub struct QuestionSource<A> {
    /// Destination of the answer. An asker that repeats its question waits only once.
    pub asker: A,
    /// The client, for limits per client.
    pub client: IpAddr,
    /// The resolver that the client addressed, if its message was intercepted.
    pub resolver: Option<SocketAddr>,
    /// `true` if the message came over TCP, and so the answer may be long.
    pub over_tcp: bool,
    /// `true` if the client's connections to addresses of the pool are intercepted here.
    pub uses_pool: bool,
}

/// Identifies a query that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(u64);

/// Destination of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The hub, over the hop.
    Hub,
    /// This resolver, or the machine's own, without the hop.
    Direct(Option<SocketAddr>),
}

/// A query to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamQuery {
    /// To be returned with the reply.
    pub id: QueryId,
    /// The DNS message to send.
    pub message: Vec<u8>,
    /// Hub or resolver to which it is sent.
    pub to: Upstream,
    /// The client that asked first.
    pub client: IpAddr,
}

/// Action for the resolver's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolverOutput<A> {
    /// Send this message to a client.
    Answer(A, Vec<u8>),
    /// Send this query to its destination.
    Ask(UpstreamQuery),
}

/// Why a resolver asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolverWake {
    /// A client has waited for its time limit.
    Waiting,
    /// An answer in use is about to expire.
    Prefetch,
}

/// Counters since the start, and the present contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamesStats {
    /// Questions that clients have asked.
    pub questions: u64,
    /// Answers from the cache before they expired.
    pub hits: u64,
    /// Answers from the cache after they expired.
    pub stale: u64,
    /// Answers given at once while the hub was asked: an address of the pool, or no service bindings.
    pub instant: u64,
    /// Questions that waited for the query of another client.
    pub coalesced: u64,
    /// Queries sent over the hop, including prefetches.
    pub asked: u64,
    /// Answers fetched again before they expired.
    pub prefetched: u64,
    /// Queries sent without the hop.
    pub straight: u64,
    /// Questions that got no answer, or SERVFAIL.
    pub failed: u64,
    /// Questions refused because too many were waiting.
    pub refused: u64,
    /// Replies in the cache at present.
    pub entries: u64,
    /// Memory of the cache entries.
    pub bytes: ByteCount,
    /// Names with addresses of the pool.
    pub names: u64,
}

impl NamesStats {
    /// Round trips over the hop that clients did not have to wait for.
    pub fn saved_round_trips(&self) -> u64 {
        self.hits + self.stale + self.instant
    }
}

/// State machine of the resolver. Drain [`Self::poll_output`] after every input.
#[derive(Debug)]
pub struct Resolver<A> {
    config: NamesConfig,
    cache: ReplyCache,
    pool: Option<AddressPool>,
    budget: Option<TokenBucket>,
    /// `true` while the hub answers questions.
    is_hub_reachable: bool,
    pending: BTreeMap<QueryId, PendingQuery<A>>,
    by_key: BTreeMap<(QuestionKey, Upstream), QueryId>,
    /// Timers of pending queries.
    timers: BTreeSet<(Instant, QueryId)>,
    /// Number of waiting questions of each client.
    waiting: BTreeMap<IpAddr, usize>,
    waiters: usize,
    /// Number of queries for each client that no client waits for.
    ahead: BTreeMap<IpAddr, usize>,
    next_id: u64,
    outputs: VecDeque<ResolverOutput<A>>,
    stats: NamesStats,
}

/// A query that waits for its reply.
#[derive(Debug)]
struct PendingQuery<A> {
    /// [`None`] for a request that is passed on unchanged.
    question: Option<Question>,
    to: Upstream,
    waiters: Vec<WaitingClient<A>>,
    /// The client on whose account the reply is cached.
    owner: IpAddr,
    /// Sent ahead, without a client that waits.
    ahead: bool,
    until: Instant,
    /// Time at which the waiters get a stale answer, if there is one.
    late: Option<Instant>,
}

impl<A> PendingQuery<A> {
    fn timer(&self) -> Instant {
        self.late.map_or(self.until, |late| late.min(self.until))
    }
}

#[derive(Debug)]
struct WaitingClient<A> {
    asked: QuestionSource<A>,
    /// [`None`] for a request that is passed on unchanged.
    question: Option<Question>,
}

impl<A: Clone + PartialEq> Resolver<A> {
    /// Creates a resolver with an empty cache; the hub counts as unreachable until [`Self::set_hub`].
    pub fn new(config: NamesConfig) -> Self {
        let bucket = |rate| TokenBucket::new(rate, rate.saturating_mul(PREFETCH_BURST));
        Self {
            cache: ReplyCache::new(config.cache),
            pool: config.pool.clone().map(AddressPool::new),
            budget: (config.prefetch > 0).then(|| bucket(config.prefetch)),
            is_hub_reachable: false,
            pending: BTreeMap::new(),
            by_key: BTreeMap::new(),
            timers: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waiters: 0,
            ahead: BTreeMap::new(),
            next_id: 0,
            outputs: VecDeque::new(),
            stats: NamesStats::default(),
            config,
        }
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<ResolverOutput<A>> {
        self.outputs.pop_front()
    }

    /// Returns the counters and the present contents.
    pub fn stats(&self) -> NamesStats {
        NamesStats {
            entries: self.cache.len() as u64,
            bytes: self.cache.bytes(),
            names: self.pool.as_ref().map_or(0, AddressPool::len) as u64,
            ..self.stats
        }
    }

    /// Sets whether answers from now on hide HTTP/3.
    pub fn set_hides_http_3(&mut self, hides: bool) {
        self.config.hides_http_3 = hides;
    }

    /// Returns the name that an address of the pool stands for, and marks it as used.
    pub fn name_of(&mut self, now: Instant, address: IpAddr) -> Option<HostName> {
        self.pool.as_mut()?.name(now, address)
    }

    /// Sets whether the hub answers questions. If it no longer does, its pending questions go to other
    /// resolvers.
    pub fn set_hub(&mut self, now: Instant, answers: bool) {
        if std::mem::replace(&mut self.is_hub_reachable, answers) == answers || answers {
            return;
        }
        let of_hub = |pending: &PendingQuery<A>| pending.to == Upstream::Hub;
        let ids: Vec<QueryId> =
            self.pending.iter().filter(|(_, it)| of_hub(it)).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id).into_iter().for_each(|pending| self.ask_others(now, pending));
        }
    }

    /// Moves the waiters of a query to the hub to the resolvers that they addressed.
    fn ask_others(&mut self, now: Instant, pending: PendingQuery<A>) {
        for waiter in pending.waiters {
            let Some(question) = waiter.question else { continue };
            let straight = Upstream::Direct(waiter.asked.resolver);
            self.wait(now, waiter.asked, question, straight);
        }
    }

    /// Handles a client's message.
    pub fn handle_message(&mut self, now: Instant, asked: QuestionSource<A>, message: &[u8]) {
        match Question::parse(message) {
            Ok(question) => self.handle_question(now, asked, question),
            Err(NonQuestion::Nothing) => {}
            Err(NonQuestion::Answer(answer)) => self.answer(asked.asker, answer),
            // Only an intercepted request shows which server can answer it.
            Err(NonQuestion::Foreign) if asked.resolver.is_some() => {
                self.pass_on(now, asked, message);
            }
            Err(NonQuestion::Foreign) => {
                failure(message)
                    .into_iter()
                    .for_each(|reply| self.answer(asked.asker.clone(), reply));
            }
        }
    }

    /// Handles the reply to an [`UpstreamQuery`]; [`None`] if there was none. Late replies are ignored.
    pub fn handle_reply(&mut self, now: Instant, id: QueryId, reply: Option<&[u8]>) {
        let Some(pending) = self.remove(id) else { return };
        let Some(question) = &pending.question else { return self.finish_passed(pending, reply) };
        match reply.map(|bytes| (question.reply(bytes), bytes)) {
            Some((ReplyClass::Read(message), bytes)) => {
                self.finish_answered(now, &pending, &message, bytes);
            }
            Some((ReplyClass::Unreadable, bytes)) => {
                for WaitingClient { asked, question } in pending.waiters {
                    let Some(question) = question else { continue };
                    self.answer(
                        asked.asker,
                        question.adapt_unreadable(bytes.to_vec(), asked.over_tcp),
                    );
                }
            }
            Some((ReplyClass::Foreign, _)) => self.finish_failed(now, &pending),
            // The session is lost or the hub has no room: another resolver may answer.
            None if pending.to == Upstream::Hub && !pending.waiters.is_empty() => {
                self.ask_others(now, pending);
            }
            None => self.finish_failed(now, &pending),
        }
    }

    fn handle_question(&mut self, now: Instant, asked: QuestionSource<A>, question: Question) {
        self.stats.questions += 1;
        if self.config.canary && question.is_canary() {
            return self.answer(asked.asker, question.without_records(CANARY_TTL, asked.over_tcp));
        }
        if let Some(answer) = self.cached(now, &asked, &question) {
            return self.answer(asked.asker, answer);
        }
        if let Some(answer) = self.instant(now, &asked, &question) {
            self.stats.instant += 1;
            self.answer(asked.asker, answer);
            return self.ask_ahead(now, question, asked.client);
        }
        let to =
            if self.is_hub_reachable { Upstream::Hub } else { Upstream::Direct(asked.resolver) };
        self.wait(now, asked, question, to);
    }

    /// Answers from the cache if the entry is fresh, or if asking again is pointless now.
    fn cached(
        &mut self,
        now: Instant,
        asked: &QuestionSource<A>,
        question: &Question,
    ) -> Option<Vec<u8>> {
        let entry = self.cache.peek(&question.key)?;
        // Too old to be used even as a stale answer.
        if now.saturating_since(entry.expires) > self.config.stale && !entry.is_fresh(now) {
            self.cache.remove(&question.key);
            return None;
        }
        if entry.is_fresh(now) {
            self.stats.hits += 1;
            let entry = self.cache.touch(&question.key)?;
            // Only answers in use are prefetched.
            entry.used = true;
            let age = RecordAge::Since(now.saturating_since(entry.stored));
            let reply = Message::from_vec(&entry.reply).ok()?;
            return Some(self.adapt(question, reply, age, asked.over_tcp));
        }
        if now < entry.recheck { self.stale(now, asked, question) } else { None }
    }

    /// Answers with an expired entry that may still be used.
    fn stale(
        &mut self,
        now: Instant,
        asked: &QuestionSource<A>,
        question: &Question,
    ) -> Option<Vec<u8>> {
        if !self.has_stale(now, &question.key) {
            return None;
        }
        let entry = self.cache.touch(&question.key)?;
        let reply = Message::from_vec(&entry.reply).ok()?;
        self.stats.stale += 1;
        Some(self.adapt(question, reply, RecordAge::Stale, asked.over_tcp))
    }

    fn has_stale(&self, now: Instant, key: &QuestionKey) -> bool {
        let entry = self.cache.peek(key).filter(|entry| entry.is_answer);
        let until = self.config.stale;
        !until.is_zero() && entry.is_some_and(|entry| now.saturating_since(entry.expires) <= until)
    }

    /// Builds a client's answer from the records of `reply`.
    fn adapt(
        &self,
        question: &Question,
        mut reply: Message,
        age: RecordAge,
        over_tcp: bool,
    ) -> Vec<u8> {
        let hides = self.config.hides_http_3 && self.is_hub_reachable;
        let is_binding = question.kind() == QuestionKind::Service;
        if hides && is_binding && !question.validates() && !question.is_of(&self.config.real) {
            remove_http_3(&mut reply);
        }
        question.answer(reply, age, over_tcp)
    }

    /// Answers before the hub has: with an address of the pool, or without service bindings.
    fn instant(
        &mut self,
        now: Instant,
        asked: &QuestionSource<A>,
        question: &Question,
    ) -> Option<Vec<u8>> {
        let pool = self.pool.as_mut()?;
        if !self.is_hub_reachable || !asked.uses_pool || question.validates() {
            return None;
        }
        let name = question.host().filter(|name| may_use_pool(name.as_str(), &self.config.real))?;
        let version = match question.kind() {
            QuestionKind::A => IpFamily::V4,
            QuestionKind::Aaaa => IpFamily::V6,
            // Browsers ask for these beside the addresses and may wait for both, but connect without them, too
            // (RFC 9460 §3: clients are SVCB-optional).
            QuestionKind::Service => {
                return Some(question.without_records(INSTANT_TTL, asked.over_tcp));
            }
            QuestionKind::Other => return None,
        };
        let number = pool.number(now, asked.client, &name)?;
        // Without addresses of this version the answer is empty: the client connects by the other version.
        let data = pool.address(version, number).map(|address| match address {
            IpAddr::V4(address) => RData::A(A(address)),
            IpAddr::V6(address) => RData::AAAA(AAAA(address)),
        });
        Some(question.with_address(data, INSTANT_TTL, asked.over_tcp))
    }

    /// Asks the hub although no client waits for the reply.
    fn ask_ahead(&mut self, now: Instant, question: Question, owner: IpAddr) {
        let is_asked = self.by_key.contains_key(&(question.key.clone(), Upstream::Hub));
        let of_client = self.ahead.get(&owner).copied().unwrap_or(0);
        let has_room = self.pending.len() < MOST_WAITING && of_client < MOST_AHEAD;
        if self.is_hub_reachable && !is_asked && has_room {
            let id = self.ask(now, Some(question), Upstream::Hub, owner);
            if let Some(pending) = self.pending.get_mut(&id) {
                pending.ahead = true;
                *self.ahead.entry(owner).or_default() += 1;
            }
        }
    }

    /// Lets a client wait for the reply to its question.
    fn wait(&mut self, now: Instant, asked: QuestionSource<A>, question: Question, to: Upstream) {
        let client = asked.client;
        if !self.has_room(client) {
            self.stats.refused += 1;
            return self.answer(asked.asker, question.servfail(asked.over_tcp));
        }
        let late = self.has_stale(now, &question.key).then(|| now + PATIENCE);
        let id = match self.by_key.get(&(question.key.clone(), to)) {
            Some(id) => *id,
            None => self.ask(now, Some(question.clone()), to, client),
        };
        let Some(pending) = self.pending.get_mut(&id) else { return };
        // A repeated question waits for the same reply.
        if pending.waiters.iter().any(|waiter| waiter.asked.asker == asked.asker) {
            return;
        }
        self.stats.coalesced += u64::from(!pending.waiters.is_empty());
        self.timers.remove(&(pending.timer(), id));
        // The client that has waited longest decides.
        pending.late = pending.late.or(late);
        self.timers.insert((pending.timer(), id));
        pending.waiters.push(WaitingClient { asked, question: Some(question) });
        self.count_waiter(client);
    }

    fn has_room(&self, client: IpAddr) -> bool {
        let of_client = self.waiting.get(&client).copied().unwrap_or(0);
        self.waiters < MOST_WAITING
            && self.pending.len() < MOST_WAITING
            && of_client < MOST_OF_CLIENT
    }

    fn count_waiter(&mut self, client: IpAddr) {
        self.waiters += 1;
        *self.waiting.entry(client).or_default() += 1;
    }

    fn ask(
        &mut self,
        now: Instant,
        question: Option<Question>,
        to: Upstream,
        owner: IpAddr,
    ) -> QueryId {
        let id = QueryId(self.next_id);
        self.next_id += 1;
        match to {
            Upstream::Hub => self.stats.asked += 1,
            Upstream::Direct(_) => self.stats.straight += 1,
        }
        if let Some(question) = &question {
            self.by_key.insert((question.key.clone(), to), id);
            let message = question.to_hub();
            self.outputs.push_back(ResolverOutput::Ask(UpstreamQuery {
                id,
                message,
                to,
                client: owner,
            }));
        }
        let until = now + GIVE_UP;
        let waiters = Vec::new();
        let pending =
            PendingQuery { question, to, waiters, owner, ahead: false, until, late: None };
        self.timers.insert((pending.timer(), id));
        self.pending.insert(id, pending);
        id
    }

    /// Passes a request that only its server can answer on to that server.
    fn pass_on(&mut self, now: Instant, asked: QuestionSource<A>, message: &[u8]) {
        let client = asked.client;
        if !self.has_room(client) {
            return self.stats.refused += 1;
        }
        let to = Upstream::Direct(asked.resolver);
        let id = self.ask(now, None, to, client);
        self.outputs.push_back(ResolverOutput::Ask(UpstreamQuery {
            id,
            message: message.to_vec(),
            to,
            client,
        }));
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.waiters.push(WaitingClient { asked, question: None });
        }
        self.count_waiter(client);
    }

    fn finish_passed(&mut self, pending: PendingQuery<A>, reply: Option<&[u8]>) {
        let Some(reply) = reply else { return self.stats.failed += 1 };
        for waiter in pending.waiters {
            self.answer(waiter.asked.asker, reply.to_vec());
        }
    }

    fn finish_answered(
        &mut self,
        now: Instant,
        pending: &PendingQuery<A>,
        message: &Message,
        bytes: &[u8],
    ) {
        let Some(question) = &pending.question else { return };
        if pending.to == Upstream::Hub {
            let life = lifetime::reply_lifetime(message, question.query.query_type());
            match life {
                // A failure must not replace an expired answer that can still be used.
                Some(life) if !life.is_answer && self.has_stale(now, &question.key) => {
                    return self.finish_failed(now, pending);
                }
                Some(life) => {
                    let entry = CacheEntry::new(now, bytes, &life, pending.owner);
                    self.cache.put(&question.key, entry);
                }
                // A reply that must not be cached still supersedes an older one.
                None => self.cache.remove(&question.key),
            }
        }
        let fresh = RecordAge::Since(Duration::ZERO);
        for WaitingClient { asked, question } in &pending.waiters {
            let Some(question) = question else { continue };
            let answer = self.adapt(question, message.clone(), fresh, asked.over_tcp);
            self.answer(asked.asker.clone(), answer);
        }
    }

    /// Handles a query without an answer: waiters get stale answers, or SERVFAIL.
    fn finish_failed(&mut self, now: Instant, pending: &PendingQuery<A>) {
        if let Some(question) = &pending.question
            && let Some(entry) = self.cache.touch(&question.key)
        {
            // Until then the stale answer is given without another query.
            entry.recheck = now + RECHECK;
        }
        for WaitingClient { asked, question } in &pending.waiters {
            let Some(question) = question else {
                self.stats.failed += 1;
                continue;
            };
            let answer = self.stale(now, asked, question).unwrap_or_else(|| {
                self.stats.failed += 1;
                question.servfail(asked.over_tcp)
            });
            self.answer(asked.asker.clone(), answer);
        }
    }

    fn remove(&mut self, id: QueryId) -> Option<PendingQuery<A>> {
        let pending = self.pending.remove(&id)?;
        self.timers.remove(&(pending.timer(), id));
        if let Some(question) = &pending.question {
            self.by_key.remove(&(question.key.clone(), pending.to));
        }
        pending.waiters.iter().for_each(|waiter| self.discount_waiter(waiter.asked.client));
        if pending.ahead {
            discount(&mut self.ahead, pending.owner);
        }
        Some(pending)
    }

    fn discount_waiter(&mut self, client: IpAddr) {
        self.waiters -= 1;
        discount(&mut self.waiting, client);
    }

    fn answer(&mut self, to: A, message: Vec<u8>) {
        self.outputs.push_back(ResolverOutput::Answer(to, message));
    }

    /// Gives stale answers to the waiters of a query. The query goes on, to refresh the cache.
    fn handle_late(&mut self, now: Instant, id: QueryId) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        self.timers.remove(&(pending.timer(), id));
        pending.late = None;
        self.timers.insert((pending.timer(), id));
        let waiters = std::mem::take(&mut pending.waiters);
        let key = pending.question.as_ref().map(|question| &question.key);
        // Clients that ask meanwhile get the stale answer at once.
        if let Some(entry) = key.and_then(|key| self.cache.touch(key)) {
            entry.recheck = entry.recheck.max(pending.until);
        }
        for WaitingClient { asked, question } in waiters {
            self.discount_waiter(asked.client);
            let Some(question) = question else { continue };
            let answer = self.stale(now, &asked, &question);
            let answer = answer.unwrap_or_else(|| question.servfail(asked.over_tcp));
            self.answer(asked.asker, answer);
        }
    }

    /// Fetches answers in use again shortly before they expire, within the budget.
    fn prefetch(&mut self, now: Instant) {
        while let Some(key) = self.cache.take_due(now) {
            let Some(entry) = self.cache.peek(&key).filter(|entry| entry.used) else { continue };
            let owner = entry.owner();
            let question = Question::from_cached_reply(&entry.reply, key);
            let Some(question) = question.filter(|_| self.is_hub_reachable) else { continue };
            if self.budget.as_mut().is_some_and(|budget| budget.take(now)) {
                self.stats.prefetched += 1;
                self.ask_ahead(now, question, owner);
            }
        }
    }
}

/// Decrements the count of a client.
fn discount(counts: &mut BTreeMap<IpAddr, usize>, client: IpAddr) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

impl<A: Clone + PartialEq> Machine for Resolver<A> {
    type Wake = ResolverWake;

    fn poll_timeout(&self) -> Option<(Instant, ResolverWake)> {
        earliest_timer([
            (self.timers.first().map(|(at, _)| *at), ResolverWake::Waiting),
            (self.cache.next_due(), ResolverWake::Prefetch),
        ])
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            let is_over = self.pending.get(&id).is_none_or(|pending| pending.until <= now);
            match is_over.then(|| self.remove(id)) {
                Some(pending) => {
                    pending.iter().for_each(|pending| self.finish_failed(now, pending));
                }
                None => self.handle_late(now, id),
            }
        }
        self.prefetch(now);
    }
}
