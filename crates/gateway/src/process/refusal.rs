//! Refusals of the kernel: the operation, the IP version, the error, and its usual cause and fix.

use std::fmt;
use std::io;

use nix::errno::Errno;
use pep::traffic::IpFamily;

use crate::process::capability::Capability;

/// An operation requested from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelOperation {
    /// Binding a transparent listener for intercepted connections.
    Listener(IpFamily),
    /// Adding a rule by packet mark.
    Rule(IpFamily),
    /// Adding a route to a table of the gateway.
    Route(IpFamily),
    /// Sending packets through the loopback device.
    Loopback,
    /// Creating or changing an nftables table.
    Nftables,
    /// Receiving packets logged by nftables, and sending raw packets.
    Packets,
    /// Creating the tunnel's device with `/dev/net/tun`.
    Tun,
    /// Creating the tunnel's device as a veth pair.
    Veth,
    /// Bringing the tunnel's device up, with its MTU and address.
    Device,
}

impl fmt::Display for KernelOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(version) => write!(f, "the {} listener", version.name()),
            Self::Rule(version) => write!(f, "the {} rule", version.name()),
            Self::Route(version) => write!(f, "the {} route", version.name()),
            Self::Loopback => f.write_str("the loopback device"),
            Self::Nftables => f.write_str("the nftables table"),
            Self::Packets => f.write_str("the raw packet sockets"),
            Self::Tun => f.write_str("/dev/net/tun"),
            Self::Veth => f.write_str("the pair of virtual devices (veth)"),
            Self::Device => f.write_str("the address and MTU of the device"),
        }
    }
}

/// An operation that the kernel refused. Displays the operation, the kernel's error, and a fix if one
/// is known.
#[derive(Debug)]
pub struct KernelRefusal {
    operation: KernelOperation,
    cause: io::Error,
}

impl KernelRefusal {
    /// Returns whether privileges are missing.
    pub(crate) fn is_denial(&self) -> bool {
        self.cause.kind() == io::ErrorKind::PermissionDenied
    }

    /// Builds the refusal that an operation would end with, for checks that do not try it.
    pub(crate) fn expected(operation: KernelOperation, code: i32) -> Self {
        Self { operation, cause: io::Error::from_raw_os_error(code) }
    }

    /// Describes the operation and the kernel's error.
    pub(crate) fn what(&self) -> String {
        match self.cause.raw_os_error() {
            Some(code) => format!("{}: {}", self.operation, Errno::from_raw(code)),
            None => format!("{}: {}", self.operation, self.cause),
        }
    }

    /// Returns the fix, if one is known.
    pub(crate) fn fix(&self) -> Option<&'static str> {
        fix(self.operation, self.cause.raw_os_error().unwrap_or(0), Capability::is_held)
    }

    /// Advises on what to do once IPv6 works again.
    pub(crate) fn later_advice(&self) -> &'static str {
        match self.operation {
            KernelOperation::Rule(_) | KernelOperation::Route(_) => FOLLOWED,
            _ => LATER,
        }
    }

    /// Returns a function for `map_err` that wraps the error of an operation.
    pub(crate) fn wrap(operation: KernelOperation) -> impl Fn(io::Error) -> Self {
        move |cause| Self { operation, cause }
    }
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.fix().map_or(Ok(()), |mend| write!(f, ": {mend}"))
    }
}

impl std::error::Error for KernelRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Returns the fix for an error of an operation, given the capabilities of the process.
fn fix(
    operation: KernelOperation,
    code: i32,
    holds: impl Fn(Capability) -> bool,
) -> Option<&'static str> {
    let denied = matches!(code, libc::EPERM | libc::EACCES);
    // EPERM means that the privilege is missing; EACCES for a route means that IPv6 is off.
    let off = (operation, code) == (KernelOperation::Route(IpFamily::V6), libc::EACCES);
    if denied
        && !off
        && let Some(missing) = missing_capability(operation, &holds)
    {
        return Some(missing);
    }
    match (operation, code) {
        (KernelOperation::Listener(IpFamily::V6), libc::EAFNOSUPPORT) => Some(
            "this kernel has no IPv6 (boot option ipv6.disable=1, or a container that forbids it)",
        ),
        (
            KernelOperation::Rule(IpFamily::V6) | KernelOperation::Route(IpFamily::V6),
            libc::EAFNOSUPPORT,
        ) => Some("this kernel has no IPv6"),
        (
            KernelOperation::Listener(IpFamily::V6) | KernelOperation::Route(IpFamily::V6),
            libc::EACCES | libc::EADDRNOTAVAIL | libc::ENODEV,
        ) => Some("IPv6 is off: `sysctl -w net.ipv6.conf.all.disable_ipv6=0`"),
        (KernelOperation::Rule(_), libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => Some(
            "this kernel routes only by destination (CONFIG_IP_MULTIPLE_TABLES, \
             CONFIG_IPV6_MULTIPLE_TABLES)",
        ),
        (KernelOperation::Route(_) | KernelOperation::Loopback, libc::ENETDOWN) => {
            Some(LOOPBACK_DOWN)
        }
        (KernelOperation::Nftables, libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => Some(
            "nftables is missing: `modprobe nf_tables`, or allow the container netlink; `[proxy]` \
             does not need it",
        ),
        (KernelOperation::Nftables, libc::ENOENT | libc::EOPNOTSUPP) => Some(
            "nftables lacks tproxy or socket: `modprobe -a nft_tproxy nft_socket` \
             (CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET)",
        ),
        (KernelOperation::Nftables, libc::EINVAL) => Some("it needs Linux 5.12 or newer"),
        (KernelOperation::Tun, libc::ENOENT | libc::ENODEV | libc::ENXIO) => Some(
            "`modprobe tun`, or give the container the device; without it the tunnel needs \
             CAP_SYS_ADMIN and CAP_NET_RAW",
        ),
        _ if denied => Some(
            "the process has the capability, but not over this network namespace, or a filter \
             (seccomp, a security module) forbids it",
        ),
        _ => None,
    }
}

/// Log text for a gateway that runs without IPv6.
pub(crate) fn without_v6(refusal: &KernelRefusal) -> String {
    format!("IPv6 connections are not intercepted: {refusal}")
}

/// Advice if the kernel had no IPv6 at the start.
pub(crate) const LATER: &str = "once IPv6 works, restart the gateway";
/// Advice if IPv6 is switched off.
const FOLLOWED: &str = "once IPv6 works, the gateway uses it";

const LOOPBACK_DOWN: &str =
    "the loopback device is down in this network namespace: `ip link set lo up`";
const NET_ADMIN: &str = "it needs CAP_NET_ADMIN: run it as root, or once \
                         `setcap cap_net_admin+ep` on the program";
const NET_RAW: &str = "it needs CAP_NET_RAW in addition to CAP_NET_ADMIN: run it as root, \
                       or once `setcap cap_net_admin,cap_net_raw+ep` on the program";
const NAMESPACES: &str = "without /dev/net/tun it needs CAP_SYS_ADMIN and CAP_NET_RAW in addition \
                          to CAP_NET_ADMIN: `modprobe tun`, give the container /dev/net/tun, or \
                          run it as root";

/// Returns advice on the capability that an operation needs and the process lacks.
fn missing_capability(
    operation: KernelOperation,
    holds: impl Fn(Capability) -> bool,
) -> Option<&'static str> {
    if !holds(Capability::NetAdmin) {
        return Some(NET_ADMIN);
    }
    match operation {
        KernelOperation::Packets if !holds(Capability::NetRaw) => Some(NET_RAW),
        KernelOperation::Veth if !(holds(Capability::SysAdmin) && holds(Capability::NetRaw)) => {
            Some(NAMESPACES)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations() -> impl Iterator<Item = KernelOperation> {
        use KernelOperation::{Device, Listener, Nftables, Packets, Route, Rule, Tun, Veth};
        let each = IpFamily::BOTH.into_iter().flat_map(|version| {
            [Listener as fn(IpFamily) -> KernelOperation, Rule, Route].map(|of| of(version))
        });
        each.chain([Nftables, Packets, Tun, Veth, Device])
    }

    #[test]
    fn a_capability_that_is_held_is_not_asked_for() {
        for operation in operations() {
            for code in [libc::EPERM, libc::EACCES] {
                let all = fix(operation, code, |_| true).unwrap();
                assert!(!all.contains("it needs CAP_"), "{operation}: {all}");
            }
            let none = fix(operation, libc::EPERM, |_| false).unwrap();
            assert!(none.contains("CAP_NET_ADMIN") && none.contains("root"), "{none}");
        }
        let admin_alone = |capability| capability == Capability::NetAdmin;
        let packets = fix(KernelOperation::Packets, libc::EPERM, admin_alone).unwrap();
        assert!(packets.contains("CAP_NET_RAW"), "{packets}");
        let veth = fix(KernelOperation::Veth, libc::EPERM, admin_alone).unwrap();
        assert!(veth.contains("CAP_SYS_ADMIN") && veth.contains("modprobe tun"), "{veth}");
    }

    #[test]
    fn each_error_of_each_operation_says_what_it_means() {
        for (operation, code, part) in [
            (KernelOperation::Route(IpFamily::V6), libc::EACCES, "disable_ipv6"),
            (KernelOperation::Listener(IpFamily::V6), libc::EAFNOSUPPORT, "no IPv6"),
            (KernelOperation::Rule(IpFamily::V6), libc::EAFNOSUPPORT, "no IPv6"),
            (KernelOperation::Rule(IpFamily::V6), libc::EOPNOTSUPP, "IPV6_MULTIPLE_TABLES"),
            (KernelOperation::Route(IpFamily::V6), libc::ENETDOWN, "ip link set lo up"),
            (KernelOperation::Nftables, libc::EPROTONOSUPPORT, "modprobe nf_tables"),
            (KernelOperation::Nftables, libc::ENOENT, "nft_tproxy"),
            (KernelOperation::Tun, libc::ENOENT, "modprobe tun"),
            (KernelOperation::Nftables, libc::EPERM, "not over this network namespace"),
        ] {
            let mend = fix(operation, code, |_| true).unwrap();
            assert!(mend.contains(part), "{operation}: {mend}");
        }
        let refusal = KernelRefusal::wrap(KernelOperation::Rule(IpFamily::V6));
        let text = refusal(io::Error::from_raw_os_error(libc::EOPNOTSUPP)).to_string();
        assert!(text.starts_with("the IPv6 rule: EOPNOTSUPP: "), "{text}");
    }
}
