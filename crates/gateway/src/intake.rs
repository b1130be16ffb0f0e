//! New connections of clients: taken over exactly while that is of use.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::bypass::BypassClock;
use crate::clock;
use crate::config::{InterceptConfig, SideConfig};
use crate::counters::Counters;
use crate::error::RunError;
use crate::interception::{Arrival, Arrived, Interception};
use crate::netfilter::Scope;
use crate::policy::Policy;
use crate::status::{Bypass, InterceptionStatus};

/// How long new connections pass by after the process ran out of descriptors.
const RECOVERY: Duration = Duration::from_secs(1);

/// Interception, switched on and off as the hop and the process allow.
pub(crate) struct Intake {
    interception: Interception,
    counters: Arc<Counters>,
    /// What is taken over now.
    scope: Scope,
    /// Connections pass by until then, for this reason.
    paused: Option<(Instant, Bypass)>,
    bypass: BypassClock,
}

impl Intake {
    /// Takes nothing over yet.
    pub(crate) fn new(interception: Interception, counters: Arc<Counters>) -> Self {
        let bypass = BypassClock::new(clock::now(), Bypass::PeerUnreachable);
        counters.refusals.follow();
        Self { interception, counters, scope: Scope::Nothing, paused: None, bypass }
    }

    /// Waits for the next connection; `None` after a change that calls for
    /// [`Self::set`]. May be cancelled without losing one.
    pub(crate) async fn next(&mut self) -> Option<Arrival> {
        let resume = self.paused.map_or_else(Instant::now, |(until, _)| until);
        let arrived = tokio::select! {
            arrived = self.interception.next() => arrived,
            () = self.counters.refusals.changed() => return None,
            () = sleep_until(resume), if self.paused.is_some() => {
                self.paused = None;
                return None;
            }
        };
        match arrived {
            Arrived::Here(arrival) => return Some(arrival),
            Arrived::Nothing => {}
            Arrived::Exhausted(error) => {
                self.counters.exhausted.increment();
                if self.paused.is_none() {
                    tracing::warn!("new connections pass unaccelerated for a while: {error}");
                }
                self.pause(RECOVERY, Bypass::Descriptors);
            }
        }
        None
    }

    /// Takes connections of these clients over from now on.
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

    /// Sets up the connections of clients that are accepted from now on, whose
    /// packets bear `mark`.
    pub(crate) fn prepare(&self, side: &SideConfig, mark: Option<u32>) {
        self.interception.prepare(side, mark);
    }

    /// Has new connections pass by for a while.
    pub(crate) fn pause(&mut self, pause: Duration, why: Bypass) {
        self.paused = Some((Instant::now() + pause, why));
    }

    /// Takes these over from now on, or nothing and why not, or nothing during a
    /// pause. Connections that we hold stay with us.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn set(&mut self, wanted: Result<Scope, Bypass>) -> Result<(), RunError> {
        let paused = self.paused.map_or(Ok(()), |(_, why)| Err(why));
        let wanted = wanted.and_then(|scope| paused.map(|()| scope));
        self.bypass.set(clock::now(), wanted.as_ref().err().copied());
        let wanted = wanted.unwrap_or(Scope::Nothing);
        let refused = self.counters.refusals.take_change();
        if wanted != self.scope || refused.is_some() {
            refused.into_iter().for_each(|refused| self.interception.pass_by(refused));
            self.interception.take_over(&wanted)?;
            self.scope = wanted;
            self.counters.refusals.set();
        }
        Ok(())
    }

    /// Follows IPv6, and the loopback device, as they go off and on.
    pub(crate) fn follow_routes(&mut self) {
        if !self.interception.follow_routes() {
            return;
        }
        match self.interception.take_over(&self.scope) {
            Ok(()) => self.interception.tell_of_v6(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Whether, why and for how long connections have passed by.
    pub(crate) fn status(&self) -> InterceptionStatus {
        self.bypass.status(clock::now())
    }

    /// How many connections each policy has decided about.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.interception.counts()
    }

    /// Whether new connections are taken over.
    pub(crate) fn is_on(&self) -> bool {
        self.scope != Scope::Nothing
    }
}

/// The next connection of an intake that may not be there.
pub(crate) async fn next(intake: &mut Option<Intake>) -> Option<Arrival> {
    match intake {
        Some(intake) => intake.next().await,
        None => pending().await,
    }
}
