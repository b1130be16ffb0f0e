//! Surroundings of a program in a lab: names and files that exist only there, entry from outside, and the
//! environment variables by which it finds the other hosts.

pub(crate) mod hosts;
pub(crate) mod join;
pub(crate) mod scratch;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use self::scratch::own_descriptor;
use crate::{NetNs, Node};

/// Set for every command in a lab to the name of its preset.
pub const LAB_VARIABLE: &str = "SKYHOP_LAB";
/// Set for every command in a lab to the paths of the hosts' network namespaces:
/// `client=/proc/2/fd/5,terminal=…`.
pub const NETNS_VARIABLE: &str = "SKYHOP_LAB_NETNS";

/// A lab has no access to the outside, so a proxy there cannot be reached.
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

/// The reason why a host of the running lab was not found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FindError {
    /// This process was not started in a lab.
    #[error("not inside a lab (no {NETNS_VARIABLE} in the environment)")]
    NotInside,
    /// The variable does not give the host's namespace.
    #[error("{NETNS_VARIABLE}={text:?} does not name {node}'s namespace")]
    Missing {
        /// The host that was looked for.
        node: Node,
        /// The value of the variable.
        text: String,
    },
    /// The host's network namespace could not be opened.
    #[error("cannot open {node}'s network namespace {}: {cause}", path.display())]
    Open {
        /// The host that was looked for.
        node: Node,
        /// The path of its namespace.
        path: PathBuf,
        /// The error of `open(2)`.
        cause: io::Error,
    },
}

/// Opens a host's namespace in the lab that this process runs in.
///
/// # Errors
/// If the process is not in a lab, or the lab has ended.
pub fn find_netns(node: Node) -> Result<NetNs, FindError> {
    let text = std::env::var(NETNS_VARIABLE).map_err(|_| FindError::NotInside)?;
    let Some(path) = path_of(node, &text) else {
        return Err(FindError::Missing { node, text });
    };
    NetNs::open(&path).map_err(|cause| FindError::Open { node, path, cause })
}

/// Returns the value of [`NETNS_VARIABLE`] for this process's namespaces.
pub(crate) fn netns_value<'a>(nodes: impl Iterator<Item = (Node, &'a NetNs)>) -> String {
    let place =
        |(node, netns): (Node, &NetNs)| format!("{node}={}", own_descriptor(netns).display());
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
