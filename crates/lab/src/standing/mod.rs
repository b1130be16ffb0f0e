//! Labs that stay after the command that started them has returned.
//!
//! `up` takes a name ([`Standings::take`]), leaves itself behind ([`detach`]),
//! starts a lab there and keeps it ([`Stand::keep`]). From then on anybody with
//! the same user id reaches it by its control socket ([`Standing`]): to look at
//! it, change its links, go into it or end it. Whether it lives is told by a
//! lock that the kernel opens when its last process ends, so nothing is believed
//! that a killed lab has left behind.

mod base;
mod detach;
mod find;
mod name;
mod process;
mod protocol;
mod slot;
mod stand;
mod status;
#[cfg(test)]
mod testkit;

pub use self::base::{STATE_VARIABLE, StateError};
pub use self::detach::{Detached, Foothold, detach};
pub use self::find::{AskError, Found, Standing, Standings};
pub use self::name::{LabName, LabNameError};
pub use self::protocol::Change;
pub use self::slot::Taken;
pub use self::stand::{Changed, Keeper, Stand};
pub use self::status::{FaultsStatus, HostStatus, LatenessStatus, LinkStatus, Status, TallyStatus};
