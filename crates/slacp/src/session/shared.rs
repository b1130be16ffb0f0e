//! What all paths of a session share: streams, packet channels with their queues, the order of
//! sending, the life cycle, and the owner's events.

use std::collections::VecDeque;
use std::sync::Arc;

use units::{BitRate, ByteCount, Instant};

use super::life_cycle::LifeCycle;
use super::{Wake, limits, unsent_limit};
use crate::channels::{InboundChannels, OutboundChannels};
use crate::event::log::EventLog;
use crate::scheduler::{ClassScheduler, NextTurn, TrafficKind};
use crate::spare::FreeSpare as _;
use crate::streams::StreamSet;
use crate::streams::flow::PeerLimits;
use crate::wire::frame::{self, Frame};
use crate::{ClassId, ClassStats, Config, Event, StopAnnouncement};

/// The state that all paths of a session share.
pub(crate) struct SharedState {
    pub(crate) streams: StreamSet,
    pub(super) scheduler: ClassScheduler,
    pub(super) outbound: OutboundChannels,
    pub(super) inbound: InboundChannels,
    pub(super) life: LifeCycle,
    /// The peer's announcement that it is about to stop.
    peer_farewell: Option<StopAnnouncement>,
    /// Events for the owner, besides those of the streams.
    pub(super) events: VecDeque<Event>,
    /// The peer's violation of the protocol, if there was one.
    pub(super) failure: Option<Arc<str>>,
    /// Both sides run SLACP as a link layer ([`Config::link_layer`]).
    pub(super) link_layer: bool,
    /// The link allocates capacity by what waits ([`Config::on_demand`]).
    pub(super) on_demand: bool,
}

impl SharedState {
    /// Creates the state of a new session whose first path sends at `rate`.
    pub(super) fn new(
        config: &Config,
        theirs: PeerLimits,
        rate: BitRate,
        opens_odd: bool,
        link_layer: bool,
    ) -> Self {
        let (ours, classes, mtu) = (limits(config), config.classes.len(), usize::from(config.mtu));
        let unsent = unsent_limit(rate, config.on_demand);
        // Packets of channels may take a quarter of the memory.
        let for_channels = usize::try_from(ours.memory / 4).unwrap_or(usize::MAX);
        Self {
            streams: StreamSet::new(u64::from(opens_odd), ours, theirs, unsent, classes, mtu),
            scheduler: ClassScheduler::new(&config.classes),
            outbound: OutboundChannels::new(&config.channels, classes, mtu),
            inbound: InboundChannels::new(&config.channels, for_channels),
            life: LifeCycle::default(),
            peer_farewell: None,
            events: VecDeque::new(),
            failure: None,
            link_layer,
            on_demand: config.on_demand,
        }
    }

    /// Returns whether the owner can still use the session.
    pub(super) fn is_usable(&self) -> bool {
        self.life.is_established()
    }

    /// Returns the owner's events first, then those of the streams, each in order.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        if !self.is_usable() {
            return None;
        }
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Returns whether [`Self::poll_event`] would return an event.
    pub(super) fn has_event(&self) -> bool {
        self.is_usable() && (!self.events.is_empty() || self.streams.has_event())
    }

    /// The time of the next [`Self::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let streams = [self.streams.reset_timeout(), self.streams.rest_timeout()];
        let all = streams.into_iter().chain([self.inbound.poll_timeout()]);
        all.flatten().min().map(|time| (time, Wake::Delivery))
    }

    /// Ends streams and packets that have waited too long. The peer `is_reachable` if any path is.
    pub(super) fn handle_timeout(&mut self, now: Instant, is_reachable: bool, log: &mut EventLog) {
        self.streams.end_resets(now, is_reachable);
        self.streams.return_windows(now);
        self.inbound.handle_timeout(now, log);
    }

    /// Bytes held by streams and channels.
    pub(super) fn held(&self) -> u64 {
        let (to_send, to_read) = self.streams.held();
        let rest = self.streams.overhead() + self.outbound.held() + self.inbound.held();
        to_send + to_read + rest as u64
    }

    /// Frees allocated memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.events.free_spare();
        self.streams.free_spare();
        self.outbound.free_spare();
        self.inbound.free_spare();
    }

    /// Bytes of a class that wait to be sent for the first time.
    fn waiting(&self, class: usize) -> u64 {
        self.streams.waiting(class) + self.outbound.waiting(class)
    }

    /// Bytes of all classes that wait to be sent for the first time.
    pub(super) fn waiting_bytes(&self) -> u64 {
        (0..self.scheduler.classes()).map(|class| self.waiting(class)).sum()
    }

    pub(super) fn class_stats(&self, class: ClassId) -> Option<ClassStats> {
        let stats = self.scheduler.stats(class)?;
        let waiting = self.waiting(usize::from(class.0));
        Some(ClassStats { waiting: ByteCount::new(waiting), ..stats })
    }

    /// Applies the classes of a configuration and its settings for existing channels. Streams whose
    /// class has no `successor` move to the default class.
    pub(super) fn configure_classes(
        &mut self,
        config: &Config,
        successor: &dyn Fn(ClassId) -> Option<ClassId>,
    ) {
        let (classes, mtu) = (config.classes.len(), usize::from(config.mtu));
        let there = |class: &ClassId| usize::from(class.0) < classes;
        let successor_class = |class| successor(class).filter(there).unwrap_or(ClassId::DEFAULT);
        self.streams.configure_classes(classes, mtu, successor_class);
        self.outbound.configure(&config.channels, classes, mtu);
        self.scheduler.configure(&config.classes, successor);
    }

    /// Returns whether only these streams have new data, and no maximum limits their class.
    pub(super) fn is_all_that_waits(&self, next: &NextTurn) -> bool {
        let scheduler = &self.scheduler;
        let mut others = (0..scheduler.classes()).filter(|class| *class != next.class);
        next.side == TrafficKind::Streams
            && !scheduler.is_limited(next.class)
            && self.outbound.is_idle()
            && others.all(|class| self.streams.backlog(class).flows == 0)
    }

    /// Handles a peer's announcement that it is about to stop. SUCCESSOR may follow LEAVING; a
    /// repeated or weaker announcement is ignored.
    pub(super) fn on_leaving(&mut self, farewell: StopAnnouncement) {
        if self.peer_farewell.is_none_or(|before| before < farewell) {
            self.peer_farewell = Some(farewell);
            self.events.push_back(match farewell {
                StopAnnouncement::Leaving => Event::Leaving,
                StopAnnouncement::Successor => Event::Succeeded,
            });
        }
    }

    /// Returns whether another process at the peer's address takes new sessions.
    pub(super) fn is_succeeded(&self) -> bool {
        self.peer_farewell == Some(StopAnnouncement::Successor)
    }

    /// Handles a packet received while closing: the peer has not received CLOSE yet, or is closing
    /// too. All frames but CLOSE are ignored.
    pub(super) fn heard_while_closing(&mut self, now: Instant, mut frames: &[u8]) {
        self.life.schedule_reply(now);
        while let Ok(Some(frame)) = frame::read(&mut frames) {
            if let Frame::Close(reason) = frame {
                self.life.closed_by_peer(reason);
            }
        }
    }
}
