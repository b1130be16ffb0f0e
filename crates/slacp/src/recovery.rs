//! What was sent and received, and how losses are repaired: ARQ records and FEC.

pub(crate) mod fec;
pub(crate) mod planner;
pub(crate) mod received;
pub(crate) mod sent;
