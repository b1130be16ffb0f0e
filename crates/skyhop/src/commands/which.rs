//! Selection of a gateway that runs on this machine.

use std::path::PathBuf;

use clap::ValueEnum;
use control::Role;
use gateway::control_socket::{ControlClient, ControlError};

/// Options of commands for a running gateway.
#[derive(clap::Args)]
pub(crate) struct GatewaySelection {
    /// Control socket of the gateway, if not in the default directory
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Role of the gateway, if several run on this machine
    #[arg(long, value_enum, conflicts_with = "control")]
    role: Option<RoleName>,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleName {
    Hub,
    Terminal,
    Solo,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Hub => Self::Hub,
            RoleName::Terminal => Self::Terminal,
            RoleName::Solo => Self::Solo,
        }
    }
}

impl GatewaySelection {
    /// Connects to the selected gateway, or to the only one that runs.
    pub(crate) fn one(&self) -> Result<ControlClient, ControlError> {
        ControlClient::connect_one(self.control.as_deref(), self.role.map(Role::from))
    }

    /// Like [`Self::one`], for requests that only a hub serves: of several gateways, selects the only hub.
    pub(crate) fn hub(&self) -> Result<ControlClient, ControlError> {
        match self.one() {
            Err(ControlError::SeveralGateways { running })
                if running.iter().filter(|each| each.role == Some(Role::Hub)).count() == 1 =>
            {
                ControlClient::connect_one(None, Some(Role::Hub))
            }
            one => one,
        }
    }

    /// Connects to all selected gateways.
    pub(crate) fn all(&self) -> Result<Vec<ControlClient>, ControlError> {
        if self.control.is_some() {
            return Ok(vec![self.one()?]);
        }
        ControlClient::connect_all(self.role.map(Role::from))
    }
}
