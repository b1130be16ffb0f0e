//! The congestion control that a lab's hosts give to new connections.

use std::io;

use lab::{Lab, Node};
use meter::CongestionControl;

/// Where the kernel has it, for the calling thread's network namespace.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The default of a host, if the kernel reports one.
pub(crate) fn default_control(lab: &Lab, node: Node) -> Option<CongestionControl> {
    let read = || std::fs::read_to_string(SETTING).ok();
    lab.node(node).run(read)?.trim().parse().ok()
}

/// Makes connections of all hosts begin with Reno, unless they are to have BBR. Where the machine's
/// default is BBR, a server's connection would begin with it, and keep its pacing whatever is set on
/// the connection later: the kernel never takes that back (`sk_pacing_status`). Reno is the one that
/// every kernel has and allows as the default of a network namespace.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn begin_unpaced(lab: &Lab, control: &CongestionControl) -> io::Result<()> {
    if control.as_str() == "bbr" {
        return Ok(());
    }
    let set = |node| lab.node(node).run(|| std::fs::write(SETTING, "reno"));
    lab.nodes().try_for_each(set)
}
