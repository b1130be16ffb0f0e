//! The memory of a host about its peers, which its connections share.

pub(crate) mod tao;
pub(crate) mod tcb;
