//! The terminals of a hub.

use slacp::PublicKey;

use crate::admission::Quota;
use crate::egress::Egress;
use crate::traffic::Prefix;

/// A terminal that a hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedTerminal {
    /// Name in the log.
    pub name: String,
    /// The terminal's public key.
    pub key: PublicKey,
    /// Addresses of its clients, as seen from the hub's side. Networks of different terminals must
    /// not overlap. Key `networks`, default none.
    pub networks: Vec<Prefix>,
    /// Destinations its clients may reach through the hub. Keys `reach` and `deny`; by default
    /// those of section `egress`, or else everything except special addresses and the hub's own.
    pub egress: Egress,
    /// Limits on its use of the hub. Keys `max_connections`, `connections_per_second`, `lookups`,
    /// by default those of section `limits`; and `memory`.
    pub quota: Quota,
}
