//! The directions of payload, seen from the client.

use serde::{Deserialize, Serialize};

/// The direction of a flow's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// The directions of a bulk transfer's flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// Payload flows from the server only.
    Download,
    /// Payload flows from the client only.
    Upload,
    /// An equal number of each, at the same time.
    Both,
}

impl Directions {
    /// Returns the directions one by one, downloads first.
    pub fn each(self) -> &'static [Direction] {
        match self {
            Self::Download => &[Direction::Download],
            Self::Upload => &[Direction::Upload],
            Self::Both => &[Direction::Download, Direction::Upload],
        }
    }
}
