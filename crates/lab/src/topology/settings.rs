//! Kernel settings (sysctls) of the lab's network namespaces.
//!
//! `/proc/sys/net` shows each thread its own network namespace, so these are written by threads
//! inside. They do not affect the host; machine-wide settings (such as `net.core.rmem_max`) are not
//! changed.

use std::io;
use std::path::Path;

/// Maximum TCP receive and send buffers. A connection fills a link only with a window of rate ×
/// RTT, which is 22 MB at 300 Mbit/s and 600 ms. The kernel offers about half of the buffer as a
/// window, and its default maximum of 6 MB limits a connection at 600 ms to about 40 Mbit/s.
const TCP_BUFFER: &str = "67108864";

/// A setting: its name below `/proc/sys/net` and its value.
pub(crate) type Setting = (String, String);

/// Settings of a host. Set before its devices exist, because some are defaults for new devices.
pub(crate) fn of_host() -> Vec<Setting> {
    let settings = [
        // A new namespace inherits the machine's IPv4 settings.
        ("ipv4/ip_forward", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        // Addresses and routes are configured; nothing is to be discovered.
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/autoconf", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        // In a star the hub sends packets back where they came from, and there is no shorter way
        // between terminals.
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/default/send_redirects", "0"),
        // Connections start without metrics cached from earlier ones.
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", &format!("4096 131072 {TCP_BUFFER}")),
        ("ipv4/tcp_wmem", &format!("4096 16384 {TCP_BUFFER}")),
    ];
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Settings that make a host a router. Set once its devices are up; before, the kernel would
/// announce its membership of the all-routers group on the hop.
pub(crate) fn of_router() -> Vec<Setting> {
    let names = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
    names.map(|name| (name.to_owned(), "1".to_owned())).to_vec()
}

/// Settings of `sky`, whose devices are only for packet sockets.
pub(crate) fn of_sky() -> Vec<Setting> {
    let name = |scope| format!("ipv6/conf/{scope}/disable_ipv6");
    ["all", "default"].map(|scope| (name(scope), "1".to_owned())).to_vec()
}

/// Settings of an end of the hop. Set before it is up: without a link-local address the kernel
/// sends nothing of its own there.
pub(crate) fn of_hop(device: &str) -> Vec<Setting> {
    let none = "1"; // IN6_ADDR_GEN_MODE_NONE
    vec![(format!("ipv6/conf/{device}/addr_gen_mode"), none.to_owned())]
}

/// Writes a setting in the calling thread's network namespace. IPv6 settings are skipped on a
/// kernel without IPv6.
pub(crate) fn write(name: &str, value: &str) -> io::Result<()> {
    let settings = Path::new("/proc/sys/net");
    if name.starts_with("ipv6/") && !settings.join("ipv6").exists() {
        return Ok(());
    }
    std::fs::write(settings.join(name), value)
}
