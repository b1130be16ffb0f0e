//! The owner's commands to an endpoint.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use units::{BitRate, ByteCount, Instant};

use super::{Endpoint, Role};
use crate::session::Session;
use crate::{
    AggregateId, ChannelConfig, ChannelError, ChannelId, ClassId, ClassRates, CloseReason, Config,
    Destination, Farewell, KeyPair, Open, PathKey, PathMemory, PublicKey, Rate, RateError, Read,
    ResetReason, Room, SessionId, SessionShare, StreamError, StreamId,
};

/// Commands on sessions and the endpoint.
impl Endpoint {
    /// Closes a session and all its streams at once, and tells the peer why. [`crate::Event::Down`]
    /// follows. A terminal then sets up a new session, if it still wants that hub.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn close(
        &mut self,
        now: Instant,
        session: SessionId,
        reason: CloseReason,
    ) -> Result<(), StreamError> {
        self.core.now = now;
        self.with(session, |session| session.close(now, reason))
    }

    /// Asks the peer at once whether it is there: it answers with an acknowledgement. An answer ends an
    /// outage ([`crate::Event::Reachable`]); no answer changes nothing.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn ask(&mut self, now: Instant, session: SessionId) -> Result<(), StreamError> {
        self.core.now = now;
        self.with(session, Session::ping)
    }

    /// Whether a peer with a session has this address now.
    pub fn has_peer_at(&self, address: IpAddr) -> bool {
        self.core.sessions.iter().any(|(_, session)| session.is_usable() && session.is_at(address))
    }

    /// Tells all peers, now and when their sessions are set up, that this side is about to stop
    /// ([`crate::Event::Leaving`], [`crate::Event::Succeeded`]). Sessions and streams go on.
    pub fn announce(&mut self, now: Instant, farewell: Farewell) {
        self.core.now = now;
        if self.core.leaving.replace(farewell) != Some(farewell) {
            let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
            usable.for_each(|session| session.announce(farewell));
        }
        self.core.settle();
    }

    /// Closes all sessions and takes part in no further handshake. After 150 ms every peer has been
    /// told three times.
    pub fn shut_down(&mut self, now: Instant) {
        self.core.now = now;
        self.core.shut = true;
        let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
        usable.for_each(|session| session.close(now, CloseReason::Shutdown));
        self.core.settle();
    }

    /// Sets the rate of a session as reported by its modem. It takes effect at once and holds for
    /// `valid_for`; after that the configured rate applies again, or with [`Rate::ModemOrAuto`] the
    /// session measures its path, with the reported rate as a memory of it. At rate 0 only probes are
    /// sent.
    ///
    /// # Errors
    /// [`RateError`].
    pub fn set_rate(
        &mut self,
        now: Instant,
        session: SessionId,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        self.core.now = now;
        let told = self.core.with(session, |session| session.set_rate(now, rate, valid_for));
        told.ok_or(RateError::NoSession)??;
        self.core.follow_rate(now);
        Ok(())
    }

    /// Ends the rate that [`Self::set_rate`] has set, as if its time were over. Has no effect if none
    /// is set.
    ///
    /// # Errors
    /// [`RateError`].
    pub fn expire_rate(&mut self, now: Instant, session: SessionId) -> Result<(), RateError> {
        self.core.now = now;
        let ended = self.core.with(session, |session| session.expire_rate(now));
        ended.ok_or(RateError::NoSession)??;
        self.core.follow_rate(now);
        Ok(())
    }

    /// Uses no more than this portion, 0 to 1, of each rate that is configured or reported, because
    /// another process at the same address uses the rest; of rates that sessions measure, all.
    pub fn set_portion(&mut self, now: Instant, portion: f64) {
        /// Less would stop what has to pass in any case.
        const LEAST: f64 = 0.001;
        self.core.now = now;
        let portion = portion.clamp(LEAST, 1.0);
        self.core.link.set_portion(portion);
        self.core.sessions.iter_mut().for_each(|session| session.set_portion(portion));
        self.core.follow_rate(now);
        self.core.settle();
    }

    /// Holds new data of a session back because the link below, an index of [`Config::links`], has no
    /// room for it, or lets it go (flow control between MAC and IP: SLACP paper, §2). Acknowledgements,
    /// retransmissions, repairs and control frames leave in any case ([`Self::transmit_is_control`]),
    /// so the owner passes them on ahead of the data that waits below. Nothing happens if the session
    /// does not have the link.
    ///
    /// [`Config::links`]: crate::Config::links
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn hold_back(
        &mut self,
        now: Instant,
        session: SessionId,
        link: u8,
        held: bool,
    ) -> Result<(), StreamError> {
        self.core.now = now;
        self.with(session, |session| session.hold_back(link, held))
    }

    /// Sets what a session gets when the sessions of a hub, or of an aggregate, share the link, and
    /// the most it may send. What it has saved up or owes is forgotten.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn set_share(
        &mut self,
        now: Instant,
        session: SessionId,
        share: SessionShare,
    ) -> Result<(), StreamError> {
        self.core.now = now;
        let known = self.core.sessions.set_share(now, session, share);
        self.core.aggregates.set_share(session, share);
        self.core.settle();
        known.then_some(()).ok_or(StreamError::NoSession)
    }

    /// Gives classes of a session other rates than those of the configuration, until
    /// [`Self::configure_classes`]. What a class whose rates change has saved up or owes is forgotten;
    /// classes that do not exist are ignored.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn set_class_rates(
        &mut self,
        now: Instant,
        session: SessionId,
        rates: &[(ClassId, ClassRates)],
    ) -> Result<(), StreamError> {
        self.core.now = now;
        self.with(session, |session| session.set_class_rates(rates))
    }

    /// Changes where the rate comes from. Sessions with a fixed or modem-reported rate adopt a new
    /// one of the same kind at once. All others keep theirs, and the change applies only to new
    /// sessions. Returns whether every session has it now.
    pub fn configure_rate(&mut self, now: Instant, rate: Rate) -> bool {
        self.core.now = now;
        let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
        let mut all = true;
        for session in usable {
            all &= session.configure_rate(now, &rate);
        }
        self.core.config.rate = rate;
        self.core.settle();
        self.core.follow_rate(now);
        all
    }

    /// Applies the classes of `config`, and its settings for existing packet channels, to all
    /// sessions at once. Nothing else of `config` is applied, and no channel is added. `successor`
    /// maps each class to the one its streams move to; no two classes may map to the same one.
    /// Streams without a successor, and channels that `config` lacks, move to [`ClassId::DEFAULT`].
    /// Queued data is not lost.
    pub fn configure_classes(
        &mut self,
        now: Instant,
        config: &Config,
        successor: impl Fn(ClassId) -> Option<ClassId>,
    ) {
        self.core.now = now;
        let own = &mut self.core.config;
        own.classes.clone_from(&config.classes);
        for (id, channel) in &mut own.channels {
            let usual = ChannelConfig { class: ClassId::DEFAULT, ..*channel };
            *channel = config.channels.get(id).copied().unwrap_or(usual);
        }
        for session in self.core.sessions.iter_mut() {
            session.configure_classes(&self.core.config, &successor);
        }
        self.core.settle();
    }

    /// Sets which terminals a hub serves. Sessions of all others end ([`CloseReason::Prohibited`]).
    /// Has no effect on a terminal.
    pub fn set_allowed(&mut self, now: Instant, allow: Vec<PublicKey>) {
        self.core.now = now;
        if let Role::Hub(hub) = &mut self.role {
            hub.set_allowed(&mut self.core, now, allow);
        }
        self.core.settle();
    }

    /// Sets the keys that a hub answers to, so that one can replace another while terminals know
    /// either. Sessions go on whatever key they were set up with. No keys at all change nothing. Has no
    /// effect on a terminal.
    pub fn set_identities(&mut self, identities: Vec<KeyPair>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.set_identities(identities);
        }
    }

    /// Tells a terminal which key will replace the one of this hub; [`None`] if none will. Both are
    /// tried, the next one first, until a session is set up with the next one
    /// ([`crate::Event::Up`] says so). From then on it is the hub's key, and the one before is used no
    /// more. Has no effect on a hub, or for an unknown one.
    pub fn set_next_hub_key(&mut self, hub: PublicKey, next: Option<PublicKey>) {
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.set_next_key(hub, next);
        }
    }

    /// Tells a terminal where a hub is tried, at each of `addresses` in turn. A hub that is new to it
    /// gets no session before [`Self::want_hub`]. Has no effect on a hub.
    pub fn set_hub(&mut self, hub: PublicKey, addresses: Vec<SocketAddr>) {
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.set_addresses(hub, addresses);
        }
    }

    /// Sets whether a terminal sets up a session with this hub, and a new one when it is lost. One
    /// that exists goes on either way, until it is closed or lost. Has no effect on a hub, or for an
    /// unknown one.
    pub fn want_hub(&mut self, hub: PublicKey, wanted: bool) {
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.set_wanted(&mut self.core, hub, wanted);
        }
    }

    /// Overrides [`Config::links`] for these terminals, by the index of the link, for sessions set up and
    /// links added from now on. Has no effect on a terminal.
    pub fn set_link_rates(&mut self, rates: BTreeMap<PublicKey, BTreeMap<u8, Rate>>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.set_link_rates(rates);
        }
    }

    /// Overrides [`Config::memory`] for these terminals, for sessions set up from now on. Has no
    /// effect on a terminal.
    pub fn set_memory(&mut self, memory: BTreeMap<PublicKey, ByteCount>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.set_memory(memory);
        }
    }

    /// Sets which terminals of a hub share a forward link, for sessions to come and for those that
    /// exist. The sessions of an aggregate whose rate is measured measure their link together, and
    /// divide it by their weights ([`Self::set_share`]); terminals that are not listed measure
    /// their paths alone. Has no effect on sessions with another rate, or on a terminal.
    pub fn set_aggregates(&mut self, now: Instant, aggregates: BTreeMap<PublicKey, AggregateId>) {
        self.core.now = now;
        if let Role::Hub(hub) = &mut self.role {
            hub.set_aggregates(&aggregates);
            self.core.set_aggregates(aggregates);
        }
    }

    /// Adds what was remembered about a path, for sessions that start on it or move to it from now
    /// on. Newer knowledge is kept. An endpoint remembers what its own sessions learn by itself. It
    /// keeps at most 4,096 paths, each for at most a day, and ignores values that no path can have.
    pub fn remember(&mut self, now: Instant, path: PathKey, memory: PathMemory) {
        self.core.memories.enter(now, path, memory);
    }
}

/// Commands on streams and channels.
impl Endpoint {
    /// Opens a stream. It can be written to at once.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::TooMany`], [`StreamError::NoNames`],
    /// [`StreamError::NoRoom`].
    pub fn open(
        &mut self,
        now: Instant,
        session: SessionId,
        open: impl Into<Open<Destination>>,
    ) -> Result<StreamId, StreamError> {
        self.core.now = now;
        self.with(session, |session| session.streams.open(open.into()))?
    }

    /// Opens a stream as [`Self::open`] does, whose owners compress its data if the peer can
    /// ([`Self::is_compressed`]).
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_compressed(
        &mut self,
        now: Instant,
        session: SessionId,
        open: impl Into<Open<Destination>>,
    ) -> Result<StreamId, StreamError> {
        self.core.now = now;
        self.with(session, |session| session.streams.open_as(open.into(), true))?
    }

    /// Whether memory and the peer's limit would let a client with few streams open one now: whether
    /// [`Self::open`] would fail with neither [`StreamError::NoRoom`] nor [`StreamError::TooMany`].
    pub fn has_room(&self, session: SessionId) -> bool {
        self.core.session(session).is_some_and(|session| session.streams.has_room())
    }

    /// Tells the opener that the destination is connected.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn accept(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.streams.accept(now, stream))?
    }

    /// How many bytes [`Self::write`] would take now.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn room(&self, session: SessionId, stream: StreamId) -> Result<u64, StreamError> {
        self.core.sessions.get(session).ok_or(StreamError::NoSession)?.streams.room(stream)
    }

    /// Writes as many bytes as there is room for. If some are left over, [`crate::Event::Writable`]
    /// follows.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn write(
        &mut self,
        session: SessionId,
        stream: StreamId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        self.with(session, |session| session.streams.write(stream, data))?
    }

    /// As [`Self::write`], without a copy: writes what `read` appends to the stream's memory, at most what it
    /// has room for, and returns how much that is. Without any room for the stream it is not called, the
    /// result is `None`, and [`crate::Event::Writable`] follows.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn fill(
        &mut self,
        session: SessionId,
        stream: StreamId,
        read: impl FnOnce(&mut Room<'_>),
    ) -> Result<Option<usize>, StreamError> {
        self.with(session, |session| session.streams.fill(stream, read))?
    }

    /// Reads the next bytes. [`crate::Event::Readable`] follows only after this has returned
    /// [`Read::Blocked`].
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn read(
        &mut self,
        session: SessionId,
        stream: StreamId,
        buf: &mut [u8],
    ) -> Result<Read, StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.streams.read(now, stream, buf))?
    }

    /// As [`Self::read`], without a copy: offers the next bytes, in parts, to `take`, which says how many of
    /// them it has taken. If it takes none, that is [`Read::Data`] of 0 bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn offer(
        &mut self,
        session: SessionId,
        stream: StreamId,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> Result<Read, StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.streams.read_by(now, stream, |it| it.offer(take)))?
    }

    /// Finishes this side's direction after the bytes written so far.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn finish(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.finish(stream))?
    }

    /// Ends both directions at once and forgets the stream. The peer receives the reason.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn reset(
        &mut self,
        session: SessionId,
        stream: StreamId,
        reason: ResetReason,
    ) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.reset(stream, reason))?
    }

    /// As [`Self::reset`], but after the data written so far: the peer receives the reason once it has
    /// acknowledged that, or has acknowledged nothing more for 30 s.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn reset_after_data(
        &mut self,
        session: SessionId,
        stream: StreamId,
        reason: ResetReason,
    ) -> Result<(), StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.streams.reset_after_data(now, stream, reason))?
    }

    /// Moves a stream to a class. New streams are in [`ClassId::DEFAULT`].
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`], [`StreamError::NoClass`].
    pub fn classify(
        &mut self,
        session: SessionId,
        stream: StreamId,
        class: ClassId,
    ) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.classify(stream, class))?
    }

    /// Queues an IP packet on a packet channel. If the channel's queue is full, the flow with the
    /// longest queue loses its oldest packet.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send_packet(
        &mut self,
        now: Instant,
        session: SessionId,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        self.core.now = now;
        let sent = self.core.with(session, |session| session.send_packet(now, channel, packet));
        sent.ok_or(ChannelError::NoSession)?
    }
}
