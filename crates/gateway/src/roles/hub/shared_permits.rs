//! The permits that hubs share in etcd.

use std::future::pending;

use config::{EtcdConfig, HubConfig};
use tokio::sync::watch::{self, Receiver};
use tokio::task::{AbortHandle, spawn_blocking};

use crate::config::permits::TerminalPermits;
use crate::services::enrolment::etcd::{EtcdClient, PermitCache, PermitTexts, follow};

/// Follows the permits in etcd, if one is configured.
pub(super) struct SharedPermits {
    cache: Option<PermitCache>,
    followed: Option<Followed>,
}

struct Followed {
    config: EtcdConfig,
    texts: Receiver<Option<PermitTexts>>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SharedPermits {
    /// Follows the etcd of this configuration. Until it answers, the permits of the last run are in force.
    pub(super) fn start(config: &HubConfig) -> Self {
        let cache = config.operation.state.as_deref().map(PermitCache::new);
        let mut shared = Self { cache, followed: None };
        shared.configure(config);
        shared
    }

    /// Follows another etcd, or none, if the configuration has changed.
    pub(super) fn configure(&mut self, config: &HubConfig) {
        let present = self.followed.as_ref().map(|followed| &followed.config);
        if present == config.etcd.as_ref() {
            return;
        }
        self.followed = config.etcd.clone().map(|config| {
            let kept = self.cache.as_ref().and_then(PermitCache::load);
            let (to, mut texts) = watch::channel(kept);
            // The kept permits are in force at once, before etcd answers.
            texts.mark_changed();
            let task = tokio::spawn(follow(EtcdClient::new(&config), to)).abort_handle();
            Followed { config, texts, task }
        });
    }

    /// Waits for a change. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        match &mut self.followed {
            // The task runs as long as this exists, so an error comes only after a panic.
            Some(followed) => match followed.texts.changed().await {
                Ok(()) => {}
                Err(_) => pending().await,
            },
            None => pending().await,
        }
    }

    /// Applies and saves the permits that etcd returned last. Returns whether any have changed.
    pub(super) fn apply(&mut self, permits: &mut TerminalPermits) -> bool {
        let Some(followed) = &mut self.followed else {
            return permits.set_remote(&PermitTexts::new());
        };
        let Some(texts) = followed.texts.borrow_and_update().clone() else { return false };
        let changed = permits.set_remote(&texts);
        if let (Some(cache), true) = (self.cache.clone(), changed) {
            // Syncing a file would hold up all sessions.
            spawn_blocking(move || cache.save(&texts));
        }
        changed
    }
}
