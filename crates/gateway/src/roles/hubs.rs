//! The hubs of a terminal: does what [`pep::hubs::Hubs`] decides, chooses between UDP and TCP for
//! each, and follows their addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::{HubAddress, TcpAddress, TerminalConfig};
use pep::hubs::{HubId, HubSelection, HubStep};
use pep::reminder::Reminder;
use slacp::{Event, KeyPair, PublicKey, ResetReason, SessionId};
use tokio::task::JoinSet;
use units::Instant;

use crate::clock;
use crate::config::keys::format_public_key;
use crate::figures::status::HubStatus;
use crate::hop::Hop;
use crate::hop::knock::HubProbe;
use crate::hop::sockets::LocalEnd;
use crate::hop::tcp::ConnectionId;
use crate::roles::fallback::{self, TcpFallback};
use crate::roles::pair;
use crate::services::LearnKeys;
use crate::services::rotation::HubKeys;

/// How often it is looked whether each link works, where UDP may be blocked on it.
const LOOK: Duration = Duration::from_millis(500);
/// How long a hub that is waited for keeps its addresses before its name is resolved again.
const RESOLVE: Duration = Duration::from_secs(30);
/// How long one without any address does.
const RESOLVE_SOON: Duration = Duration::from_secs(2);

/// The hubs of a terminal, with the addresses of their names.
pub(super) struct Resolved(Vec<(PublicKey, Vec<SocketAddr>)>);

impl Resolved {
    /// Resolves the names of all hubs. One that cannot be resolved now, perhaps because the network is
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

    /// The addresses of one.
    pub(super) fn of_hub(&self, id: HubId) -> (PublicKey, Vec<SocketAddr>) {
        self.0[id.0].clone()
    }
}

fn with_v6(config: &TerminalConfig) -> bool {
    config.listen.map_or_else(os::has_ipv6, |local| local.is_ipv6())
}

/// When to resolve the name of a hub again that has these addresses.
fn resolve_after(addresses: &[SocketAddr]) -> Duration {
    if addresses.is_empty() { RESOLVE_SOON } else { RESOLVE }
}

/// The addresses of a hub that our socket can reach.
async fn resolve(hub: &HubAddress, v6: bool) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host(hub.as_str()).await?.collect();
    addresses.retain(|address| v6 || address.is_ipv4());
    if addresses.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(addresses) }
}

/// The hubs of a running terminal.
pub(super) struct KnownHubs {
    choice: HubSelection,
    hubs: Vec<KnownHub>,
    /// What has become of the keys in the configuration.
    keys: HubKeys,
    hop: Hop,
    tasks: JoinSet<(HubId, Done)>,
    v6: bool,
    link: slacp::Config,
    identity: KeyPair,
    /// When to look at the links next, if each has a fallback of its own.
    look_at: Option<Instant>,
}

struct KnownHub {
    name: String,
    /// The key in the configuration, and the present one.
    configured: PublicKey,
    key: PublicKey,
    address: HubAddress,
    addresses: Vec<SocketAddr>,
    session: Option<SessionId>,
    /// The session with the process that the hub was before, for what that still carries.
    former: Option<SessionId>,
    /// Key `hub_tcp` or `tcp`: for each link.
    fallbacks: Vec<TcpFallback>,
    /// Whether it is to be asked for a session when there is a new connection to it.
    reconnects: bool,
    /// When the name is resolved again, while the hub is waited for; `None` while that is done.
    resolve_at: Option<Instant>,
    /// When the log says again that it does not answer.
    reminder: Reminder,
}

/// What a terminal's hubs wait for.
pub(super) enum Done {
    /// Of that link.
    Carrier(u8, fallback::Done),
    Resolved(io::Result<Vec<SocketAddr>>),
}

impl KnownHubs {
    pub(super) fn new(
        now: Instant,
        config: &TerminalConfig,
        (resolved, keys): (Resolved, HubKeys),
        hop: Hop,
        mark: Option<u32>,
    ) -> Self {
        let ends = LocalEnd::all(&config.links);
        let hub = |(hub, (key, addresses)): (&config::KnownHub, (_, Vec<SocketAddr>))| {
            let ends = hub.tcp.iter().flat_map(|at| ends.iter().map(move |end| (at, end)));
            let fallback = |(at, end): (&TcpAddress, &LocalEnd)| {
                TcpFallback::new(now, at.clone(), hop.links().clone(), (end.clone(), mark))
            };
            let fallbacks = ends.map(fallback).collect();
            hop.set_hub(key, &addresses);
            hop.set_next_hub_key(key, keys.next(&hub.key));
            let (name, address) = (hub.name.clone(), hub.address.clone());
            let resolve_at = Some(now + resolve_after(&addresses));
            let (configured, session, former) = (hub.key, None, None);
            KnownHub {
                name,
                configured,
                key,
                address,
                addresses,
                session,
                former,
                fallbacks,
                reconnects: false,
                resolve_at,
                reminder: Reminder::default(),
            }
        };
        let hubs: Vec<KnownHub> = config.hubs.iter().zip(resolved.0).map(hub).collect();
        let look_at = hubs.iter().any(|hub| hub.fallbacks.len() > 1).then_some(now);
        let choice = HubSelection::new(now, config.ranking());
        let (v6, tasks) = (with_v6(config), JoinSet::new());
        let (link, identity) = (config.link.clone(), config.identity.clone());
        Self { choice, hubs, keys, hop, tasks, v6, link, identity, look_at }
    }

    /// The session for new connections.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.choice.current().and_then(|id| self.hubs[id.0].session)
    }

    /// Whether the hub in use answers.
    pub(super) fn answers(&self) -> bool {
        self.session().is_some() && !self.choice.is_silent()
    }

    /// Whether the hub in use answers and takes new connections.
    pub(super) fn is_good(&self) -> bool {
        self.choice.is_good() && self.session().is_some()
    }

    /// Whether the hub in use is about to stop, and there is no other.
    pub(super) fn is_leaving(&self) -> bool {
        self.choice.is_leaving()
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(HubId, Done)> {
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

    /// Handles what [`Self::next`] has returned.
    pub(super) fn handle(&mut self, now: Instant, done: Option<(HubId, Done)>) {
        match done {
            Some((id, Done::Carrier(link, done))) => {
                let has_tried = matches!(done, fallback::Done::Connected(_));
                let mut fallbacks = self.hubs[id.0].fallbacks.iter_mut();
                if let Some(fallback) = fallbacks.find(|fallback| fallback.link() == link) {
                    fallback.handle(now, done);
                }
                self.follow(now);
                let hub = &mut self.hubs[id.0];
                if hub.reconnects && has_tried {
                    hub.reconnects = false;
                    self.hop.want_hub(hub.key, true);
                }
                return;
            }
            Some((id, Done::Resolved(addresses))) => self.handle_resolved(now, id, addresses),
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

    /// A connection that carried datagrams has ended.
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
        let (name, used) = (&self.hubs[id.0].name, self.choice.current() == Some(id));
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

    /// Where the session is over TCP, the next process is asked over a connection to it: the present one
    /// is the former process's.
    fn handle_successor(&mut self, now: Instant, id: HubId, session: SessionId) {
        let hub = &mut self.hubs[id.0];
        let connects = |fallback: &mut TcpFallback| fallback.handle_successor(now, session);
        if hub.fallbacks.iter_mut().map(connects).fold(false, |any, it| any | it) {
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
                let (name, lost) = (self.called(id), self.hop.take_lost(session));
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
                let (hub, lasted) = (&self.hubs[index], silent.unwrap_or_default());
                let (name, address) = (self.called(HubId(index)), hub.address.as_str());
                let lasted = units::format_duration(Duration::from_secs(lasted.as_secs()));
                let why = self.why_silent();
                tracing::warn!("no answer from {name} at {address} for {lasted}: {why}");
            }
        }
    }

    /// How long a hub has been asked for a session in vain.
    fn silent_for(&self, now: Instant, id: HubId) -> Option<Duration> {
        self.choice.asked_since(id).map(|since| now.saturating_since(since))
    }

    /// A hub that refuses a terminal is silent, so the terminal cannot know which of these it is.
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
        for id in self.choice.retiring().collect::<Vec<_>>() {
            let hub = &self.hubs[id.0];
            if self.streams(hub.session.into_iter().chain(hub.former)) == 0 {
                self.choice.handle_idle(now, id);
            }
        }
        self.follow(now);
    }

    /// Does what has been decided.
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

    /// The name of a hub within a sentence.
    fn called(&self, id: HubId) -> &str {
        let hub = &self.hubs[id.0];
        if self.hubs.len() == 1 { "the hub" } else { &hub.name }
    }

    fn want(&self, id: HubId, wanted: bool) {
        let hub = &self.hubs[id.0];
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
        let (streams, name) = (self.streams(sessions.iter().copied()), &self.hubs[id.0].name);
        match pair::resets(streams) {
            None => tracing::info!("leaving {name}"),
            Some(resets) => tracing::warn!("leaving {name}: {resets}"),
        }
        sessions.into_iter().for_each(|session| self.hop.close(now, session));
    }

    fn close_former(&mut self, now: Instant, id: HubId) {
        let Some(session) = self.hubs[id.0].former.take() else { return };
        let (streams, name) = (self.streams([session]), self.called(id));
        match pair::resets(streams) {
            None => tracing::info!("the former process of {name} carries nothing any more"),
            Some(resets) => {
                tracing::warn!("the former process of {name} does not answer: {resets}");
            }
        }
        self.hop.close(now, session);
    }

    /// The hubs that are to answer and do not.
    fn waited_for(&self) -> impl Iterator<Item = HubId> {
        (0..self.hubs.len()).map(HubId).filter(|id| self.choice.is_waited_for(*id))
    }

    /// Tells the carriers which hubs are waited for.
    fn follow_carriers(&mut self, now: Instant) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + LOOK);
        }
        for (index, hub) in self.hubs.iter_mut().enumerate() {
            let is_waited_for = self.choice.is_waited_for(HubId(index));
            let silent = if is_waited_for { u8::MAX } else { silent_links(&self.hop, hub) };
            let (link, identity, key) = (&self.link, &self.identity, hub.key);
            let knock =
                || HubProbe::new(link.clone(), identity.clone(), key, hub.addresses.clone());
            for fallback in &mut hub.fallbacks {
                let number = fallback.link();
                match silent & 1 << number != 0 {
                    true => fallback.handle_silence(now),
                    false => fallback.handle_answer(now),
                }
                while let Some(task) = fallback.step(now, &hub.name, &hub.addresses, knock) {
                    let done = async move { Done::Carrier(number, task.run().await) };
                    self.tasks.spawn(async move { (HubId(index), done.await) });
                }
            }
        }
    }

    /// Resolves the names of hubs that are waited for, from time to time.
    fn follow_names(&mut self, now: Instant) {
        for id in self.waited_for().collect::<Vec<_>>() {
            let hub = &mut self.hubs[id.0];
            if hub.resolve_at.take_if(|at| *at <= now).is_some() {
                let (address, v6) = (hub.address.clone(), self.v6);
                self.tasks.spawn(async move { (id, Done::Resolved(resolve(&address, v6).await)) });
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
        let its = self.hubs.iter().find(|hub| hub.session == Some(session));
        let hub = its.ok_or(ResetReason::Prohibited)?;
        let known = self.keys.next(&hub.configured);
        if let Err(error) = self.keys.learn(now, &hub.configured, key) {
            tracing::warn!("the next key of {} is not kept: {error}", hub.name);
            return Err(ResetReason::Prohibited);
        }
        let next = self.keys.next(&hub.configured);
        if next != known {
            let said = next.as_ref().map_or("the present one".to_owned(), format_public_key);
            tracing::info!("the next key of {} is {said}", hub.name);
        }
        self.hop.set_next_hub_key(hub.key, next);
        Ok(())
    }
}

/// The links on which a hub that answers does not, as bits. A session with one link is not asked.
fn silent_links(hop: &Hop, hub: &KnownHub) -> u8 {
    let session = hub.session.filter(|_| hub.fallbacks.len() > 1);
    let links = session.map_or_else(Vec::new, |session| hop.silent_links(session));
    links.into_iter().fold(0, |bits, link| bits | 1 << link)
}

/// What follows if the hub in use falls silent.
const PASSING: &str = ": new connections pass unaccelerated";
