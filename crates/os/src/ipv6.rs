//! Whether this machine speaks IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::errno::Errno;

/// Whether the kernel has IPv6 for this process. It may still be switched off on every
/// device, where it fails later and as if there was no route.
pub fn has_ipv6() -> bool {
    let bound = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let absent = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
    !bound.is_err_and(|error| error.raw_os_error().is_some_and(|code| absent.contains(&code)))
}

/// Every address of this machine, at this port: `::`, which takes IPv4 too, or where
/// there is no IPv6 `0.0.0.0`.
pub fn any_address(port: u16) -> SocketAddr {
    let any: IpAddr =
        if has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}
