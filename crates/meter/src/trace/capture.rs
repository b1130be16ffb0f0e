//! Reads captures: files, the headers of packets, and the TCP segments in them.

pub(crate) mod file;
pub(crate) mod layers;
pub(crate) mod link_type;
pub(crate) mod packet;
mod pcapng;
pub(crate) mod segment;
