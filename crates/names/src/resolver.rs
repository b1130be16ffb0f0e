//! The terminal's resolver.
//!
//! | the question | the answer |
//! |---|---|
//! | is in the cache | from there |
//! | is new, its name may have an address of the pool, and the hub can be reached | that address; the hub is asked too |
//! | is asked already | that of the one who asked |
//! | is new | the hub's, over the hop; straight from a resolver if the hub cannot be reached or gives none |
//! | has expired, and nobody answers for 1.8 s, or could not within the last 30 s | the expired one, for 30 s more (RFC 8767) |
//!
//! Answers that come straight from a resolver pass through and are not kept.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::{A, AAAA};
use pep::traffic::Version;
use shaping::Bucket;
use slacp::HostName;
use units::{ByteCount, Instant, Machine, earliest_timer};

use super::answer::{Age, Reply, failure};
use super::cache::{Cache, CacheLimits, Entry};
use super::lifetime;
use super::message::Unanswerable;
use super::pool::{Pool, PoolConfig};
use super::question::{Domain, Key, Kind, Question, may_be_opened_by};

/// How long a client waits before it gets a stale answer (RFC 8767 §5, client response timer).
const PATIENCE: Duration = Duration::from_millis(1800);
/// How long a failure to refresh an answer stands (RFC 8767 §5, failure recheck timer).
const RECHECK: Duration = Duration::from_secs(30);
/// How long a question may take (RFC 8767 §5, query resolution timer).
const GIVE_UP: Duration = Duration::from_secs(10);
/// TTL of an address of the pool, in seconds: the real answer is there a round trip later.
const POOL_TTL: u32 = 2;
/// Questions that may wait: in all, and of one client.
const MOST_WAITING: usize = 4096;
const MOST_OF_CLIENT: usize = 256;
/// Questions of one client that are asked ahead at once: a page asks for the names of about twenty
/// hosts.
const MOST_AHEAD: usize = 64;
/// Prefetches at once, in seconds of their rate.
const PREFETCH_BURST: u32 = 10;
/// How a terminal resolves names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesConfig {
    /// Bounds of the cache. Key `cache`.
    pub cache: CacheLimits,
    /// How long an answer may be used after it has expired, while there is no other. Key `stale`.
    pub stale: Duration,
    /// Answers fetched again before they expire, per second; 0 for none. Key `prefetch`.
    pub prefetch: u32,
    /// Domains whose names never have addresses of the pool. Key `real`.
    pub real: Vec<Domain>,
    /// Addresses that stand for names; [`None`] without. Key `answer`.
    pub pool: Option<PoolConfig>,
}

/// A question as it came.
#[derive(Debug, Clone)]
pub struct Asked<A> {
    /// Where the answer goes. One who asks again the same way waits once.
    pub asker: A,
    /// The client, for its share of what is bounded.
    pub client: IpAddr,
    /// The resolver that the client meant, if it was not this one.
    pub resolver: Option<SocketAddr>,
    /// The client takes long answers.
    pub over_tcp: bool,
    /// The client's connections to addresses of the pool come here.
    pub by_name: bool,
}

/// Names a question that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(u64);

/// Whom to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// The hub, over the hop.
    Hub,
    /// This resolver, or this machine's own, without the hop.
    Straight(Option<SocketAddr>),
}

/// A question to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Goes with the reply.
    pub id: AskId,
    /// The DNS message.
    pub message: Vec<u8>,
    /// Whom to ask.
    pub to: Upstream,
    /// The client that asked first.
    pub client: IpAddr,
}

/// What the resolver wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<A> {
    /// Send this message to a client.
    Answer(A, Vec<u8>),
    /// Ask this.
    Ask(Ask),
}

/// Why a resolver wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolverWake {
    /// Clients have waited long enough.
    Waiting,
    /// An answer in use is about to expire.
    Prefetch,
}

/// Counts since the start, and what is held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamesStats {
    /// Questions of clients.
    pub questions: u64,
    /// Answered from the cache, before they expired.
    pub hits: u64,
    /// Answered from the cache after they expired.
    pub stale: u64,
    /// Answered with an address of the pool.
    pub instant: u64,
    /// Clients that waited for another's question.
    pub coalesced: u64,
    /// Questions that crossed the hop, prefetches among them.
    pub asked: u64,
    /// Answers fetched again before they expired.
    pub prefetched: u64,
    /// Questions asked without the hop.
    pub straight: u64,
    /// Questions without an answer.
    pub failed: u64,
    /// Questions refused because too many wait.
    pub refused: u64,
    /// Entries of the cache.
    pub entries: u64,
    /// What they take, in bytes.
    pub bytes: ByteCount,
    /// Names that have addresses of the pool.
    pub names: u64,
}

impl NamesStats {
    /// Round trips over the hop that clients did not wait for.
    pub fn saved_round_trips(&self) -> u64 {
        self.hits + self.stale + self.instant
    }
}

/// The terminal's resolver. Drain [`Self::poll_output`] after every input.
#[derive(Debug)]
pub struct Resolver<A> {
    config: NamesConfig,
    cache: Cache,
    pool: Option<Pool>,
    budget: Option<Bucket>,
    /// Whether the hub answers questions now.
    hub: bool,
    pending: BTreeMap<AskId, Pending<A>>,
    by_key: BTreeMap<(Key, Upstream), AskId>,
    /// Timers of pending questions.
    timers: BTreeSet<(Instant, AskId)>,
    /// Waiting questions of each client.
    waiting: BTreeMap<IpAddr, usize>,
    waiters: usize,
    /// Questions of each client that the hub is asked ahead.
    ahead: BTreeMap<IpAddr, usize>,
    next_id: u64,
    outputs: VecDeque<Output<A>>,
    stats: NamesStats,
}

/// A question that waits for its reply.
#[derive(Debug)]
struct Pending<A> {
    /// [`None`] for a request that passes through as it is.
    question: Option<Question>,
    to: Upstream,
    waiters: Vec<Waiter<A>>,
    /// For whom the reply is kept.
    owner: IpAddr,
    /// Asked without anybody who waited.
    ahead: bool,
    until: Instant,
    /// When the waiters get a stale answer, if there is one.
    late: Option<Instant>,
}

impl<A> Pending<A> {
    fn timer(&self) -> Instant {
        self.late.map_or(self.until, |late| late.min(self.until))
    }
}

#[derive(Debug)]
struct Waiter<A> {
    asked: Asked<A>,
    /// [`None`] for a request that passes through.
    question: Option<Question>,
}

impl<A: Clone + PartialEq> Resolver<A> {
    /// A resolver that knows nothing, without a hub.
    pub fn new(config: NamesConfig) -> Self {
        let bucket = |rate| Bucket::new(rate, rate.saturating_mul(PREFETCH_BURST));
        Self {
            cache: Cache::new(config.cache),
            pool: config.pool.clone().map(Pool::new),
            budget: (config.prefetch > 0).then(|| bucket(config.prefetch)),
            hub: false,
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

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output<A>> {
        self.outputs.pop_front()
    }

    /// Counts, and what is held.
    pub fn stats(&self) -> NamesStats {
        NamesStats {
            entries: self.cache.len() as u64,
            bytes: self.cache.bytes(),
            names: self.pool.as_ref().map_or(0, Pool::len) as u64,
            ..self.stats
        }
    }

    /// The name that an address of the pool stands for.
    pub fn name_of(&mut self, now: Instant, address: IpAddr) -> Option<HostName> {
        self.pool.as_mut()?.name(now, address)
    }

    /// Whether the hub answers questions from now on. What it was asked before goes to others.
    pub fn set_hub(&mut self, now: Instant, answers: bool) {
        if std::mem::replace(&mut self.hub, answers) == answers || answers {
            return;
        }
        let of_hub = |pending: &Pending<A>| pending.to == Upstream::Hub;
        let ids: Vec<AskId> =
            self.pending.iter().filter(|(_, it)| of_hub(it)).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id).into_iter().for_each(|pending| self.ask_others(now, pending));
        }
    }

    /// Lets those who wait for the hub wait for the resolvers that they meant.
    fn ask_others(&mut self, now: Instant, pending: Pending<A>) {
        for waiter in pending.waiters {
            let Some(question) = waiter.question else { continue };
            let straight = Upstream::Straight(waiter.asked.resolver);
            self.wait(now, waiter.asked, question, straight);
        }
    }

    /// A client's message.
    pub fn handle_message(&mut self, now: Instant, asked: Asked<A>, message: &[u8]) {
        match Question::parse(message) {
            Ok(question) => self.handle_question(now, asked, question),
            Err(Unanswerable::Nothing) => {}
            Err(Unanswerable::Answer(answer)) => self.answer(asked.asker, answer),
            Err(Unanswerable::Foreign) if asked.resolver.is_some() => {
                self.pass_on(now, asked, message);
            }
            Err(Unanswerable::Foreign) => {
                failure(message).into_iter().for_each(|it| self.answer(asked.asker.clone(), it));
            }
        }
    }

    /// The reply to an [`Ask`]; [`None`] if there was none. Late ones are ignored.
    pub fn handle_reply(&mut self, now: Instant, id: AskId, reply: Option<&[u8]>) {
        let Some(pending) = self.remove(id) else { return };
        let Some(question) = &pending.question else { return self.passed(pending, reply) };
        match reply.map(|bytes| (question.reply(bytes), bytes)) {
            Some((Reply::Read(message), bytes)) => self.answered(now, &pending, &message, bytes),
            Some((Reply::Unreadable, bytes)) => {
                for Waiter { asked, question } in pending.waiters {
                    let Some(question) = question else { continue };
                    self.answer(asked.asker, question.pass(bytes.to_vec(), asked.over_tcp));
                }
            }
            Some((Reply::Foreign, _)) => self.failed(now, &pending),
            // The session is lost, or the hub has no room: others may answer.
            None if pending.to == Upstream::Hub && !pending.waiters.is_empty() => {
                self.ask_others(now, pending);
            }
            None => self.failed(now, &pending),
        }
    }

    fn handle_question(&mut self, now: Instant, asked: Asked<A>, question: Question) {
        self.stats.questions += 1;
        if let Some(answer) = self.cached(now, &asked, &question) {
            return self.answer(asked.asker, answer);
        }
        if let Some(answer) = self.pooled(now, &asked, &question) {
            self.stats.instant += 1;
            self.answer(asked.asker, answer);
            return self.ask_ahead(now, question, asked.client);
        }
        let to = if self.hub { Upstream::Hub } else { Upstream::Straight(asked.resolver) };
        self.wait(now, asked, question, to);
    }

    /// The answer that the cache has, if no better one can be had now.
    fn cached(&mut self, now: Instant, asked: &Asked<A>, question: &Question) -> Option<Vec<u8>> {
        let entry = self.cache.peek(&question.key)?;
        if now.saturating_since(entry.expires) > self.config.stale && !entry.is_fresh(now) {
            self.cache.remove(&question.key);
            return None;
        }
        if entry.is_fresh(now) {
            self.stats.hits += 1;
            let entry = self.cache.touch(&question.key)?;
            entry.used = true;
            let age = Age::Since(now.saturating_since(entry.stored));
            let reply = Message::from_vec(&entry.reply).ok()?;
            return Some(question.answer(reply, age, asked.over_tcp));
        }
        if now < entry.recheck { self.stale(now, asked, question) } else { None }
    }

    /// An expired answer, if it may be used still.
    fn stale(&mut self, now: Instant, asked: &Asked<A>, question: &Question) -> Option<Vec<u8>> {
        if !self.has_stale(now, &question.key) {
            return None;
        }
        let entry = self.cache.touch(&question.key)?;
        let reply = Message::from_vec(&entry.reply).ok()?;
        self.stats.stale += 1;
        Some(question.answer(reply, Age::Stale, asked.over_tcp))
    }

    fn has_stale(&self, now: Instant, key: &Key) -> bool {
        let entry = self.cache.peek(key).filter(|entry| entry.is_answer);
        let until = self.config.stale;
        !until.is_zero() && entry.is_some_and(|it| now.saturating_since(it.expires) <= until)
    }

    /// An address of the pool.
    fn pooled(&mut self, now: Instant, asked: &Asked<A>, question: &Question) -> Option<Vec<u8>> {
        let version = match question.kind() {
            Kind::A => Version::V4,
            Kind::Aaaa => Version::V6,
            Kind::Other => return None,
        };
        let pool = self.pool.as_mut()?;
        if !self.hub || !asked.by_name || question.validates() {
            return None;
        }
        let name =
            question.host().filter(|name| may_be_opened_by(name.as_str(), &self.config.real))?;
        let number = pool.number(now, asked.client, &name)?;
        // Without addresses of this version there are none: the connection takes the other.
        let data = pool.address(version, number).map(|address| match address {
            IpAddr::V4(address) => RData::A(A(address)),
            IpAddr::V6(address) => RData::AAAA(AAAA(address)),
        });
        Some(question.with_address(data, POOL_TTL, asked.over_tcp))
    }

    /// Asks the hub without anybody who waits.
    fn ask_ahead(&mut self, now: Instant, question: Question, owner: IpAddr) {
        let is_asked = self.by_key.contains_key(&(question.key.clone(), Upstream::Hub));
        let of_client = self.ahead.get(&owner).copied().unwrap_or(0);
        let has_room = self.pending.len() < MOST_WAITING && of_client < MOST_AHEAD;
        if self.hub && !is_asked && has_room {
            let id = self.ask(now, Some(question), Upstream::Hub, owner);
            if let Some(pending) = self.pending.get_mut(&id) {
                pending.ahead = true;
                *self.ahead.entry(owner).or_default() += 1;
            }
        }
    }

    /// Lets a client wait for the reply to its question.
    fn wait(&mut self, now: Instant, asked: Asked<A>, question: Question, to: Upstream) {
        let client = asked.client;
        if !self.has_room(client) {
            self.stats.refused += 1;
            return self.answer(asked.asker, question.no_answer(asked.over_tcp));
        }
        let late = self.has_stale(now, &question.key).then(|| now + PATIENCE);
        let id = match self.by_key.get(&(question.key.clone(), to)) {
            Some(id) => *id,
            None => self.ask(now, Some(question.clone()), to, client),
        };
        let Some(pending) = self.pending.get_mut(&id) else { return };
        if pending.waiters.iter().any(|it| it.asked.asker == asked.asker) {
            return;
        }
        self.stats.coalesced += u64::from(!pending.waiters.is_empty());
        self.timers.remove(&(pending.timer(), id));
        pending.late = pending.late.or(late);
        self.timers.insert((pending.timer(), id));
        pending.waiters.push(Waiter { asked, question: Some(question) });
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
    ) -> AskId {
        let id = AskId(self.next_id);
        self.next_id += 1;
        match to {
            Upstream::Hub => self.stats.asked += 1,
            Upstream::Straight(_) => self.stats.straight += 1,
        }
        if let Some(question) = &question {
            self.by_key.insert((question.key.clone(), to), id);
            let message = question.to_hub();
            self.outputs.push_back(Output::Ask(Ask { id, message, to, client: owner }));
        }
        let until = now + GIVE_UP;
        let waiters = Vec::new();
        let pending = Pending { question, to, waiters, owner, ahead: false, until, late: None };
        self.timers.insert((pending.timer(), id));
        self.pending.insert(id, pending);
        id
    }

    /// Hands a request that only its server can answer to that server.
    fn pass_on(&mut self, now: Instant, asked: Asked<A>, message: &[u8]) {
        let client = asked.client;
        if !self.has_room(client) {
            return self.stats.refused += 1;
        }
        let to = Upstream::Straight(asked.resolver);
        let id = self.ask(now, None, to, client);
        self.outputs.push_back(Output::Ask(Ask { id, message: message.to_vec(), to, client }));
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.waiters.push(Waiter { asked, question: None });
        }
        self.count_waiter(client);
    }

    fn passed(&mut self, pending: Pending<A>, reply: Option<&[u8]>) {
        let Some(reply) = reply else { return self.stats.failed += 1 };
        for waiter in pending.waiters {
            self.answer(waiter.asked.asker, reply.to_vec());
        }
    }

    fn answered(&mut self, now: Instant, pending: &Pending<A>, message: &Message, bytes: &[u8]) {
        let Some(question) = &pending.question else { return };
        if pending.to == Upstream::Hub {
            let life = lifetime::of(message, question.query.query_type());
            match life {
                Some(life) if !life.is_answer && self.has_stale(now, &question.key) => {
                    return self.failed(now, pending);
                }
                Some(life) => {
                    let kept = (life.fresh, life.is_answer);
                    self.cache.put(&question.key, Entry::new(now, bytes, kept, pending.owner));
                }
                None => self.cache.remove(&question.key),
            }
        }
        let fresh = Age::Since(Duration::ZERO);
        for Waiter { asked, question } in &pending.waiters {
            let Some(question) = question else { continue };
            let answer = question.answer(message.clone(), fresh, asked.over_tcp);
            self.answer(asked.asker.clone(), answer);
        }
    }

    /// Nobody has answered: stale answers, or none.
    fn failed(&mut self, now: Instant, pending: &Pending<A>) {
        if let Some(question) = &pending.question
            && let Some(entry) = self.cache.touch(&question.key)
        {
            entry.recheck = now + RECHECK;
        }
        for Waiter { asked, question } in &pending.waiters {
            let Some(question) = question else {
                self.stats.failed += 1;
                continue;
            };
            let answer = self.stale(now, asked, question).unwrap_or_else(|| {
                self.stats.failed += 1;
                question.no_answer(asked.over_tcp)
            });
            self.answer(asked.asker.clone(), answer);
        }
    }

    fn remove(&mut self, id: AskId) -> Option<Pending<A>> {
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
        self.outputs.push_back(Output::Answer(to, message));
    }

    /// Clients have waited long enough for a fresh answer: they get the stale one. The question
    /// stays, to refresh the cache.
    fn handle_late(&mut self, now: Instant, id: AskId) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        self.timers.remove(&(pending.timer(), id));
        pending.late = None;
        self.timers.insert((pending.timer(), id));
        let waiters = std::mem::take(&mut pending.waiters);
        let key = pending.question.as_ref().map(|question| &question.key);
        // Those who ask meanwhile need not wait as well.
        if let Some(entry) = key.and_then(|key| self.cache.touch(key)) {
            entry.recheck = entry.recheck.max(pending.until);
        }
        for Waiter { asked, question } in waiters {
            self.discount_waiter(asked.client);
            let Some(question) = question else { continue };
            let answer = self.stale(now, &asked, &question);
            let answer = answer.unwrap_or_else(|| question.no_answer(asked.over_tcp));
            self.answer(asked.asker, answer);
        }
    }

    /// Fetches answers in use again before they expire, within the budget.
    fn prefetch(&mut self, now: Instant) {
        while let Some(key) = self.cache.take_due(now) {
            let Some(entry) = self.cache.peek(&key).filter(|entry| entry.used) else { continue };
            let (owner, question) = (entry.owner(), Question::again(&entry.reply, key));
            let Some(question) = question.filter(|_| self.hub) else { continue };
            if self.budget.as_mut().is_some_and(|budget| budget.take(now)) {
                self.stats.prefetched += 1;
                self.ask_ahead(now, question, owner);
            }
        }
    }
}

/// Counts one question of a client less.
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
                Some(pending) => pending.iter().for_each(|pending| self.failed(now, pending)),
                None => self.handle_late(now, id),
            }
        }
        self.prefetch(now);
    }
}
