//! A report of any kind, tagged with its kind in JSON.

use serde::{Deserialize, Serialize};

use crate::bulk::BulkReport;
use crate::page::PageReport;
use crate::rr::RrReport;
use crate::udp::UdpReport;

/// The result of a `skyhop meter` run. In JSON it is an object whose field `meter` gives the kind
/// of report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "meter", rename_all = "snake_case")]
pub enum MeterReport {
    /// One or more flows of bulk data.
    Bulk(BulkReport),
    /// Requests and replies over TCP.
    Rr(RrReport),
    /// Objects of a page over HTTP.
    Page(PageReport),
    /// Datagrams at a constant rate.
    Udp(UdpReport),
}

impl MeterReport {
    /// Returns true if everything requested was done and verified.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Bulk(report) => report.is_complete(),
            Self::Rr(report) => report.is_complete(),
            Self::Page(report) => report.is_complete(),
            Self::Udp(report) => report.is_complete(),
        }
    }
}
