use lab::StartError;
use tcp::cc::SpecError;
use thiserror::Error;

use crate::meter_server::ServerError;
use crate::pair::PairError;

/// The reason why a study could not go on. A transfer that fails is a result, not an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StudyError {
    /// The lab cannot be started.
    #[error("cannot start the lab: {cause}")]
    Lab {
        /// The error of starting the lab.
        cause: StartError,
    },
    /// The meter's server cannot be started in the lab.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A gateway could not be started, or failed.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The client's runtime cannot be started.
    #[error("cannot start the client's runtime: {cause}")]
    Runtime {
        /// The error of building the runtime.
        cause: std::io::Error,
    },
    /// The kernel has no random numbers for the payload.
    #[error("cannot get random numbers from the kernel: {cause}")]
    Random {
        /// The error of reading random numbers.
        cause: std::io::Error,
    },
    /// The simulator has no model of a congestion control.
    #[error(transparent)]
    Controller(#[from] SpecError),
    /// A measurement panicked, which is a bug.
    #[error("a measurement panicked")]
    Panicked,
}
