//! Finds persistent labs, talks to them and ends them.

use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::Signal;
use os::PrivateDirectories;
use os::clock;
use os::namespace::Namespaces;
use thiserror::Error;

use super::base::{LabsDirectory, STATE_VARIABLE, StateError};
use super::name::LabName;

use super::protocol::{LabReply, LabRequest, LinkChange, receive, send};
use super::slot::{LabSlot, ReservedSlot};
use super::status::LabStatus;
use crate::environment::join::LabEntry;

/// Time limit for a lab to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a lab to end on its own with its gateways. The next ones are those after SIGTERM
/// (its init waits 2 s for stubborn processes) and after SIGKILL.
const ENDING: Duration = Duration::from_secs(15);
const TERMINATION: Duration = Duration::from_secs(4);
const KILL: Duration = Duration::from_secs(4);
/// Interval of the checks whether a lab has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The reason why a request to a lab failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The lab cannot be reached, or does not answer.
    #[error("lab {name} does not answer ({cause}): skyhop lab down {name}")]
    Unreachable {
        /// Name of the lab that was asked.
        name: LabName,
        /// The error of the control socket.
        cause: io::Error,
    },
    /// The lab rejected the request.
    #[error("lab {name}: {why}")]
    Refused {
        /// Name of the lab that was asked.
        name: LabName,
        /// The reason, in one line.
        why: String,
    },
    /// The lab did not end, even after SIGKILL.
    #[error("lab {name} does not stop")]
    NotStopping {
        /// Name of the lab that was asked.
        name: LabName,
    },
    /// Its record could not be read.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The persistent labs of this user.
#[derive(Debug, Clone)]
pub struct LabRegistry {
    places: PrivateDirectories,
}

/// A running lab, as other processes see it.
#[derive(Debug)]
pub struct RunningLab {
    slot: LabSlot,
    base: LabsDirectory,
}

/// The labs that were found.
#[derive(Debug, Default)]
pub struct FoundLabs {
    /// Running labs, sorted by name.
    pub up: Vec<RunningLab>,
    /// Labs that were killed and have now been cleaned up.
    pub swept: Vec<LabName>,
}

impl Default for LabRegistry {
    fn default() -> Self {
        Self { places: PrivateDirectories::of_user(STATE_VARIABLE) }
    }
}

impl LabRegistry {
    /// Reserves a name for a new lab.
    ///
    /// # Errors
    /// If the name is taken, or there is no safe place for the record.
    pub fn reserve(&self, name: &LabName) -> Result<ReservedSlot, StateError> {
        // An existing lab may be recorded in another place than a new one would.
        for base in self.places.open_existing().into_iter().map(LabsDirectory) {
            let _turn = base.lock()?;
            if let Some(slot) = LabSlot::find(&base, name)?
                && !slot.remove_if_dead()?
            {
                return Err(StateError::Taken { name: name.clone() });
            }
        }
        LabSlot::reserve(&LabsDirectory(self.places.open_usable()?), name)
    }

    /// Finds all labs, and cleans up after killed ones.
    ///
    /// # Errors
    /// If the record cannot be read, or a killed lab not be cleaned up.
    pub fn find(&self) -> Result<FoundLabs, StateError> {
        let mut found = FoundLabs::default();
        for base in self.places.open_existing().into_iter().map(LabsDirectory) {
            // No other command may start or clean up a lab in between.
            let _turn = base.lock()?;
            for name in base.names() {
                let Some(slot) = LabSlot::find(&base, &name)? else { continue };
                if slot.remove_if_dead()? {
                    found.swept.push(name);
                } else {
                    found.up.push(RunningLab { slot, base: base.clone() });
                }
            }
        }
        found.up.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(found)
    }
}

impl FoundLabs {
    /// Finds the lab of that name.
    ///
    /// # Errors
    /// If there is no such lab.
    pub fn named(self, name: &LabName) -> Result<RunningLab, StateError> {
        let known = self.up.iter().map(|lab| lab.name().clone()).collect();
        let found = self.up.into_iter().find(|lab| lab.name() == name);
        found.ok_or_else(|| StateError::Unknown { name: name.clone(), known })
    }
}

impl RunningLab {
    /// Returns the name of the lab.
    pub fn name(&self) -> &LabName {
        &self.slot.name
    }

    /// Requests the status of the lab.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn status(&self) -> Result<LabStatus, AskError> {
        match self.ask(&LabRequest::Status)? {
            (LabReply::Status(status), _) => Ok(*status),
            (reply, _) => Err(self.unexpected_reply(&reply)),
        }
    }

    /// Changes the links of the lab.
    ///
    /// # Errors
    /// If the lab does not answer or rejects the change.
    pub fn change(&self, change: LinkChange) -> Result<(), AskError> {
        match self.ask(&LabRequest::Set(change))? {
            (LabReply::Done, _) => Ok(()),
            (reply, _) => Err(self.unexpected_reply(&reply)),
        }
    }

    /// Returns a handle to enter one of the lab's hosts.
    ///
    /// # Errors
    /// If the lab does not answer, or does not have the host.
    pub fn join(&self, node: &str) -> Result<LabEntry, AskError> {
        let (reply, descriptors) = self.ask(&LabRequest::Join { node: node.to_owned() })?;
        let descriptors = <[OwnedFd; Namespaces::COUNT]>::try_from(descriptors);
        match (reply, descriptors) {
            (LabReply::Joined { variables }, Ok(descriptors)) => {
                Ok(LabEntry { namespaces: descriptors.into(), variables })
            }
            (reply, _) => Err(self.unexpected_reply(&reply)),
        }
    }

    /// Ends the lab and waits until nothing of it is left. If it does not end on request, its
    /// supervisor is sent SIGTERM and then SIGKILL.
    ///
    /// # Errors
    /// If the lab survives that, or its remains cannot be removed.
    pub fn down(self) -> Result<(), AskError> {
        let steps: [(Option<Signal>, Duration); 3] =
            [(None, ENDING), (Some(Signal::SIGTERM), TERMINATION), (Some(Signal::SIGKILL), KILL)];
        for (signal, patience) in steps {
            let asked = match signal {
                None => self.ask(&LabRequest::Down).is_ok(),
                Some(signal) => self.signal(signal),
            };
            if asked && self.ends_within(patience)? {
                let _turn = self.base.lock()?;
                // A lab that was killed leaves its files.
                self.slot.remove_if_dead()?;
                return Ok(());
            }
        }
        Err(AskError::NotStopping { name: self.slot.name.clone() })
    }

    fn signal(&self, signal: Signal) -> bool {
        self.slot.supervisor().is_some_and(|supervisor| supervisor.signal(signal).is_ok())
    }

    fn ends_within(&self, patience: Duration) -> Result<bool, AskError> {
        let deadline = clock::now() + patience;
        loop {
            if self.has_ended()? {
                return Ok(true);
            }
            if clock::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }

    fn has_ended(&self) -> Result<bool, AskError> {
        let _turn = self.base.lock()?;
        Ok(!self.slot.is_alive()?)
    }

    fn ask(&self, request: &LabRequest) -> Result<(LabReply, Vec<OwnedFd>), AskError> {
        let silent = |cause| AskError::Unreachable { name: self.name().clone(), cause };
        let ask = || {
            let stream = UnixStream::connect(self.slot.control())?;
            // A stopped process would hold up the command for ever.
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            send(&stream, request, &[])?;
            receive(&stream)
        };
        match ask().map_err(silent)? {
            (LabReply::Error(why), _) => Err(AskError::Refused { name: self.name().clone(), why }),
            answer => Ok(answer),
        }
    }

    fn unexpected_reply(&self, reply: &LabReply) -> AskError {
        let why = format!("an unexpected answer: {reply:?}");
        AskError::Refused { name: self.name().clone(), why }
    }
}
