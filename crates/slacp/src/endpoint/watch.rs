//! Statistics and queries of an endpoint.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use units::{ByteCount, Instant};

use super::{Endpoint, EndpointRole};
use crate::session::Session;
use crate::wire::open::OpeningFeatures;
use crate::{
    ChannelId, ChannelStats, ClassId, ClassRates, ClassStats, EndpointFootprint, HandshakeEffort,
    LinkStats, PathKey, PathMemory, SessionId, SessionShare, SessionStats, Stranger, StreamId,
    StreamStats,
};

impl Endpoint {
    /// The current size of the endpoint's state.
    pub fn footprint(&self) -> EndpointFootprint {
        let handshakes = match &self.role {
            EndpointRole::Hub(hub) => hub.handshakes(),
            EndpointRole::Terminal(terminal) => terminal.handshakes(),
        };
        let waiting = self.core.outbox.len() + self.core.answers.len();
        EndpointFootprint { sessions: self.core.sessions.len(), handshakes, waiting }
    }

    /// Memory of all sessions together ([`SessionStats::held`]). Costs less than asking each for its
    /// statistics.
    pub fn held(&self) -> ByteCount {
        let usable = self.core.sessions.iter().filter(|(_, session)| session.is_usable());
        ByteCount::new(usable.map(|(_, session)| session.held()).sum())
    }

    /// The cost of handshakes for a hub so far; zero for a terminal.
    pub fn effort(&self) -> HandshakeEffort {
        match &self.role {
            EndpointRole::Hub(hub) => hub.effort(),
            EndpointRole::Terminal(_) => HandshakeEffort::default(),
        }
    }

    /// The machines that have asked a hub for sessions within the last hour and were not served, at
    /// most 64, in no particular order; empty for a terminal.
    pub fn strangers(&self, now: Instant) -> Vec<Stranger> {
        match &self.role {
            EndpointRole::Hub(hub) => hub.strangers(now).cloned().collect(),
            EndpointRole::Terminal(_) => Vec::new(),
        }
    }

    /// Counters of a session's packet channel.
    pub fn channel_stats(&self, session: SessionId, channel: ChannelId) -> Option<ChannelStats> {
        self.core.sessions.get(session)?.channel_stats(channel)
    }

    /// Statistics of each link of a session, of which there is at least one.
    pub fn link_stats(&self, session: SessionId) -> Option<Vec<LinkStats>> {
        Some(self.core.sessions.get(session)?.link_stats())
    }

    /// The links, as indices of [`Config::links`](crate::Config::links), on which no packets of a
    /// session arrive, as far as is known. Includes those that a terminal has not been able to add
    /// yet.
    pub fn silent_links(&self, session: SessionId) -> Vec<u8> {
        let links = self.core.sessions.get(session).map(Session::link_stats).unwrap_or_default();
        let silent = links.into_iter().filter(|link| !link.works).map(|link| link.link);
        let missing = match &self.role {
            EndpointRole::Terminal(terminal) => terminal.missing_links(session),
            EndpointRole::Hub(_) => Vec::new(),
        };
        silent.chain(missing).collect()
    }

    /// A session's share of the link that it shares with others.
    pub fn share(&self, session: SessionId) -> Option<SessionShare> {
        self.core.sessions.share(session)
    }

    /// Counters of a session's class.
    pub fn class_stats(&self, session: SessionId, class: ClassId) -> Option<ClassStats> {
        self.core.sessions.get(session)?.class_stats(class)
    }

    /// The rates of a class in a session.
    pub fn class_rates(&self, session: SessionId, class: ClassId) -> Option<ClassRates> {
        self.core.sessions.get(session)?.class_rates(class)
    }

    /// Bytes of all sessions that wait to be sent for the first time: of packet channels, and of
    /// streams as far as their readers' credit allows. Headers are not counted.
    pub fn waiting(&self) -> ByteCount {
        let sessions = self.core.sessions.iter();
        ByteCount::new(sessions.map(|(_, session)| session.waiting_bytes()).sum())
    }

    /// Statistics of a stream; `None` once it is over.
    pub fn stream_stats(&self, session: SessionId, stream: StreamId) -> Option<StreamStats> {
        self.core.session(session)?.shared.streams.stats(stream)
    }

    /// Statistics of a session; `None` once it is over.
    pub fn stats(&self, session: SessionId) -> Option<SessionStats> {
        self.core.session(session).map(Session::stats)
    }

    /// The measurements of a session's path that a later session can start from; `None` if its rate
    /// is not measured ([`crate::Rate::Auto`]), or not yet.
    pub fn path_memory(&self, now: Instant, session: SessionId) -> Option<PathMemory> {
        self.core.sessions.get(session)?.path_memory(now)
    }

    /// The measurements of all known paths, including those of current sessions, sorted by key. The
    /// owner can store them and pass them to [`Self::remember`] after a restart, with the ages
    /// updated.
    pub fn memories(&self, now: Instant) -> Vec<(PathKey, PathMemory)> {
        let mut all: BTreeMap<PathKey, PathMemory> = self.core.memories.useful(now).collect();
        for (_, session) in self.core.sessions.iter() {
            all.extend(session.path_memory(now).map(|memory| (session.path_key(), memory)));
        }
        all.into_iter().collect()
    }

    /// Size of the longest packet of a packet channel, in bytes, that fits into one packet of the
    /// hop; longer ones may be split. Until a path MTU probe has failed, the configured MTU is
    /// assumed, which usually passes. `None` if there is no such session.
    pub fn longest_whole_packet(&self, session: SessionId) -> Option<usize> {
        Some(self.core.session(session)?.longest_whole_packet())
    }

    /// Returns whether a session's peer receives packets on a channel.
    pub fn peer_receives(&self, session: SessionId, channel: ChannelId) -> bool {
        self.core.session(session).is_some_and(|session| session.peer_receives(channel))
    }

    /// Returns the source address that a terminal's hub expects in all packets on channels, and to which it
    /// sends packets for this terminal. `None` if the hub takes packets with the addresses of the terminal's
    /// networks ([`Config::takes_address`](crate::Config::takes_address)).
    pub fn packet_address(&self, session: SessionId) -> Option<Ipv4Addr> {
        self.core.session(session).and_then(Session::packet_address)
    }

    /// Returns whether both sides' owners send a stream's data in segments, some of them compressed
    /// (`docs/slacp.md`, Compressed streams).
    pub fn is_compressed(&self, session: SessionId, stream: StreamId) -> bool {
        self.core
            .session(session)
            .is_some_and(|session| session.shared.streams.is_compressed(stream))
    }

    /// Number of compressed streams of a peer that this side's owner decompresses at a time
    /// ([`Config::decompressors`](crate::Config::decompressors)).
    pub fn decompressors(&self) -> u16 {
        self.core.config.decompressors
    }

    /// Number of compressed streams that a session's peer decompresses at a time.
    pub fn peer_decompressors(&self, session: SessionId) -> u16 {
        self.core.session(session).map_or(0, |session| session.peer.limits.decompressors)
    }

    /// Returns whether a session's peer has the dictionary of compressed streams.
    pub fn peer_has_dictionary(&self, session: SessionId) -> bool {
        self.core.session(session).is_some_and(|session| session.peer.limits.dictionary)
    }

    /// Returns whether a session's peer resolves names, so that streams may be opened to them.
    pub fn peer_resolves(&self, session: SessionId) -> bool {
        let openings = self.core.session(session).map(|session| session.peer.limits.openings);
        openings.is_some_and(OpeningFeatures::names)
    }

    /// Returns whether a session's peer answers DNS questions, so that streams may be opened to its
    /// resolver.
    pub fn peer_answers(&self, session: SessionId) -> bool {
        let openings = self.core.session(session).map(|session| session.peer.limits.openings);
        openings.is_some_and(OpeningFeatures::questions)
    }

    /// Returns whether a session's peer understands HTTP exchanges, so that streams may be opened
    /// to them.
    pub fn peer_exchanges(&self, session: SessionId) -> bool {
        let openings = self.core.session(session).map(|session| session.peer.limits.openings);
        openings.is_some_and(OpeningFeatures::exchanges)
    }

    /// Returns whether a session's peer takes bundles, so that streams may be opened to its bundle
    /// agent.
    pub fn peer_takes_bundles(&self, session: SessionId) -> bool {
        let openings = self.core.session(session).map(|session| session.peer.limits.openings);
        openings.is_some_and(OpeningFeatures::bundles)
    }

    /// Number of datagrams that matched no session and no handshake.
    pub fn ignored(&self) -> u64 {
        self.core.ignored
    }
}
