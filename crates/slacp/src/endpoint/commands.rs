//! The owner's commands to an endpoint.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use units::{BitRate, ByteCount, Instant};

use super::{Endpoint, EndpointRole};
use crate::session::Session;
use crate::{
    AggregateId, ChannelConfig, ChannelError, ChannelId, ClassId, ClassRates, CloseReason, Config,
    Destination, KeyPair, PathKey, PathMemory, PublicKey, Rate, RateError, ReadOutcome,
    ResetReason, SessionId, SessionShare, StopAnnouncement, StreamError, StreamId, StreamOpening,
    WriteRoom,
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

    /// Sends a PING at once, which the peer must acknowledge. The acknowledgement ends an outage
    /// ([`crate::Event::Reachable`]); without one, nothing changes.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn ask(&mut self, now: Instant, session: SessionId) -> Result<(), StreamError> {
        self.core.now = now;
        self.with(session, Session::ping)
    }

    /// Returns whether a peer with a session has this address now.
    pub fn has_peer_at(&self, address: IpAddr) -> bool {
        self.core
            .sessions
            .iter()
            .any(|(_, session)| session.is_usable() && session.has_address(address))
    }

    /// Announces to all peers, now and when their sessions are set up, that this side is about to
    /// stop ([`crate::Event::Leaving`], [`crate::Event::Succeeded`]). Sessions and streams go on.
    pub fn announce(&mut self, now: Instant, farewell: StopAnnouncement) {
        self.core.now = now;
        // LEAVING and SUCCESSOR go to a peer once a session.
        if self.core.leaving.replace(farewell) != Some(farewell) {
            let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
            usable.for_each(|session| session.announce(farewell));
        }
        self.core.settle();
    }

    /// Closes all sessions and takes part in no further handshake. CLOSE has been sent three times
    /// to each peer after 150 ms.
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
        // The new rate also holds for what the last packet still owes the link.
        self.core.update_pacer_rate(now);
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
        self.core.update_pacer_rate(now);
        Ok(())
    }

    /// Limits each configured or reported rate to this portion, 0 to 1, because another process at
    /// the same address uses the rest. Measured rates are not affected.
    pub fn set_portion(&mut self, now: Instant, portion: f64) {
        /// With less, packets that must pass in any case would stop.
        const LEAST: f64 = 0.001;
        self.core.now = now;
        let portion = portion.clamp(LEAST, 1.0);
        self.core.link.set_portion(portion);
        self.core.sessions.iter_mut().for_each(|session| session.set_portion(portion));
        self.core.update_pacer_rate(now);
        self.core.settle();
    }

    /// Holds new data of a session back because the link below, an index of [`Config::links`], has
    /// no room for it, or releases it (flow control between MAC and IP: SLACP paper, §2).
    /// Acknowledgements, retransmissions, repairs and control frames leave in any case
    /// ([`Self::transmit_is_control`]), so the owner passes them on ahead of the data that waits
    /// below. Has no effect if the session does not have the link.
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

    /// Sets the share and the maximum of a session on a link that the sessions of a hub, or of an
    /// aggregate, share. What it has saved up or is owed is forgotten.
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

    /// Overrides the configured rates of a session's classes, until [`Self::configure_classes`].
    /// What a class whose rates change has saved up or is owed is forgotten; classes that do not
    /// exist are ignored.
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

    /// Changes the source of the rate. Sessions with a fixed or modem-reported rate adopt a new one
    /// of the same kind at once. All others keep theirs, and the change applies only to new
    /// sessions. Returns whether every session has adopted it.
    pub fn configure_rate(&mut self, now: Instant, rate: Rate) -> bool {
        self.core.now = now;
        let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
        let mut all = true;
        for session in usable {
            all &= session.configure_rate(now, &rate);
        }
        self.core.config.rate = rate;
        self.core.settle();
        self.core.update_pacer_rate(now);
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
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_allowed(&mut self.core, now, allow);
        }
        self.core.settle();
    }

    /// Sets the keys that a hub answers to, so that one can replace another while terminals know
    /// either. Sessions go on with whichever key they were set up. An empty list changes nothing.
    /// Has no effect on a terminal.
    pub fn set_identities(&mut self, identities: Vec<KeyPair>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_identities(identities);
        }
    }

    /// Sets the key that will replace the one of this hub; `None` if none will. Both are tried, the
    /// next one first, until a session is set up with the next one ([`crate::Event::Up`] has its
    /// key). From then on it is the hub's key, and the earlier one is not used any more. Has no
    /// effect on a hub, or for an unknown hub.
    pub fn set_next_hub_key(&mut self, hub: PublicKey, next: Option<PublicKey>) {
        if let EndpointRole::Terminal(terminal) = &mut self.role {
            terminal.set_next_key(hub, next);
        }
    }

    /// Sets the addresses at which a terminal tries a hub, in turn. A new hub gets no session
    /// before [`Self::want_hub`]. Has no effect on a hub.
    pub fn set_hub(&mut self, hub: PublicKey, addresses: Vec<SocketAddr>) {
        if let EndpointRole::Terminal(terminal) = &mut self.role {
            terminal.set_addresses(hub, addresses);
        }
    }

    /// Sets whether a terminal keeps a session with this hub, setting up a new one when it is lost.
    /// An existing session goes on either way, until it is closed or lost. Has no effect on a hub,
    /// or for an unknown hub.
    pub fn want_hub(&mut self, hub: PublicKey, wanted: bool) {
        if let EndpointRole::Terminal(terminal) = &mut self.role {
            terminal.set_wanted(&mut self.core, hub, wanted);
        }
    }

    /// Overrides [`Config::links`] for these terminals, by the index of the link, for sessions set up and
    /// links added from now on. Has no effect on a terminal.
    pub fn set_link_rates(&mut self, rates: BTreeMap<PublicKey, BTreeMap<u8, Rate>>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_link_rates(rates);
        }
    }

    /// Overrides [`Config::memory`] for these terminals, for sessions set up from now on. Has no
    /// effect on a terminal.
    pub fn set_memory(&mut self, memory: BTreeMap<PublicKey, ByteCount>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_memory(memory);
        }
    }

    /// Sets the source addresses of packets from these terminals, for sessions set up from now on: each is
    /// told its own ([`Self::packet_address`]), unless it does not understand that. Such a terminal, or one with
    /// `None`, is offered no packet channels. Terminals that are not listed send from addresses of their own.
    /// Has no effect on a terminal.
    pub fn set_packet_addresses(&mut self, addresses: BTreeMap<PublicKey, Option<Ipv4Addr>>) {
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_packet_addresses(addresses);
        }
    }

    /// Sets which terminals of a hub share a forward link, for sessions to come and for those that
    /// exist. The sessions of an aggregate whose rate is measured measure their link together, and
    /// divide it by their weights ([`Self::set_share`]); terminals that are not listed measure
    /// their paths alone. Has no effect on sessions with another rate, or on a terminal.
    pub fn set_aggregates(&mut self, now: Instant, aggregates: BTreeMap<PublicKey, AggregateId>) {
        self.core.now = now;
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.set_aggregates(&aggregates);
            self.core.set_aggregates(aggregates);
        }
    }

    /// Adds earlier measurements of a path, for sessions that start on it or move to it from now
    /// on. Newer measurements are kept. An endpoint remembers those of its own sessions by itself.
    /// It keeps at most 4,096 paths, each for at most a day, and ignores values that no path can
    /// have.
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
        open: impl Into<StreamOpening<Destination>>,
    ) -> Result<StreamId, StreamError> {
        self.core.now = now;
        self.with(session, |session| session.shared.streams.open(open.into()))?
    }

    /// Opens a stream as [`Self::open`] does; its owners compress its data if the peer can
    /// ([`Self::is_compressed`]).
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_compressed(
        &mut self,
        now: Instant,
        session: SessionId,
        open: impl Into<StreamOpening<Destination>>,
    ) -> Result<StreamId, StreamError> {
        self.core.now = now;
        self.with(session, |session| session.shared.streams.open_as(open.into(), true))?
    }

    /// Returns whether a client with few streams could open one now: [`Self::open`] would fail with
    /// neither [`StreamError::NoRoom`] nor [`StreamError::TooMany`].
    pub fn has_room(&self, session: SessionId) -> bool {
        self.core.session(session).is_some_and(|session| session.shared.streams.has_room())
    }

    /// Sends ACCEPT: the destination of the stream is connected.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn accept(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.shared.streams.accept(now, stream))?
    }

    /// Number of bytes that [`Self::write`] would take now.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn room(&self, session: SessionId, stream: StreamId) -> Result<u64, StreamError> {
        self.core.sessions.get(session).ok_or(StreamError::NoSession)?.shared.streams.room(stream)
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
        self.with(session, |session| session.shared.streams.write(stream, data))?
    }

    /// Writes without a copy: `read` appends to the stream's memory, at most as much as it has room
    /// for. Returns the number of bytes. If the stream has no room, `read` is not called, the
    /// result is `None`, and [`crate::Event::Writable`] follows.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn fill(
        &mut self,
        session: SessionId,
        stream: StreamId,
        read: impl FnOnce(&mut WriteRoom<'_>),
    ) -> Result<Option<usize>, StreamError> {
        self.with(session, |session| session.shared.streams.fill(stream, read))?
    }

    /// Reads the next bytes. [`crate::Event::Readable`] follows only after this has returned
    /// [`ReadOutcome::Blocked`].
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn read(
        &mut self,
        session: SessionId,
        stream: StreamId,
        buf: &mut [u8],
    ) -> Result<ReadOutcome, StreamError> {
        let now = self.core.now;
        self.with(session, |session| session.shared.streams.read(now, stream, buf))?
    }

    /// Reads without a copy: `take` gets the next bytes, in parts, and returns the number that it
    /// has taken. If it takes none, the result is [`ReadOutcome::Data`] of 0 bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn offer(
        &mut self,
        session: SessionId,
        stream: StreamId,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> Result<ReadOutcome, StreamError> {
        let now = self.core.now;
        self.with(session, |session| {
            session.shared.streams.read_by(now, stream, |reader| reader.offer(take))
        })?
    }

    /// Finishes this side's direction after the bytes written so far.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn finish(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.with(session, |session| session.shared.streams.finish(stream))?
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
        self.with(session, |session| session.shared.streams.reset(stream, reason))?
    }

    /// Resets a stream as [`Self::reset`] does, but after the data written so far: the peer
    /// receives the reason once it has acknowledged that data, or has acknowledged nothing more for
    /// 30 s.
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
        self.with(session, |session| session.shared.streams.reset_after_data(now, stream, reason))?
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
        self.with(session, |session| session.shared.streams.classify(stream, class))?
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
