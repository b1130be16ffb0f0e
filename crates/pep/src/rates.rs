//! Rates reported by modems (DLEP) and operators, and the sessions that they apply to. [`forecast`] is about
//! capacity requested ahead, [`handover`] about a rate that two processes share.

pub mod forecast;
pub mod handover;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use slacp::SessionId;
use units::{BitRate, Instant};

use crate::dlep::DlepReport;

/// Reported rates of a gateway's sessions, identified by `S`.
///
/// Each method returns the changes that follow. The owner applies them to the endpoint, and confirms those
/// that were accepted with [`Self::applied`].
#[derive(Debug)]
pub struct ReportedRates<S = SessionId> {
    /// Upper limit on a reported rate.
    maximum: Option<BitRate>,
    /// `true` if the link has a single peer.
    alone: bool,
    /// Rate while a modem grants nothing, on a link with capacity on demand.
    floor: Option<BitRate>,
    sessions: BTreeMap<S, SessionRate>,
    /// The operator's rate for all sessions, and its expiry. It also applies to sessions that come up
    /// later.
    operator: Option<(BitRate, Instant)>,
    /// The latest DLEP report; empty without a modem.
    modem: DlepReport,
}

#[derive(Debug)]
struct SessionRate {
    address: IpAddr,
    /// Expiry of the rate set last.
    until: Option<Instant>,
    by_modem: bool,
    /// The reported rate, and the time of the report.
    reported: Option<(BitRate, Instant)>,
}

/// A change of a session's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateChange<S = SessionId> {
    /// The session whose rate changes.
    pub session: S,
    /// The new rate; `None` lets the current one expire at once.
    pub rate: Option<BitRate>,
    /// The reported rate before limit and floor, and the time of the report.
    pub reported: (BitRate, Instant),
    /// Time at which the rate expires unless it is reported again.
    pub until: Instant,
    /// `true` if the modem itself reported it (DLEP).
    pub by_modem: bool,
}

/// Validity of a session's reported rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateValidity {
    /// The reported rate. On a link with capacity on demand the session sends faster if it is 0; it never
    /// exceeds the configured maximum.
    pub reported: BitRate,
    /// Time since the modem or the operator reported it.
    pub age: Duration,
    /// Time until it expires unless it is reported again.
    pub left: Duration,
    /// `true` if the modem itself reported it (DLEP).
    pub by_modem: bool,
}

impl<S: Copy + Ord> ReportedRates<S> {
    /// Starts without sessions. Reported rates are limited to `maximum`; `alone` means that the link has at
    /// most one peer.
    pub fn new(maximum: Option<BitRate>, alone: bool) -> Self {
        Self {
            maximum,
            alone,
            floor: None,
            sessions: BTreeMap::new(),
            operator: None,
            modem: DlepReport::default(),
        }
    }

    /// Sets the limit for rates reported from now on.
    pub fn set_maximum(&mut self, maximum: Option<BitRate>) {
        self.maximum = maximum;
    }

    /// Sets the floor of a link with capacity on demand. Sessions send at this rate while the modem reports
    /// 0 for a destination that is up; otherwise their next packets would never cause a request.
    pub fn set_floor(&mut self, floor: BitRate) {
        self.floor = Some(floor);
    }

    /// Handles a new session with the peer at this address.
    pub fn add(&mut self, now: Instant, session: S, address: IpAddr) -> Option<RateChange<S>> {
        let new = SessionRate { address, until: None, by_modem: false, reported: None };
        self.sessions.insert(session, new);
        // A modem would overwrite an operator's rate within seconds.
        if self.modem.until.is_some() {
            return self.by_modem(now, session);
        }
        let (rate, until) = self.operator.filter(|(_, until)| *until > now)?;
        Some(self.adopt(now, session, rate, until))
    }

    /// Builds the change for a session that adopts a rate reported in another way.
    pub fn adopt(&self, now: Instant, session: S, rate: BitRate, until: Instant) -> RateChange<S> {
        let reported = (rate, now);
        let rate = Some(self.limited(rate));
        RateChange { session, rate, reported, until, by_modem: false }
    }

    /// Handles a change of the address of a session's peer.
    pub fn set_address(
        &mut self,
        now: Instant,
        session: S,
        address: IpAddr,
    ) -> Option<RateChange<S>> {
        self.sessions.get_mut(&session)?.address = address;
        self.by_modem(now, session)
    }

    /// Handles the end of a session.
    pub fn remove(&mut self, session: S) {
        self.sessions.remove(&session);
    }

    /// Handles a report of the modem. If it no longer contains a rate for a session, the session's rate
    /// expires at once.
    pub fn handle_report(&mut self, now: Instant, report: DlepReport) -> Vec<RateChange<S>> {
        self.modem = report;
        let sessions: Vec<S> = self.sessions.keys().copied().collect();
        sessions.into_iter().filter_map(|session| self.by_modem(now, session)).collect()
    }

    /// Returns `true` while a modem reports rates.
    pub fn has_modem(&self) -> bool {
        self.modem.until.is_some()
    }

    /// Sets an operator's rate for these sessions, or for all, including later ones.
    pub fn set_by_operator(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
        sessions: Option<&[S]>,
    ) -> Vec<RateChange<S>> {
        let reported = (rate, now);
        let rate = self.limited(rate);
        let until = now + valid_for;
        if sessions.is_none() {
            self.operator = Some((rate, until));
        }
        let all: Vec<S> = self.sessions.keys().copied().collect();
        let change = |&session: &S| RateChange {
            session,
            rate: Some(rate),
            reported,
            until,
            by_modem: false,
        };
        sessions.unwrap_or(&all).iter().map(change).collect()
    }

    /// Records a change that the endpoint has accepted.
    pub fn applied(&mut self, change: &RateChange<S>) {
        if let Some(session) = self.sessions.get_mut(&change.session) {
            (session.until, session.by_modem) =
                (Some(change.until), change.by_modem && change.rate.is_some());
            session.reported = Some(change.reported);
        }
    }

    /// Validity of a session's reported rate; `None` without one.
    pub fn validity(&self, now: Instant, session: S) -> Option<RateValidity> {
        let session = self.sessions.get(&session)?;
        let until = session.until.filter(|until| *until > now)?;
        let (reported, at) = session.reported?;
        let age = now.saturating_since(at);
        let left = until.saturating_since(now);
        Some(RateValidity { reported, age, left, by_modem: session.by_modem })
    }

    fn by_modem(&self, now: Instant, session: S) -> Option<RateChange<S>> {
        let peer = self.sessions.get(&session)?;
        let until = self.modem.until.filter(|until| *until > now);
        // Modems report IPv4 addresses as such, sockets may have them mapped into IPv6.
        let rate = self.modem.base.rate(peer.address.to_canonical(), self.alone);
        let at = self.modem.rate_at.unwrap_or(now);
        match rate.zip(until) {
            Some((rate, until)) => {
                let reported = (rate, at);
                let rate = Some(self.limited(self.raised(rate, peer.address)));
                Some(RateChange { session, rate, reported, until, by_modem: true })
            }
            // An operator's rate stays until it expires; only the modem's own ends with its reports.
            None if peer.by_modem => {
                let reported = (BitRate::default(), at);
                Some(RateChange { session, rate: None, reported, until: now, by_modem: true })
            }
            None => None,
        }
    }

    /// Raises a rate to the floor if the peer is reachable.
    fn raised(&self, rate: BitRate, peer: IpAddr) -> BitRate {
        let is_up = || self.modem.base.is_up(peer.to_canonical(), self.alone);
        match self.floor {
            Some(floor) if rate < floor && is_up() => floor,
            _ => rate,
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
    use crate::dlep::InformationBase;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    fn report(mbit: u64, until: u64) -> DlepReport {
        let base = Arc::new(InformationBase::of_rate(BitRate::from_mbit(mbit)));
        DlepReport { until: Some(at(until)), rate_at: Some(at(2)), base, ..DlepReport::default() }
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
        let (age, left) = (Duration::ZERO, Duration::from_secs(8));
        let reported = BitRate::from_mbit(50);
        let validity = RateValidity { reported, age, left, by_modem: true };
        assert_eq!(rates.validity(at(2), 1), Some(validity));
        let change = rates.add(at(2), 2, PEER).unwrap();
        assert_eq!(apply(&mut rates, change), (Some(30), at(10)));
        for change in rates.handle_report(at(3), DlepReport::default()) {
            assert_eq!(apply(&mut rates, change), (None, at(3)));
        }
        assert_eq!(rates.validity(at(4), 1), None);
        assert_eq!(rates.handle_report(at(4), DlepReport::default()), [], "it has expired already");
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

    #[test]
    fn a_grant_of_nothing_is_raised_to_the_floor_but_an_outage_is_not() {
        let floor = BitRate::from_bits_per_second(4_000);
        let mut rates = ReportedRates::new(None, true);
        rates.add(at(0), 1, PEER);
        rates.set_floor(floor);
        let zero = BitRate::default();
        for (is_up, expected) in [(true, floor), (false, zero)] {
            let base = Arc::new(InformationBase::of_destination(zero, is_up));
            let until = Some(at(9));
            let report = DlepReport { until, rate_at: Some(at(1)), base, ..DlepReport::default() };
            let [change] = rates.handle_report(at(1), report)[..] else { panic!("one session") };
            assert_eq!(change.rate, Some(expected));
            rates.applied(&change);
            let validity = rates.validity(at(3), 1).unwrap();
            assert_eq!((validity.reported, validity.age), (zero, Duration::from_secs(2)));
        }
    }
}
