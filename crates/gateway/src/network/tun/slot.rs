//! Slots of devices.

use crate::network::namespace_slot::NamespaceSlot;

/// A device's slot in a network namespace. Its mark is that of packets to route into the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceSlot(u32);

impl NamespaceSlot for DeviceSlot {
    const TABLE_PREFIX: &'static str = "skyhop-tunnel";
    /// The bits above those of interception.
    const MARK_SHIFT: u32 = 25;
    const FIRST_ROUTING_TABLE: u32 = 5920;
    const IS_LOCAL: bool = false;

    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use pep::traffic::IpFamily;

    use super::*;
    use crate::intercept::netfilter::GatewaySlot;
    use crate::network::namespace_slot::SLOTS;
    use crate::network::nft::rule::PASS_MARK;
    use crate::network::routing::display;

    /// Gateways of one namespace share the packet mark: each kind has bits of its own, and each
    /// slot a value.
    #[test]
    fn no_two_uses_of_the_packet_mark_meet() {
        let intercepted = GatewaySlot(0).mark().mask;
        let tunnelled = DeviceSlot(0).mark().mask;
        assert_eq!(intercepted & tunnelled | (intercepted | tunnelled) & PASS_MARK.mask, 0);
        let gateways = GatewaySlot::all().map(NamespaceSlot::mark);
        let mut values: Vec<u32> = gateways
            .chain(DeviceSlot::all().map(NamespaceSlot::mark))
            .map(|mark| {
                assert!(mark.value != 0 && mark.value & !mark.mask == 0, "{mark:x?}");
                mark.value
            })
            .collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), 2 * SLOTS as usize);
    }

    #[test]
    fn the_printed_commands_are_of_the_slot() {
        let printed = display(DeviceSlot(2), "skyhop0", &IpFamily::BOTH);
        assert_eq!(printed.matches("fwmark 0x6000000/0x1e000000 lookup 5922").count(), 2);
        assert_eq!(printed.matches("route add default dev skyhop0 table 5922").count(), 2);
        assert_eq!(printed.matches("ip -6 ").count(), 2);
        assert_ne!(DeviceSlot(2).table_name(), GatewaySlot(2).table_name());
    }
}
