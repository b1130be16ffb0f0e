//! The addresses that count as one network or as one client.

use std::net::IpAddr;

/// The /24 (IPv4) or /48 (IPv6) of an address. A sender that has one address may have many of its
/// network, so limits apply to networks.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & !0xff).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !((1 << 80) - 1)).into()),
    }
}

/// The address that stands for a client: its IPv4 address, or the /64 of its IPv6 address, since a
/// client chooses the rest itself (RFC 4291 §2.5.1).
pub fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_one_whatever_it_calls_itself_in_its_network() {
        let of = |text: &str| client_network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
