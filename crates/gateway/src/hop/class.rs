//! The classes of a running gateway, shared by its hop and its tunnel.

use std::sync::{RwLock, RwLockReadGuard};

use pep::traffic::TrafficClasses;

/// The classes of a running gateway, which a reload may replace.
#[derive(Debug, Default)]
pub(crate) struct LiveClasses(RwLock<TrafficClasses>);

impl LiveClasses {
    pub(crate) fn new(classes: TrafficClasses) -> Self {
        Self(RwLock::new(classes))
    }

    /// Locks the current classes for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, TrafficClasses> {
        self.0.read().expect("no thread panics while it holds the classes")
    }

    pub(crate) fn set(&self, classes: TrafficClasses) {
        *self.0.write().expect("no thread panics while it holds the classes") = classes;
    }
}
