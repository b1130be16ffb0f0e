//! Transparent interception of clients' connections.
//!
//! [`Interception`] redirects them to the gateway with listeners, an nftables table ([`netfilter`]), rules
//! and routes ([`crate::network`]), and removes everything when it is dropped. [`intake`] switches it on while
//! connections can be carried. With deferred answers ([`deferral`]) the table drops each SYN and copies it
//! to [`syn_tap`]. [`answer_tap`] copies redirected SYNs and the answers to them, so that the gateway
//! notices SYNs that stay unanswered. [`refuser`] answers what policies refuse.

pub(crate) mod answer_tap;
pub(crate) mod bridges;
pub(crate) mod deferral;
pub(crate) mod firewall;
pub(crate) mod intake;
mod interception;
pub(crate) mod lan_routes;
pub(crate) mod listener;
pub(crate) mod netfilter;
pub(crate) mod own;
mod packet_log;
pub(crate) mod refuser;
pub(crate) mod shared_interfaces;
pub(crate) mod syn_tap;

pub(crate) use interception::{
    ClientArrival, IntakeEvent, Interception, print_hub_rules, print_rules, print_solo_rules,
};
