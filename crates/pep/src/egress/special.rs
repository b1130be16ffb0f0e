//! Addresses of this machine itself, of its link, or of a cloud's metadata service, in all forms in which
//! they can be written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::traffic::Prefix;

/// A range of special addresses.
#[derive(Debug, Clone, Copy)]
pub struct SpecialRange {
    /// Addresses to which the name applies.
    pub range: Prefix,
    /// Name of the range in errors and the log.
    pub what: &'static str,
}

const fn v4(address: [u8; 4], length: u8, what: &'static str) -> SpecialRange {
    SpecialRange { range: Prefix::v4(address, length), what }
}

const fn v6(address: [u16; 8], length: u8, what: &'static str) -> SpecialRange {
    SpecialRange { range: Prefix::v6(address, length), what }
}

const METADATA: &str = "a metadata service";

/// This machine's addresses that need no interface.
pub(super) const LOOPBACK: [Prefix; 2] =
    [Prefix::v4([127, 0, 0, 0], 8), Prefix::v6([0, 0, 0, 0, 0, 0, 0, 1], 128)];

/// From the IANA special-purpose address registries (RFC 6890 §2.2): those that a router must not
/// forward or that mean the host itself, and the cloud metadata services whose address is not
/// link-local. Private networks (RFC 1918, RFC 4193) are not included: reaching them is what a hub
/// is for.
pub const SPECIAL: [SpecialRange; 17] = [
    // RFC 791 §3.2: "this network"; Linux connects 0.0.0.0 to itself.
    v4([0, 0, 0, 0], 8, "this network"),
    v4([127, 0, 0, 0], 8, "loopback"),
    // RFC 3927; includes 169.254.169.254, the metadata service of most clouds.
    v4([169, 254, 0, 0], 16, "link-local"),
    // Alibaba Cloud.
    v4([100, 100, 100, 200], 32, METADATA),
    // Azure's host agent.
    v4([168, 63, 129, 16], 32, METADATA),
    // Oracle Cloud, before it took the link-local address.
    v4([192, 0, 0, 192], 32, METADATA),
    v4([224, 0, 0, 0], 4, "multicast"),
    v4([255, 255, 255, 255], 32, "broadcast"),
    // RFC 4291 §2.5.2, §2.5.3, §2.5.5.1: unspecified, loopback, "IPv4-compatible".
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, "unspecified or loopback"),
    // RFC 4291 §2.5.5.2. A connection to it is an IPv4 connection and judged as such; a packet with
    // such an address is forged.
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4 written as IPv6"),
    // RFC 8215: a translator of the network's own, which may keep the IPv4 address anywhere behind
    // the prefix (RFC 6052 §2.2), so that it cannot be judged.
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "an IPv4 address behind a local NAT64"),
    // RFC 4380: the embedded IPv4 address is the tunnel's end, wherever that is.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo"),
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0], 32, METADATA),
    // Google Cloud.
    v6([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254], 128, METADATA),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    // RFC 3879: site-local, which some networks still use like link-local.
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

/// NAT64 (RFC 6052 §2.1): the last 32 bits are the IPv4 address.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
/// IPv4-translated (RFC 2765 §2.1): the last 32 bits are the IPv4 address.
const TRANSLATED: [u16; 6] = [0, 0, 0, 0, 0xffff, 0];
/// 6to4 (RFC 3056 §2): bits 16 to 47 are the IPv4 address.
const SIX_TO_FOUR: u16 = 0x2002;

/// The address in canonical form, and the IPv4 address that a translator on the path would derive from it,
/// if any.
pub(super) fn embedded_views(address: IpAddr) -> Vec<IpAddr> {
    let address = address.to_canonical();
    let inside = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => match v6.segments() {
            [a, b, c, d, e, f, high, low] if [NAT64, TRANSLATED].contains(&[a, b, c, d, e, f]) => {
                Some((high, low))
            }
            [SIX_TO_FOUR, high, low, ..] => Some((high, low)),
            _ => None,
        },
    };
    let inside = inside
        .map(|(high, low)| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into());
    [address].into_iter().chain(inside).collect()
}

/// All prefixes whose addresses have an address of `prefix` among their `embedded_views`.
pub fn forms(prefix: Prefix) -> Vec<Prefix> {
    let IpAddr::V4(v4) = prefix.address() else { return vec![prefix] };
    let [high, low] = [(v4.to_bits() >> 16) as u16, v4.to_bits() as u16];
    let behind =
        |[a, b, c, d, e, f]: [u16; 6]| Ipv6Addr::from_segments([a, b, c, d, e, f, high, low]);
    let six_to_four = Ipv6Addr::from_segments([SIX_TO_FOUR, high, low, 0, 0, 0, 0, 0]);
    let around =
        |address: Ipv6Addr, before| Prefix::around(address.into(), before + prefix.length());
    let translated = [NAT64, TRANSLATED].map(|before| around(behind(before), 96));
    let all = [Some(prefix), around(six_to_four, 16)].into_iter().chain(translated);
    all.flatten().collect()
}
