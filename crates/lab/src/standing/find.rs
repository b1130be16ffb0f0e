//! Finds labs that stay, talks to them and ends them.

use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::Signal;
use os::Places;
use thiserror::Error;

use super::base::{Base, STATE_VARIABLE, StateError};
use super::name::LabName;

use super::protocol::{Change, DESCRIPTORS, Reply, Request, receive, send};
use super::slot::{Slot, Taken};
use super::status::Status;
use crate::clock;
use crate::join::Entry;

/// How long a lab may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a lab may take to end: of its own accord with its gateways, after
/// SIGTERM (its init waits 2 s for the stubborn), and after SIGKILL.
const ENDING: Duration = Duration::from_secs(15);
const TERMINATION: Duration = Duration::from_secs(4);
const KILL: Duration = Duration::from_secs(4);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// Why a lab does not answer as it should.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// It cannot be reached.
    #[error("lab {name} does not answer ({cause}): skyhop lab down {name}")]
    Silent {
        /// Its name.
        name: LabName,
        /// The system's answer.
        cause: io::Error,
    },
    /// It refuses.
    #[error("lab {name}: {why}")]
    Refused {
        /// Its name.
        name: LabName,
        /// Its answer.
        why: String,
    },
    /// It does not end.
    #[error("lab {name} does not end")]
    Immortal {
        /// Its name.
        name: LabName,
    },
    /// What is known of it cannot be looked at.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The labs of this user that stay.
#[derive(Debug, Clone)]
pub struct Standings {
    places: Places,
}

/// A lab that is up.
#[derive(Debug)]
pub struct Standing {
    slot: Slot,
    base: Base,
}

/// What there is of labs.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that are up, by name.
    pub up: Vec<Standing>,
    /// Those that were killed; nothing is left of them now.
    pub swept: Vec<LabName>,
}

impl Default for Standings {
    fn default() -> Self {
        Self { places: Places::of_user(STATE_VARIABLE) }
    }
}

impl Standings {
    /// Takes a name for a new lab.
    ///
    /// # Errors
    /// When it is taken, or nothing can be kept in a safe place.
    pub fn take(&self, name: &LabName) -> Result<Taken, StateError> {
        // It may be somewhere else than where a new one would be.
        for base in self.places.present().into_iter().map(Base) {
            let _turn = base.turn()?;
            if let Some(slot) = Slot::find(&base, name)?
                && !slot.sweep()?
            {
                return Err(StateError::Taken { name: name.clone() });
            }
        }
        Slot::take(&Base(self.places.usable()?), name)
    }

    /// All labs; what killed ones have left behind is removed.
    ///
    /// # Errors
    /// When that fails.
    pub fn find(&self) -> Result<Found, StateError> {
        let mut found = Found::default();
        for base in self.places.present().into_iter().map(Base) {
            let _turn = base.turn()?;
            for name in base.names() {
                let Some(slot) = Slot::find(&base, &name)? else { continue };
                if slot.sweep()? {
                    found.swept.push(name);
                } else {
                    found.up.push(Standing { slot, base: base.clone() });
                }
            }
        }
        found.up.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(found)
    }
}

impl Found {
    /// The one of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(self, name: &LabName) -> Result<Standing, StateError> {
        let known = self.up.iter().map(|lab| lab.name().clone()).collect();
        let found = self.up.into_iter().find(|lab| lab.name() == name);
        found.ok_or_else(|| StateError::Unknown { name: name.clone(), known })
    }
}

impl Standing {
    /// Its name.
    pub fn name(&self) -> &LabName {
        &self.slot.name
    }

    /// How it is.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn status(&self) -> Result<Status, AskError> {
        match self.ask(&Request::Status)? {
            (Reply::Status(status), _) => Ok(*status),
            (reply, _) => Err(self.misunderstood(&reply)),
        }
    }

    /// Changes its links.
    ///
    /// # Errors
    /// When it does not answer, or cannot make of them what is asked.
    pub fn change(&self, change: Change) -> Result<(), AskError> {
        match self.ask(&Request::Set(change))? {
            (Reply::Done, _) => Ok(()),
            (reply, _) => Err(self.misunderstood(&reply)),
        }
    }

    /// The way to one of its hosts.
    ///
    /// # Errors
    /// When it does not answer, or has no such host.
    pub fn join(&self, node: &str) -> Result<Entry, AskError> {
        let (reply, descriptors) = self.ask(&Request::Join { node: node.to_owned() })?;
        let namespaces = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors);
        match (reply, namespaces) {
            (Reply::Joined { variables }, Ok([user, mount, pid, net])) => {
                Ok(Entry { user, mount, pid, net, variables })
            }
            (reply, _) => Err(self.misunderstood(&reply)),
        }
    }

    /// Ends it and waits until nothing of it is left. If it does not end when it
    /// is asked to, its supervisor is, and then killed.
    ///
    /// # Errors
    /// When it outlives that, or what it has left cannot be removed.
    pub fn down(self) -> Result<(), AskError> {
        let steps: [(Option<Signal>, Duration); 3] =
            [(None, ENDING), (Some(Signal::SIGTERM), TERMINATION), (Some(Signal::SIGKILL), KILL)];
        for (signal, patience) in steps {
            let asked = match signal {
                None => self.ask(&Request::Down).is_ok(),
                Some(signal) => self.signal(signal),
            };
            if asked && self.ends_within(patience)? {
                let _turn = self.base.turn()?;
                self.slot.sweep()?;
                return Ok(());
            }
        }
        Err(AskError::Immortal { name: self.slot.name.clone() })
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
        let _turn = self.base.turn()?;
        Ok(!self.slot.is_alive()?)
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), AskError> {
        let silent = |cause| AskError::Silent { name: self.name().clone(), cause };
        let ask = || {
            let stream = UnixStream::connect(self.slot.control())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            send(&stream, request, &[])?;
            receive(&stream)
        };
        match ask().map_err(silent)? {
            (Reply::Error(why), _) => Err(AskError::Refused { name: self.name().clone(), why }),
            answer => Ok(answer),
        }
    }

    fn misunderstood(&self, reply: &Reply) -> AskError {
        let why = format!("an unexpected answer: {reply:?}");
        AskError::Refused { name: self.name().clone(), why }
    }
}
