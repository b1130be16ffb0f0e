//! Shares of terminals, and the limits that replace them when a quota is used up.

use std::collections::BTreeSet;

use pep::accounting::{ExhaustedAction, QuotaChange};
use slacp::{PublicKey, ResetReason, SessionId};
use units::Instant;

use super::Hub;
use crate::operate::GatewayOperations;
use crate::roles::RunningRole;

impl Hub {
    /// Applies the present limits of its terminal to a session: its share and the rates of its classes, or
    /// those of a used-up quota.
    pub(super) fn set_share(&self, now: Instant, ops: &GatewayOperations, session: SessionId) {
        let hop = self.parts.gateway.hop();
        let Some(terminal) = self.sites.of(session) else { return };
        let exhausted = ops.exhausted(&terminal.key);
        let share = match exhausted {
            Some(ExhaustedAction::Rate(rate)) => terminal.quota.share.at_most(*rate),
            _ => terminal.quota.share,
        };
        if hop.share(session) != Some(share) {
            hop.set_share(now, session, share);
        }
        hop.set_class_rates(now, session, &terminal.classes);
        match exhausted {
            Some(ExhaustedAction::Class(name)) => hop.force_class(session, Some(name)),
            _ => hop.force_class(session, None),
        }
    }

    /// Accounts for the traffic since the last call, and applies the changes of quotas.
    pub(super) fn account(&mut self, now: Instant, ops: &mut GatewayOperations) {
        let changes = ops.settle_usage(now, self.parts.gateway.hop());
        if !changes.is_empty() {
            self.apply(now, ops, &changes);
        }
    }

    /// Applies the limits of terminals whose quota is used up now, or no longer.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        changes: &[QuotaChange],
    ) {
        for QuotaChange { key, now } in changes {
            let name = ops.account_name(key);
            match now {
                Some(then) => tracing::warn!("{name} has used up its quota: {then}"),
                None => tracing::info!("{name} has volume again"),
            }
        }
        let changed: BTreeSet<PublicKey> = changes.iter().map(|change| change.key).collect();
        let is_changed = |session: &SessionId| {
            self.sites.of(*session).is_some_and(|terminal| changed.contains(&terminal.key))
        };
        for session in self.sites.sessions().filter(is_changed).collect::<Vec<_>>() {
            self.set_share(now, ops, session);
            if self.is_blocked(ops, session) {
                // What was carried before the quota was used up ends, too.
                self.parts.gateway.hop().reset_streams(session, ResetReason::Prohibited);
            }
            self.with_services(now, ops, |services, role| services.follow_quota(role, session));
        }
    }

    /// Returns whether a session's terminal is blocked because its quota is used up.
    pub(super) fn is_blocked(&self, ops: &GatewayOperations, session: SessionId) -> bool {
        let terminal = self.sites.of(session);
        let exhausted = terminal.and_then(|terminal| ops.exhausted(&terminal.key));
        exhausted == Some(&ExhaustedAction::Block)
    }
}
