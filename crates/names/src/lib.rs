//! Names: what a gateway does with the DNS questions of its clients.
//!
//! At the terminal, [`Resolver`] answers from its cache what it can, and asks the hub for the rest:
//! each question once for all who wait for it, and those in use again before their answers expire.
//! At the hub, a [`Lookup`] asks the hub's own resolvers. With a [`Pool`], a client gets an address of
//! ours at once; the name itself crosses the hop with the opening of its connection.
//!
//! Messages are read and written by `hickory-proto`. Only what the hub says enters the cache, over
//! its session; what a client or another resolver sends never does.
//!
//! Not modelled: validation of DNSSEC (those who want it set the DO bit and get everything they need,
//! [RFC 4035 §3.2]), iteration from the root, zones of our own, and client subnets (RFC 7871), which are
//! not passed on.
//!
//! [RFC 4035 §3.2]: https://www.rfc-editor.org/rfc/rfc4035#section-3.2

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod answer;
mod cache;
pub mod doh;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lifetime;
mod lookup;
mod message;
mod pool;
mod question;
mod resolver;
#[cfg(test)]
mod tests;

pub use answer::failure;
pub use cache::CacheLimits;
pub use lookup::{
    ATTEMPTS, Lookup, LookupError, LookupStep, LookupWake, addresses_in, question_for,
};
pub use message::Unanswerable;
pub use pool::{Pool, PoolConfig};
pub use question::{Domain, DomainError, Kind, Question};
pub use resolver::{
    Ask, AskId, Asked, NamesConfig, NamesStats, Output, Resolver, ResolverWake, Upstream,
};
