//! Parsing, selection and classification of traffic: packets and SYNs, prefixes and port ranges, policies
//! and classes.

mod class;
mod fragments;
mod mss;
mod packet;
mod policy;
mod ports;
mod prefix;
mod prefix_map;
mod syn;

pub use class::{
    Classes, DEFAULT_CHANNEL, DEFAULT_CLASS, Definition, MOST_CLASSES, PacketQueue, Traffic,
};
pub use fragments::Fragments;
pub use mss::clamped;
pub use packet::{Fragment, Packet};
pub use policy::{Action, MOST_RULES, Match, Policy, Subject, policy_rules};
pub use ports::{Ports, TCP, UDP};
pub use prefix::{Prefix, PrefixError, Version};
pub use prefix_map::PrefixMap;
#[cfg(any(test, feature = "testkit"))]
pub use syn::syn_packet;
pub use syn::{Syn, segment_of};
