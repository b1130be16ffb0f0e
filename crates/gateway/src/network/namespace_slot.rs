//! Slots of a network namespace. Each gateway, and each device of a gateway, takes one: it determines the names
//! and numbers of what is installed in the kernel, so that several gateways of a namespace do not meet.

use crate::network::nft::rule::FirewallMark;

/// Maximum slots of a kind per network namespace: the non-zero values of four bits of the packet mark.
pub(crate) const SLOTS: u32 = 15;

/// A slot of one kind. It determines the nftables table, the packet mark, and the routing table of packets
/// with this mark.
pub(crate) trait NamespaceSlot: Copy + PartialEq {
    /// Names of the nftables tables, without the slot's number.
    const TABLE_PREFIX: &'static str;
    /// Lowest of the four bits of the packet mark.
    const MARK_SHIFT: u32;
    /// Routing table of the first slot.
    const FIRST_ROUTING_TABLE: u32;
    /// Set if marked packets are delivered to this machine, whatever their destination.
    const IS_LOCAL: bool;

    fn new(number: u32) -> Self;

    fn number(self) -> u32;

    /// All slots of a namespace.
    fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self::new)
    }

    /// Name of the nftables table.
    fn table_name(self) -> String {
        format!("{}-{}", Self::TABLE_PREFIX, self.number())
    }

    /// Mark of packets that the routing table is for.
    fn mark(self) -> FirewallMark {
        FirewallMark {
            value: (self.number() + 1) << Self::MARK_SHIFT,
            mask: 0xf << Self::MARK_SHIFT,
        }
    }

    fn routing_table(self) -> u32 {
        Self::FIRST_ROUTING_TABLE + self.number()
    }
}
