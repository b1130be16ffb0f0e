//! The rate of a session, which is that of its first path.

use core::time::Duration;

use units::{BitRate, Instant};

use super::Session;
use crate::rate::{Allowance, Auto, Grant, Spent, Switch};
use crate::{PathKey, PathMemory, Rate, RateError};

impl Session {
    /// The rate at which the endpoint's shared pacer sends for this session; `None` if the session,
    /// or each of its links, paces itself.
    pub(crate) fn shared_rate(&self) -> Option<BitRate> {
        let first = self.first();
        first.rate.shared().filter(|_| first.membership.is_none())
    }

    /// The current sending rate, configured, reported or measured.
    pub(crate) fn rate(&self) -> BitRate {
        self.first().rate.rate()
    }

    /// The measurements of the path that a later session can start from; `None` if there are none.
    pub(crate) fn path_memory(&self, now: Instant) -> Option<PathMemory> {
        self.first().path_memory(now)
    }

    /// The key under which measurements of the current path are remembered.
    pub(crate) fn path_key(&self) -> PathKey {
        PathKey::new(self.peer.key, self.address().ip())
    }

    /// Returns the path that the session has left since the last call, with its measurements.
    pub(crate) fn take_former_path(&mut self) -> Option<(PathKey, Option<PathMemory>)> {
        let (address, memory) = self.first_mut().discovery.take_former()?;
        Some((PathKey::new(self.peer.key, address.ip()), memory))
    }

    /// Starts from earlier measurements of the path. Called before anything is sent on it.
    pub(crate) fn remember(&mut self, memory: PathMemory) {
        if let Some(auto) = self.auto() {
            auto.remember(memory);
        }
    }

    /// Sets how much padding the session may send. Called before anything is sent.
    pub(crate) fn set_allowance(&mut self, allowance: Allowance) {
        if let Some(auto) = self.first_mut().rate.measuring_mut() {
            auto.set_allowance(allowance);
        }
    }

    /// Bytes and padding sent so far, if the session can measure its rate.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.first().rate.measuring().map(Auto::spent)
    }

    /// Allows the session to measure its path with padding now.
    pub(crate) fn grant_padding(&mut self) {
        if let Some(auto) = self.auto() {
            auto.grant_padding();
        }
    }

    /// The measuring rate control, if it is in use.
    pub(crate) fn auto(&mut self) -> Option<&mut Auto> {
        self.first_mut().rate.auto_mut()
    }

    /// Applies the session's share of a link that an aggregate measures.
    pub(crate) fn take_share(&mut self, now: Instant, grant: Grant) {
        let (path, shared) = self.first_and_shared();
        let Some(auto) = path.rate.auto_mut() else { return };
        let before = auto.rate();
        auto.take(now, grant);
        if auto.rate() != before {
            path.rate_changed(shared, now);
        }
    }

    /// Returns whether the session is measuring its path with padding.
    pub(crate) fn is_probing(&self) -> bool {
        let first = self.first();
        let able = self.is_usable() && first.is_reachable() && first.remote.times.is_some();
        able && first.rate.auto().is_some_and(Auto::is_probing)
    }

    /// Applies a new configured rate; `false` if only a new session can adopt it.
    pub(crate) fn configure_rate(&mut self, now: Instant, rate: &Rate) -> bool {
        let (path, shared) = self.first_and_shared();
        let taken = path.rate.configure(now, rate);
        if taken {
            path.rate_changed(shared, now);
        }
        taken
    }

    /// Applies a rate reported by the modem.
    pub(crate) fn set_rate(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let (path, shared) = self.first_and_shared();
        let was_off = path.rate.rate().bits_per_second() == 0;
        path.rate.report(now, rate, valid_for)?;
        if was_off && rate.bits_per_second() > 0 {
            // The modem reports that the link is back: probe at once.
            path.probes.hasten(now);
        }
        path.update_ecn_use();
        path.rate_changed(shared, now);
        Ok(())
    }

    /// Ends a rate reported by the modem, if there is one.
    pub(crate) fn expire_rate(&mut self, now: Instant) -> Result<(), RateError> {
        let (path, shared) = self.first_and_shared();
        path.rate.expire(now, path.sender.sent.next_number(), path.rtt.smoothed())?;
        path.update_ecn_use();
        path.rate_changed(shared, now);
        Ok(())
    }

    /// Returns which law of the rate, measured or reported, has come into use since the last call.
    pub(crate) fn take_switch(&mut self) -> Option<Switch> {
        self.first_mut().rate.take_switch()
    }
}
