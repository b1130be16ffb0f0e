//! A session over several links (`docs/slacp.md`, Links).
//!
//! Each link has a member: a session of its own from a handshake over that link, with its own keys,
//! packet numbers, recovery, rate and path. The first member is the home of what they share: streams,
//! channels and their queues. It lends these to another member for as long as that one handles an
//! input or builds a packet, so that a member works as a session with one link does.
//!
//! Does not model: delays that differ by direction, and one link's rate that other sessions share.

mod doubt;
mod seat;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use units::{BitRate, Instant, earliest};

use super::{Envelope, LEAST_RTT, Session, Wake, unsent};
use crate::links::{Turn, View, most_waiting, turns};
use crate::networks::network;
use crate::pacer::{BURST, Pacer};
use crate::stats::Stats;
use crate::streams::flow::Pace;
use crate::wire::ecn::Ecn;
use crate::wire::frame::Frame;
use crate::wire::packet::{Header, Index};
use crate::{CloseReason, DownReason, Event, LinkStats};

/// A member does not end by its own outage; the session does when no link works for long enough.
const NEVER: Duration = Duration::from_secs(1 << 32);

/// The session that a newcomer wants to replace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    /// When a packet of it last came.
    pub(crate) heard: Instant,
    /// When the newest packet left that it has acknowledged.
    pub(crate) acknowledged: Instant,
    /// Maximum time for one answer, if nothing is lost.
    pub(crate) patience: Duration,
    /// Whether the newcomer comes from its network (a /24 or /48).
    pub(crate) is_near: bool,
}

/// What a member knows of its place among the links.
pub(super) struct Seat {
    /// The number of its link.
    link: u8,
    turn: Turn,
    /// The links that work, as bits.
    working: u8,
    /// Whether the session sizes windows for several links.
    shared: bool,
    /// Whether it has acknowledged a packet.
    proven: bool,
    /// Paces packets at a portion of a configured rate, which is this link's alone.
    pacer: Pacer,
    portion: f64,
    /// Nothing has been acknowledged yet, or not for longer than it should take.
    doubted: bool,
    /// What the other links that work can carry, and the least round-trip time of these.
    others: Option<(BitRate, Duration)>,
    /// When what is in flight on a doubted link is sent on the others.
    moves_at: Option<Instant>,
    /// Whether the peer is to be asked over another link what has come on this one.
    asks: bool,
    /// The links whose packets the peer asks about over this one, as bits.
    asked: u8,
    /// What the peer has said about another link over this one.
    told: Option<(u64, Vec<u8>)>,
    /// Acknowledgements of other links to be sent over this one.
    reports: Vec<Vec<u8>>,
    /// Frames about this member's keys, which no other may carry.
    pub(super) frames: VecDeque<Frame<'static>>,
}

/// The other members of a session, and what they have in common.
pub(super) struct Links {
    others: Vec<Member>,
    /// When none of the links worked any more.
    lost_at: Option<Instant>,
    give_up: Duration,
    /// When the others want to send, and to be woken.
    send: Option<(Instant, Wake)>,
    wake: Option<(Instant, Wake)>,
}

struct Member {
    /// The index that its packets carry.
    index: Index,
    session: Box<Session>,
}

impl Session {
    /// Gives a session that may get further links its place.
    pub(crate) fn take_seat(&mut self, link: u8) {
        self.seat = Some(Box::new(Seat {
            link,
            turn: Turn::All,
            working: 0,
            shared: false,
            proven: false,
            pacer: Pacer::new(self.rate.rate(), BURST).limited(self.burst),
            portion: 1.0,
            doubted: false,
            others: None,
            moves_at: None,
            asks: false,
            asked: 0,
            told: None,
            reports: Vec::new(),
            frames: VecDeque::new(),
        }));
        // The packets of different links have numbers of their own, by which no offset can be
        // completed.
        self.streams.send_full_offsets();
    }

    /// The number of the link of this member's packets; `None` if the session has one link only.
    pub(crate) fn link(&self) -> Option<u8> {
        self.seat.as_ref().map(|seat| seat.link)
    }

    /// Whether it has several links, or had.
    pub(crate) fn has_links(&self) -> bool {
        self.links.is_some()
    }

    /// Number of links.
    fn link_count(&self) -> usize {
        1 + self.links.as_ref().map_or(0, |links| links.others.len())
    }

    /// Whether a link has acknowledged a packet.
    pub(crate) fn has_proven(&self, link: u8) -> bool {
        let seats = self.members().filter_map(|member| member.seat.as_ref());
        seats.into_iter().any(|seat| seat.link == link && seat.proven)
    }

    /// Adds a member, whose packets come with this index and take this link, or replaces the one of
    /// that link; returns the index of the latter.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        index: Index,
        link: u8,
        mut member: Box<Self>,
    ) -> Option<Index> {
        member.take_seat(link);
        if let Some(seat) = &mut member.seat {
            // The other side may not know it yet.
            (seat.doubted, seat.turn, seat.shared) = (true, Turn::Nothing, true);
        }
        member.outage.set_give_up(NEVER);
        member.ping();
        if let Some(seat) = &mut self.seat {
            seat.shared = true;
        }
        let old = self.remove_member(now, link);
        if self.links.is_none() {
            let give_up = self.outage.set_give_up(NEVER);
            let (lost_at, send, wake) = (None, None, None);
            self.links = Some(Links { others: Vec::new(), lost_at, give_up, send, wake }.into());
        }
        if let Some(links) = &mut self.links {
            links.others.push(Member { index, session: member });
        }
        self.follow_links(now);
        old
    }

    /// Removes the member of a link. What is in flight there is sent on the others.
    fn remove_member(&mut self, now: Instant, link: u8) -> Option<Index> {
        let others = &mut self.links.as_mut()?.others;
        let number = others.iter().position(|member| member.session.link() == Some(link))?;
        let Member { index, session } = others.swap_remove(number);
        let [_, rest] = session.sender.sent.doubted_cargo(None);
        rest.into_iter().for_each(|cargo| self.resend(now, cargo));
        Some(index)
    }

    /// The indices of the packets of all members but the first.
    pub(crate) fn member_indices(&self) -> Vec<Index> {
        let others = self.links.iter().flat_map(|links| &links.others);
        others.map(|member| member.index).collect()
    }

    /// What is known of each link, by its number.
    pub(crate) fn link_stats(&self) -> Vec<LinkStats> {
        let mut stats: Vec<LinkStats> = self.members().map(Self::own_link_stats).collect();
        stats.sort_unstable_by_key(|link| link.link);
        stats
    }

    fn own_link_stats(&self) -> LinkStats {
        LinkStats {
            link: self.link().unwrap_or(0),
            address: self.peer.address,
            works: self.works(),
            rtt: self.rtt.smoothed(),
            rate: self.rate.rate(),
            loss: self.loss.rate(),
            bytes_sent: self.stats.bytes_sent,
            bytes_received: self.stats.bytes_received,
            packets_lost: self.stats.packets_lost,
        }
    }

    fn members(&self) -> impl Iterator<Item = &Self> {
        let others = self.links.iter().flat_map(|links| &links.others);
        core::iter::once(self).chain(others.map(|member| &*member.session))
    }

    /// A member by its place: 0 is the first.
    fn member(&self, number: usize) -> &Self {
        let others = self.links.as_ref().zip(number.checked_sub(1));
        others.and_then(|(links, other)| links.others.get(other)).map_or(self, |it| &it.session)
    }

    /// Runs a function on a member, without what they share unless it is the first.
    fn on_member<T>(&mut self, number: usize, what: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let Some(other) = number.checked_sub(1) else { return Some(what(self)) };
        Some(what(&mut self.links.as_mut()?.others.get_mut(other)?.session))
    }

    /// Uses no more than this portion of the rates of its links.
    pub(crate) fn set_portion(&mut self, portion: f64) {
        for number in 0..self.link_count() {
            let seat = |member: &mut Self| {
                member.seat.iter_mut().for_each(|seat| seat.portion = portion);
            };
            self.on_member(number, seat);
        }
    }

    /// Holds new data back from a link, or lets it go.
    pub(crate) fn hold_back(&mut self, link: u8, held: bool) {
        let number = self.members().position(|member| member.link().unwrap_or(0) == link);
        if let Some(number) = number {
            self.on_member(number, |member| member.hold_back_own(held));
        }
    }

    /// Whether packets arrive on this member's link, as far as is known.
    fn works(&self) -> bool {
        self.is_reachable() && self.seat.as_ref().is_none_or(|seat| !seat.doubted)
    }

    /// Whether the peer answers on any link.
    pub(crate) fn is_connected(&self) -> bool {
        self.members().any(Self::is_reachable)
    }

    /// Whether the peer has this address on any link.
    pub(crate) fn is_at(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.members().any(|member| member.peer.address.ip().to_canonical() == address)
    }

    /// Its signs of life, for a newcomer from an address.
    pub(crate) fn present(&self, newcomer: IpAddr) -> Present {
        let all = || self.members();
        let (heard, acknowledged) = (
            all().map(|member| member.activity.heard).max(),
            all().map(|member| member.activity.acknowledged).max(),
        );
        let near = |member: &Self| network(member.peer.address.ip()) == network(newcomer);
        Present {
            heard: heard.unwrap_or(Instant::ZERO),
            acknowledged: acknowledged.unwrap_or(Instant::ZERO),
            patience: all().map(Self::challenge_delay).max().unwrap_or_default(),
            is_near: all().any(near),
        }
    }

    /// Makes the peer acknowledge something soon on every link.
    pub(crate) fn ask(&mut self) {
        for number in 0..self.link_count() {
            self.on_member(number, Self::ping);
        }
    }

    /// Whether the session may recently have sent a packet with this header on any link.
    pub(crate) fn may_have_sent(&self, header: &Header) -> bool {
        self.members().any(|member| member.may_have_sent_own(header))
    }

    /// Runs a function on a member but the first, which has what they share meanwhile.
    fn with_member<T>(
        &mut self,
        now: Instant,
        number: usize,
        what: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let mut links = self.links.take()?;
        let result = links.others.get_mut(number).map(|member| {
            self.swap_shared(&mut member.session);
            let result = what(&mut member.session);
            self.swap_shared(&mut member.session);
            self.follow_member(now, &mut member.session);
            result
        });
        self.links = Some(links);
        result
    }

    fn swap_shared(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.streams, &mut other.streams);
        core::mem::swap(&mut self.sender.outbound, &mut other.sender.outbound);
        core::mem::swap(&mut self.sender.scheduler, &mut other.sender.scheduler);
        core::mem::swap(&mut self.receiver.inbound, &mut other.receiver.inbound);
    }

    /// Passes on what a member has learnt that concerns the session.
    fn follow_member(&mut self, now: Instant, member: &mut Self) {
        member.events.clear();
        member.peer_leaves.into_iter().for_each(|farewell| self.on_leaving(farewell));
        match member.take_end() {
            Some(DownReason::ClosedByPeer(reason)) => self.life.closed_by_peer(reason),
            Some(DownReason::Violation) => {
                self.stats.failure.clone_from(&member.stats.failure);
                self.close(now, CloseReason::Violation);
            }
            Some(_) | None => {}
        }
    }

    /// Processes a data packet of a member.
    pub(crate) fn handle_member_packet(
        &mut self,
        now: Instant,
        link: u8,
        (from, ecn): (SocketAddr, Ecn),
        header: &Header,
        datagram: &mut [u8],
    ) -> bool {
        let number = self.members().skip(1).position(|member| member.link() == Some(link));
        let Some(number) = number else { return false };
        let handle = |member: &mut Self| member.handle_packet(now, from, ecn, header, datagram);
        self.with_member(now, number, handle).unwrap_or(false)
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let links = self.links.as_ref();
        let lost = links.and_then(|links| Some(links.lost_at? + links.give_up));
        let lost = lost.filter(|_| self.is_usable()).map(|time| (time, Wake::Silence));
        let others = links.and_then(|links| links.wake);
        earliest(self.own_timeout(), earliest(others, lost))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.handle_own_timeout(now);
        for number in 0..self.link_count() - 1 {
            self.with_member(now, number, |member| member.handle_own_timeout(now));
        }
        let lost = self.links.as_ref().and_then(|links| Some(links.lost_at? + links.give_up));
        if lost.is_some_and(|end| end <= now) && self.is_usable() {
            self.life.give_up();
        }
    }

    /// When [`Self::transmit`] may have a packet; see [`Self::own_send_time`].
    pub(crate) fn send_time(&self) -> Option<(Instant, Wake)> {
        earliest(self.own_send_time(), self.links.as_ref().and_then(|links| links.send))
    }

    /// Appends the next packet of the session to `out`, on the quickest link that may carry it.
    /// Without one, `out` stays as it was.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Envelope> {
        let before = out.len();
        let sent = match self.links {
            None => self.transmit_own(now, out),
            Some(_) => self.transmit_on_any(now, out),
        };
        if sent.is_none() {
            out.truncate(before);
        }
        sent
    }

    fn transmit_on_any(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Envelope> {
        let mut order: Vec<(Duration, usize)> =
            self.members().map(|member| member.rtt.smoothed()).zip(0..).collect();
        order.sort_unstable();
        let before = out.len();
        for (_, number) in order {
            out.truncate(before);
            let sent = match number.checked_sub(1) {
                None => self.transmit_if_due(now, out),
                Some(other) => {
                    self.with_member(now, other, |member| member.transmit_if_due(now, out))?
                }
            };
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    fn transmit_if_due(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Envelope> {
        self.own_send_time().filter(|(time, _)| *time <= now)?;
        self.transmit_own(now, out)
    }

    /// Decides what each link carries, and when the members come back. Every input and command ends
    /// with this.
    pub(crate) fn follow_links(&mut self, now: Instant) {
        if self.links.is_none() {
            return;
        }
        self.end_members(now);
        self.exchange_reports(now);
        let view = |member: &Self| View {
            delay: member.rtt.smoothed() / 2,
            rate: member.rate.rate(),
            loss: member.loss.rate(),
            works: member.works(),
        };
        let views: Vec<View> = self.members().map(view).collect();
        let bits = self.members().filter(|member| member.works()).filter_map(Self::link);
        let bits = bits.fold(0, |bits, link| bits | 1 << link);
        let turns = turns(&views);
        let others = |number: usize| {
            let others =
                views.iter().enumerate().filter(|(other, it)| *other != number && it.works);
            let sum = others.clone().map(|(_, view)| view.rate.bits_per_second()).sum();
            let least = others.map(|(_, view)| view.delay * 2).min()?;
            Some((BitRate::from_bits_per_second(sum), least))
        };
        self.share_pace(most_waiting(&turns));
        self.follow_reachability(now);
        if let Some(seat) = &mut self.seat {
            (seat.turn, seat.others, seat.working) = (turns[0], others(0), bits);
        }
        let (mut send, mut wake) = (None, None);
        for (number, turn) in turns[1..].iter().enumerate() {
            let wants = self.with_member(now, number, |member| {
                if let Some(seat) = &mut member.seat {
                    (seat.turn, seat.others) = (*turn, others(number + 1));
                    seat.working = bits;
                }
                (member.own_send_time(), member.own_timeout())
            });
            let wants = wants.unwrap_or_default();
            (send, wake) = (earliest(send, wants.0), earliest(wake, wants.1));
        }
        if let Some(links) = &mut self.links {
            (links.send, links.wake) = (send, wake);
        }
    }

    /// The end of the session is told on every link.
    fn end_members(&mut self, now: Instant) {
        let Some(reason) = self.life.closing_for() else { return };
        for member in self.links.iter_mut().flat_map(|links| &mut links.others) {
            member.session.close(now, reason);
        }
    }

    /// Sizes windows and buffers for all links together.
    fn share_pace(&mut self, beyond: u64) {
        let sum = |rates: &mut dyn Iterator<Item = BitRate>| {
            BitRate::from_bits_per_second(rates.map(BitRate::bits_per_second).sum())
        };
        let own = sum(&mut self.members().map(|member| member.rate.rate()));
        let theirs = sum(&mut self.members().map(|member| member.peer.rate));
        let rtt = self.members().map(|member| member.rtt.smoothed()).max().unwrap_or(LEAST_RTT);
        // A stream may fill all links by itself, and so must have as much waiting as that takes.
        let limit = unsent(own, self.on_demand) + beyond + beyond / 4;
        self.streams.set_unsent_limit(limit);
        self.streams.set_pace(Pace { rtt: rtt.max(LEAST_RTT), rates: [own, theirs] });
        self.streams.wake_writers();
    }

    /// Reports whether any link works instead of whether the first does.
    fn follow_reachability(&mut self, now: Instant) {
        let connected = self.is_connected();
        self.events.retain(|event| {
            !matches!(event, Event::Unreachable | Event::Reachable | Event::Moved { .. })
        });
        let Some(links) = &mut self.links else { return };
        match (connected, links.lost_at) {
            (false, None) => {
                links.lost_at = Some(now);
                self.events.push_back(Event::Unreachable);
            }
            (true, Some(_)) => {
                links.lost_at = None;
                self.events.push_back(Event::Reachable);
            }
            _ => {}
        }
    }

    /// What the members but the first hold, in bytes.
    pub(super) fn held_by_members(&self) -> u64 {
        let held = |member: &Self| (member.sender.held() + member.receiver.held()) as u64;
        self.members().skip(1).map(held).sum()
    }

    /// Adds the other members to the counters of the first.
    pub(super) fn add_members(&self, mut stats: Stats) -> Stats {
        for member in self.members().skip(1) {
            stats.add_link(&member.stats);
        }
        let rates = self.members().filter(|member| member.works()).map(Self::rate);
        if self.links.is_some() {
            let bits = rates.map(BitRate::bits_per_second).sum();
            stats.rate = BitRate::from_bits_per_second(bits);
        }
        stats
    }
}
