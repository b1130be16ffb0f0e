//! Responses that a hub pushes because a client is about to ask for them.
//!
//! Each is for one client, which has it once, within a short time, and only if it asks as the hub did: a
//! response may be for one user, and may not be stored. What may be stored goes into the cache besides.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use units::{ByteCount, Instant, UnixTime};

use super::answer::{Part, answer};
use super::head::{RequestHead, ResponseHead};
use super::policy::Stored;
use super::store::Key;

/// How long a response may take to come, and how long it then waits to be asked for.
const COMING: Duration = Duration::from_secs(15);
const WAITING: Duration = Duration::from_secs(30);
/// Promises to one client at a time, and in all.
const MOST_EACH: usize = 256;
const MOST: usize = 4096;
/// Fields that say who asks, besides what the response is selected by.
const WHO: [&str; 2] = ["authorization", "cookie"];

/// What became of promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromiseStats {
    /// Responses that came.
    pub pushed: u64,
    /// Those that were asked for.
    pub used: u64,
    /// Those that nobody asked for in time, or not as the hub did.
    pub wasted: u64,
    /// Bytes of bodies that came.
    pub pushed_bytes: u64,
}

/// What a client finds that asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promised<B> {
    /// Nothing was promised.
    Nothing,
    /// It is coming: ask again when something has come, or at this time.
    Coming(Instant),
    /// This is the answer: its head, the part of the body that it gets, and the body.
    Here(ResponseHead, Option<Part>, B),
}

#[derive(Debug)]
struct Promise<B> {
    /// When it is forgotten.
    until: Instant,
    response: Option<Response<B>>,
}

#[derive(Debug)]
struct Response<B> {
    request: RequestHead,
    stored: Stored,
    body: B,
    length: u64,
}

/// Promises to clients. Bodies (`B`) are in memory.
#[derive(Debug)]
pub struct Promises<B> {
    /// The most bytes of bodies.
    most_bytes: u64,
    bytes: u64,
    promises: BTreeMap<(IpAddr, Key), Promise<B>>,
    stats: PromiseStats,
}

impl<B> Promises<B> {
    /// None yet. Their bodies may take so much memory.
    pub fn new(most: ByteCount) -> Self {
        let stats = PromiseStats::default();
        Self { most_bytes: most.get(), bytes: 0, promises: BTreeMap::new(), stats }
    }

    /// What became of them.
    pub fn stats(&self) -> PromiseStats {
        self.stats
    }

    /// Something is coming. Returns whether it is wanted.
    pub fn handle_promise(&mut self, now: Instant, client: IpAddr, key: Key) -> bool {
        self.expire(now);
        let of_client =
            self.promises.range(first(client)..).take_while(|((it, _), _)| *it == client);
        if of_client.count() >= MOST_EACH || self.promises.len() >= MOST {
            return false;
        }
        let place = (client, key);
        if self.promises.contains_key(&place) {
            return false;
        }
        self.promises.insert(place, Promise { until: now + COMING, response: None });
        true
    }

    /// It does not come.
    pub fn handle_failure(&mut self, client: IpAddr, key: &Key) {
        self.forget(&(client, key.clone()));
    }

    /// It has come, in answer to `request`.
    pub fn handle_response(
        &mut self,
        (now, wall): (Instant, UnixTime),
        (client, key): (IpAddr, &Key),
        request: RequestHead,
        response: &ResponseHead,
        (body, length): (B, u64),
    ) {
        self.expire(now);
        self.stats.pushed += 1;
        self.stats.pushed_bytes += length;
        let fits = self.bytes + length <= self.most_bytes;
        let Some(promise) = self.promises.get_mut(&(client, key.clone())) else {
            self.stats.wasted += 1;
            return;
        };
        if !fits || promise.response.is_some() {
            return self.forget(&(client, key.clone()));
        }
        let mut stored = Stored::new(&request, response, (wall, wall));
        stored.head.fields.remove("content-length");
        promise.until = now + WAITING;
        promise.response = Some(Response { request, stored, body, length });
        self.bytes += length;
    }

    /// A client asks.
    pub fn handle_request(
        &mut self,
        (now, wall): (Instant, UnixTime),
        client: IpAddr,
        key: &Key,
        request: &RequestHead,
    ) -> Promised<B> {
        self.expire(now);
        let place = (client, key.clone());
        let Some(promise) = self.promises.get(&place) else { return Promised::Nothing };
        if request.method != "GET" {
            return Promised::Nothing;
        }
        if promise.response.is_none() {
            return Promised::Coming(promise.until);
        }
        let Some(response) = self.promises.remove(&place).and_then(|it| it.response) else {
            return Promised::Nothing;
        };
        self.bytes -= response.length;
        let same = |name: &&str| request.fields.same(&response.request.fields, name);
        if !WHO.iter().all(same) || !response.stored.is_selected_by(request) {
            self.stats.wasted += 1;
            return Promised::Nothing;
        }
        self.stats.used += 1;
        let (head, part) = answer(wall, request, &response.stored, response.length);
        Promised::Here(head, part, response.body)
    }

    fn expire(&mut self, now: Instant) {
        let over = self.promises.iter().filter(|(_, promise)| promise.until <= now);
        let over: Vec<_> = over.map(|(place, _)| place.clone()).collect();
        over.iter().for_each(|place| self.forget(place));
    }

    fn forget(&mut self, place: &(IpAddr, Key)) {
        let Some(promise) = self.promises.remove(place) else { return };
        if let Some(response) = promise.response {
            self.bytes -= response.length;
            self.stats.wasted += 1;
        }
    }
}

/// Before all keys of a client.
fn first(client: IpAddr) -> (IpAddr, Key) {
    let (destination, host, target) = Default::default();
    (client, Key { destination, host, target })
}
