//! Loss recovery: the scoreboard of segments in flight, the detection of losses, and the rate at which
//! they are repaired.

pub(crate) mod delivery_snapshot;
pub(crate) mod flight;
pub(crate) mod prr;
pub(crate) mod rack;
