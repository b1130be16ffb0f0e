//! Node IDs and endpoint IDs (RFC 9171 §4.2.5).

use core::fmt;
use core::str::FromStr;

use hardy_bpv7::eid::{Eid, NodeId, Service};
use thiserror::Error;

/// Longest text of an endpoint, in bytes. RFC 9171 has no limit, but tables and file headers need one.
const LONGEST: usize = 255;

/// A node ID, such as `ipn:2.0` or `dtn://ship/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleNodeId(NodeId);

/// An endpoint ID: a service of one node, such as `ipn:2.7` or `dtn://ship/mail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleEndpoint {
    eid: Eid,
    node: BundleNodeId,
}

/// The text is not a node ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", BundleNodeId::FORM)]
pub struct NodeError;

/// The text is not an endpoint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", BundleEndpoint::FORM)]
pub struct EndpointError;

impl BundleNodeId {
    /// Expected form, for error messages.
    pub const FORM: &str = "a node, like \"ipn:2.0\" or \"dtn://ship/\"";

    /// The endpoint of a service on this node: a number in the scheme `ipn`, and 1 to 200 letters, digits
    /// and `-_.~/` in the scheme `dtn`.
    ///
    /// # Errors
    /// [`EndpointError`] if the scheme has no such service.
    pub fn service(&self, service: &str) -> Result<BundleEndpoint, EndpointError> {
        let service = match self.0 {
            NodeId::Dtn(_) => {
                let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
                let good = (1..=200).contains(&service.len()) && service.bytes().all(known);
                good.then(|| Service::Dtn(service.into())).ok_or(EndpointError)?
            }
            _ => match service.parse() {
                // Number 0 is the administrative endpoint of the node.
                Ok(number @ 1..) => Service::Ipn(number),
                _ => return Err(EndpointError),
            },
        };
        BundleEndpoint::try_from(
            Eid::try_from((self.0.clone(), service)).map_err(|_| EndpointError)?,
        )
    }

    /// Returns `true` if services are numbers in the node's scheme.
    pub fn numbers_services(&self) -> bool {
        !matches!(self.0, NodeId::Dtn(_))
    }

    /// The administrative endpoint of the node.
    pub(super) fn admin_endpoint(&self) -> BundleEndpoint {
        BundleEndpoint { eid: self.eid(), node: self.clone() }
    }

    pub(super) fn eid(&self) -> Eid {
        self.0.clone().into()
    }
}

impl FromStr for BundleNodeId {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        let endpoint: BundleEndpoint = text.parse().map_err(|_| NodeError)?;
        let own = endpoint.eid.is_admin_endpoint();
        own.then_some(endpoint.node).ok_or(NodeError)
    }
}

impl fmt::Display for BundleNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl BundleEndpoint {
    /// Expected form, for error messages.
    pub const FORM: &str = "an endpoint, like \"ipn:2.7\" or \"dtn://ship/mail\"";

    /// The node of the endpoint.
    pub fn node(&self) -> &BundleNodeId {
        &self.node
    }

    /// The service within the node: a number or a name; [`None`] for the node itself.
    pub fn service(&self) -> Option<String> {
        self.eid.service().map(|service| service.to_string())
    }

    pub(super) fn eid(&self) -> &Eid {
        &self.eid
    }
}

impl TryFrom<Eid> for BundleEndpoint {
    type Error = EndpointError;

    fn try_from(eid: Eid) -> Result<Self, EndpointError> {
        // `LocalNode` means a different node to everyone who reads it, so it cannot be a source or
        // destination.
        if matches!(eid, Eid::Null | Eid::LocalNode(_) | Eid::Unknown { .. }) {
            return Err(EndpointError);
        }
        let node = eid.to_node_id().map_err(|_| EndpointError)?;
        if matches!(&node, NodeId::Dtn(dtn) if dtn.node_name.is_empty()) {
            return Err(EndpointError);
        }
        let text = eid.to_string();
        let good = text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        good.then_some(Self { eid, node: BundleNodeId(node) }).ok_or(EndpointError)
    }
}

impl FromStr for BundleEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.len() > LONGEST {
            return Err(EndpointError);
        }
        let eid: Eid = text.parse().map_err(|_| EndpointError)?;
        Self::try_from(eid)
    }
}

impl fmt::Display for BundleEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.eid.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_endpoints_are_read_and_written() {
        for text in ["ipn:2.0", "ipn:1.7.0", "dtn://ship/"] {
            assert_eq!(text.parse::<BundleNodeId>().unwrap().to_string(), text);
        }
        for none in ["", "ship", "ipn:2", "ipn:2.7", "dtn:none", "ipn:!.0", "dtn:///", "dtn://a/b"]
        {
            assert_eq!(none.parse::<BundleNodeId>(), Err(NodeError), "{none}");
        }
        for (text, node, service) in [
            ("ipn:2.7", "ipn:2.0", Some("7")),
            ("dtn://ship/mail/in", "dtn://ship/", Some("mail/in")),
            ("dtn://ship/", "dtn://ship/", None),
        ] {
            let endpoint: BundleEndpoint = text.parse().unwrap();
            assert_eq!(
                (endpoint.to_string(), endpoint.node().to_string()),
                (text.into(), node.into())
            );
            assert_eq!(endpoint.service().as_deref(), service);
        }
        let long = format!("dtn://{}/", "a".repeat(LONGEST));
        for none in ["dtn:none", "ipn:!.7", "mailto:a", "dtn://a b/", &long] {
            assert_eq!(none.parse::<BundleEndpoint>(), Err(EndpointError), "{none}");
        }
    }

    #[test]
    fn a_node_has_services_of_its_scheme() {
        let (ship, two): (BundleNodeId, BundleNodeId) =
            ("dtn://ship/".parse().unwrap(), "ipn:2.0".parse().unwrap());
        assert_eq!(ship.service("mail").unwrap().to_string(), "dtn://ship/mail");
        assert_eq!(two.service("7").unwrap().to_string(), "ipn:2.7");
        for (node, none) in [(&ship, ""), (&ship, "a b"), (&two, "mail"), (&two, "0"), (&two, "-1")]
        {
            assert_eq!(node.service(none), Err(EndpointError), "{none}");
        }
    }
}
