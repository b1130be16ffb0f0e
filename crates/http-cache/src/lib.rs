//! HTTP: what a gateway does with its clients' cleartext requests.
//!
//! At the terminal, [`Cache`] answers what it has stored as RFC 9111 lets a shared cache; other
//! requests go to the hub or the server. Whatever is not plainly HTTP/1.x, or could be read in two ways
//! ([`Unfit`]), is left alone: its connection passes as it came.
//!
//! Heads are read by `httparse`, dates by `httpdate`. Times are those of the calendar, because servers'
//! are, and because responses outlive the process.
//!
//! Not modelled: parts of responses ([RFC 9111 §3.4]; a part is served from a whole, never stored),
//! answers to POST, warnings, and trailers, which pass but are not stored.
//!
//! [RFC 9111 §3.4]: https://www.rfc-editor.org/rfc/rfc9111#section-3.4

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod answer;
mod body;
mod cache;
mod collapse;
mod directives;
mod fields;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod patience;
mod policy;
mod progress;
mod record;
mod store;
#[cfg(test)]
mod tests;

pub use answer::Part;
pub use body::{BadChunk, Body};
pub use cache::{Answer, Asked, Cache, CacheConfig, CacheStats, Plan, Verdict};
pub use collapse::{Boarding, Flights};
pub use fields::Fields;
pub use head::{Framing, LONGEST_HEAD, Parsed, RequestHead, ResponseHead, Unfit};
pub use patience::Patience;
pub use policy::Stored;
pub use progress::HeadProgress;
pub use record::Record;
pub use store::{EntryId, FileOutput, Key, Store, StoreLimits};
