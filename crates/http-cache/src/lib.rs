//! HTTP cache of a gateway, for its clients' cleartext requests.
//!
//! At the terminal, [`SharedCache`] answers from stored responses as RFC 9111 permits a shared cache to; other
//! requests go to the hub or the server. A connection that is not plainly HTTP/1.x, or whose messages are
//! ambiguous ([`PassThroughReason`]), is passed through unchanged.
//!
//! Heads are parsed by `httparse`, dates by `httpdate`. Times are calendar times, because those of servers
//! are and because stored responses outlive the process.
//!
//! Not modelled: storing partial responses ([RFC 9111 §3.4]; ranges are served from complete ones),
//! responses to POST, warnings, and storing trailers, which are only passed on.
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

pub use answer::BodyRange;
pub use body::{BadChunk, BodyParser};
pub use cache::{
    CacheConfig, CacheStats, CachedResponse, ForwardedRequest, RequestAction, ResponseAction,
    SharedCache,
};
pub use collapse::{CollapseDecision, InFlightRequests};
pub use fields::HeaderFields;
pub use head::{
    BodyFraming, LONGEST_HEAD, ParsedHead, PassThroughReason, RequestHead, ResponseHead,
};
pub use patience::OriginTimeout;
pub use policy::StoredResponse;
pub use progress::HeadProgress;
pub use record::ResponseRecord;
pub use store::{CacheKey, EntryId, FileOutput, ResponseStore, StoreLimits};
