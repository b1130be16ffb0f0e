//! What the owner wants of an endpoint.

use core::time::Duration;
use std::collections::BTreeMap;

use units::{BitRate, ByteCount, Instant};

use super::{Endpoint, Role};
use crate::{
    ChannelConfig, ChannelError, ChannelId, ClassId, CloseReason, Config, Destination, Open,
    PathKey, PathMemory, PublicKey, Rate, RateError, Read, ResetReason, SessionId, StreamError,
    StreamId,
};

/// Commands on sessions and the endpoint.
impl Endpoint {
    /// Ends a session and all its streams at once, and tells the peer why.
    /// [`crate::Event::Down`] follows. A terminal then sets up another.
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

    /// Closes all sessions and takes part in no further handshake. The peers
    /// have been told three times after 150 ms.
    pub fn shut_down(&mut self, now: Instant) {
        self.core.now = now;
        self.core.shut = true;
        let usable = self.core.sessions.iter_mut().filter(|session| session.is_usable());
        usable.for_each(|session| session.close(now, CloseReason::Shutdown));
        self.core.settle();
    }

    /// Sets the rate of a session, as its modem tells it, for the time that it
    /// is `valid_for`; then the configured one holds again. Takes effect at
    /// once. At rate 0 nothing but probes is sent.
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

    /// Sets how many bytes a session sends where one of weight 1 sends one, when
    /// the sessions of a hub share its link; at first 1, and never 0.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn set_weight(&mut self, session: SessionId, weight: u32) -> Result<(), StreamError> {
        let known = self.core.sessions.set_weight(session, weight.max(1));
        known.then_some(()).ok_or(StreamError::NoSession)
    }

    /// Sets where the rate comes from. Sessions whose rate is fixed, or told, take
    /// another of the same kind at once; the others keep theirs and only those that
    /// are set up from now on have it. Whether all have taken it.
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

    /// Takes the classes of `config`, and its settings of the packet channels there
    /// are, at once and for all sessions; nothing else of it, and no further channels.
    /// `successor` tells where streams of a class go on, no two classes in the
    /// same; without one they go to [`ClassId::DEFAULT`], as do channels that `config`
    /// does not have. What waits to be sent is not lost.
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

    /// Sets which terminals a hub serves. The sessions of others end
    /// ([`CloseReason::Prohibited`]). Does nothing to a terminal.
    pub fn set_allowed(&mut self, now: Instant, allow: Vec<PublicKey>) {
        self.core.now = now;
        if let Role::Hub(hub) = &mut self.role {
            hub.set_allowed(&mut self.core, now, allow);
        }
        self.core.settle();
    }

    /// Sets the most that a session of each of these terminals holds for its streams in
    /// each direction, instead of [`Config::memory`]; for sessions that are set up from now
    /// on. Does nothing to a terminal.
    pub fn set_memory(&mut self, memory: BTreeMap<PublicKey, ByteCount>) {
        if let Role::Hub(hub) = &mut self.role {
            hub.set_memory(memory);
        }
    }

    /// Takes what was remembered of a path, for sessions that begin or move
    /// there from now on, unless it knows something newer. An endpoint remembers
    /// by itself what its own sessions have learnt. At most 4,096 paths are kept,
    /// none for more than a day, and nothing that no path can be.
    pub fn remember(&mut self, now: Instant, path: PathKey, memory: PathMemory) {
        self.core.memories.enter(now, path, memory);
    }
}

/// Commands on streams and channels.
impl Endpoint {
    /// Opens a stream. It may be written to at once.
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

    /// Whether a stream could be opened now, as far as memory and the peer's limit go:
    /// whether [`Self::open`] fails with neither [`StreamError::NoRoom`] nor
    /// [`StreamError::TooMany`].
    pub fn has_room(&self, session: SessionId) -> bool {
        self.core.session(session).is_some_and(|session| session.streams.has_room())
    }

    /// Tells the opener that the destination is connected.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn accept(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.accept(stream))?
    }

    /// Writes as many bytes as there is room for; if that is not all,
    /// [`crate::Event::Writable`] follows.
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

    /// Reads the next bytes. [`crate::Event::Readable`] follows only after this has
    /// said [`Read::Blocked`].
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

    /// Ends this side's direction after the bytes written so far.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn finish(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.finish(stream))?
    }

    /// Ends both directions at once and forgets the stream; the peer hears
    /// why.
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

    /// Puts a stream in a class; it is in [`ClassId::DEFAULT`] until then.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`],
    /// [`StreamError::NoClass`].
    pub fn classify(
        &mut self,
        session: SessionId,
        stream: StreamId,
        class: ClassId,
    ) -> Result<(), StreamError> {
        self.with(session, |session| session.streams.classify(stream, class))?
    }

    /// Sends an IP packet on a packet channel, or drops it when the channel's
    /// queue is full of others of its flow.
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
