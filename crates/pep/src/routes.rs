//! Routing: sessions for connections ([`TerminalSites`]) and for packets ([`PacketPaths`]), and source addresses of
//! answers ([`SourceAddresses`]); addresses that a hub gives to terminals ([`AddressPool`]).

mod paths;
mod pool;
mod sites;
mod sources;
mod terminal;

pub use paths::PacketPaths;
pub use pool::{AddressPool, conflicting_route};
pub use sites::{StreamRoute, TerminalSites};
pub use sources::{AddressedPeers, SourceAddresses};
pub use terminal::{PermittedTerminal, TerminalQuota};
