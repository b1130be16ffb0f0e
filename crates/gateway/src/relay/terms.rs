//! The terms on which a peer's connections are carried.

use core::time::Duration;

use pep::admission::QuotaPermit;
use slacp::Open;

use super::dial::Caller;
use crate::figures::connections::Origin;
use crate::intercept::rule::PASSING;

/// Settings of connections made on the peer's behalf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialPolicy {
    pub(crate) timeout: Duration,
    /// Connect with the address of the original client.
    pub(crate) transparent: bool,
    /// Mark our connections, so that we do not intercept them.
    pub(crate) marked: bool,
}

impl DialPolicy {
    pub(crate) fn caller<D>(self, open: &Open<D>) -> Caller {
        Caller {
            source: self.transparent.then_some(open.source),
            mark: self.marked.then_some(PASSING.value),
            dscp: open.dscp,
        }
    }
}

/// The terms on which a peer's stream is carried.
pub(crate) struct Admission {
    pub(crate) origin: Origin,
    /// Its seat within the peer's quota, if there is one.
    pub(crate) _permit: Option<QuotaPermit>,
    /// Whether it carries an HTTP exchange instead of a connection.
    pub(crate) exchange: bool,
}
