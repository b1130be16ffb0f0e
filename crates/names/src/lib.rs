//! DNS of a gateway's clients.
//!
//! At the terminal, [`Resolver`] answers from its cache, and asks the hub for the rest: clients with the
//! same question wait for one query, and answers in use are fetched again before they expire. At the hub,
//! [`Lookup`] asks the hub's own resolvers. With a [`AddressPool`], a client gets a placeholder address at once;
//! the name itself crosses the hop in the message that opens the connection.
//!
//! Messages are parsed and written by `hickory-proto`. Only replies from the hub's session enter the cache,
//! never messages of clients or of other resolvers.
//!
//! Not modelled: DNSSEC validation (a client that validates sets the DO bit and gets all records, [RFC 4035
//! §3.2]), iteration from the root, local zones, and client subnets (RFC 7871), which are not forwarded.
//!
//! [RFC 4035 §3.2]: https://www.rfc-editor.org/rfc/rfc4035#section-3.2

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod answer;
mod cache;
mod canary;
pub mod doh;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lifetime;
mod lookup;
mod message;
mod pool;
mod question;
mod resolver;
mod service_binding;
#[cfg(test)]
mod tests;

pub use answer::failure;
pub use cache::CacheLimits;
pub use lookup::{
    ATTEMPTS, Lookup, LookupError, LookupStep, LookupWake, addresses_in, question_for,
};
pub use message::NonQuestion;
pub use pool::{AddressPool, PoolConfig};
pub use question::{Domain, DomainError, Question, QuestionKind};
pub use resolver::{
    NamesConfig, NamesStats, QueryId, QuestionSource, Resolver, ResolverOutput, ResolverWake,
    Upstream, UpstreamQuery,
};
