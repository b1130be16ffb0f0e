//! The hub's side of key rotation: answers to both keys for a time, and announces the next one to
//! terminals.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use config::{HubConfig, PermittedTerminal};
use control::status::{GatewayStatus, NextKeyStatus};
use pep::routes::TerminalSites;
use pep::timing::Periodic;
use slacp::{Event, KeyPair, PublicKey, ResetReason, SessionId};
use tokio::task::JoinSet;
use units::{Instant, UnixTime};

use super::super::{Config, Service, Surroundings};
use super::send_key;
use crate::config::keys::format_public_key;
use crate::hop::Hop;
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::runtime::joined;

/// Interval of repeating the announcement to terminals that have not stored the key, besides when
/// they come up.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3600);

/// The hub's keys, and the progress of announcing the next one.
pub(crate) struct KeyAnnouncer {
    /// Keys that the hub answers to.
    served: Vec<PublicKey>,
    key: Option<PublicKey>,
    until: Option<UnixTime>,
    /// Terminals that have stored the next key.
    confirmed: BTreeSet<PublicKey>,
    announcements: JoinSet<AnnouncementResult>,
    /// The result to be handled next.
    finished: Option<AnnouncementResult>,
    in_progress: BTreeSet<PublicKey>,
    again: Periodic,
}

/// Result of announcing a key to a terminal.
struct AnnouncementResult {
    terminal: PublicKey,
    key: PublicKey,
    result: Result<(), ResetReason>,
}

impl KeyAnnouncer {
    /// Starts for a hub that has answered to `config.identity` only.
    pub(crate) fn new(now: Instant, config: &HubConfig) -> Self {
        Self {
            served: vec![config.identity.public()],
            key: None,
            until: None,
            confirmed: BTreeSet::new(),
            announcements: JoinSet::new(),
            finished: None,
            in_progress: BTreeSet::new(),
            again: Periodic::new(REPEAT_INTERVAL, now + REPEAT_INTERVAL),
        }
    }

    /// Applies the keys of a configuration that are in force now, and announces a changed next key
    /// to all sessions.
    fn apply(&mut self, config: &HubConfig, hop: &Hop, sites: &TerminalSites) {
        let identities = config.identities(clock::unix_time());
        self.serve(&identities, hop);
        self.until = config.identity_until;
        let next = config.next_identity.as_ref().map(KeyPair::public);
        // After a rotation is called off, the present key is announced to those that expect
        // another.
        let key = next.or_else(|| self.key.map(|_| config.identity.public()));
        if key != self.key {
            self.confirmed.clear();
            self.key = key;
            self.announce_to_all(hop, sites);
        }
    }

    fn serve(&mut self, identities: &[KeyPair], hop: &Hop) {
        let keys: Vec<PublicKey> = identities.iter().map(KeyPair::public).collect();
        if keys == self.served {
            return;
        }
        let list = keys.iter().map(format_public_key).collect::<Vec<_>>().join(" and ");
        if keys.iter().any(|key| self.served.contains(key)) {
            tracing::info!("terminals reach this hub by the key {list}");
        } else {
            tracing::warn!("terminals that know only the previous key cannot reach {list}");
        }
        hop.set_identities(identities);
        self.served = keys;
    }

    fn announce_to_all(&mut self, hop: &Hop, sites: &TerminalSites) {
        sites.sessions().for_each(|session| self.announce(hop, sites, session));
    }

    /// Announces the key to the terminal of a session, if it does not have it yet.
    fn announce(&mut self, hop: &Hop, sites: &TerminalSites, session: SessionId) {
        let Some((key, terminal)) = self.key.zip(sites.of(session)) else { return };
        let terminal = terminal.key;
        // Not over an invitation's session, which stores nothing: the terminal's own session follows.
        let is_new = !self.confirmed.contains(&terminal) && !self.in_progress.contains(&terminal);
        if !is_new || sites.of(session).is_some_and(|terminal| terminal.invited) {
            return;
        }
        self.in_progress.insert(terminal);
        let told = send_key(hop.clone(), session, key);
        self.announcements
            .spawn(async move { AnnouncementResult { terminal, key, result: told.await } });
    }

    fn handle(&mut self, told: &AnnouncementResult, hop: &Hop, sites: &TerminalSites) {
        self.in_progress.remove(&told.terminal);
        // The key was changed meanwhile: announce the new one.
        if self.key != Some(told.key) {
            let is_its = |session: &SessionId| {
                sites.of(*session).is_some_and(|terminal| terminal.key == told.terminal)
            };
            let session = sites.sessions().find(is_its);
            return session.into_iter().for_each(|session| self.announce(hop, sites, session));
        }
        let its = sites.terminals().iter().find(|terminal| terminal.key == told.terminal);
        let Some(name) = its.map(|terminal| &terminal.name) else { return };
        match told.result {
            Ok(()) => {
                tracing::debug!("{name} has stored the next key");
                self.confirmed.insert(told.terminal);
            }
            Err(reason) => tracing::warn!(
                "{name} has not stored the next key ({reason:?}): does it have a `state`, and this version?"
            ),
        }
    }

    /// Status of the announcement, if there is a next key.
    fn status(&self, config: &HubConfig, sites: &TerminalSites) -> Option<NextKeyStatus> {
        let key = config.next_identity.as_ref()?.public();
        let is_unaware = |terminal: &&PermittedTerminal| !self.confirmed.contains(&terminal.key);
        let unaware = sites.terminals().iter().filter(is_unaware);
        Some(NextKeyStatus {
            key: format_public_key(&key),
            until: self.until.map(|until| until.to_string()),
            in_force: !self.served.contains(&config.identity.public()),
            known: self.confirmed.len() as u64,
            unaware: unaware.map(|terminal| terminal.name.clone()).collect(),
        })
    }
}

impl Service for KeyAnnouncer {
    fn start(&mut self, role: &mut Surroundings<'_>) {
        if let Some((hop, side)) = role.hub() {
            self.apply(side.permits.config(), hop, side.sites);
        }
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.finished = Some(joined(&mut self.announcements).await) })
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        if let (Some(told), Some((hop, side))) = (self.finished.take(), role.hub()) {
            self.handle(&told, hop, side.sites);
        }
    }

    fn handle_session(&mut self, role: &mut Surroundings<'_>, session: SessionId, event: &Event) {
        if let Event::Up { .. } | Event::Reachable = event
            && let Some((hop, side)) = role.hub()
        {
            self.announce(hop, side.sites, session);
        }
    }

    /// Switches keys when their time comes, and repeats announcements.
    fn housekeep(&mut self, role: &mut Surroundings<'_>) {
        let Some((hop, side)) = role.hub() else { return };
        // Without an end, keys change with the configuration only.
        if self.until.is_some() {
            self.serve(&side.permits.config().identities(clock::unix_time()), hop);
        }
        if self.again.is_due(role.now) {
            self.announce_to_all(hop, side.sites);
        }
    }

    fn configure(
        &mut self,
        role: &mut Surroundings<'_>,
        config: Config<'_>,
    ) -> Result<(), RunError> {
        if let (Config::Hub(config), Some((hop, side))) = (config, role.hub()) {
            self.apply(config, hop, side.sites);
        }
        Ok(())
    }

    fn add_status(&self, role: &Surroundings<'_>, status: &mut GatewayStatus) {
        let side = role.hub.as_ref();
        status.next_key = side.and_then(|side| self.status(side.permits.config(), side.sites));
    }
}
