//! Initial windows of both sides, kept up to date with the machine's routes.

use std::future::pending;

use pep::config::SideConfig;

use crate::error::RunError;
use crate::roles::solo::window::{Changes, Window};
use crate::side_settings::SocketSettings;

/// Configured initial windows in segments: sending, receiving.
type InitialWindows = [Option<u32>; 2];

/// The route copies of the sides with configured windows.
pub(super) struct Windows {
    lan: Option<Window>,
    wan: Option<Window>,
    changes: Option<Changes>,
    configured: [InitialWindows; 2],
}

impl Windows {
    pub(super) fn install(lan: &SideConfig, wan: &SideConfig) -> Result<Self, RunError> {
        let configured = [configured(lan), configured(wan)];
        let wanted = configured.iter().flatten().any(Option::is_some);
        // Listen before the first copy, so that no change is missed.
        let changes = wanted.then(Changes::listen).transpose().map_err(RunError::System)?;
        let install = |section, side: &SideConfig| {
            Window::install(side).map_err(|(key, cause)| side.refused(section, key, cause))
        };
        Ok(Self { lan: install("lan", lan)?, wan: install("wan", wan)?, changes, configured })
    }

    /// Mark for packets of clients' connections.
    pub(super) fn lan_mark(&self) -> Option<u32> {
        self.lan.as_ref().map(Window::mark)
    }

    /// Mark for packets of connections to servers.
    pub(super) fn wan_mark(&self) -> Option<u32> {
        self.wan.as_ref().map(Window::mark)
    }

    /// Whether these sides' settings equal the current ones.
    pub(super) fn are_of(&self, lan: &SideConfig, wan: &SideConfig) -> bool {
        self.configured == [configured(lan), configured(wan)]
    }

    /// Waits for a change of the machine's routes. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        match &mut self.changes {
            Some(changes) => changes.next().await,
            None => pending().await,
        }
    }

    /// Copies the machine's current routes.
    pub(super) fn follow(&self) {
        for (section, window) in [("lan", &self.lan), ("wan", &self.wan)] {
            if let Some(Err(error)) = window.as_ref().map(Window::copy) {
                tracing::warn!(
                    "{section}: new connections have the kernel's default windows: \
                                {error}"
                );
            }
        }
    }
}

fn configured(side: &SideConfig) -> InitialWindows {
    [side.initial_window, side.initial_receive_window]
}
