//! Parsing, selection and classification of traffic: packets and SYNs, prefixes and port ranges, policies
//! and classes.

mod class;
mod fragments;
mod header;
mod icmp;
mod mss;
mod packet;
mod policy;
mod ports;
mod prefix;
mod prefix_map;
pub mod quic;
mod refusal;
mod syn;
pub mod window;

pub use class::{
    ClassDefinition, DEFAULT_CHANNEL, DEFAULT_CLASS, MOST_CLASSES, PacketQueue, TrafficClasses,
    TrafficSelector,
};
pub use fragments::FragmentChannels;
pub use mss::clamped;
pub use packet::{Packet, PacketFragment};
pub use policy::{
    MOST_RULES, PolicyAction, PolicyMatch, PolicySubject, TrafficPolicy, policy_rules,
};
pub use ports::{PortRange, TCP, UDP};
pub use prefix::{IpFamily, Prefix, PrefixError};
pub use prefix_map::PrefixMap;
pub use refusal::Refusal;
#[cfg(any(test, feature = "testkit"))]
pub use syn::syn_packet;
pub use syn::{Syn, segment_of};
