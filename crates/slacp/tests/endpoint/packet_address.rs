//! Source addresses that a hub gives to the packets of its terminals.

use std::net::Ipv4Addr;

use crate::pair::{Pair, key};
use slacp::{ChannelConfig, ChannelId, Config, ErrorControl};
use units::BitRate;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 255, 254);

/// What the terminal knows after a handshake: its address, and whether the hub receives packets. `entry`: its
/// entry in the hub's list.
fn told(takes_address: bool, entry: Option<Option<Ipv4Addr>>) -> (Option<Ipv4Addr>, bool) {
    let channel = ChannelId::new(1).unwrap();
    let mut config = Config::new(BitRate::from_mbit(10));
    config.takes_address = takes_address;
    config.add_channel(channel, ChannelConfig::new(ErrorControl::Fec)).unwrap();
    let pair = Pair::prepared(config, |hub| {
        let listed = entry.map(|address| (key(2).public(), address));
        hub.set_packet_addresses(listed.into_iter().collect());
    });
    let (terminal, session) = (&pair.terminal, pair.ids[0]);
    assert!(pair.hub.peer_receives(pair.ids[1], channel), "the terminal receives in any case");
    (terminal.packet_address(session), terminal.peer_receives(session, channel))
}

#[test]
fn a_terminal_is_told_its_address_and_without_one_that_it_takes_sends_no_packets() {
    assert_eq!(told(true, Some(Some(ADDRESS))), (Some(ADDRESS), true));
    // A terminal of an earlier version would send from addresses that the hub does not accept.
    assert_eq!(told(false, Some(Some(ADDRESS))), (None, false));
    assert_eq!(told(true, Some(None)), (None, false));
    for takes_address in [false, true] {
        assert_eq!(told(takes_address, None), (None, true), "it has networks of its own");
    }
}
