//! The roles in which a gateway can run.

use serde::{Deserialize, Serialize};

/// Role of a gateway, which the command chooses: `skyhop hub`, `terminal` or `solo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// On the earth station's side of the hop.
    Hub,
    /// On the clients' side of the hop.
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
