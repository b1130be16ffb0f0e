//! Status reports that a bundle requests (RFC 9171 §4.2.3, §6.1.1).

use core::fmt;

use super::endpoint::BundleEndpoint;

/// An event in the life of a bundle that can be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedEvent {
    /// This node has stored it.
    Received,
    /// The next node has stored it.
    Forwarded,
    /// It was delivered here.
    Delivered,
    /// Its lifetime ended.
    Expired,
}

impl fmt::Display for ReportedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Received => "received",
            Self::Forwarded => "forwarded",
            Self::Delivered => "delivered",
            Self::Expired => "expired",
        })
    }
}

/// The status reports that a bundle requests, and their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportRequest {
    /// The endpoint that gets the reports (report-to).
    pub to: BundleEndpoint,
    /// Report the reception of the bundle.
    pub received: bool,
    /// Report that it was forwarded.
    pub forwarded: bool,
    /// Report its delivery.
    pub delivered: bool,
    /// Report its deletion.
    pub deleted: bool,
    /// Include the time of the event in reports.
    pub time: bool,
}

impl ReportRequest {
    /// Returns `true` if a report of this event is requested.
    pub fn asks(&self, happening: ReportedEvent) -> bool {
        match happening {
            ReportedEvent::Received => self.received,
            ReportedEvent::Forwarded => self.forwarded,
            ReportedEvent::Delivered => self.delivered,
            ReportedEvent::Expired => self.deleted,
        }
    }
}
