//! nftables tables of a gateway: their rules, and the rules that follow from policies.

pub(crate) mod policy;
pub(crate) mod rule;
pub(crate) mod table;
