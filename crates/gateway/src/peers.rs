//! The sessions of a gateway: names of the peers, and rates from their modems.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pep::dlep::Report;
use slacp::{Event, PublicKey, Rate, RateError, RateState, SessionId, Stats};
use units::{BitRate, Instant};

use crate::clock;
use crate::hop::Hop;
use crate::keys::format_public_key;
use crate::status::SessionStatus;

/// The peers with sessions, and the rates that modems or operators have set.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    names: BTreeMap<PublicKey, String>,
    source: &'static str,
    /// Upper limit on a reported rate.
    maximum: Option<BitRate>,
    up: BTreeMap<SessionId, Peer>,
    /// The rate set for all sessions, and its expiry. A session that comes up later gets it too.
    told: Option<(BitRate, Instant)>,
    /// The latest DLEP report, and whether there is at most one peer.
    modem: Report,
    alone: bool,
}

#[derive(Debug)]
struct Peer {
    key: PublicKey,
    address: SocketAddr,
    since: Instant,
    reachable: bool,
    told_until: Option<Instant>,
    /// Whether the modem itself reported the rate (DLEP).
    by_modem: bool,
}

impl Peers {
    pub(crate) fn new(
        rate: &Rate,
        maximum: Option<BitRate>,
        names: BTreeMap<PublicKey, String>,
    ) -> Self {
        let source = source(rate);
        Self { names, source, maximum, ..Self::default() }
    }

    /// For a gateway with at most one peer.
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Applies new names and a new source of the rate.
    pub(crate) fn configure(
        &mut self,
        rate: &Rate,
        maximum: Option<BitRate>,
        names: BTreeMap<PublicKey, String>,
    ) {
        (self.source, self.maximum, self.names) = (source(rate), maximum, names);
    }

    /// Follows the events of a session.
    pub(crate) fn follow(&mut self, hop: &Hop, session: SessionId, event: &Event) {
        match (event, self.up.get_mut(&session)) {
            (Event::Up { peer, address }, _) => {
                let (key, address, since) = (*peer, *address, clock::now());
                let (reachable, told_until, by_modem) = (true, None, false);
                let peer = Peer { key, address, since, reachable, told_until, by_modem };
                self.up.insert(session, peer);
                self.tell_again(hop, session);
            }
            (Event::Unreachable, Some(peer)) => peer.reachable = false,
            (Event::Reachable, Some(peer)) => peer.reachable = true,
            (Event::Moved { address }, Some(peer)) => {
                peer.address = *address;
                self.pass_on(hop, session);
            }
            (Event::Down(_), _) => {
                self.up.remove(&session);
            }
            _ => {}
        }
    }

    /// Applies a DLEP report.
    pub(crate) fn hear(&mut self, hop: &Hop, news: Report) {
        self.modem = news;
        let sessions: Vec<SessionId> = self.sessions().collect();
        sessions.into_iter().for_each(|session| self.pass_on(hop, session));
    }

    /// Sets a session's rate from the DLEP report. When the report no longer has one, the fallback
    /// rate applies at once.
    fn pass_on(&mut self, hop: &Hop, session: SessionId) {
        let Some(peer) = self.up.get_mut(&session).filter(|_| self.source == "modem") else {
            return;
        };
        let now = clock::now();
        let until = self.modem.until.filter(|until| *until > now);
        let rate = self.modem.base.rate(peer.address.ip().to_canonical(), self.alone);
        let (rate, until) = match rate.zip(until) {
            Some((rate, until)) => (self.maximum.map_or(rate, |most| rate.min(most)), until),
            // Expires immediately.
            None if peer.by_modem => (hop.stats(session).unwrap_or_default().rate, now),
            None => return,
        };
        peer.by_modem = until > now;
        if hop.set_rate(session, rate, until.saturating_since(now)).is_ok() {
            peer.told_until = Some(until);
        }
    }

    /// Sets the remembered rate for a session that comes up before it expires.
    fn tell_again(&mut self, hop: &Hop, session: SessionId) {
        self.pass_on(hop, session);
        if self.modem.until.is_some() {
            return;
        }
        let now = clock::now();
        let Some((rate, until)) = self.told.filter(|(_, until)| *until > now) else { return };
        if hop.set_rate(session, rate, until.saturating_since(now)).is_ok()
            && let Some(peer) = self.up.get_mut(&session)
        {
            peer.told_until = Some(until);
        }
    }

    /// Sets the rate of one session, or of all. Returns a description of the effect.
    ///
    /// # Errors
    /// If the rate is not `"modem"`, or there is no such session.
    pub(crate) fn tell(
        &mut self,
        hop: Option<&Hop>,
        rate: BitRate,
        valid_for: Duration,
        name: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let Some(hop) = hop else {
            return Err("this gateway has no hop".to_owned());
        };
        if self.source != "modem" {
            let source = self.source;
            return Err(format!(
                "the rate here is {source}: setting it needs rate = \"modem\" in the configuration"
            ));
        }
        if self.modem.until.is_some() {
            return Err("the modem reports its rate by DLEP".to_owned());
        }
        let rate = self.maximum.map_or(rate, |most| rate.min(most));
        let until = clock::now() + valid_for;
        if name.is_none() {
            self.told = Some((rate, until));
        }
        let mut done = Vec::new();
        let names = &self.names;
        for (session, peer) in &mut self.up {
            let called = called(names, &peer.key);
            if name.is_some_and(|name| name != called) {
                continue;
            }
            match hop.set_rate(*session, rate, valid_for) {
                Ok(()) => {
                    (peer.told_until, peer.by_modem) = (Some(until), false);
                    done.push(format!(
                        "{called}: {rate} for {}",
                        units::format_duration(valid_for)
                    ));
                }
                Err(RateError::NoSession) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        match (done.is_empty(), name) {
            (true, Some(name)) => Err(format!("there is no session with {name:?}")),
            (true, None) => Ok(vec!["no session yet: it applies to future ones".to_owned()]),
            (false, _) => Ok(done),
        }
    }

    /// Name of a session's peer.
    pub(crate) fn name(&self, session: SessionId) -> Option<String> {
        self.up.get(&session).map(|peer| called(&self.names, &peer.key))
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.up.keys().copied()
    }

    pub(crate) fn status(&self, hop: &Hop) -> Vec<SessionStatus> {
        let now = clock::now();
        let row = |(session, peer): (&SessionId, &Peer)| {
            let stats = hop.stats(*session)?;
            let told = peer.told_until.filter(|until| *until > now);
            Some(SessionStatus {
                peer: called(&self.names, &peer.key),
                key: format_public_key(&peer.key),
                address: peer.address.to_string(),
                since_s: now.saturating_since(peer.since).as_secs_f64(),
                reachable: peer.reachable,
                rate_source: self.source.to_owned(),
                told_by_modem: told.is_some() && peer.by_modem,
                classes: hop.class_status(*session),
                channels: hop.channel_status(*session),
                told_for_s: told.map(|until| until.saturating_since(now).as_secs_f64()),
                ..figures(&stats)
            })
        };
        self.up.iter().filter_map(row).collect()
    }
}

fn source(rate: &Rate) -> &'static str {
    match rate {
        Rate::Fixed(_) => "fixed",
        Rate::Modem { .. } => "modem",
        _ => "auto",
    }
}

fn called(names: &BTreeMap<PublicKey, String>, key: &PublicKey) -> String {
    names.get(key).cloned().unwrap_or_else(|| format!("{key:?}"))
}

fn figures(stats: &Stats) -> SessionStatus {
    SessionStatus {
        rtt_ms: ms(stats.rtt),
        min_rtt_ms: stats.min_rtt.map(ms),
        rate_bit_s: stats.rate.bits_per_second(),
        rate_state: state(stats.rate_state).map(str::to_owned),
        capacity_bit_s: stats.capacity.map(BitRate::bits_per_second),
        queue_ms: ms(stats.queue),
        loss: stats.loss,
        packets_sent: stats.packets_sent,
        bytes_sent: stats.bytes_sent,
        packets_received: stats.packets_received,
        bytes_received: stats.bytes_received,
        packets_lost: stats.packets_lost,
        probes: stats.probes,
        recovered: stats.recovered,
        repairs_sent: stats.repairs_sent,
        repair_bytes: stats.repair_bytes,
        repairs_received: stats.repairs_received,
        acknowledgements: stats.acknowledgements,
        duplicates: stats.duplicates,
        forged: stats.forged,
        packet_bytes: stats.packet_size.get(),
        key_changes: stats.key_changes,
        streams: stats.streams as u64,
        held_to_send_bytes: stats.held_to_send.get(),
        held_to_read_bytes: stats.held_to_read.get(),
        ..SessionStatus::default()
    }
}

fn state(state: RateState) -> Option<&'static str> {
    match state {
        RateState::Blind => Some("blind"),
        RateState::Confirming => Some("confirming"),
        RateState::Resuming => Some("resuming"),
        RateState::Cruising => Some("cruising"),
        RateState::Draining => Some("draining"),
        _ => None,
    }
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
