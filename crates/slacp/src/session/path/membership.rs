//! A path as one link among several, and the data that it may carry by the turn of its link.

use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant};

use super::{SessionPath, SharedState};
use crate::scheduler::pacer::{BURST, Pacer, portion_of};
use crate::session::links::division::{LinkTurn, LinkView};
use crate::wire::frame::Frame;
use crate::wire::packet::Index;

/// A path among several does not end the session by its own outage. The session ends when no link
/// has worked for [`Config::give_up`](crate::Config::give_up).
const NEVER: Duration = Duration::from_secs(1 << 32);

/// The state of a path as one link among several.
pub(in crate::session) struct LinkMembership {
    /// The number of its link.
    pub(super) link: u8,
    /// The index that received packets carry; `None` on the first path, whose index is the
    /// session's.
    index: Option<Index>,
    /// The data that the link may carry now.
    pub(super) turn: LinkTurn,
    /// The links that work, as a bit mask.
    working: u8,
    /// The session has several links, or had.
    has_siblings: bool,
    /// The link has acknowledged a packet.
    pub(super) has_acknowledged: bool,
    /// Paces packets at `portion` of a configured rate, which belongs to this link alone.
    pacer: Pacer,
    portion: f64,
    /// No acknowledgement has come yet, or none for longer than it should take.
    pub(super) doubted: bool,
    /// The total rate and the least round-trip time of the other links that work; `None` without
    /// any.
    pub(super) other_links: Option<(BitRate, Duration)>,
    /// Deadline of the peer's answer about a doubted link: then all that is in flight on it is sent
    /// on the others.
    pub(super) reroute_at: Option<Instant>,
    /// Packets below this number, if they are outstanding, were sent on the others already.
    pub(super) rerouted: u64,
    /// The peer is to be asked, over another link, which packets have arrived on this one.
    pub(super) wants_report: bool,
    /// The links whose packets the peer asks about over this one, as a bit mask.
    pub(super) report_requests: u8,
    /// The peer's latest report about another link, received over this one: link number and ACK
    /// frame.
    pub(super) peer_report: Option<(u64, Vec<u8>)>,
    /// Encoded acknowledgements of other links to be sent over this one.
    pub(super) reports: Vec<Vec<u8>>,
    /// Frames that only this link may carry, such as those about its keys.
    pub(super) frames: VecDeque<Frame<'static>>,
}

impl SessionPath {
    /// Makes this path, the first of its session, the one on link `link`.
    pub(in crate::session) fn enable_links(&mut self, link: u8) {
        let pacer = Pacer::new(self.rate.rate(), BURST).with_max_burst(self.burst);
        self.membership = Some(Box::new(LinkMembership::new(link, pacer)));
    }

    /// Makes this path a further one of a session, on link `link`. Its received packets carry
    /// `index`.
    pub(crate) fn join(&mut self, link: u8, index: Index) {
        self.enable_links(link);
        if let Some(membership) = &mut self.membership {
            membership.index = Some(index);
            // The other side may not know the link yet, so it carries only probes until one is
            // acknowledged.
            (membership.doubted, membership.turn) = (true, LinkTurn::Nothing);
        }
        self.set_siblings();
        // Logged packets have no link, so only those of the first path are logged.
        self.log.resize(0);
        // A hub adds the link only with its first authentic packet.
        self.ping();
    }

    /// The number of this path's link; `None` if the session has one link only.
    pub(crate) fn link(&self) -> Option<u8> {
        self.membership.as_ref().map(|membership| membership.link)
    }

    /// The index that received packets carry; `None` for the first path.
    pub(crate) fn index(&self) -> Option<Index> {
        self.membership.as_ref()?.index
    }

    /// Returns whether this is the first path of its session.
    pub(in crate::session) fn is_first(&self) -> bool {
        self.index().is_none()
    }

    /// Returns whether the session has several links, or had.
    pub(super) fn has_siblings(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.has_siblings)
    }

    /// Records that the session has several links. Returns how long an outage of this one could
    /// last until it ended the session.
    pub(in crate::session) fn set_siblings(&mut self) -> Duration {
        if let Some(membership) = &mut self.membership {
            membership.has_siblings = true;
        }
        self.outage.set_give_up(NEVER)
    }

    /// Returns whether the peer has acknowledged a packet on this link.
    pub(in crate::session) fn has_acknowledged(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.has_acknowledged)
    }

    /// Returns whether packets arrive on this link, as far as is known.
    pub(in crate::session) fn is_working(&self) -> bool {
        self.is_reachable() && self.membership.as_ref().is_none_or(|membership| !membership.doubted)
    }

    /// The measured state of the link.
    pub(in crate::session) fn view(&self) -> LinkView {
        LinkView {
            // Two clocks cannot tell the directions apart.
            delay: self.rtt.smoothed() / 2,
            rate: self.rate.rate(),
            loss: self.loss.rate(),
            works: self.is_working(),
        }
    }

    /// Sets the data that the link may carry. `others` is as for [`LinkMembership::other_links`].
    pub(in crate::session) fn set_turn(
        &mut self,
        turn: LinkTurn,
        others: Option<(BitRate, Duration)>,
        working: u8,
    ) {
        if let Some(membership) = &mut self.membership {
            (membership.turn, membership.other_links) = (turn, others);
            membership.working = working;
        }
    }

    /// Limits the link to this portion of its configured rate.
    pub(in crate::session) fn set_portion(&mut self, portion: f64) {
        if let Some(membership) = &mut self.membership {
            membership.portion = portion;
        }
    }

    fn turn(&self) -> LinkTurn {
        self.membership.as_ref().map_or(LinkTurn::All, |membership| membership.turn)
    }

    /// Returns whether this link may carry everything.
    pub(super) fn takes_all(&self) -> bool {
        self.turn() == LinkTurn::All
    }

    /// Returns whether this link may carry data that goes before new data. A slower link helps
    /// out if the quicker ones have more to retransmit than they can send soon.
    pub(super) fn takes_urgent(&self, shared: &SharedState) -> bool {
        match self.turn() {
            LinkTurn::All => true,
            LinkTurn::Nothing => false,
            LinkTurn::Beyond(bytes) => shared.streams.lost_up_to(bytes) > bytes,
        }
    }

    /// Returns whether this link may carry new data of a class.
    pub(super) fn takes_class(&self, shared: &SharedState, class: usize) -> bool {
        let Some(membership) = &self.membership else { return true };
        // A class keeps its link only while that works; otherwise its data takes any.
        let bound = shared.scheduler.link(class).filter(|link| membership.works(*link));
        match (bound, membership.turn) {
            (Some(link), _) => link == membership.link,
            (None, LinkTurn::All) => true,
            (None, LinkTurn::Nothing) => false,
            (None, LinkTurn::Beyond(bytes)) => self.waits_beyond(shared, bytes),
        }
    }

    /// Returns whether more than `bytes` wait, the amount that the quicker links carry sooner. Data
    /// of sparse streams does not count if the quicker links can take all of it.
    fn waits_beyond(&self, shared: &SharedState, bytes: u64) -> bool {
        let sparse = shared.streams.sparse() as u64 * self.discovery.pmtu.size() as u64;
        if sparse > 0 && sparse <= bytes {
            return false;
        }
        let (streams, outbound) = (&shared.streams, &shared.outbound);
        let mut sum = streams.lost_up_to(bytes);
        sum > bytes
            || (0..shared.scheduler.classes()).filter(|class| !self.is_bound(shared, *class)).any(
                |class| {
                    sum += outbound.waiting(class);
                    sum > bytes
                        || streams.each_waiting(class).any(|waiting| {
                            sum += waiting;
                            sum > bytes
                        })
                },
            )
    }

    /// Returns whether the class is bound to a link that works.
    fn is_bound(&self, shared: &SharedState, class: usize) -> bool {
        let link = shared.scheduler.link(class);
        self.membership.as_ref().zip(link).is_some_and(|(membership, link)| membership.works(link))
    }

    /// Returns whether frames wait that only this link may carry.
    pub(super) fn has_own_frames(&self) -> bool {
        let waits = |membership: &LinkMembership| {
            !membership.frames.is_empty() || !membership.reports.is_empty()
        };
        self.membership.as_deref().is_some_and(waits)
    }

    /// Queues a frame that belongs to this link alone.
    pub(in crate::session) fn send_own(&mut self, shared: &mut SharedState, frame: Frame<'static>) {
        match &mut self.membership {
            Some(membership) => membership.frames.push_back(frame),
            None => shared.streams.send_control(frame),
        }
    }

    /// The time at which this link's own pacer has room; zero if the rate is measured.
    pub(super) fn link_free_at(&self) -> Instant {
        // With a measured rate the session paces itself.
        let configured = self.rate.shared().is_some();
        let membership = self.membership.as_ref().filter(|_| configured);
        membership.map_or(Instant::ZERO, |membership| membership.pacer.ready_at())
    }

    /// Charges a packet to this link's own pacer.
    pub(super) fn occupy_link(&mut self, now: Instant, bytes: u64) {
        let rate = self.rate.shared();
        if let (Some(membership), Some(rate)) = (&mut self.membership, rate) {
            membership.pacer.set_rate(now, portion_of(rate, membership.portion));
            membership.pacer.charge(now, ByteCount::new(bytes));
        }
    }
}

impl LinkMembership {
    fn new(link: u8, pacer: Pacer) -> Self {
        Self {
            link,
            index: None,
            turn: LinkTurn::All,
            working: 0,
            has_siblings: false,
            has_acknowledged: false,
            pacer,
            portion: 1.0,
            doubted: false,
            other_links: None,
            reroute_at: None,
            rerouted: 0,
            wants_report: false,
            report_requests: 0,
            peer_report: None,
            reports: Vec::new(),
            frames: VecDeque::new(),
        }
    }

    fn works(&self, link: u8) -> bool {
        self.working & 1u8.checked_shl(link.into()).unwrap_or(0) != 0
    }
}
