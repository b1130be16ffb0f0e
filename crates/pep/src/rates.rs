//! Rates that modems (DLEP) and operators report, and the sessions that they are for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use slacp::SessionId;
use units::{BitRate, Instant};

use crate::dlep::Report;

/// The reported rates of a gateway's sessions, identified by `S`.
///
/// Each method returns the changes that follow from it. The owner applies them to the endpoint, and
/// confirms each with [`Self::applied`] if it was accepted.
#[derive(Debug)]
pub struct ReportedRates<S = SessionId> {
    /// Upper limit on a reported rate.
    maximum: Option<BitRate>,
    /// Whether the link has no other peer.
    alone: bool,
    sessions: BTreeMap<S, Session>,
    /// The operator's rate for all sessions, and its expiry. A session that comes up later gets it
    /// too.
    operator: Option<(BitRate, Instant)>,
    /// The latest DLEP report.
    modem: Report,
}

#[derive(Debug)]
struct Session {
    address: IpAddr,
    /// When the rate that was set last expires.
    until: Option<Instant>,
    by_modem: bool,
}

/// A change of a session's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateChange<S = SessionId> {
    /// The session.
    pub session: S,
    /// The new rate; `None` if the last one expires at once.
    pub rate: Option<BitRate>,
    /// When it expires.
    pub until: Instant,
    /// Whether the modem itself reported it (DLEP).
    pub by_modem: bool,
}

/// The state of a session's reported rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Remaining time.
    pub left: Duration,
    /// Whether the modem itself reported it (DLEP).
    pub by_modem: bool,
}

impl<S: Copy + Ord> ReportedRates<S> {
    /// No sessions yet. Reported rates are limited to `maximum`; `alone` means that the link has no
    /// more than one peer.
    pub fn new(maximum: Option<BitRate>, alone: bool) -> Self {
        let (sessions, modem) = (BTreeMap::new(), Report::default());
        Self { maximum, alone, sessions, operator: None, modem }
    }

    /// Limits rates reported from now on.
    pub fn set_maximum(&mut self, maximum: Option<BitRate>) {
        self.maximum = maximum;
    }

    /// A session with the peer at this address came up.
    pub fn add(&mut self, now: Instant, session: S, address: IpAddr) -> Option<RateChange<S>> {
        self.sessions.insert(session, Session { address, until: None, by_modem: false });
        if self.modem.until.is_some() {
            return self.by_modem(now, session);
        }
        let (rate, until) = self.operator.filter(|(_, until)| *until > now)?;
        Some(RateChange { session, rate: Some(rate), until, by_modem: false })
    }

    /// The peer of a session has another address.
    pub fn set_address(
        &mut self,
        now: Instant,
        session: S,
        address: IpAddr,
    ) -> Option<RateChange<S>> {
        self.sessions.get_mut(&session)?.address = address;
        self.by_modem(now, session)
    }

    /// A session has ended.
    pub fn remove(&mut self, session: S) {
        self.sessions.remove(&session);
    }

    /// The modem has sent a report. When it no longer has a rate for a session, the rate expires at
    /// once.
    pub fn handle_report(&mut self, now: Instant, report: Report) -> Vec<RateChange<S>> {
        self.modem = report;
        let sessions: Vec<S> = self.sessions.keys().copied().collect();
        sessions.into_iter().filter_map(|session| self.by_modem(now, session)).collect()
    }

    /// Whether a modem reports the rates, so that an operator need not.
    pub fn has_modem(&self) -> bool {
        self.modem.until.is_some()
    }

    /// An operator sets the rate of these sessions, or of all, including later ones.
    pub fn set_by_operator(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
        sessions: Option<&[S]>,
    ) -> Vec<RateChange<S>> {
        let (rate, until) = (self.limited(rate), now + valid_for);
        if sessions.is_none() {
            self.operator = Some((rate, until));
        }
        let all: Vec<S> = self.sessions.keys().copied().collect();
        let change =
            |&session: &S| RateChange { session, rate: Some(rate), until, by_modem: false };
        sessions.unwrap_or(&all).iter().map(change).collect()
    }

    /// The endpoint has accepted a change.
    pub fn applied(&mut self, change: &RateChange<S>) {
        if let Some(session) = self.sessions.get_mut(&change.session) {
            (session.until, session.by_modem) =
                (Some(change.until), change.by_modem && change.rate.is_some());
        }
    }

    /// How long a session's reported rate is valid; `None` without one.
    pub fn validity(&self, now: Instant, session: S) -> Option<Validity> {
        let session = self.sessions.get(&session)?;
        let until = session.until.filter(|until| *until > now)?;
        Some(Validity { left: until.saturating_since(now), by_modem: session.by_modem })
    }

    fn by_modem(&self, now: Instant, session: S) -> Option<RateChange<S>> {
        let peer = self.sessions.get(&session)?;
        let until = self.modem.until.filter(|until| *until > now);
        let rate = self.modem.base.rate(peer.address.to_canonical(), self.alone);
        match rate.zip(until) {
            Some((rate, until)) => {
                let rate = Some(self.limited(rate));
                Some(RateChange { session, rate, until, by_modem: true })
            }
            None if peer.by_modem => {
                Some(RateChange { session, rate: None, until: now, by_modem: true })
            }
            None => None,
        }
    }

    fn limited(&self, rate: BitRate) -> BitRate {
        self.maximum.map_or(rate, |most| rate.min(most))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dlep::Base;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    fn report(mbit: u64, until: u64) -> Report {
        let base = Arc::new(Base::of_rate(BitRate::from_mbit(mbit)));
        Report { until: Some(at(until)), base, ..Report::default() }
    }

    /// Applies a change; returns the rate in Mbit/s and the second at which it expires.
    fn apply(rates: &mut ReportedRates<u8>, change: RateChange<u8>) -> (Option<u64>, Instant) {
        rates.applied(&change);
        (change.rate.map(|rate| rate.bits_per_second() / 1_000_000), change.until)
    }

    #[test]
    fn a_modem_s_rate_is_limited_and_expires_with_its_session() {
        let mut rates = ReportedRates::new(Some(BitRate::from_mbit(30)), true);
        assert_eq!(rates.add(at(0), 1, PEER), None);
        let [change] = rates.handle_report(at(1), report(50, 10))[..] else {
            panic!("one session")
        };
        assert_eq!(apply(&mut rates, change), (Some(30), at(10)));
        let left = Duration::from_secs(8);
        assert_eq!(rates.validity(at(2), 1), Some(Validity { left, by_modem: true }));
        let change = rates.add(at(2), 2, PEER).unwrap();
        assert_eq!(apply(&mut rates, change), (Some(30), at(10)));
        for change in rates.handle_report(at(3), Report::default()) {
            assert_eq!(apply(&mut rates, change), (None, at(3)));
        }
        assert_eq!(rates.validity(at(4), 1), None);
        assert_eq!(rates.handle_report(at(4), Report::default()), [], "it has expired already");
    }

    #[test]
    fn an_operator_s_rate_is_for_later_sessions_too_until_it_expires() {
        let mut rates = ReportedRates::new(None, false);
        assert_eq!(rates.add(at(0), 1, PEER), None);
        let some = rates.set_by_operator(at(0), BitRate::from_mbit(5), HOUR, Some(&[1]));
        assert_eq!(some.len(), 1);
        assert_eq!(rates.add(at(1), 2, PEER), None, "it was for one session alone");
        assert_eq!(rates.set_by_operator(at(1), BitRate::from_mbit(7), HOUR, None).len(), 2);
        let change = rates.add(at(2), 3, PEER).unwrap();
        assert_eq!(apply(&mut rates, change), (Some(7), at(1) + HOUR));
        assert_eq!(rates.add(at(1) + HOUR, 4, PEER), None);
        assert_eq!(rates.validity(at(1) + HOUR, 3), None);
    }

    #[test]
    fn a_change_that_the_endpoint_refuses_is_not_valid() {
        let mut rates = ReportedRates::new(None, true);
        rates.add(at(0), 1, PEER);
        assert_eq!(rates.handle_report(at(1), report(50, 10)).len(), 1);
        assert_eq!(rates.validity(at(2), 1), None);
        rates.remove(1);
        assert_eq!(rates.handle_report(at(2), report(50, 10)), []);
    }
}
