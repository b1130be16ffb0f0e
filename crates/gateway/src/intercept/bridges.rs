//! Clients' interfaces that are bridges whose frames pass through the netfilter hooks of IP
//! (br_netfilter; Docker switches it on with `net.bridge.bridge-nf-call-iptables=1`).
//!
//! The hooks then run within the bridge, before the frame reaches IP, and are not run again there. `ip_rcv`
//! drops the socket that `tproxy` has chosen, so a redirected SYN reaches no listener. Marks survive:
//! established connections work.

use std::fs;

use os::netlink::RouteSocket;
use pep::traffic::IpFamily;

/// A bridge where `tproxy` does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilteredBridge {
    pub(crate) name: String,
    /// Hardware address of the bridge.
    pub(crate) station: [u8; 6],
    /// Versions whose frames pass through the hooks: IPv4, IPv6.
    versions: [bool; 2],
}

impl FilteredBridge {
    /// Returns whether the kernel loses the socket of redirected packets of this version.
    pub(crate) fn loses_socket(&self, version: IpFamily) -> bool {
        self.versions[usize::from(version == IpFamily::V6)]
    }

    /// Describes the settings with which `tproxy` would work.
    pub(crate) fn fix_advice(&self) -> String {
        let settings = [("ip", IpFamily::V4), ("ip6", IpFamily::V6)];
        let on = settings.iter().filter(|(_, version)| self.loses_socket(*version));
        let off: Vec<String> =
            on.map(|(which, _)| format!("net.bridge.bridge-nf-call-{which}tables=0")).collect();
        format!(
            "`sysctl -w {}`, or `ip link set {} type bridge nf_call_iptables 0 nf_call_ip6tables 0` if \
             only that is set",
            off.join(" "),
            self.name
        )
    }

    #[cfg(test)]
    pub(crate) fn example(name: &str) -> Self {
        Self { name: name.to_owned(), station: [2, 0, 0, 0, 0, 1], versions: [true; 2] }
    }
}

/// Finds the interfaces that are bridges with filtered frames.
pub(crate) fn find_filtered(interfaces: &[String]) -> Vec<FilteredBridge> {
    let everywhere = ["iptables", "ip6tables"].map(|tables| {
        let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{tables}");
        fs::read_to_string(setting).ok().map(|on| on.trim() != "0")
    });
    // Without these settings, br_netfilter is not loaded.
    let [Some(v4), Some(v6)] = everywhere else { return Vec::new() };
    let Ok(mut kernel) = RouteSocket::open() else { return Vec::new() };
    let filtered = |name: &String| {
        let bridge = kernel.bridge(name).ok()??;
        let [own_v4, own_v6] = bridge.filters;
        let versions = [v4 || own_v4, v6 || own_v6];
        let station = bridge.station;
        let filtered = FilteredBridge { name: name.clone(), station, versions };
        filtered.versions.contains(&true).then_some(filtered)
    };
    interfaces.iter().filter_map(filtered).collect()
}
