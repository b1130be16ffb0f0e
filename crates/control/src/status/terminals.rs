//! Terminals without a session: permitted ones that are absent, and strangers.

use serde::{Deserialize, Serialize};
use slacp::Stranger;
use units::Instant;

use crate::table::{gauge, table_of_figures};

table_of_figures! {
    /// A permitted terminal without a session.
    pub struct AbsentStatus {
        /// Name in the hub's configuration.
        peer: String;
        /// Public key of the terminal (base64).
        key: String;
        /// Time at which it was last heard, in Unix seconds; `None` if the hub's `state` has none.
        last_heard_unix_s: Option<u64> => gauge("skyhop_terminal_last_heard_timestamp_seconds", "On a hub: when a terminal without a session was last heard");
        /// Time since it was last heard.
        silent_s: Option<f64>;
        /// Reason why its last session ended.
        why: Option<String>;
    }
}

/// A machine whose requests for a session a hub does not answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StrangerStatus {
    /// Source of its last message.
    pub address: String,
    /// Its public key (base64), which is not permitted; `None` if it asks for a hub with another key.
    pub key: Option<String>,
    /// Number of its messages within the last hour.
    pub attempts: u64,
    /// Time since its first message.
    pub since_s: f64,
    /// Time since its last message.
    pub last_s: f64,
}

impl StrangerStatus {
    /// The status of a machine, `key` being its public key in base64.
    pub fn new(now: Instant, stranger: &Stranger, key: Option<String>) -> Self {
        Self {
            address: stranger.address.to_string(),
            key,
            attempts: stranger.attempts,
            since_s: now.saturating_since(stranger.first).as_secs_f64(),
            last_s: now.saturating_since(stranger.last).as_secs_f64(),
        }
    }
}
