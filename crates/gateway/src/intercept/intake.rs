//! New connections of clients: intercepts them exactly while that is useful.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use pep::admission::{Bypass, BypassClock};
use pep::config::{InterceptConfig, SideConfig};
use pep::traffic::Policy;
use units::Instant;

use crate::clock;
use crate::error::RunError;
use crate::intercept::netfilter::Scope;
use crate::intercept::{Arrival, IntakeEvent, Interception};
use crate::operate::counters::Counters;
use crate::operate::status::InterceptionStatus;

/// How long new connections pass unaccelerated after the process ran out of descriptors.
const RECOVERY: Duration = Duration::from_secs(1);

/// Interception, switched on and off as the hop and the process allow.
pub(crate) struct Intake {
    interception: Interception,
    counters: Arc<Counters>,
    /// Current scope of interception.
    scope: Scope,
    bypass: BypassClock,
}

impl Intake {
    /// Starts without intercepting anything.
    pub(crate) fn new(now: Instant, interception: Interception, counters: Arc<Counters>) -> Self {
        let bypass = BypassClock::new(now, Bypass::PeerUnreachable);
        counters.refusals.enable();
        Self { interception, counters, scope: Scope::Nothing, bypass }
    }

    /// Waits for the next connection, or for a change that requires [`Self::set`]. Cancel-safe.
    pub(crate) async fn next(&mut self) -> IntakeEvent {
        tokio::select! {
            arrived = self.interception.next() => arrived,
            () = self.counters.refusals.changed() => IntakeEvent::Nothing,
            () = clock::sleep_until(self.bypass.paused_until()) => IntakeEvent::Nothing,
        }
    }

    /// The connection that has arrived, if one has. Lets further ones pass unaccelerated for a while
    /// if the process has run out of descriptors.
    pub(crate) fn handle(&mut self, now: Instant, arrived: IntakeEvent) -> Option<Arrival> {
        match arrived {
            IntakeEvent::Connection(arrival) => return Some(arrival),
            IntakeEvent::Nothing => {}
            IntakeEvent::Exhausted(error) => {
                self.counters.exhausted.increment();
                if self.bypass.paused_until().is_none() {
                    tracing::warn!("new connections pass unaccelerated for a while: {error}");
                }
                self.pause(now, RECOVERY, Bypass::Descriptors);
            }
        }
        None
    }

    /// Intercepts connections of these clients from now on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn configure(
        &mut self,
        config: &InterceptConfig,
        policies: &[Policy],
    ) -> Result<(), RunError> {
        self.interception.configure(config, policies);
        self.interception.take_over(&self.scope)
    }

    /// Applies TCP settings, and a mark, to connections accepted from now on.
    pub(crate) fn prepare(&self, side: &SideConfig, mark: Option<u32>) {
        self.interception.prepare(side, mark);
    }

    /// Lets new connections pass unaccelerated for a while.
    pub(crate) fn pause(&mut self, now: Instant, pause: Duration, why: Bypass) {
        self.bypass.pause(now, pause, why);
    }

    /// Sets the scope of interception, or the reason for none. A pause overrides the scope.
    /// Existing connections are kept.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        wanted: Result<Scope, Bypass>,
    ) -> Result<(), RunError> {
        let bypass = self.bypass.set(now, wanted.as_ref().err().copied());
        let wanted = wanted.ok().filter(|_| bypass.is_none()).unwrap_or(Scope::Nothing);
        let refused = self.counters.refusals.take_change(now);
        if wanted != self.scope || refused.is_some() {
            refused.into_iter().for_each(|refused| self.interception.pass_by(refused));
            self.interception.take_over(&wanted)?;
            self.scope = wanted;
            self.counters.refusals.set();
        }
        Ok(())
    }

    /// Restores routes after IPv6 or the loopback device went down and came back.
    pub(crate) fn follow_routes(&mut self) {
        if !self.interception.follow_routes() {
            return;
        }
        match self.interception.take_over(&self.scope) {
            Ok(()) => self.interception.tell_of_v6(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// The state of interception, with its history.
    pub(crate) fn status(&self, now: Instant) -> InterceptionStatus {
        self.bypass.history(now).into()
    }

    /// Connections decided by each policy.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.interception.counts()
    }

    /// Whether new connections are intercepted.
    pub(crate) fn is_on(&self) -> bool {
        self.scope != Scope::Nothing
    }
}

/// What arrives next at an optional intake; waits for ever without one.
pub(crate) async fn next(intake: &mut Option<Intake>) -> IntakeEvent {
    match intake {
        Some(intake) => intake.next().await,
        None => pending().await,
    }
}
