//! Routing: sessions for connections ([`Sites`]) and for packets ([`Paths`]), and source addresses of
//! answers ([`Sources`]).

mod paths;
mod sites;
mod sources;
mod terminal;

pub use paths::Paths;
pub use sites::{Route, Sites};
pub use sources::{Addressed, Sources};
pub use terminal::PermittedTerminal;
