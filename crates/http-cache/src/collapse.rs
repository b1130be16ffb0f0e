//! Requests for the same thing at the same time: one is sent on, and its answer serves the others, too
//! (collapsed requests, RFC 9111 §4).
//!
//! Only an answer that may be stored, and that would serve the others from the store, does so
//! ([`Cache::handle_collapsed`](super::Cache::handle_collapsed)). Until its head has come nobody knows, and
//! whoever waits for an answer that turns out to be another's has lost a round trip. So what was not for
//! others is asked for by each client at once for a while.

use core::time::Duration;
use std::collections::BTreeMap;

use units::Instant;

use super::cache::Asked;
use super::directives::Directives;
use super::head::RequestHead;
use super::policy::overrides;
use super::store::Key;

/// How long each client asks for itself what was not for others.
const ALONE: Duration = Duration::from_secs(120);
/// How much is known not to be for others.
const MOST_ALONE: usize = 1024;

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boarding<F> {
    /// It is sent on, and others may wait for its answer until [`Flights::land`] is called with this number.
    Lead(u64),
    /// The same is on its way for another client.
    Join(F),
    /// It is sent on, and its answer is for its client.
    Alone,
}

/// Requests whose answers others may wait for. `F` is what they wait at.
#[derive(Debug)]
pub struct Flights<F> {
    flights: BTreeMap<Key, (u64, F)>,
    alone: BTreeMap<Key, Instant>,
    next: u64,
}

impl<F> Default for Flights<F> {
    fn default() -> Self {
        Self { flights: BTreeMap::new(), alone: BTreeMap::new(), next: 0 }
    }
}

impl<F: Clone> Flights<F> {
    /// Decides about a request that the cache wants to send on. If it leads, the others wait at `flight`.
    pub fn board(&mut self, now: Instant, asked: &Asked, flight: &F) -> Boarding<F> {
        if !may_share(asked) || self.is_alone(now, &asked.key) {
            return Boarding::Alone;
        }
        match self.flights.get(&asked.key) {
            Some((_, flight)) if accepts_anothers(&asked.request) => Boarding::Join(flight.clone()),
            Some(_) => Boarding::Alone,
            None if has_conditions(asked) => Boarding::Alone,
            None => {
                let number = self.next;
                self.next += 1;
                self.flights.insert(asked.key.clone(), (number, flight.clone()));
                Boarding::Lead(number)
            }
        }
    }

    /// Nobody can join any more.
    pub fn land(&mut self, key: &Key, number: u64) {
        if self.flights.get(key).is_some_and(|(it, _)| *it == number) {
            self.flights.remove(key);
        }
    }

    /// The answer was for its client only.
    pub fn was_alone(&mut self, now: Instant, key: Key) {
        if self.alone.len() >= MOST_ALONE {
            self.alone.retain(|_, until| *until > now);
        }
        if self.alone.len() < MOST_ALONE {
            self.alone.insert(key, now + ALONE);
        }
    }

    fn is_alone(&mut self, now: Instant, key: &Key) -> bool {
        let alone = self.alone.get(key).is_some_and(|until| *until > now);
        if !alone {
            self.alone.remove(key);
        }
        alone
    }

    /// Requests that others may join.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }
}

/// Whether the answer may be one for others, as far as the request tells (RFC 9111 §3).
fn may_share(asked: &Asked) -> bool {
    let fields = &asked.request.fields;
    let is_private = fields.has("authorization") || overrides(fields);
    asked.keep && !is_private && !Directives::of(fields).no_store
}

/// Whether the client takes an answer to a request that was sent before its own.
fn accepts_anothers(request: &RequestHead) -> bool {
    let said = Directives::of_request(&request.fields);
    !said.no_cache && !said.max_age.is_some_and(|most| most.is_zero())
}

/// Whether the server is asked by the client's conditions: "not modified" would be for this client.
fn has_conditions(asked: &Asked) -> bool {
    let of_client = ["if-none-match", "if-modified-since"];
    asked.validates.is_none() && of_client.iter().any(|name| asked.request.fields.has(name))
}
