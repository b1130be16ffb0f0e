//! Terms on which a peer's connections are carried.

use core::time::Duration;

use pep::admission::QuotaPermit;
use slacp::StreamOpening;

use super::dial::DialSource;
use crate::figures::connections::ConnectionOrigin;
use crate::network::nft::rule::PASS_MARK;

/// Settings of connections made on the peer's behalf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialPolicy {
    pub(crate) timeout: Duration,
    /// Connect with the address of the original client.
    pub(crate) transparent: bool,
    /// Mark the gateway's connections, so that it does not intercept them itself.
    pub(crate) marked: bool,
}

impl DialPolicy {
    /// Source address and marks of the connection for a stream.
    pub(crate) fn caller<D>(self, open: &StreamOpening<D>) -> DialSource {
        DialSource {
            source: self.transparent.then_some(open.source),
            mark: self.marked.then_some(PASS_MARK.value),
            dscp: open.dscp,
        }
    }
}

/// Terms on which a peer's stream is carried.
pub(crate) struct Admission {
    pub(crate) origin: ConnectionOrigin,
    /// Its slot within the peer's quota, if there is one; held until dropped.
    pub(crate) _permit: Option<QuotaPermit>,
    /// The stream carries an HTTP exchange instead of a connection.
    pub(crate) exchange: bool,
}
