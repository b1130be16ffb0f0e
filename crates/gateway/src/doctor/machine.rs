//! Checks of the machine that do not depend on the configuration.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use pep::traffic::IpFamily;

use super::CheckFinding;
use crate::intercept::firewall;
use crate::intercept::netfilter::GatewaySlot;
use crate::network::namespace_slot::NamespaceSlot;
use crate::network::routing::is_loopback_up;
use crate::operate::control_socket::check_default;
use crate::process::capability::Capability;
use crate::process::clock;
use crate::process::refusal::{KernelOperation, KernelRefusal, without_v6};

/// Oldest kernel with all features that interception needs: the last one is nftables tables with an owner.
const KERNEL: (u32, u32) = (5, 12);
/// Size of the socket buffers that the hop's UDP socket requests, in bytes.
const UDP_BUFFER: u64 = 8 << 20;
/// Buffer of a TCP connection over a LAN, in bytes: 1 Gbit/s for 30 ms.
const TCP_BUFFER: u64 = 4_000_000;
/// Number of descriptors that a busy hub may need.
const DESCRIPTORS: u64 = 20_000;
/// Start of 2024 in seconds since the epoch. A clock that shows an earlier time was never set.
const PAST: u64 = 1_704_067_200;

pub(super) fn examine() -> Vec<CheckFinding> {
    let mut findings = vec![kernel(), privilege(), loopback(), ipv6(), namespaces(), tun()];
    findings.extend(firewalls());
    findings.extend([control_socket(), fast_open()]);
    findings.extend(forwarding());
    findings.extend([reverse_path(), udp_buffers(), tcp_buffers(), descriptors(), time()]);
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn sysctl(name: &str) -> Option<String> {
    read(&format!("/proc/sys/{}", name.replace('.', "/")))
}

/// Returns the last number of a sysctl, which of `tcp_rmem` and the like is the maximum.
fn sysctl_number(name: &str) -> Option<u64> {
    sysctl(name)?.split_whitespace().last()?.parse().ok()
}

fn kernel() -> CheckFinding {
    let release = sysctl("kernel.osrelease").unwrap_or_default();
    match version(&release) {
        Some(version) if version >= KERNEL => {
            CheckFinding::ok("kernel", format!("Linux {release}"))
        }
        _ => CheckFinding::fail(
            "kernel",
            format!("Linux {release}"),
            format!("use Linux {}.{} or newer", KERNEL.0, KERNEL.1),
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    // Such as `6.1.0-18-amd64`.
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn privilege() -> CheckFinding {
    const MEND: &str = "run a terminal as root, or once `setcap cap_net_admin+ep` on the program; \
                        a hub that intercepts nothing needs no privilege";
    if has_net_admin() {
        return CheckFinding::ok("privilege", "CAP_NET_ADMIN: connections can be intercepted");
    }
    CheckFinding::warn("privilege", "without CAP_NET_ADMIN no connection can be intercepted", MEND)
}

/// Returns whether the process may change rules and routes.
pub(super) fn has_net_admin() -> bool {
    Capability::NetAdmin.is_held()
}

fn loopback() -> CheckFinding {
    const CHECK: &str = "loopback";
    if is_loopback_up() {
        return CheckFinding::ok(CHECK, "up");
    }
    let refusal = KernelRefusal::expected(KernelOperation::Route(IpFamily::V6), libc::ENETDOWN);
    let mend = "`ip link set lo up`; deferred answers and `own_traffic` need it too";
    CheckFinding::warn(CHECK, without_v6(&refusal), mend)
}

fn ipv6() -> CheckFinding {
    const CHECK: &str = "IPv6";
    let refusal = if !os::has_ipv6() {
        KernelRefusal::expected(KernelOperation::Listener(IpFamily::V6), libc::EAFNOSUPPORT)
    } else if sysctl_number("net.ipv6.conf.lo.disable_ipv6") == Some(1) {
        KernelRefusal::expected(KernelOperation::Route(IpFamily::V6), libc::EACCES)
    } else {
        return CheckFinding::ok(CHECK, "on");
    };
    CheckFinding::warn(CHECK, without_v6(&refusal), refusal.later_advice())
}

fn firewalls() -> Vec<CheckFinding> {
    const CHECK: &str = "firewall";
    const MEND: &str = "let it accept intercepted connections by the rule above";
    let barriers = firewall::barriers(GatewaySlot(0).mark());
    barriers.iter().map(|barrier| CheckFinding::warn(CHECK, barrier.to_string(), MEND)).collect()
}

fn namespaces() -> CheckFinding {
    const CHECK: &str = "namespaces";
    let most = sysctl_number("user.max_user_namespaces").unwrap_or(0);
    // Only the kernels of some distributions have this switch.
    let clone = sysctl_number("kernel.unprivileged_userns_clone").unwrap_or(1);
    if most > 0 && clone > 0 {
        return CheckFinding::ok(CHECK, "users can create namespaces: `skyhop lab` works for them");
    }
    let mend = "for `skyhop lab` as an ordinary user: `sysctl -w user.max_user_namespaces=10000 \
                kernel.unprivileged_userns_clone=1`";
    CheckFinding::warn(CHECK, "users cannot create namespaces", mend)
}

fn tun() -> CheckFinding {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    match device {
        Ok(_) => CheckFinding::ok("tun", "/dev/net/tun can be opened"),
        Err(error) => CheckFinding::warn(
            "tun",
            format!("/dev/net/tun cannot be opened: {error}"),
            "to carry traffic other than TCP: run as root, `modprobe tun`, or `chmod 666 \
             /dev/net/tun`",
        ),
    }
}

fn control_socket() -> CheckFinding {
    const CHECK: &str = "control socket";
    let mend = "give the gateway a private directory for its socket: RuntimeDirectory=skyhop in \
                the systemd unit, or `control` in the configuration";
    match check_default() {
        Ok(()) => CheckFinding::ok(CHECK, "has a private directory"),
        Err(error) => CheckFinding::warn(CHECK, format!("no control socket: {error}"), mend),
    }
}

fn fast_open() -> CheckFinding {
    match sysctl_number("net.ipv4.tcp_fastopen") {
        // Bit 0 is for outgoing connections.
        Some(bits) if bits & 1 != 0 => {
            CheckFinding::ok("fast open", "enabled for outgoing connections")
        }
        _ => CheckFinding::warn(
            "fast open",
            "TCP Fast Open is off",
            "saves a round trip to servers that support it: `sysctl -w net.ipv4.tcp_fastopen=1`",
        ),
    }
}

fn forwarding() -> Vec<CheckFinding> {
    let of = |check: &str, name: &str| match sysctl_number(name) {
        Some(1..) => CheckFinding::ok(check, "packets are forwarded"),
        _ => CheckFinding::warn(
            check,
            "packets are not forwarded: traffic that is not intercepted does not pass",
            format!("lets connections pass while the hub is away: `sysctl -w {name}=1`"),
        ),
    };
    let mut findings = vec![of("forwarding", "net.ipv4.ip_forward")];
    if os::has_ipv6() {
        findings.push(of("forwarding 6", "net.ipv6.conf.all.forwarding"));
    }
    findings
}

fn reverse_path() -> CheckFinding {
    let strict = |name: &str| sysctl_number(&format!("net.ipv4.conf.{name}.rp_filter")) == Some(1);
    let devices = fs::read_dir("/proc/sys/net/ipv4/conf").into_iter().flatten().flatten();
    let names = devices.filter_map(|entry| entry.file_name().into_string().ok());
    // In the name of a sysctl, the dot of an interface such as `eth0.5` would be a separator.
    let set: Vec<String> = names.filter(|name| !name.contains('.') && strict(name)).collect();
    if set.is_empty() {
        return CheckFinding::ok("reverse path", "not filtered strictly");
    }
    CheckFinding::ok(
        "reverse path",
        format!("strict on {}: works if replies arrive on the interface that requests leave by", set.join(", \
                                                                                                           ")),
    )
}

fn udp_buffers() -> CheckFinding {
    const CHECK: &str = "UDP buffers";
    let least = ["net.core.rmem_max", "net.core.wmem_max"].map(sysctl_number);
    let least = least.into_iter().flatten().min().unwrap_or(UDP_BUFFER);
    // With CAP_NET_ADMIN the socket exceeds the limits (SO_RCVBUFFORCE).
    if least >= UDP_BUFFER || has_net_admin() {
        return CheckFinding::ok(CHECK, "as large as the hop needs");
    }
    CheckFinding::warn(
        CHECK,
        format!("at most {least} bytes: bursts of the hop may be lost"),
        format!("`sysctl -w net.core.rmem_max={UDP_BUFFER} net.core.wmem_max={UDP_BUFFER}`"),
    )
}

fn tcp_buffers() -> CheckFinding {
    const CHECK: &str = "TCP buffers";
    let most = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(sysctl_number);
    let least = most.into_iter().flatten().min().unwrap_or(TCP_BUFFER);
    if least >= TCP_BUFFER {
        return CheckFinding::ok(CHECK, format!("up to {least} bytes for a connection"));
    }
    CheckFinding::warn(
        CHECK,
        format!("at most {least} bytes for a connection: too little for fast LANs"),
        "`sysctl -w net.ipv4.tcp_rmem=\"4096 131072 6291456\" net.ipv4.tcp_wmem=\"4096 65536 \
         4194304\"`",
    )
}

fn descriptors() -> CheckFinding {
    // The hard limit, to which a gateway raises its soft one.
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    if most >= DESCRIPTORS {
        return CheckFinding::ok("descriptors", format!("up to {most}, one for each connection"));
    }
    CheckFinding::warn(
        "descriptors",
        format!("at most {most}, which allows that many connections less 64"),
        "`LimitNOFILE=1048576` in the systemd unit, or `ulimit -Hn 1048576` as root",
    )
}

fn time() -> CheckFinding {
    let mend = "start a time service (chrony, systemd-timesyncd): logs and certificates need it, \
                the hop does not";
    if clock::unix_seconds() < PAST {
        return CheckFinding::warn("clock", "the clock is not set", mend);
    }
    if os::clock::is_synchronised() == Some(false) {
        return CheckFinding::warn("clock", "the clock is not synchronised", mend);
    }
    CheckFinding::ok("clock", "set")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version("6.18.5-amd64"), Some((6, 18)));
        assert_eq!(version("5.4.0"), Some((5, 4)));
        assert!(version("5.4.0").unwrap() < KERNEL && version("5.12-rc1").unwrap() >= KERNEL);
        assert_eq!(version("strange"), None);
    }

    #[test]
    fn every_finding_that_is_not_well_says_how_to_mend_it() {
        let findings = examine();
        assert!(findings.len() > 10);
        for finding in findings {
            assert_eq!(
                finding.mend.is_none(),
                finding.verdict == super::super::FindingSeverity::Ok
            );
            assert!(!finding.text.contains('\n'), "{finding:?}");
        }
    }
}
