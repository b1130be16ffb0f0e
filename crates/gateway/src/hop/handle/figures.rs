//! Queries of the endpoint: counters, shares, measurements of paths.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

use control::status::{ChannelStatus, ClassStatus, LinkStatus, WorkerStatus};
use pep::accounting::{TrafficUsage, UsageTally};
use pep::rates::forecast::{ForecastCounts, MessageForecast};
use pep::traffic::{ClassDefinition, DEFAULT_CLASS};
use slacp::{
    ChannelId, ClassId, LinkStats, LogEntry, PathKey, PathMemory, PublicKey, SessionId,
    SessionShare, SessionStats, Stranger, StreamId, StreamStats, TerminalContact,
};
use units::Instant;

use super::super::compression::CompressionTotals;
use super::{CapacityDemand, Hop, PartState};

impl Hop {
    /// Returns the demand of all sessions together, for a modem with capacity on demand.
    pub(crate) fn demand(&self, now: Instant) -> CapacityDemand {
        self.demand_after(now, 0)
    }

    pub(super) fn demand_after(&self, now: Instant, sent: u64) -> CapacityDemand {
        let parts = self.each().map(|mut state| state.demand(now, sent));
        parts.reduce(CapacityDemand::plus).unwrap_or_default()
    }

    /// Returns the numbers of forecasts that came true and that failed; `None` without forecasts.
    pub(crate) fn forecasts(&self) -> Option<ForecastCounts> {
        let forecast =
            |state: MutexGuard<'_, PartState>| state.forecast.as_ref().map(MessageForecast::counts);
        let counts = self.each().filter_map(forecast);
        counts.reduce(ForecastCounts::plus)
    }

    /// Returns the link time of all that the sessions have sent so far, at the portion of the rate that
    /// they use.
    pub(crate) fn spent(&self) -> Duration {
        self.each().map(|state| state.endpoint.link_use().spent).sum()
    }

    /// Bytes held by all sessions.
    pub(crate) fn held(&self) -> u64 {
        self.each().map(|state| state.endpoint.held().get()).sum()
    }

    /// Returns the status of a hub's worker threads; empty with a single thread.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        if self.parts() < 2 {
            return Vec::new();
        }
        let row = |state: MutexGuard<'_, PartState>| WorkerStatus {
            sessions: state.endpoint.footprint().sessions as u64,
            held_bytes: state.endpoint.held().get(),
        };
        self.each().map(row).collect()
    }

    /// The names (parameter 5) of all sessions.
    pub(crate) fn names(&self) -> Vec<u64> {
        self.each().flat_map(|state| state.endpoint.names()).collect()
    }

    /// Returns the succession token of each peer.
    pub(crate) fn succession_tokens(&self) -> BTreeMap<PublicKey, u64> {
        self.each().flat_map(|state| state.endpoint.succession_tokens()).collect()
    }

    /// Returns the last UDP addresses of the sessions' peers. Peers over TCP are left out: nothing can be
    /// sent to them once their connection has ended.
    pub(crate) fn contacts(&self) -> Vec<TerminalContact> {
        let mut contacts: Vec<TerminalContact> =
            self.each().flat_map(|state| state.endpoint.contacts()).collect();
        contacts.retain(|contact| !self.links().carries(0, contact.address, None));
        contacts
    }

    /// Starts counting the sessions' traffic, for [`Self::take_usage`].
    pub(crate) fn keep_tally(&self) {
        self.each().for_each(|mut state| _ = state.tally.get_or_insert_default());
    }

    /// Takes the traffic since the last call: peer, class, volume.
    pub(crate) fn take_usage(&self) -> Vec<(PublicKey, String, TrafficUsage)> {
        let take =
            |mut state: MutexGuard<'_, PartState>| state.tally.as_mut().map(UsageTally::take);
        let taken = self.each().filter_map(take).flatten().collect::<Vec<_>>();
        let classes = self.0.classes.read();
        let names: BTreeMap<ClassId, &str> =
            classes.all().map(|(class, id)| (id, class.name.as_str())).collect();
        let name = |id| names.get(&id).copied().unwrap_or(DEFAULT_CLASS).to_owned();
        taken.into_iter().map(|(peer, class, usage)| (peer, name(class), usage)).collect()
    }

    /// Returns the traffic of each class in a session.
    pub(crate) fn class_status(&self, session: SessionId) -> Vec<ClassStatus> {
        let state = self.lock(session);
        let row = |(class, id): (&ClassDefinition, ClassId)| {
            let stats = state.endpoint.class_stats(session, id)?;
            let rates = state.endpoint.class_rates(session, id)?;
            Some(ClassStatus::new(&class.name, class.share.weight, &rates, &stats))
        };
        self.0.classes.read().all().filter_map(row).collect()
    }

    /// Returns the traffic on a session's packet channels: those of our classes, and others that were
    /// used.
    pub(crate) fn channel_status(&self, session: SessionId) -> Vec<ChannelStatus> {
        let state = self.lock(session);
        let classes = self.0.classes.read();
        let row = |channel: ChannelId| {
            let stats = state.endpoint.channel_stats(session, channel)?;
            let class = classes.on_channel(channel).map(str::to_owned);
            let used = class.is_some() || stats.received > 0 || stats.offered > 0;
            used.then(|| ChannelStatus::new(channel.number(), class, &stats))
        };
        (0..).map_while(ChannelId::new).filter_map(row).collect()
    }

    /// Returns the status of the links of a multi-link session, with their configured names. Empty for
    /// other sessions.
    pub(crate) fn link_status(&self, session: SessionId, names: &[String]) -> Vec<LinkStatus> {
        let links = self.lock(session).endpoint.link_stats(session).unwrap_or_default();
        let row = |link: LinkStats| {
            let over_tcp = self.links().carries(link.link, link.address, Some(session));
            Some(LinkStatus::new(names.get(usize::from(link.link))?, &link, over_tcp))
        };
        links.into_iter().filter_map(row).collect()
    }

    /// Returns the numbers of the links on which nothing of a session arrives.
    pub(crate) fn silent_links(&self, session: SessionId) -> Vec<u8> {
        self.lock(session).endpoint.silent_links(session)
    }

    /// Returns a session's share of the rate: weight, guarantee, maximum.
    pub(crate) fn share(&self, session: SessionId) -> Option<SessionShare> {
        self.lock(session).endpoint.share(session)
    }

    /// Returns the measurements of paths, for the process after this one.
    pub(crate) fn memories(&self, now: Instant) -> Vec<(PathKey, PathMemory)> {
        let mut newest: BTreeMap<PathKey, PathMemory> = BTreeMap::new();
        for (path, memory) in self.each().flat_map(|state| state.endpoint.memories(now)) {
            // All parts got the stored measurements; the part with the terminal has a newer one.
            let known = newest.entry(path).or_insert(memory);
            if memory.age < known.age {
                *known = memory;
            }
        }
        newest.into_iter().collect()
    }

    /// Returns the counters of a session; `None` once it has ended.
    pub(crate) fn stats(&self, session: SessionId) -> Option<SessionStats> {
        self.lock(session).endpoint.stats(session)
    }

    /// Takes the number of streams that were open when a session ended; 0 if called again.
    pub(crate) fn take_lost(&self, session: SessionId) -> usize {
        self.lock(session).lost.remove(&session).unwrap_or_default()
    }

    /// Sets a session's event log to a capacity of `noted`, and takes up to `taken` of its entries in
    /// order of time.
    pub(crate) fn events(&self, session: SessionId, noted: usize, taken: usize) -> Vec<LogEntry> {
        let mut state = self.lock(session);
        // Fails only for a session that has ended.
        let _ = state.endpoint.set_event_log(session, noted);
        let events = std::iter::from_fn(|| state.endpoint.poll_session_log(session));
        events.take(taken).collect()
    }

    /// Returns the counters of a stream; `None` once it is gone.
    pub(crate) fn stream_stats(&self, session: SessionId, stream: StreamId) -> Option<StreamStats> {
        self.lock(session).endpoint.stream_stats(session, stream)
    }

    /// Returns the totals of all compressed streams.
    pub(crate) fn compressed(&self) -> CompressionTotals {
        let totals = self.each().map(|state| state.compression.totals());
        totals.reduce(CompressionTotals::plus).unwrap_or_default()
    }

    /// Returns the machines that a hub has recently left without an answer.
    pub(crate) fn strangers(&self, now: Instant) -> Vec<Stranger> {
        self.each().flat_map(|state| state.endpoint.strangers(now)).collect()
    }

    /// Number of datagrams that belonged to no session.
    pub(crate) fn ignored(&self) -> u64 {
        self.each().map(|state| state.endpoint.ignored()).sum()
    }
}
