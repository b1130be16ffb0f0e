//! The congestion control that a lab's hosts give to new connections.

use lab::{Lab, Node};
use meter::CongestionControl;

/// The kernel's setting, for the calling thread's network namespace.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Returns the default congestion control of a host, if the kernel reports one.
pub(crate) fn default_control(lab: &Lab, node: Node) -> Option<CongestionControl> {
    let read = || std::fs::read_to_string(SETTING).ok();
    lab.node(node).run(read)?.trim().parse().ok()
}
