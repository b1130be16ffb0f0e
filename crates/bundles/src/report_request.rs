//! What is reported of a bundle, and to whom (RFC 9171 §4.2.3, §6.1.1).

use core::fmt;

use super::endpoint::Endpoint;

/// What can happen to a bundle that is worth a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// This node has stored it.
    Received,
    /// The next node has stored it.
    Forwarded,
    /// It was delivered here.
    Delivered,
    /// Its lifetime was over.
    Expired,
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Received => "received",
            Self::Forwarded => "forwarded",
            Self::Delivered => "delivered",
            Self::Expired => "expired",
        })
    }
}

/// Which reports a bundle asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportRequest {
    /// Whom they are for.
    pub to: Endpoint,
    /// When the bundle is received.
    pub received: bool,
    /// When it is forwarded.
    pub forwarded: bool,
    /// When it is delivered.
    pub delivered: bool,
    /// When it is deleted.
    pub deleted: bool,
    /// Whether they are to say when that was.
    pub time: bool,
}

impl ReportRequest {
    /// Whether a report is asked for when this happens.
    pub fn asks(&self, happening: Happening) -> bool {
        match happening {
            Happening::Received => self.received,
            Happening::Forwarded => self.forwarded,
            Happening::Delivered => self.delivered,
            Happening::Expired => self.deleted,
        }
    }
}
