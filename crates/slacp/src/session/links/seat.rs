//! The data that a member may carry, by the turn of its link.

use units::{ByteCount, Instant};

use super::{LinkMembership, Session};
use crate::links::LinkTurn;
use crate::pacer::portion_of;
use crate::wire::frame::Frame;

impl Session {
    fn turn(&self) -> LinkTurn {
        self.membership.as_ref().map_or(LinkTurn::All, |seat| seat.turn)
    }

    /// Returns whether this member may carry everything.
    pub(in crate::session) fn takes_all(&self) -> bool {
        self.turn() == LinkTurn::All
    }

    /// Returns whether this member may carry data that goes before new data. A slower link helps
    /// out if the quicker ones have more to retransmit than they can send soon.
    pub(in crate::session) fn takes_urgent(&self) -> bool {
        match self.turn() {
            LinkTurn::All => true,
            LinkTurn::Nothing => false,
            LinkTurn::Beyond(bytes) => self.streams.lost_up_to(bytes) > bytes,
        }
    }

    /// Returns whether this member may carry new data of a class.
    pub(in crate::session) fn takes_class(&self, class: usize) -> bool {
        let Some(seat) = &self.membership else { return true };
        // A class keeps its link only while that works; otherwise its data takes any.
        let bound = self.sender.scheduler.link(class).filter(|link| seat.works(*link));
        match (bound, seat.turn) {
            (Some(link), _) => link == seat.link,
            (None, LinkTurn::All) => true,
            (None, LinkTurn::Nothing) => false,
            (None, LinkTurn::Beyond(bytes)) => self.waits_beyond(bytes),
        }
    }

    /// Returns whether more than `bytes` wait, the amount that the quicker links carry sooner. Data
    /// of sparse streams does not count if the quicker links can take all of it.
    fn waits_beyond(&self, bytes: u64) -> bool {
        let sparse = self.streams.sparse() as u64 * self.path.pmtu.size() as u64;
        if sparse > 0 && sparse <= bytes {
            return false;
        }
        let (streams, outbound) = (&self.streams, &self.sender.outbound);
        let mut sum = streams.lost_up_to(bytes);
        sum > bytes
            || (0..self.sender.scheduler.classes()).filter(|class| !self.is_bound(*class)).any(
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
    fn is_bound(&self, class: usize) -> bool {
        let link = self.sender.scheduler.link(class);
        self.membership.as_ref().zip(link).is_some_and(|(seat, link)| seat.works(link))
    }

    /// Returns whether frames wait that only this member may carry.
    pub(in crate::session) fn has_own_frames(&self) -> bool {
        let waits = |seat: &LinkMembership| !seat.frames.is_empty() || !seat.reports.is_empty();
        self.membership.as_deref().is_some_and(waits)
    }

    /// Queues a frame that belongs to this member alone.
    pub(in crate::session) fn send_own(&mut self, frame: Frame<'static>) {
        match &mut self.membership {
            Some(seat) => seat.frames.push_back(frame),
            None => self.streams.send_control(frame),
        }
    }

    /// The time at which this link's own pacer has room; zero if the rate is measured.
    pub(in crate::session) fn link_free_at(&self) -> Instant {
        // With a measured rate the session paces itself.
        let configured = self.rate.shared().is_some();
        let seat = self.membership.as_ref().filter(|_| configured);
        seat.map_or(Instant::ZERO, |seat| seat.pacer.ready_at())
    }

    /// Charges a packet to this link's own pacer.
    pub(in crate::session) fn occupy_link(&mut self, now: Instant, bytes: u64) {
        let rate = self.rate.shared();
        if let (Some(seat), Some(rate)) = (&mut self.membership, rate) {
            seat.pacer.set_rate(now, portion_of(rate, seat.portion));
            seat.pacer.charge(now, ByteCount::new(bytes));
        }
    }
}

impl LinkMembership {
    /// Returns whether the session sizes windows and buffers for several links.
    pub(in crate::session) fn shares_pace(&self) -> bool {
        self.shares_windows
    }

    fn works(&self, link: u8) -> bool {
        self.working & 1u8.checked_shl(link.into()).unwrap_or(0) != 0
    }
}
