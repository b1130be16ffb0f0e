//! Labs that persist after the command that started them has returned.
//!
//! `up` reserves a name ([`LabRegistry::reserve`]), detaches ([`detach()`]), starts a lab and keeps it
//! running ([`PersistentLab::keep`]). From then on any process with the same user id reaches it through its
//! control socket ([`RunningLab`]), to read its status, change its links, enter it or end it. Whether
//! it is alive is shown by a lock that the kernel releases when its last process ends, so nothing
//! that a killed lab has left behind is believed.

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
pub use self::detach::{DetachedProcess, StartingLab, detach};
pub use self::find::{AskError, FoundLabs, LabRegistry, RunningLab};
pub use self::name::{LabName, LabNameError};
pub use self::protocol::LinkChange;
pub use self::slot::ReservedSlot;
pub use self::stand::{AppliedChange, LabCallbacks, PersistentLab};
pub use self::status::{
    FaultsStatus, HostStatus, LabStatus, LatenessStatus, LinkStatus, TallyStatus,
};
