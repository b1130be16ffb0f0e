//! Names that clients ask for before they look for a resolver of their own.
//!
//! An answer without records keeps them with the network's resolver, as their makers tell network operators:
//!
//! - Firefox asks for [`use-application-dns.net`][canary], and then does not turn to DNS over HTTPS by itself. A user
//!   who has turned it on is not affected.
//! - Systems ask for `_dns.resolver.arpa` to find encrypted resolvers that belong to the one in use (RFC 9462 §4). A
//!   resolver that designates none answers all of `resolver.arpa` like this; a forwarder asks no other (§6.1).
//!
//! The DO and CD bits change nothing: a client that misses the signatures takes the answer for a failure, which means
//! the same to Firefox.
//!
//! [canary]: https://support.mozilla.org/en-US/kb/canary-domain-use-application-dnsnet

use super::question::{Question, is_within};

/// TTL of the answers, in seconds: a client that moves to another network soon asks again.
pub(super) const CANARY_TTL: u32 = 60;
/// The canary domain of Firefox. No client asks for names below it.
const FIREFOX: &str = "use-application-dns.net";
/// The zone in which a resolver designates others.
const DESIGNATED: &str = "resolver.arpa";

impl Question {
    /// Returns `true` if the answer decides where the client sends its other questions.
    pub(super) fn is_canary(&self) -> bool {
        let is_one = |name: &str| name == FIREFOX || is_within(name, DESIGNATED);
        self.host().is_some_and(|name| is_one(name.as_str()))
    }
}
