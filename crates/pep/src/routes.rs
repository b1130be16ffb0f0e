//! Routing: sessions for connections ([`TerminalSites`]) and for packets ([`PacketPaths`]), and source addresses of
//! answers ([`SourceAddresses`]).

mod paths;
mod sites;
mod sources;
mod terminal;

pub use paths::PacketPaths;
pub use sites::{StreamRoute, TerminalSites};
pub use sources::{AddressedPeers, SourceAddresses};
pub use terminal::{PermittedTerminal, TerminalQuota};
