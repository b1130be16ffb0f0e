//! Routing: sessions for connections ([`Sites`]) and for packets ([`Paths`]), and source addresses of
//! answers ([`Sources`]).

mod paths;
mod sites;
mod sources;
mod terminal;

pub use paths::PacketPaths;
pub use sites::{StreamRoute, TerminalSites};
pub use sources::{AddressedPeers, SourceAddresses};
pub use terminal::PermittedTerminal;
