//! Detects IPv6 support.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::errno::Errno;

/// Whether the kernel supports IPv6 for this process. It may still be disabled on every device;
/// connections then fail as if there were no route.
pub fn has_ipv6() -> bool {
    let bound = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let absent = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
    !bound.is_err_and(|error| error.raw_os_error().is_some_and(|code| absent.contains(&code)))
}

/// The wildcard address with this port: `::`, which includes IPv4, or `0.0.0.0` without IPv6.
pub fn any_address(port: u16) -> SocketAddr {
    let any: IpAddr =
        if has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}
