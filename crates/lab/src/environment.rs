//! How a program that runs in a lab finds the lab's other hosts: environment
//! variables.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::scratch::own_descriptor;
use crate::{NetNs, Node};

/// Set for every command in a lab, to the name of its preset.
pub const LAB_VARIABLE: &str = "SKYHOP_LAB";
/// Set for every command in a lab, to where the hosts' network namespaces are:
/// `client=/proc/2/fd/5,terminal=…`.
pub const NETNS_VARIABLE: &str = "SKYHOP_LAB_NETNS";

/// A lab is a closed world: a proxy of the world outside cannot be reached.
pub(crate) const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
];

/// Why a host of the running lab cannot be found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FindError {
    /// This process was not started in a lab.
    #[error("not inside a lab (no {NETNS_VARIABLE} in the environment)")]
    NotInside,
    /// The environment does not say where the host is.
    #[error("{NETNS_VARIABLE}={text:?} does not say where {node} is")]
    Missing {
        /// The host looked for.
        node: Node,
        /// The variable's text.
        text: String,
    },
    /// The host's network namespace cannot be opened.
    #[error("cannot open {node}'s network namespace {}: {cause}", path.display())]
    Open {
        /// The host.
        node: Node,
        /// Where its namespace should be.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// Finds a host of the lab that this process was started in.
///
/// # Errors
/// When there is no such lab, or it has ended.
pub fn find_netns(node: Node) -> Result<NetNs, FindError> {
    let text = std::env::var(NETNS_VARIABLE).map_err(|_| FindError::NotInside)?;
    let Some(path) = path_of(node, &text) else {
        return Err(FindError::Missing { node, text });
    };
    NetNs::open(&path).map_err(|cause| FindError::Open { node, path, cause })
}

/// The value of [`NETNS_VARIABLE`] for this process's namespaces.
pub(crate) fn netns_value<'a>(nodes: impl Iterator<Item = (Node, &'a NetNs)>) -> String {
    let place = |(node, netns): (Node, &NetNs)| {
        format!("{node}={}", own_descriptor(netns.descriptor()).display())
    };
    nodes.map(place).collect::<Vec<_>>().join(",")
}

fn path_of(node: Node, text: &str) -> Option<PathBuf> {
    let mut places = text.split(',').filter_map(|place| place.split_once('='));
    places.find(|(name, _)| *name == node.to_string()).map(|(_, path)| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_name() {
        let text = "client=/proc/2/fd/5,hub=/proc/2/fd/9";
        assert_eq!(path_of(Node::Hub, text), Some(PathBuf::from("/proc/2/fd/9")));
        assert_eq!(path_of(Node::Server, text), None);
        assert_eq!(path_of(Node::Client, "nonsense"), None);
    }
}
