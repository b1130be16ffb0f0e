//! The hubs of a terminal: does what [`HubSelection`] decides, chooses between UDP and TCP for
//! each, and follows their addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::{HubAddress, TerminalConfig};
use control::status::HubStatus;
use pep::hubs::{HubId, HubSelection, HubStep};
use pep::timing::Reminder;
use slacp::{Event, KeyPair, PublicKey, ResetReason, SessionId};
use tokio::task::JoinSet;
use units::Instant;

use crate::config::keys::format_public_key;
use crate::hop::Hop;
use crate::hop::knock::HubProbe;
use crate::hop::sockets::LocalEnd;
use crate::hop::tcp::ConnectionId;
use crate::process::clock;
use crate::roles::fallback::{FallbackTaskResult, TcpFallback};
use crate::roles::pair;
use crate::services::LearnKeys;
use crate::services::rotation::HubKeys;

/// Interval at which each link is checked for silence, where several have a fallback to TCP.
const LOOK: Duration = Duration::from_millis(500);
/// Interval at which the name of a hub that does not answer is resolved again.
const RESOLVE: Duration = Duration::from_secs(30);
/// The same while the name has no address.
const RESOLVE_SOON: Duration = Duration::from_secs(2);

/// Present key and addresses of each hub, in the order of the configuration.
pub(super) struct ResolvedHubs(Vec<(PublicKey, Vec<SocketAddr>)>);

impl ResolvedHubs {
    /// Resolves the names of all hubs. A name that cannot be resolved now, perhaps because the network is
    /// not up yet, has no address for the time being.
    pub(super) async fn of(config: &TerminalConfig, keys: &HubKeys) -> Self {
        let mut resolved = Vec::new();
        for hub in &config.hubs {
            let addresses = resolve(&hub.address, with_v6(config)).await.unwrap_or_else(|error| {
                tracing::warn!(
                    "cannot resolve the hub {:?}, trying again: {error}",
                    hub.address.as_str()
                );
                Vec::new()
            });
            resolved.push((keys.current(&hub.key), addresses));
        }
        Self(resolved)
    }

    /// Returns the present key and the addresses of one hub.
    pub(super) fn of_hub(&self, id: HubId) -> (PublicKey, Vec<SocketAddr>) {
        self.0[id.0].clone()
    }
}

fn with_v6(config: &TerminalConfig) -> bool {
    config.listen.map_or_else(os::has_ipv6, |local| local.is_ipv6())
}

/// Returns the pause before the name of a hub with these addresses is resolved again.
fn resolve_after(addresses: &[SocketAddr]) -> Duration {
    if addresses.is_empty() { RESOLVE_SOON } else { RESOLVE }
}

/// Returns the addresses of a hub that our socket can reach.
async fn resolve(hub: &HubAddress, v6: bool) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host(hub.as_str()).await?.collect();
    addresses.retain(|address| v6 || address.is_ipv4());
    if addresses.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(addresses) }
}

/// The hubs of a running terminal.
pub(super) struct KnownHubs {
    choice: HubSelection,
    hubs: Vec<KnownHub>,
    /// Present and next keys of the hubs, by the keys in the configuration.
    keys: HubKeys,
    hop: Hop,
    tasks: JoinSet<(HubId, HubTaskResult)>,
    v6: bool,
    link: slacp::Config,
    identity: KeyPair,
    /// When to look at the links next, if each has a fallback of its own.
    look_at: Option<Instant>,
}

struct KnownHub {
    name: String,
    /// The key in the configuration, which stays the same when the hub's key is replaced.
    configured: PublicKey,
    /// The key with which its last session was set up.
    key: PublicKey,
    address: HubAddress,
    addresses: Vec<SocketAddr>,
    session: Option<SessionId>,
    /// The session with the hub's former process, while that still carries connections.
    former: Option<SessionId>,
    /// The fallback of each link, if the hub accepts TCP. Key `hub_tcp` or `tcp`.
    fallbacks: Vec<TcpFallback>,
    /// Ask it for a session as soon as a new TCP connection to it exists.
    reconnects: bool,
    /// When the name is resolved again, while the hub is waited for; `None` while that is done.
    resolve_at: Option<Instant>,
    /// When the log says again that it does not answer.
    reminder: Reminder,
}

/// Result of a task for a hub.
pub(super) enum HubTaskResult {
    /// Result of the fallback of the link with this number.
    Fallback(u8, FallbackTaskResult),
    /// The hub's addresses, resolved again.
    Resolved(io::Result<Vec<SocketAddr>>),
}

impl KnownHubs {
    pub(super) fn new(
        now: Instant,
        config: &TerminalConfig,
        resolved: ResolvedHubs,
        keys: HubKeys,
        hop: Hop,
        mark: Option<u32>,
    ) -> Self {
        let ends = LocalEnd::all(&config.links);
        let mut hubs = Vec::new();
        for (hub, (key, addresses)) in config.hubs.iter().zip(resolved.0) {
            hop.set_hub(key, &addresses);
            hop.set_next_hub_key(key, keys.next(&hub.key));
            let ends = hub.tcp.iter().flat_map(|at| ends.iter().map(move |end| (at, end)));
            let fallbacks = ends.map(|(at, end)| {
                TcpFallback::new(now, at.clone(), hop.links().clone(), end.clone(), mark)
            });
            hubs.push(KnownHub {
                name: hub.name.clone(),
                configured: hub.key,
                key,
                address: hub.address.clone(),
                session: None,
                former: None,
                fallbacks: fallbacks.collect(),
                reconnects: false,
                resolve_at: Some(now + resolve_after(&addresses)),
                addresses,
                reminder: Reminder::default(),
            });
        }
        // With one link, the silence of the hub is that of the link.
        let look_at = hubs.iter().any(|hub| hub.fallbacks.len() > 1).then_some(now);
        Self {
            choice: HubSelection::new(now, config.ranking()),
            hubs,
            keys,
            hop,
            tasks: JoinSet::new(),
            v6: with_v6(config),
            link: config.link.clone(),
            identity: config.identity.clone(),
            look_at,
        }
    }

    /// The session for new connections.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.choice.current().and_then(|id| self.hubs[id.0].session)
    }

    /// Returns whether the hub in use answers.
    pub(super) fn answers(&self) -> bool {
        self.session().is_some() && !self.choice.is_silent()
    }

    /// Returns whether the hub in use answers and accepts new connections.
    pub(super) fn is_good(&self) -> bool {
        self.choice.is_good() && self.session().is_some()
    }

    /// Returns whether the hub in use is about to stop, and there is no other.
    pub(super) fn is_leaving(&self) -> bool {
        self.choice.is_leaving()
    }

    /// Waits for the end of a task, or for the next deadline (`None`). Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(HubId, HubTaskResult)> {
        let fallbacks = self.hubs.iter().flat_map(|hub| &hub.fallbacks);
        let carriers = fallbacks.filter_map(TcpFallback::poll_timeout).chain(self.look_at);
        let names = self.waited_for().filter_map(|id| self.hubs[id.0].resolve_at);
        let due = carriers.chain(names).chain(self.choice.poll_timeout()).min();
        tokio::select! {
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => Some(done),
                Err(error) => {
                    tracing::error!("a task of the hubs failed: {error}");
                    None
                }
            },
            () = clock::sleep_until(due) => None,
        }
    }

    /// Handles an event that [`Self::next`] has returned.
    pub(super) fn handle(&mut self, now: Instant, done: Option<(HubId, HubTaskResult)>) {
        match done {
            Some((id, HubTaskResult::Fallback(link, result))) => {
                let has_tried = matches!(result, FallbackTaskResult::Connected(_));
                let mut fallbacks = self.hubs[id.0].fallbacks.iter_mut();
                if let Some(fallback) = fallbacks.find(|fallback| fallback.link() == link) {
                    fallback.handle(now, result);
                }
                self.follow(now);
                // Only after `follow`, which diverts the hub's datagrams to the new connection.
                let hub = &mut self.hubs[id.0];
                if hub.reconnects && has_tried {
                    hub.reconnects = false;
                    self.hop.want_hub(hub.key, true);
                }
                return;
            }
            Some((id, HubTaskResult::Resolved(addresses))) => {
                self.handle_resolved(now, id, addresses);
            }
            None => {}
        }
        self.follow(now);
    }

    /// Follows a hub to the key with which its session was set up.
    fn follow_key(&mut self, id: HubId, key: PublicKey) {
        let hub = &mut self.hubs[id.0];
        if hub.key != key {
            tracing::info!("{} has the key {} now", hub.name, format_public_key(&key));
            hub.key = key;
        }
        if let Err(error) = self.keys.handle_session_key(&hub.configured, &key) {
            tracing::error!("the new key of {} is lost at a restart: {error}", hub.name);
        }
    }

    /// All keys of the hubs, with their names.
    pub(super) fn names(&self) -> BTreeMap<PublicKey, String> {
        let of = |hub: &KnownHub| {
            let name = hub.name.clone();
            self.keys.all(&hub.configured).map(move |key| (key, name.clone()))
        };
        self.hubs.iter().flat_map(of).collect()
    }

    fn handle_resolved(&mut self, now: Instant, id: HubId, found: io::Result<Vec<SocketAddr>>) {
        let hub = &mut self.hubs[id.0];
        match found {
            Ok(found) if found != hub.addresses => {
                let list = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                tracing::info!("{} is at {list} now", hub.name);
                hub.addresses.clone_from(&found);
                self.hop.set_hub(hub.key, &found);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!("{}: cannot resolve {}: {error}", hub.name, hub.address.as_str());
            }
        }
        hub.resolve_at = Some(now + resolve_after(&hub.addresses));
    }

    /// Handles the end of a TCP connection that carried datagrams.
    pub(super) fn handle_ended(&mut self, now: Instant, id: ConnectionId) {
        let fallbacks = self.hubs.iter_mut().flat_map(|hub| &mut hub.fallbacks);
        fallbacks.for_each(|fallback| fallback.handle_ended(now, id));
        self.follow(now);
    }

    /// Handles an event of a session.
    pub(super) fn handle_session(&mut self, now: Instant, session: SessionId, event: &Event) {
        if let Event::Up { peer, address } = event {
            return self.handle_up(now, session, peer, *address);
        }
        let Some(id) = self.hubs.iter().position(|hub| hub.session == Some(session)).map(HubId)
        else {
            return self.handle_former(now, session, event);
        };
        let name = &self.hubs[id.0].name;
        let used = self.choice.current() == Some(id);
        match event {
            Event::Unreachable => {
                tracing::warn!("{name} unreachable{}", if used { PASSING } else { "" });
                let rtt = self.hop.stats(session).map_or(Duration::ZERO, |stats| stats.rtt);
                self.choice.handle_silence(now, id, rtt);
            }
            Event::Reachable => {
                tracing::info!("{name} reachable again");
                self.choice.handle_answer(now, id);
            }
            Event::Leaving => {
                tracing::info!("{name} is about to stop, and takes no new connections");
                self.choice.handle_leaving(now, id);
            }
            Event::Succeeded => {
                tracing::info!("a new process of {name} takes over");
                self.handle_successor(now, id, session);
            }
            Event::Moved { address } => tracing::info!("{name} has moved to {address}"),
            Event::Down(why) => {
                let lost = self.hop.take_lost(session);
                pair::log_end(&format!("session with {} lost ({why})", self.called(id)), lost);
                self.hubs[id.0].session = None;
                self.choice.handle_down(now, id);
            }
            _ => {}
        }
        self.follow(now);
    }

    fn handle_up(
        &mut self,
        now: Instant,
        session: SessionId,
        peer: &PublicKey,
        address: SocketAddr,
    ) {
        let has = |hub: &KnownHub| self.keys.all(&hub.configured).any(|key| key == *peer);
        let Some(id) = self.hubs.iter().position(has).map(HubId) else { return };
        self.follow_key(id, *peer);
        tracing::info!("session up with {} at {address}", self.called(id));
        let hub = &mut self.hubs[id.0];
        match hub.session.replace(session) {
            // The endpoint would have ended it, unless another process has taken over.
            Some(before) => {
                let older = hub.former.replace(before);
                older.into_iter().for_each(|older| self.hop.close(now, older));
                self.choice.handle_next_process(now, id);
            }
            None => self.choice.handle_up(now, id),
        }
        self.follow(now);
    }

    /// Opens new TCP connections for sessions with the next process, where the session is over TCP: the
    /// present connections lead to the former process.
    fn handle_successor(&mut self, now: Instant, id: HubId, session: SessionId) {
        let hub = &mut self.hubs[id.0];
        let connects = |fallback: &mut TcpFallback| fallback.handle_successor(now, session);
        // Each of them must pin its connection, so the first does not end the loop.
        if hub.fallbacks.iter_mut().map(connects).fold(false, |any, one| any | one) {
            hub.reconnects = true;
            self.hop.want_hub(hub.key, false);
        }
    }

    /// Handles an event of a session with a former process.
    fn handle_former(&mut self, now: Instant, session: SessionId, event: &Event) {
        let is_its = |hub: &KnownHub| hub.former == Some(session);
        let Some(id) = self.hubs.iter().position(is_its).map(HubId) else { return };
        match event {
            Event::Unreachable => self.choice.handle_former(now, id, false),
            Event::Reachable => self.choice.handle_former(now, id, true),
            Event::Down(why) => {
                let name = self.called(id);
                let lost = self.hop.take_lost(session);
                let what = format!("the session with the former process of {name} is over ({why})");
                pair::log_end(&what, lost);
                self.hubs[id.0].former = None;
                self.choice.handle_former_down(id);
            }
            _ => {}
        }
        self.follow(now);
    }

    fn report_silence(&mut self, now: Instant) {
        for index in 0..self.hubs.len() {
            let silent = self.silent_for(now, HubId(index));
            if self.hubs[index].reminder.is_due(silent) {
                let name = self.called(HubId(index));
                let address = self.hubs[index].address.as_str();
                let lasted = silent.unwrap_or_default();
                let lasted = units::format_duration(Duration::from_secs(lasted.as_secs()));
                let why = self.why_silent();
                tracing::warn!("no answer from {name} at {address} for {lasted}: {why}");
            }
        }
    }

    /// Time for which a hub has been asked for a session in vain; `None` if it is not being asked.
    fn silent_for(&self, now: Instant, id: HubId) -> Option<Duration> {
        self.choice.asked_since(id).map(|since| now.saturating_since(since))
    }

    /// Lists the possible causes of a hub's silence. A hub that refuses a terminal is silent, too, so the
    /// terminal cannot know which it is.
    fn why_silent(&self) -> String {
        let key = format_public_key(&self.identity.public());
        format!(
            "it is down or UDP does not pass, `hub_key` is not its key, or it does not permit this \
             terminal's key {key}; the hub's log and status show whom it refuses"
        )
    }

    /// Number of streams of these sessions.
    fn streams(&self, sessions: impl IntoIterator<Item = SessionId>) -> usize {
        let stats = sessions.into_iter().filter_map(|session| self.hop.stats(session));
        stats.map(|stats| stats.streams).sum()
    }

    /// Closes sessions that were kept for connections that have all ended, and reports hubs that do not
    /// answer.
    pub(super) fn housekeep(&mut self, now: Instant) {
        self.report_silence(now);
        for id in (0..self.hubs.len()).map(HubId) {
            let former = self.hubs[id.0].former;
            if former.is_some() && self.streams(former) == 0 {
                self.choice.handle_former_idle(now, id);
            }
        }
        // A hub that is left keeps its session until its connections have ended.
        for id in self.choice.retiring().collect::<Vec<_>>() {
            let hub = &self.hubs[id.0];
            if self.streams(hub.session.into_iter().chain(hub.former)) == 0 {
                self.choice.handle_idle(now, id);
            }
        }
        self.follow(now);
    }

    /// Takes the steps that [`HubSelection`] has decided.
    fn follow(&mut self, now: Instant) {
        while let Some(step) = self.choice.poll_step(now) {
            match step {
                HubStep::Want(id, wanted) => self.want(id, wanted),
                HubStep::Ask(id) => {
                    let session = self.hubs[id.0].session;
                    session.into_iter().for_each(|session| self.hop.probe_peer(now, session));
                }
                HubStep::Use(id) => self.log_use(id),
                HubStep::Close(id) => self.close(now, id),
                HubStep::CloseFormer(id) => self.close_former(now, id),
            }
        }
        self.follow_carriers(now);
        self.follow_names(now);
    }

    /// The name of a hub within a sentence: an only hub needs none.
    fn called(&self, id: HubId) -> &str {
        let hub = &self.hubs[id.0];
        if self.hubs.len() == 1 { "the hub" } else { &hub.name }
    }

    fn want(&self, id: HubId, wanted: bool) {
        let hub = &self.hubs[id.0];
        // An only hub is named once, at the start.
        if wanted && hub.session.is_none() && self.hubs.len() > 1 {
            tracing::info!("asking {}", hub.name);
        }
        self.hop.want_hub(hub.key, wanted);
    }

    fn log_use(&self, id: HubId) {
        let hub = &self.hubs[id.0];
        if self.hubs.len() > 1 {
            tracing::info!("using {}", hub.name);
        }
    }

    fn close(&mut self, now: Instant, id: HubId) {
        let hub = &mut self.hubs[id.0];
        let sessions: Vec<_> = hub.session.take().into_iter().chain(hub.former.take()).collect();
        if sessions.is_empty() {
            return;
        }
        let streams = self.streams(sessions.iter().copied());
        let name = &self.hubs[id.0].name;
        match pair::resets(streams) {
            None => tracing::info!("leaving {name}"),
            Some(resets) => tracing::warn!("leaving {name}: {resets}"),
        }
        sessions.into_iter().for_each(|session| self.hop.close(now, session));
    }

    fn close_former(&mut self, now: Instant, id: HubId) {
        let Some(session) = self.hubs[id.0].former.take() else { return };
        let streams = self.streams([session]);
        let name = self.called(id);
        match pair::resets(streams) {
            None => tracing::info!("the former process of {name} carries nothing any more"),
            Some(resets) => {
                tracing::warn!("the former process of {name} does not answer: {resets}");
            }
        }
        self.hop.close(now, session);
    }

    /// The hubs that are asked for a session or an answer and do not respond.
    fn waited_for(&self) -> impl Iterator<Item = HubId> {
        (0..self.hubs.len()).map(HubId).filter(|id| self.choice.is_waited_for(*id))
    }

    /// Updates the fallbacks of each link by whether the hub is waited for there, and starts their tasks.
    fn follow_carriers(&mut self, now: Instant) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + LOOK);
        }
        for (index, hub) in self.hubs.iter_mut().enumerate() {
            let is_waited_for = self.choice.is_waited_for(HubId(index));
            // A hub that answers may still be silent on single links.
            let silent = if is_waited_for { u8::MAX } else { silent_links(&self.hop, hub) };
            let link = &self.link;
            let identity = &self.identity;
            let addresses = &hub.addresses;
            let probe =
                || HubProbe::new(link.clone(), identity.clone(), hub.key, addresses.clone());
            for fallback in &mut hub.fallbacks {
                let number = fallback.link();
                match silent & 1 << number != 0 {
                    true => fallback.handle_silence(now),
                    false => fallback.handle_answer(now),
                }
                while let Some(task) = fallback.step(now, &hub.name, addresses, probe) {
                    self.tasks.spawn(async move {
                        (HubId(index), HubTaskResult::Fallback(number, task.run().await))
                    });
                }
            }
        }
    }

    /// Resolves the names of hubs that are waited for, from time to time.
    fn follow_names(&mut self, now: Instant) {
        for id in self.waited_for().collect::<Vec<_>>() {
            let hub = &mut self.hubs[id.0];
            // A hub that does not answer may have moved to another address.
            if hub.resolve_at.take_if(|at| *at <= now).is_some() {
                let address = hub.address.clone();
                let v6 = self.v6;
                self.tasks.spawn(async move {
                    (id, HubTaskResult::Resolved(resolve(&address, v6).await))
                });
            }
        }
    }

    /// The hubs as operators see them, if there are several or the only one does not answer.
    pub(super) fn status(&self, now: Instant) -> Vec<HubStatus> {
        if self.hubs.len() < 2 && self.choice.asked_since(HubId(0)).is_none() {
            return Vec::new();
        }
        let row = |(index, hub): (usize, &KnownHub)| {
            let silent = self.silent_for(now, HubId(index));
            HubStatus {
                name: hub.name.clone(),
                address: hub.address.as_str().to_owned(),
                state: self.choice.state(HubId(index)).to_owned(),
                silent_s: silent.map(|silent| silent.as_secs_f64()),
                why: silent.map(|_| self.why_silent()),
            }
        };
        self.hubs.iter().enumerate().map(row).collect()
    }
}

impl LearnKeys for KnownHubs {
    fn learn(
        &mut self,
        now: Instant,
        session: SessionId,
        key: PublicKey,
    ) -> Result<(), ResetReason> {
        let found = self.hubs.iter().find(|hub| hub.session == Some(session));
        let hub = found.ok_or(ResetReason::Prohibited)?;
        let known = self.keys.next(&hub.configured);
        if let Err(error) = self.keys.learn(now, &hub.configured, key) {
            // The end of the stream would tell the hub that the key is stored, so it gets a reset.
            tracing::warn!("the next key of {} is not kept: {error}", hub.name);
            return Err(ResetReason::Prohibited);
        }
        let next = self.keys.next(&hub.configured);
        if next != known {
            let said =
                next.as_ref().map_or_else(|| "the present one".to_owned(), format_public_key);
            tracing::info!("the next key of {} is {said}", hub.name);
        }
        self.hop.set_next_hub_key(hub.key, next);
        Ok(())
    }
}

/// The links on which a hub is silent although it answers on others, as bits. A session with one link has
/// none.
fn silent_links(hop: &Hop, hub: &KnownHub) -> u8 {
    let session = hub.session.filter(|_| hub.fallbacks.len() > 1);
    let links = session.map_or_else(Vec::new, |session| hop.silent_links(session));
    links.into_iter().fold(0, |bits, link| bits | 1 << link)
}

/// Consequence for the log if the hub in use falls silent.
const PASSING: &str = ": new connections pass unaccelerated";
