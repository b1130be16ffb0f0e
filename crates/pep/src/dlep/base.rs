//! Information base (RFC 8175 §4): destinations and rates that a modem has reported.

use std::collections::BTreeMap;
use std::net::IpAddr;

use units::BitRate;

use super::item::{DataItem, LinkAddress, code};
use super::message::DlepMessage;
use crate::traffic::Prefix;

/// Maximum number of destinations. A hub's modem has one for each terminal.
const MOST_DESTINATIONS: usize = 4096;
/// Maximum addresses and subnets per destination; more are ignored.
const MOST_NETWORKS: usize = 64;

/// State of the link during a session; empty without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InformationBase {
    /// The session's Current Data Rate (Transmit).
    default: Option<BitRate>,
    destinations: BTreeMap<LinkAddress, BaseDestination>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct BaseDestination {
    /// A destination that is down stays in the base, so that the rate to it is 0.
    up: bool,
    /// The destination's own Current Data Rate (Transmit), if reported.
    rate: Option<BitRate>,
    /// Its addresses, and the subnets behind it.
    networks: Vec<Prefix>,
}

/// A destination as shown in the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationRow {
    /// Link-layer address, in hexadecimal with colons.
    pub mac: String,
    /// `true` if it is reachable.
    pub up: bool,
    /// Rate towards it, if it differs from the link's.
    pub rate: Option<BitRate>,
    /// Its addresses, and the subnets behind it.
    pub networks: Vec<String>,
}

impl InformationBase {
    /// A link with this rate and no destinations.
    pub fn of_rate(rate: BitRate) -> Self {
        Self { default: Some(rate), ..Self::default() }
    }

    /// A link with one destination of this rate.
    #[cfg(test)]
    pub(crate) fn of_destination(rate: BitRate, up: bool) -> Self {
        let mac = LinkAddress::new(&[2, 0, 0, 0, 0, 1]).expect("six bytes");
        let destination = BaseDestination { up, rate: Some(rate), networks: Vec::new() };
        Self { default: None, destinations: [(mac, destination)].into() }
    }

    /// Applies a session update. A rate in it replaces the rates of all destinations (§12.7).
    pub(super) fn update_session(&mut self, message: &DlepMessage) {
        let Some(rate) = current_rate(message) else { return };
        self.default = Some(rate);
        self.destinations.values_mut().for_each(|destination| destination.rate = Some(rate));
    }

    /// Adds a destination that has become reachable; `false` if there is no room (§12.11).
    pub(super) fn up(&mut self, mac: LinkAddress, message: &DlepMessage) -> bool {
        let full = self.destinations.len() >= MOST_DESTINATIONS;
        if full && !self.destinations.contains_key(&mac) {
            // One that is down is kept only for its rate of 0, so it gives way.
            let down = self.destinations.iter().find(|(_, destination)| !destination.up);
            let Some(down) = down.map(|(mac, _)| *mac) else { return false };
            self.destinations.remove(&down);
        }
        let mut destination = BaseDestination { up: true, ..BaseDestination::default() };
        destination.update(message);
        self.destinations.insert(mac, destination);
        true
    }

    /// Updates a destination that is up (§12.17); `false` if it is not.
    pub(super) fn update(&mut self, mac: LinkAddress, message: &DlepMessage) -> bool {
        let destination = self.destinations.get_mut(&mac).filter(|destination| destination.up);
        destination.map(|destination| destination.update(message)).is_some()
    }

    /// Marks a destination as unreachable (§12.15); `false` if it was not up.
    pub(super) fn down(&mut self, mac: LinkAddress) -> bool {
        let destination = self.destinations.get_mut(&mac).filter(|destination| destination.up);
        destination.map(|destination| destination.up = false).is_some()
    }

    /// The rate to a peer at this address, if reported; 0 if the peer is unreachable. `alone` means
    /// that the link has no other peer.
    ///
    /// The peer is the destination with this address, or with the longest subnet containing it. A
    /// lone peer may also be behind the only destination, whatever its address. Otherwise the
    /// session's rate applies, except 0, which modems send if they have no default rate.
    pub fn rate(&self, peer: IpAddr, alone: bool) -> Option<BitRate> {
        match self.towards(peer, alone) {
            Some(destination) if !destination.up => Some(BitRate::from_bits_per_second(0)),
            Some(BaseDestination { rate: Some(rate), .. }) => Some(*rate),
            _ => self.default.filter(|rate| rate.bits_per_second() > 0),
        }
    }

    /// Returns `true` if the peer at this address is behind a destination that is up: a rate of 0 then
    /// means that no capacity is granted now.
    pub fn is_up(&self, peer: IpAddr, alone: bool) -> bool {
        self.towards(peer, alone).is_some_and(|destination| destination.up)
    }

    /// The only destination that is up.
    pub(super) fn only_up(&self) -> Option<LinkAddress> {
        let mut up = self.destinations.iter().filter(|(_, destination)| destination.up);
        up.next().filter(|_| up.next().is_none()).map(|(mac, _)| *mac)
    }

    /// The destination of a peer; see [`Self::rate`].
    fn towards(&self, peer: IpAddr, alone: bool) -> Option<&BaseDestination> {
        let by_address = self.destinations.values().filter_map(|destination| {
            let around = destination.networks.iter().filter(|prefix| prefix.contains(peer));
            Some((destination, around.map(|prefix| prefix.length()).max()?))
        });
        // An address may have moved from a destination that is down, so one that is up counts first.
        let found = by_address.max_by_key(|(destination, length)| (destination.up, *length));
        let found = found.map(|(destination, _)| destination);
        found.or_else(|| self.only().filter(|_| alone))
    }

    /// The only destination that is up; if none is up, the only one that is down.
    fn only(&self) -> Option<&BaseDestination> {
        let mut up = self.destinations.values().filter(|destination| destination.up);
        match (up.next(), up.next()) {
            (only, None) => only.or_else(|| self.destinations.values().next()),
            _ => None,
        }
    }

    /// The session's Current Data Rate (Transmit); `None` before one was reported.
    pub fn default_rate(&self) -> Option<BitRate> {
        self.default
    }

    /// All destinations, ordered by link-layer address.
    pub fn rows(&self) -> impl Iterator<Item = DestinationRow> {
        self.destinations.iter().map(|(mac, destination)| DestinationRow {
            mac: mac.to_string(),
            up: destination.up,
            rate: destination.rate,
            networks: destination.networks.iter().map(ToString::to_string).collect(),
        })
    }
}

impl BaseDestination {
    fn update(&mut self, message: &DlepMessage) {
        self.rate = current_rate(message).or(self.rate);
        for item in &message.items {
            let DataItem::Network { add, prefix, .. } = item else { continue };
            // Also when adding, so that no network is stored twice.
            self.networks.retain(|known| known != prefix);
            if *add && self.networks.len() < MOST_NETWORKS {
                self.networks.push(*prefix);
            }
        }
    }
}

fn current_rate(message: &DlepMessage) -> Option<BitRate> {
    message.metric(code::CURRENT_DATA_RATE_TRANSMIT).map(BitRate::from_bits_per_second)
}

#[cfg(test)]
mod tests {
    use super::super::message::MessageKind;
    use super::*;

    fn mac(last: u16) -> LinkAddress {
        let [high, low] = last.to_be_bytes();
        LinkAddress::new(&[2, 0, 0, 0, high, low]).unwrap()
    }

    fn mbit(rate: u64) -> DataItem {
        DataItem::Metric(code::CURRENT_DATA_RATE_TRANSMIT, rate * 1_000_000)
    }

    fn network(add: bool, text: &str) -> DataItem {
        DataItem::Network { subnet: text.contains('/'), add, prefix: text.parse().unwrap() }
    }

    fn message(items: &[DataItem]) -> DlepMessage {
        DlepMessage { kind: MessageKind::DestinationUp, items: items.to_vec() }
    }

    fn rate(base: &InformationBase, peer: &str, alone: bool) -> Option<u64> {
        base.rate(peer.parse().unwrap(), alone).map(|rate| rate.bits_per_second() / 1_000_000)
    }

    #[test]
    fn a_peer_has_the_rate_of_its_destination_or_that_of_the_session() {
        let mut base = InformationBase::default();
        assert_eq!(rate(&base, "10.1.0.1", true), None);
        base.update_session(&message(&[mbit(50)]));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(50));
        base.up(mac(1), &message(&[mbit(1), network(true, "10.1.0.0/16")]));
        base.up(mac(2), &message(&[mbit(2), network(true, "10.1.0.1")]));
        base.up(mac(3), &message(&[network(true, "2001:db8::/32")]));
        for (peer, expected) in [
            ("10.1.0.1", 2),
            ("10.1.0.2", 1),
            ("10.2.0.1", 50),
            // No rate of its own.
            ("2001:db8::1", 50),
        ] {
            assert_eq!(rate(&base, peer, true), Some(expected), "{peer}");
        }
        // A session update applies to all destinations (§12.7).
        base.update_session(&message(&[mbit(7)]));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(7));
        assert!(base.update(mac(2), &message(&[network(false, "10.1.0.1"), mbit(3)])));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(7), "its subnet is of another");
    }

    #[test]
    fn nothing_is_sent_to_a_destination_until_it_is_up_again() {
        let mut base = InformationBase::default();
        base.update_session(&message(&[mbit(50)]));
        base.up(mac(1), &message(&[mbit(1), network(true, "10.1.0.1")]));
        assert!(base.down(mac(1)) && !base.down(mac(1)) && !base.update(mac(1), &message(&[])));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(0));
        // Another route to the same subnet.
        base.up(mac(2), &message(&[mbit(2), network(true, "10.1.0.0/16")]));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(2));
        base.up(mac(1), &message(&[mbit(5), network(true, "10.1.0.1")]));
        assert_eq!(rate(&base, "10.1.0.1", false), Some(5));
        assert!(base.rows().count() == 2 && base.rows().all(|row| row.up));
    }

    #[test]
    fn a_lone_peer_is_behind_the_only_destination() {
        let mut base = InformationBase::default();
        base.update_session(&message(&[mbit(50)]));
        base.up(mac(1), &message(&[mbit(1)]));
        assert_eq!((rate(&base, "::1", true), rate(&base, "::1", false)), (Some(1), Some(50)));
        base.down(mac(1));
        assert_eq!((rate(&base, "::1", true), rate(&base, "::1", false)), (Some(0), Some(50)));
        base.up(mac(2), &message(&[mbit(2)]));
        assert_eq!(rate(&base, "::1", true), Some(2));
        base.up(mac(3), &message(&[mbit(3)]));
        assert_eq!(rate(&base, "::1", true), Some(50));
    }

    #[test]
    fn a_rate_of_0_is_a_destinations_and_of_a_session_it_says_nothing() {
        let mut base = InformationBase::default();
        base.update_session(&message(&[mbit(0)]));
        assert_eq!(rate(&base, "10.0.0.1", true), None);
        base.up(mac(1), &message(&[network(true, "10.0.0.1"), mbit(0)]));
        assert_eq!(rate(&base, "10.0.0.1", true), Some(0));
    }

    #[test]
    fn destinations_are_bounded_and_those_down_give_way() {
        let mut base = InformationBase::default();
        for last in 0..MOST_DESTINATIONS as u16 {
            assert!(base.up(mac(last), &message(&[])));
        }
        assert!(!base.up(mac(9999), &message(&[])) && base.up(mac(0), &message(&[])));
        base.down(mac(7));
        assert!(base.up(mac(9999), &message(&[])));
        assert_eq!(base.destinations.len(), MOST_DESTINATIONS);
        let many: Vec<DataItem> = (0..200).map(|n| network(true, &format!("10.0.0.{n}"))).collect();
        base.update(mac(1), &message(&many));
        assert_eq!(base.destinations[&mac(1)].networks.len(), MOST_NETWORKS);
    }
}
