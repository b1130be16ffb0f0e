//! The sessions of a gateway: the peers' names, and the rates reported by modems or operators.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use config::LinkConfig;
use control::status::{OverloadStatus, SessionStatus};
use pep::dlep::DlepReport;
use pep::rates::{RateChange, ReportedRates};
use slacp::{Event, PublicKey, Rate, RateError, RateState, SessionId};
use units::{BitRate, Instant};

use crate::config::keys::format_public_key;
use crate::hop::Hop;

/// The peers with sessions, and the rates that modems or operators have reported.
#[derive(Debug)]
pub(crate) struct PeerTable {
    names: BTreeMap<PublicKey, String>,
    source: &'static str,
    /// Names of the links, if sessions may have several.
    links: Vec<String>,
    up: BTreeMap<SessionId, PeerSession>,
    rates: ReportedRates,
    /// Rates that the modem reported to the previous process of an upgrade, with their expiry. Cleared
    /// by the modem's next report.
    inherited: BTreeMap<PublicKey, (BitRate, Instant)>,
}

#[derive(Debug)]
struct PeerSession {
    key: PublicKey,
    address: SocketAddr,
    since: Instant,
    reachable: bool,
    outages: u64,
}

impl PeerTable {
    /// Creates the table without sessions. `alone`: the gateway has at most one peer.
    pub(crate) fn new(
        rate: &Rate,
        maximum: Option<BitRate>,
        names: BTreeMap<PublicKey, String>,
        alone: bool,
    ) -> Self {
        Self {
            names,
            source: source(rate),
            links: Vec::new(),
            up: BTreeMap::new(),
            rates: ReportedRates::new(maximum, alone),
            inherited: BTreeMap::new(),
        }
    }

    /// Sets the links that sessions may use.
    pub(crate) fn with_links(self, links: &[LinkConfig]) -> Self {
        Self { links: links.iter().map(|link| link.name.clone()).collect(), ..self }
    }

    /// Creates the empty table of a gateway without a hop.
    pub(crate) fn none() -> Self {
        Self { source: "", ..Self::new(&Rate::auto(), None, BTreeMap::new(), false) }
    }

    /// Applies reloaded names and a reloaded `rate`.
    pub(crate) fn configure(
        &mut self,
        rate: &Rate,
        maximum: Option<BitRate>,
        names: BTreeMap<PublicKey, String>,
    ) {
        self.source = source(rate);
        self.names = names;
        self.rates.set_maximum(maximum);
    }

    /// Replaces the names, after permits have changed.
    pub(crate) fn set_names(&mut self, names: BTreeMap<PublicKey, String>) {
        self.names = names;
    }

    /// Returns whether the rate follows the reports of a modem or an operator.
    pub(crate) fn follows_reports(&self) -> bool {
        self.source == "modem"
    }

    /// Sets the rate to send at while the modem grants nothing, on a link with capacity on demand.
    pub(crate) fn set_floor(&mut self, floor: BitRate) {
        self.rates.set_floor(floor);
    }

    /// Updates the table by an event of a session, and logs events that an operator should see.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        hop: &Hop,
        session: SessionId,
        event: &Event,
    ) {
        match (event, self.up.get_mut(&session)) {
            (Event::Up { peer, address }, _) => {
                let key = *peer;
                let address = *address;
                let peer = PeerSession { key, address, since: now, reachable: true, outages: 0 };
                self.up.insert(session, peer);
                let change = self.rates.add(now, session, address.ip());
                // After an upgrade, the modem may not have reported to this process yet.
                let change = change.or_else(|| self.inherited_rate(now, session, key));
                self.apply(hop, now, change);
            }
            (Event::Unreachable, Some(peer)) => {
                peer.reachable = false;
                peer.outages += 1;
            }
            (Event::Reachable, Some(peer)) => peer.reachable = true,
            (Event::Moved { address }, Some(peer)) => {
                peer.address = *address;
                let change = self.rates.set_address(now, session, address.ip());
                self.apply(hop, now, change);
            }
            (Event::Down(_), _) => {
                self.up.remove(&session);
                self.rates.remove(session);
            }
            (event, Some(peer)) => {
                let key = peer.key;
                self.log_rate_event(hop, session, &key, event);
            }
            (_, None) => {}
        }
    }

    /// Logs events about a session's rate; ignores others.
    fn log_rate_event(&self, hop: &Hop, session: SessionId, key: &PublicKey, event: &Event) {
        let name = || display_name(&self.names, key);
        match event {
            Event::Tripped { rate, instead_of } => tracing::warn!(
                "{}: most of what is sent at {instead_of} is lost; sending at {rate} instead. Check \
                 `rate`",
                name()
            ),
            Event::Restored { rate } => tracing::info!("{}: sending at {rate} again", name()),
            Event::RateExceedsLink { .. } => {
                let overload = hop.stats(session).and_then(|stats| stats.overload);
                if let Some(overload) = overload.as_ref().map(OverloadStatus::from) {
                    let source = if self.source == "modem" { "reported" } else { "configured" };
                    tracing::warn!("{}: {}", name(), overload.sentence(source));
                }
            }
            Event::RateFitsLink => {
                tracing::info!("{}: the rate no longer exceeds the link", name());
            }
            Event::CapacityFell { from, to } => tracing::warn!(
                "{}: the capacity of the link has fallen from {from} to {to}",
                name()
            ),
            _ => {}
        }
    }

    /// Applies a DLEP report to the sessions that it concerns.
    pub(crate) fn handle_report(&mut self, now: Instant, hop: &Hop, report: DlepReport) {
        let changes = self.rates.handle_report(now, report);
        if self.rates.has_modem() {
            // The reports to this process replace those to the previous one.
            self.inherited.clear();
        }
        self.apply(hop, now, changes);
    }

    /// Extends the rates reported by a modem for `valid_for`, even if the reports end.
    pub(crate) fn hold_rates(&self, now: Instant, hop: &Hop, valid_for: Duration) {
        let reported = |id: &&SessionId| {
            self.rates.validity(now, **id).is_some_and(|validity| validity.by_modem)
        };
        for session in self.up.keys().filter(reported) {
            let rate = hop.stats(*session).map(|stats| stats.rate);
            // Fails only for a session that has ended.
            let _ = rate.map(|rate| hop.set_rate(now, *session, rate, valid_for));
        }
    }

    /// Returns the valid rates reported by the modem, by peer.
    pub(crate) fn reported(&self, now: Instant) -> BTreeMap<PublicKey, BitRate> {
        let rate = |(session, peer): (&SessionId, &PeerSession)| {
            let valid = self.rates.validity(now, *session).filter(|valid| valid.by_modem)?;
            Some((peer.key, valid.reported))
        };
        self.up.iter().filter_map(rate).collect()
    }

    /// Adopts the rates that the modem reported to the previous process of an upgrade. New sessions use
    /// them for `time`, or until the modem reports again.
    pub(crate) fn inherit(
        &mut self,
        now: Instant,
        rates: BTreeMap<PublicKey, BitRate>,
        time: Duration,
    ) {
        let until = now + time;
        self.inherited = rates.into_iter().map(|(peer, rate)| (peer, (rate, until))).collect();
    }

    /// Returns the change that gives a new session its peer's inherited rate, if that is still valid.
    fn inherited_rate(
        &self,
        now: Instant,
        session: SessionId,
        peer: PublicKey,
    ) -> Option<RateChange> {
        let (rate, until) = *self.inherited.get(&peer)?;
        (until > now).then(|| self.rates.adopt(now, session, rate, until))
    }

    /// Applies changes of rates where the configuration leaves the rate to the modem.
    fn apply(&mut self, hop: &Hop, now: Instant, changes: impl IntoIterator<Item = RateChange>) {
        if !self.follows_reports() {
            return;
        }
        for change in changes {
            // Fails for a session that has ended, or that keeps its law of the rate until it is set up
            // again.
            let _ = self.set_rate(hop, now, &change);
        }
    }

    fn set_rate(&mut self, hop: &Hop, now: Instant, change: &RateChange) -> Result<(), RateError> {
        let session = change.session;
        match change.rate {
            Some(rate) => hop.set_rate(now, session, rate, change.until.saturating_since(now))?,
            None => hop.expire_rate(now, session)?,
        }
        self.rates.applied(change);
        Ok(())
    }

    /// Sets the rate of one peer's sessions, or of all, for an operator. Returns a line for each session.
    ///
    /// # Errors
    /// If the configured rate is not `"modem"`, a modem reports by DLEP, or the named peer has no session.
    pub(crate) fn set_rate_by_operator(
        &mut self,
        now: Instant,
        hop: Option<&Hop>,
        rate: BitRate,
        valid_for: Duration,
        name: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let Some(hop) = hop else {
            return Err("this gateway has no hop".to_owned());
        };
        self.check_settable()?;
        let named = name.map(|name| self.sessions_named(name));
        let changes = self.rates.set_by_operator(now, rate, valid_for, named.as_deref());
        let mut done = Vec::new();
        for change in changes {
            match (self.set_rate(hop, now, &change), change.rate) {
                (Ok(()), Some(rate)) => {
                    let name = self.name(change.session).unwrap_or_default();
                    let time = units::format_duration(valid_for);
                    done.push(format!("{name}: {rate} for {time}"));
                }
                (Ok(()), None) | (Err(RateError::NoSession), _) => {}
                (Err(error), _) => return Err(error.to_string()),
            }
        }
        match (done.is_empty(), name) {
            (true, Some(name)) => Err(format!("there is no session with {name:?}")),
            (true, None) => Ok(vec!["no session yet: it applies to future ones".to_owned()]),
            (false, _) => Ok(done),
        }
    }

    /// Checks that an operator may set rates.
    fn check_settable(&self) -> Result<(), String> {
        if !self.follows_reports() {
            let source = self.source;
            return Err(format!(
                "the rate here is {source}: setting it needs rate = \"modem\" in the configuration"
            ));
        }
        if self.rates.has_modem() {
            // The modem would overwrite the operator's rate within seconds.
            return Err("the modem reports its rate by DLEP".to_owned());
        }
        Ok(())
    }

    /// Returns the sessions with the peer of this name.
    pub(crate) fn sessions_named(&self, name: &str) -> Vec<SessionId> {
        let found = self.up.iter().filter(|(_, peer)| display_name(&self.names, &peer.key) == name);
        found.map(|(session, _)| *session).collect()
    }

    /// Returns the name of a session's peer; its key if it has no name.
    pub(crate) fn name(&self, session: SessionId) -> Option<String> {
        self.up.get(&session).map(|peer| display_name(&self.names, &peer.key))
    }

    /// Returns the keys of the peers with sessions; with `only_reachable`, only of those that answer.
    pub(crate) fn connected(&self, only_reachable: bool) -> BTreeSet<PublicKey> {
        let wanted = |peer: &&PeerSession| peer.reachable || !only_reachable;
        self.up.values().filter(wanted).map(|peer| peer.key).collect()
    }

    /// Returns the key of a session's peer; `None` without the session.
    pub(crate) fn key(&self, session: SessionId) -> Option<PublicKey> {
        self.up.get(&session).map(|peer| peer.key)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.up.keys().copied()
    }

    pub(crate) fn status(&self, now: Instant, hop: &Hop) -> Vec<SessionStatus> {
        let row = |(session, peer): (&SessionId, &PeerSession)| {
            let stats = hop.stats(*session)?;
            let reported = self.rates.validity(now, *session);
            let share = hop.share(*session).unwrap_or_default();
            let links = hop.link_status(*session, &self.links);
            // A session over several links counts as over TCP if none of them carries UDP.
            let over_tcp = match links.is_empty() {
                true => hop.links().carries(0, peer.address, Some(*session)),
                false => links.iter().all(|link| link.over_tcp),
            };
            Some(SessionStatus {
                peer: display_name(&self.names, &peer.key),
                key: format_public_key(&peer.key),
                address: peer.address.to_string(),
                over_tcp,
                since_s: now.saturating_since(peer.since).as_secs_f64(),
                reachable: peer.reachable,
                outages: peer.outages,
                rate_source: source_in_use(self.source, stats.rate_state).to_owned(),
                told_by_modem: reported.is_some_and(|validity| validity.by_modem),
                weight: share.weight,
                guaranteed_bit_s: share.guaranteed.map(BitRate::bits_per_second),
                maximum_bit_s: share.maximum.map(BitRate::bits_per_second),
                classes: hop.class_status(*session),
                channels: hop.channel_status(*session),
                links,
                told_for_s: reported.map(|validity| validity.left.as_secs_f64()),
                told_age_s: reported.map(|validity| validity.age.as_secs_f64()),
                told_bit_s: reported.map(|validity| validity.reported.bits_per_second()),
                ..SessionStatus::new(&stats)
            })
        };
        self.up.iter().filter_map(row).collect()
    }
}

fn source(rate: &Rate) -> &'static str {
    match rate {
        Rate::Fixed(_) => "fixed",
        Rate::Modem { .. } | Rate::ModemOrAuto { .. } => "modem",
        _ => "auto",
    }
}

/// Returns the source of a session's rate. It may differ from the configured one, because a running
/// session keeps its law when a reload changes between a number and `auto`.
fn source_in_use(configured: &'static str, state: RateState) -> &'static str {
    let is_measured = !matches!(state, RateState::Configured | RateState::Tripped);
    match (configured, is_measured) {
        ("fixed", true) => "auto",
        ("auto", false) => "fixed",
        _ => configured,
    }
}

fn display_name(names: &BTreeMap<PublicKey, String>, key: &PublicKey) -> String {
    names.get(key).cloned().unwrap_or_else(|| format!("{key:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pep::dlep::InformationBase;
    use slacp::DownReason;

    use super::*;
    use crate::testkit::Hops;

    const MODEM: Rate = Rate::Modem { initial: BitRate::from_mbit(2) };
    const MINUTE: Duration = Duration::from_secs(60);

    /// The hub's view of a terminal called "ship", or of one without a name.
    fn peers(rate: &Rate, names: &[&str]) -> (Hops, PeerTable) {
        let hops = Hops::with(slacp::Config::new(rate.clone()));
        let names = names.iter().map(|name| (Hops::key(1), (*name).to_owned())).collect();
        let mut peers = PeerTable::new(rate, None, names, false);
        peers.handle_event(hops.now, &hops.hops[0], hops.sessions[0], &hops.ups[0]);
        (hops, peers)
    }

    fn ship(rate: &Rate) -> (Hops, PeerTable) {
        peers(rate, &["ship"])
    }

    #[test]
    fn a_session_is_shown_from_its_beginning_to_its_end() {
        let (hops, mut peers) = ship(&Rate::Fixed(BitRate::from_mbit(5)));
        let ([hub, _], [session, _]) = (&hops.hops, hops.sessions);
        let later = hops.now + Duration::from_secs(3);
        let [row] = &peers.status(later, hub)[..] else { panic!("one session") };
        assert_eq!((row.peer.as_str(), row.since_s, row.reachable), ("ship", 3.0, true));
        assert_eq!(row.address, crate::testkit::address(1).to_string());
        assert_eq!((row.rate_source.as_str(), row.rate_bit_s), ("fixed", 5_000_000));
        assert_eq!((row.told_for_s, row.rate_state.as_deref()), (None, None));

        peers.handle_event(later, hub, session, &Event::Unreachable);
        assert!(!peers.status(later, hub)[0].reachable);
        peers.handle_event(later, hub, session, &Event::Reachable);
        let address = ([198, 51, 100, 1], 9).into();
        peers.handle_event(later, hub, session, &Event::Moved { address });
        let row = &peers.status(later, hub)[0];
        assert_eq!((row.reachable, row.address.as_str()), (true, "198.51.100.1:9"));

        peers.handle_event(later, hub, session, &Event::Down(DownReason::GivenUp));
        assert_eq!((peers.sessions().count(), peers.name(session)), (0, None));
        // What is still under way is of no session.
        peers.handle_event(later, hub, session, &Event::Reachable);
        assert!(peers.status(later, hub).is_empty());
    }

    #[test]
    fn a_peer_without_a_name_is_called_by_its_key_until_it_gets_one() {
        let (hops, mut peers) = peers(&MODEM, &[]);
        let [session, _] = hops.sessions;
        assert_eq!(peers.name(session), Some(format!("{:?}", Hops::key(1))));
        let names = BTreeMap::from([(Hops::key(1), "boat".to_owned())]);
        peers.configure(&MODEM, None, names);
        assert_eq!(peers.name(session).as_deref(), Some("boat"));
    }

    #[test]
    fn a_session_that_keeps_its_law_is_shown_with_it() {
        let fixed = Rate::Fixed(BitRate::from_mbit(5));
        for (first, then, shown) in
            [(Rate::auto(), fixed.clone(), "auto"), (fixed, Rate::auto(), "fixed")]
        {
            let (hops, mut peers) = ship(&first);
            peers.configure(&then, None, BTreeMap::new());
            assert_eq!(peers.status(hops.now, &hops.hops[0])[0].rate_source, shown);
        }
    }

    #[test]
    fn an_operator_s_rate_holds_for_its_time() {
        let (hops, mut peers) = ship(&MODEM);
        let ([hub, _], [session, _]) = (&hops.hops, hops.sessions);
        assert_eq!(hub.stats(session).unwrap().rate, BitRate::from_mbit(2));
        let rate = BitRate::from_mbit(7);
        let told = peers.set_rate_by_operator(hops.now, Some(hub), rate, MINUTE, Some("ship"));
        assert_eq!(told, Ok(vec!["ship: 7 Mbit/s for 60 s".to_owned()]));
        assert_eq!(hub.stats(session).unwrap().rate, rate);
        let row = &peers.status(hops.now + Duration::from_secs(20), hub)[0];
        assert_eq!((row.told_for_s, row.told_by_modem), (Some(40.0), false));
    }

    #[test]
    fn a_rate_that_the_modem_reports_no_more_is_measured() {
        let rate = Rate::ModemOrAuto { ceiling: None, probe: false };
        let (hops, mut peers) = ship(&rate);
        let ([hub, _], [session, _]) = (&hops.hops, hops.sessions);
        let state = || hub.stats(session).unwrap().rate_state;
        assert_eq!(state(), RateState::Blind);
        let base = Arc::new(InformationBase::of_rate(BitRate::from_mbit(7)));
        let until = Some(hops.now + MINUTE);
        peers.handle_report(hops.now, hub, DlepReport { until, base, ..DlepReport::default() });
        let row = &peers.status(hops.now, hub)[0];
        assert_eq!((row.rate_bit_s, row.told_by_modem), (7_000_000, true));
        assert_eq!((row.told_for_s, row.rate_state.as_deref()), (Some(60.0), None));
        // Its session ends, and what it reported with it.
        for _ in 0..2 {
            peers.handle_report(hops.now, hub, DlepReport::default());
            let row = &peers.status(hops.now, hub)[0];
            assert_eq!((row.told_for_s, row.rate_state.as_deref()), (None, Some("blind")));
        }
    }

    #[test]
    fn a_rate_that_cannot_be_set_says_why() {
        let rate = BitRate::from_mbit(7);
        let (hops, mut fixed) = ship(&Rate::Fixed(rate));
        let hub = Some(&hops.hops[0]);
        let why = fixed.set_rate_by_operator(hops.now, hub, rate, MINUTE, None).unwrap_err();
        assert!(why.contains("the rate here is fixed"), "{why}");

        let (hops, mut modem) = ship(&MODEM);
        let hub = Some(&hops.hops[0]);
        let other = modem.set_rate_by_operator(hops.now, hub, rate, MINUTE, Some("other"));
        assert_eq!(other.unwrap_err(), "there is no session with \"other\"");
        let none = modem.set_rate_by_operator(hops.now, None, rate, MINUTE, None);
        assert_eq!(none.unwrap_err(), "this gateway has no hop");
    }

    #[test]
    fn a_rate_set_before_the_session_applies_when_it_comes_up() {
        let hops = Hops::with(slacp::Config::new(MODEM));
        let ([hub, _], [session, _]) = (&hops.hops, hops.sessions);
        let mut peers = PeerTable::new(&MODEM, None, BTreeMap::new(), false);
        let rate = BitRate::from_mbit(7);
        let told = peers.set_rate_by_operator(hops.now, Some(hub), rate, MINUTE, None).unwrap();
        assert!(told[0].contains("no session yet"), "{told:?}");
        peers.handle_event(hops.now, hub, session, &hops.ups[0]);
        assert_eq!(hub.stats(session).unwrap().rate, rate);
    }

    #[test]
    fn a_reported_rate_never_exceeds_the_configured_maximum() {
        let (hops, mut peers) = ship(&MODEM);
        let ([hub, _], [session, _]) = (&hops.hops, hops.sessions);
        let maximum = BitRate::from_mbit(3);
        peers.configure(&MODEM, Some(maximum), BTreeMap::new());
        let rate = BitRate::from_mbit(7);
        peers.set_rate_by_operator(hops.now, Some(hub), rate, MINUTE, None).unwrap();
        assert_eq!(hub.stats(session).unwrap().rate, maximum);
    }
}
