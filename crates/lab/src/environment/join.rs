//! Enters a running lab from outside.

use std::io;
use std::process::Command;

use os::namespace::{EnterError, Namespaces};
use os::process;

use crate::environment::PROXIES;

/// A handle to enter a host of a lab.
#[derive(Debug)]
pub struct LabEntry {
    pub(crate) namespaces: Namespaces,
    pub(crate) variables: Vec<(String, String)>,
}

impl LabEntry {
    /// Moves the process to the host for good. [`Self::run`] then runs commands, which end with the
    /// lab.
    ///
    /// # Errors
    /// If there is a second thread, or the kernel refuses a namespace.
    pub fn enter(&self) -> Result<(), EnterError> {
        self.namespaces.enter()
    }

    /// Runs a command on the host and waits for it. Returns its exit code, or 128 + the signal that
    /// ended it. Terminating signals are passed on to it, and it ends when this process does.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<i32> {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for proxy in PROXIES {
            command.env_remove(proxy);
        }
        process::run_supervised(command)
    }
}
