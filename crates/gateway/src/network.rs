//! A gateway's share of the machine's network: its sockets' options and TLS, addresses that may be absent, and
//! what it installs in the kernel: nftables tables ([`nft`]), rules by packet mark, routes, devices.

pub(crate) mod connection_slots;
pub(crate) mod namespace_slot;
pub(crate) mod nft;
pub(crate) mod presence;
pub(crate) mod routing;
pub(crate) mod side_settings;
pub(crate) mod socket_options;
pub(crate) mod tls;
pub(crate) mod tun;
