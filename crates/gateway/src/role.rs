//! The roles of gateways.

use serde::{Deserialize, Serialize};

/// Role of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// On the earth station's side.
    Hub,
    /// On the clients' side.
    #[default]
    Terminal,
    /// A single gateway without a hop.
    Solo,
}

impl Role {
    /// The role's name, as in `skyhop hub`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Terminal => "terminal",
            Self::Solo => "solo",
        }
    }
}
