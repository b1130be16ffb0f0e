//! Connections: their paths, their ends and splits, and the conversations on them.

pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod path;
pub(crate) mod script;
pub(crate) mod socket;
pub(crate) mod split;
pub(crate) mod talk;
pub(crate) mod turn;
