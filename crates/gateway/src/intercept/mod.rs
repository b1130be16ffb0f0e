//! How clients' connections come in.
//!
//! [`Interception`] redirects them to us with listeners, an nftables table ([`netfilter`]), rules and
//! routes ([`routing`]), and removes everything when it is dropped. [`intake`] turns it on exactly
//! while it is useful. With deferred answers ([`deferral`]) the table drops each SYN and shows it to
//! [`syn_tap`]. [`answer_tap`] shows what is redirected and what is answered, so that a gateway notices if
//! the one does not lead to the other. [`rule`] and [`nft_table`] build the tables of the tunnel too.

pub(crate) mod answer_tap;
pub(crate) mod bridges;
pub(crate) mod deferral;
pub(crate) mod firewall;
pub(crate) mod intake;
mod interception;
pub(crate) mod lan_routes;
pub(crate) mod listener;
pub(crate) mod netfilter;
pub(crate) mod nft_table;
pub(crate) mod own;
pub(crate) mod policy;
pub(crate) mod routing;
pub(crate) mod rule;
pub(crate) mod syn_tap;

pub(crate) use interception::{
    Arrival, IntakeEvent, Interception, print_hub_rules, print_rules, print_solo_rules,
};
