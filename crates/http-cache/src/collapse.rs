//! Collapsed requests (RFC 9111 §4): of several simultaneous requests for the same response one is sent,
//! and its response serves the other clients too.
//!
//! Only a response that may be stored, and that could be served to the others from the store, is shared
//! ([`SharedCache::handle_collapsed`](super::SharedCache::handle_collapsed)). That is not known before its head
//! arrives, and clients that waited for a response that cannot be shared have lost a round trip. After one,
//! requests for that key are sent at once for a while.

use core::time::Duration;
use std::collections::BTreeMap;

use units::Instant;

use super::cache::ForwardedRequest;
use super::directives::CacheDirectives;
use super::head::RequestHead;
use super::policy::has_override_fields;
use super::store::CacheKey;

/// Time for which requests for a key are not collapsed after its response could not be shared.
const UNSHARED_TIME: Duration = Duration::from_secs(120);
/// Most keys remembered as not shareable.
const MOST_UNSHARED: usize = 1024;

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollapseDecision<F> {
    /// Send it. Other clients may wait for its response until [`InFlightRequests::finish`] is called with
    /// this number.
    Lead(u64),
    /// Wait for the response to another client's request.
    Join(F),
    /// Send it; its response is for this client only.
    Alone,
}

/// Requests under way whose responses other clients may wait for. `F` is the handle at which they wait.
#[derive(Debug)]
pub struct InFlightRequests<F> {
    flights: BTreeMap<CacheKey, (u64, F)>,
    unshared: BTreeMap<CacheKey, Instant>,
    next: u64,
}

impl<F> Default for InFlightRequests<F> {
    fn default() -> Self {
        Self { flights: BTreeMap::new(), unshared: BTreeMap::new(), next: 0 }
    }
}

impl<F: Clone> InFlightRequests<F> {
    /// Decides about a request that the cache wants to send. If it leads, others are given `flight`.
    pub fn enter(
        &mut self,
        now: Instant,
        asked: &ForwardedRequest,
        flight: &F,
    ) -> CollapseDecision<F> {
        if !may_share(asked) || self.is_unshared(now, &asked.key) {
            return CollapseDecision::Alone;
        }
        match self.flights.get(&asked.key) {
            Some((_, flight)) if accepts_anothers(&asked.request) => {
                CollapseDecision::Join(flight.clone())
            }
            Some(_) => CollapseDecision::Alone,
            None if has_conditions(asked) => CollapseDecision::Alone,
            None => {
                let number = self.next;
                self.next += 1;
                self.flights.insert(asked.key.clone(), (number, flight.clone()));
                CollapseDecision::Lead(number)
            }
        }
    }

    /// Ends the flight with this number: no client can join it any more.
    pub fn finish(&mut self, key: &CacheKey, number: u64) {
        if self.flights.get(key).is_some_and(|(it, _)| *it == number) {
            self.flights.remove(key);
        }
    }

    /// Records that a response could not be shared, so that requests for `key` are not collapsed for a
    /// while.
    pub fn mark_unshared(&mut self, now: Instant, key: CacheKey) {
        if self.unshared.len() >= MOST_UNSHARED {
            self.unshared.retain(|_, until| *until > now);
        }
        if self.unshared.len() < MOST_UNSHARED {
            self.unshared.insert(key, now + UNSHARED_TIME);
        }
    }

    fn is_unshared(&mut self, now: Instant, key: &CacheKey) -> bool {
        let alone = self.unshared.get(key).is_some_and(|until| *until > now);
        if !alone {
            self.unshared.remove(key);
        }
        alone
    }

    /// Number of requests that others can join.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns `true` if no request can be joined.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }
}

/// Returns `true` if the response may be one to share, judging by the request (RFC 9111 §3).
fn may_share(asked: &ForwardedRequest) -> bool {
    let fields = &asked.request.fields;
    let is_private = fields.has("authorization") || has_override_fields(fields);
    asked.storable && !is_private && !CacheDirectives::of(fields).no_store
}

/// Returns `true` if the client accepts the response to a request that was sent before its own.
fn accepts_anothers(request: &RequestHead) -> bool {
    let said = CacheDirectives::of_request(&request.fields);
    !said.no_cache && !said.max_age.is_some_and(|most| most.is_zero())
}

/// Returns `true` if the request carries the client's own conditions: a 304 would answer this client only.
fn has_conditions(asked: &ForwardedRequest) -> bool {
    let of_client = ["if-none-match", "if-modified-since"];
    asked.validates.is_none() && of_client.iter().any(|name| asked.request.fields.has(name))
}
