//! Which session leads where: for connections ([`Sites`]) and for packets ([`Paths`]).

mod paths;
mod sites;

pub use paths::Paths;
pub use sites::{Route, Sites};
