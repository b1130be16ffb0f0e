//! A session over several links (`docs/slacp.md`, Links).
//!
//! Each link has a member: a session of its own from a handshake over that link, with its own keys,
//! packet numbers, recovery, rate and path. The first member owns the shared state: streams,
//! channels and their queues. It lends this state to another member for as long as that one handles
//! an input or builds a packet, so that a member works as a session with one link does.
//!
//! Not modelled: delays that differ by direction, and one link's rate that other sessions share.

mod doubt;
mod seat;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use units::{BitRate, Instant, earliest};

use super::{LEAST_RTT, PacketEnvelope, Session, Wake, unsent_limit};
use crate::links::{LinkTurn, LinkView, link_turns, max_waiting};
use crate::networks::network;
use crate::pacer::{BURST, Pacer};
use crate::stats::SessionStats;
use crate::streams::flow::SessionPace;
use crate::wire::ecn::Ecn;
use crate::wire::frame::Frame;
use crate::wire::packet::{Index, PacketHeader};
use crate::{CloseReason, DownReason, Event, LinkStats};

/// A member does not end by its own outage. The session ends when no link has worked for
/// [`Config::give_up`](crate::Config::give_up).
const NEVER: Duration = Duration::from_secs(1 << 32);

/// Signs of life of the session in use, which a newcomer with the same key wants to replace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncumbentSession {
    /// Arrival of its last packet.
    pub(crate) heard: Instant,
    /// Sending time of the newest packet that it has acknowledged.
    pub(crate) acknowledged: Instant,
    /// Maximum time for one answer, if nothing is lost.
    pub(crate) patience: Duration,
    /// The newcomer comes from the same network (a /24 or /48).
    pub(crate) is_near: bool,
}

/// The state of a member as one link among several.
pub(super) struct LinkMembership {
    /// The number of its link.
    link: u8,
    /// The data that the link may carry now.
    turn: LinkTurn,
    /// The links that work, as a bit mask.
    working: u8,
    /// The session sizes its windows for several links.
    shares_windows: bool,
    /// The link has acknowledged a packet.
    has_acknowledged: bool,
    /// Paces packets at `portion` of a configured rate, which belongs to this link alone.
    pacer: Pacer,
    portion: f64,
    /// No acknowledgement has come yet, or none for longer than it should take.
    doubted: bool,
    /// The total rate and the least round-trip time of the other links that work; `None` without
    /// any.
    other_links: Option<(BitRate, Duration)>,
    /// Deadline of the peer's answer about a doubted link: then all that is in flight on it is sent
    /// on the others.
    reroute_at: Option<Instant>,
    /// The peer is to be asked, over another link, which packets have arrived on this one.
    wants_report: bool,
    /// The links whose packets the peer asks about over this one, as a bit mask.
    report_requests: u8,
    /// The peer's latest report about another link, received over this one: link number and ACK
    /// frame.
    peer_report: Option<(u64, Vec<u8>)>,
    /// Encoded acknowledgements of other links to be sent over this one.
    reports: Vec<Vec<u8>>,
    /// Frames that only this link may carry, such as those about its keys.
    pub(super) frames: VecDeque<Frame<'static>>,
}

/// The other members of a session, and the state of the session as a whole.
pub(super) struct SessionLinks {
    others: Vec<LinkMember>,
    /// The time since which no link works.
    lost_at: Option<Instant>,
    give_up: Duration,
    /// The earliest time to send, and the earliest timer, of the others.
    send: Option<(Instant, Wake)>,
    wake: Option<(Instant, Wake)>,
}

struct LinkMember {
    /// The index that packets to this member carry.
    index: Index,
    session: Box<Session>,
}

impl Session {
    /// Prepares a session on link `link` for further links.
    pub(crate) fn enable_links(&mut self, link: u8) {
        self.membership = Some(Box::new(LinkMembership {
            link,
            turn: LinkTurn::All,
            working: 0,
            shares_windows: false,
            has_acknowledged: false,
            pacer: Pacer::new(self.rate.rate(), BURST).with_max_burst(self.burst),
            portion: 1.0,
            doubted: false,
            other_links: None,
            reroute_at: None,
            wants_report: false,
            report_requests: 0,
            peer_report: None,
            reports: Vec::new(),
            frames: VecDeque::new(),
        }));
        // Truncated offsets are completed by packet numbers, which are not comparable between
        // links.
        self.streams.send_full_offsets();
    }

    /// The number of this member's link; `None` if the session has one link only.
    pub(crate) fn link(&self) -> Option<u8> {
        self.membership.as_ref().map(|seat| seat.link)
    }

    /// Returns whether the session has several links, or had.
    pub(crate) fn has_links(&self) -> bool {
        self.links.is_some()
    }

    /// Number of links of the session, at least 1.
    fn link_count(&self) -> usize {
        1 + self.links.as_ref().map_or(0, |links| links.others.len())
    }

    /// Returns whether the peer has acknowledged a packet on a link.
    pub(crate) fn has_proven(&self, link: u8) -> bool {
        let seats = self.members().filter_map(|member| member.membership.as_ref());
        seats.into_iter().any(|seat| seat.link == link && seat.has_acknowledged)
    }

    /// Adds a member on `link`, whose received packets carry `index`. Replaces an earlier member on
    /// the same link and returns the index of that one.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        index: Index,
        link: u8,
        mut member: Box<Self>,
    ) -> Option<Index> {
        member.enable_links(link);
        if let Some(seat) = &mut member.membership {
            // The other side may not know the link yet, so it carries only probes until one is
            // acknowledged.
            (seat.doubted, seat.turn, seat.shares_windows) = (true, LinkTurn::Nothing, true);
        }
        member.outage.set_give_up(NEVER);
        // A hub adds the link only with its first authentic packet.
        member.ping();
        if let Some(seat) = &mut self.membership {
            seat.shares_windows = true;
        }
        let old = self.remove_member(now, link);
        if self.links.is_none() {
            let give_up = self.outage.set_give_up(NEVER);
            let (lost_at, send, wake) = (None, None, None);
            self.links =
                Some(SessionLinks { others: Vec::new(), lost_at, give_up, send, wake }.into());
        }
        if let Some(links) = &mut self.links {
            links.others.push(LinkMember { index, session: member });
        }
        self.update_links(now);
        old
    }

    /// Removes the member of a link and sends its data in flight on the others. Returns its index.
    fn remove_member(&mut self, now: Instant, link: u8) -> Option<Index> {
        let others = &mut self.links.as_mut()?.others;
        let number = others.iter().position(|member| member.session.link() == Some(link))?;
        let LinkMember { index, session } = others.swap_remove(number);
        let [_, rest] = session.sender.sent.outstanding_contents(None);
        rest.into_iter().for_each(|cargo| self.resend(now, cargo));
        Some(index)
    }

    /// The receiver indices of all members but the first.
    pub(crate) fn member_indices(&self) -> Vec<Index> {
        let others = self.links.iter().flat_map(|links| &links.others);
        others.map(|member| member.index).collect()
    }

    /// Statistics of each link, by link number.
    pub(crate) fn link_stats(&self) -> Vec<LinkStats> {
        let mut stats: Vec<LinkStats> = self.members().map(Self::own_link_stats).collect();
        stats.sort_unstable_by_key(|link| link.link);
        stats
    }

    fn own_link_stats(&self) -> LinkStats {
        LinkStats {
            link: self.link().unwrap_or(0),
            address: self.peer.address,
            works: self.is_link_working(),
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

    /// The member at a position; 0, and any position without a member, is the first.
    fn member(&self, number: usize) -> &Self {
        let others = self.links.as_ref().zip(number.checked_sub(1));
        others.and_then(|(links, other)| links.others.get(other)).map_or(self, |it| &it.session)
    }

    /// Runs a function on a member, without the shared state unless it is the first.
    fn on_member<T>(&mut self, number: usize, what: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let Some(other) = number.checked_sub(1) else { return Some(what(self)) };
        Some(what(&mut self.links.as_mut()?.others.get_mut(other)?.session))
    }

    /// Limits each link to this portion of its configured rate.
    pub(crate) fn set_portion(&mut self, portion: f64) {
        for number in 0..self.link_count() {
            let seat = |member: &mut Self| {
                member.membership.iter_mut().for_each(|seat| seat.portion = portion);
            };
            self.on_member(number, seat);
        }
    }

    /// Holds new data back from a link, or releases it.
    pub(crate) fn hold_back(&mut self, link: u8, held: bool) {
        let number = self.members().position(|member| member.link().unwrap_or(0) == link);
        if let Some(number) = number {
            self.on_member(number, |member| member.set_own_held_back(held));
        }
    }

    /// Returns whether packets arrive on this member's link, as far as is known.
    fn is_link_working(&self) -> bool {
        self.is_reachable() && self.membership.as_ref().is_none_or(|seat| !seat.doubted)
    }

    /// Returns whether the peer answers on any link.
    pub(crate) fn is_connected(&self) -> bool {
        self.members().any(Self::is_reachable)
    }

    /// Returns whether the peer has this address on any link.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.members().any(|member| member.peer.address.ip().to_canonical() == address)
    }

    /// The session's signs of life, for the decision about a newcomer at this address.
    pub(crate) fn incumbent(&self, newcomer: IpAddr) -> IncumbentSession {
        let all = || self.members();
        let (heard, acknowledged) = (
            all().map(|member| member.activity.heard).max(),
            all().map(|member| member.activity.acknowledged).max(),
        );
        let near = |member: &Self| network(member.peer.address.ip()) == network(newcomer);
        IncumbentSession {
            heard: heard.unwrap_or(Instant::ZERO),
            acknowledged: acknowledged.unwrap_or(Instant::ZERO),
            patience: all().map(Self::challenge_delay).max().unwrap_or_default(),
            is_near: all().any(near),
        }
    }

    /// Sends a PING on every link, which the peer must acknowledge.
    pub(crate) fn ping_all_links(&mut self) {
        for number in 0..self.link_count() {
            self.on_member(number, Self::ping);
        }
    }

    /// Returns whether the session may recently have sent a packet with this header on any link.
    pub(crate) fn may_have_sent(&self, header: &PacketHeader) -> bool {
        self.members().any(|member| member.may_have_sent_own(header))
    }

    /// Runs a function on a member other than the first, with the shared state swapped in.
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

    /// Exchanges the state that all members share: streams, outgoing and incoming channels,
    /// scheduler.
    fn swap_shared(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.streams, &mut other.streams);
        core::mem::swap(&mut self.sender.outbound, &mut other.sender.outbound);
        core::mem::swap(&mut self.sender.scheduler, &mut other.sender.scheduler);
        core::mem::swap(&mut self.receiver.inbound, &mut other.receiver.inbound);
    }

    /// Applies the farewell and the end of a member to the session.
    fn follow_member(&mut self, now: Instant, member: &mut Self) {
        // Only the first member's queue is polled; `update_reachability` reports for all links.
        member.events.clear();
        member.peer_farewell.into_iter().for_each(|farewell| self.on_leaving(farewell));
        match member.take_end() {
            Some(DownReason::ClosedByPeer(reason)) => self.life.closed_by_peer(reason),
            Some(DownReason::Violation) => {
                self.stats.failure.clone_from(&member.stats.failure);
                self.close(now, CloseReason::Violation);
            }
            Some(_) | None => {}
        }
    }

    /// Processes a data packet that arrived for the member on `link`. Returns whether it was
    /// authentic.
    pub(crate) fn handle_member_packet(
        &mut self,
        now: Instant,
        link: u8,
        (from, ecn): (SocketAddr, Ecn),
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> bool {
        let number = self.members().skip(1).position(|member| member.link() == Some(link));
        let Some(number) = number else { return false };
        let handle = |member: &mut Self| member.handle_packet(now, from, ecn, header, datagram);
        self.with_member(now, number, handle).unwrap_or(false)
    }

    /// The time of the next [`Self::handle_timeout`], over all links.
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

    /// The earliest time at which [`Self::transmit`] may have a packet; see
    /// [`Self::own_send_time`].
    pub(crate) fn send_time(&self) -> Option<(Instant, Wake)> {
        earliest(self.own_send_time(), self.links.as_ref().and_then(|links| links.send))
    }

    /// Appends the next packet of the session to `out`, on the quickest link that may carry it.
    /// Leaves `out` unchanged if there is none.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PacketEnvelope> {
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

    fn transmit_on_any(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PacketEnvelope> {
        let mut order: Vec<(Duration, usize)> =
            self.members().map(|member| member.rtt.smoothed()).zip(0..).collect();
        order.sort_unstable();
        let before = out.len();
        for (_, number) in order {
            // A member without a packet may have left a header behind.
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

    fn transmit_if_due(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PacketEnvelope> {
        self.own_send_time().filter(|(time, _)| *time <= now)?;
        self.transmit_own(now, out)
    }

    /// Decides which data each link may carry, and updates the members' timers. Runs after every
    /// input and command.
    pub(crate) fn update_links(&mut self, now: Instant) {
        if self.links.is_none() {
            return;
        }
        self.close_members(now);
        self.exchange_reports(now);
        let view = |member: &Self| LinkView {
            // Two clocks cannot tell the directions apart.
            delay: member.rtt.smoothed() / 2,
            rate: member.rate.rate(),
            loss: member.loss.rate(),
            works: member.is_link_working(),
        };
        let views: Vec<LinkView> = self.members().map(view).collect();
        let bits = self.members().filter(|member| member.is_link_working()).filter_map(Self::link);
        let bits = bits.fold(0, |bits, link| bits | 1 << link);
        let turns = link_turns(&views);
        let others = |number: usize| {
            let others =
                views.iter().enumerate().filter(|(other, it)| *other != number && it.works);
            let sum = others.clone().map(|(_, view)| view.rate.bits_per_second()).sum();
            let least = others.map(|(_, view)| view.delay * 2).min()?;
            Some((BitRate::from_bits_per_second(sum), least))
        };
        self.update_shared_pace(max_waiting(&turns));
        self.update_reachability(now);
        if let Some(seat) = &mut self.membership {
            (seat.turn, seat.other_links, seat.working) = (turns[0], others(0), bits);
        }
        let (mut send, mut wake) = (None, None);
        for (number, turn) in turns[1..].iter().enumerate() {
            let wants = self.with_member(now, number, |member| {
                if let Some(seat) = &mut member.membership {
                    (seat.turn, seat.other_links) = (*turn, others(number + 1));
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

    /// Sends CLOSE on every link once the session is closing.
    fn close_members(&mut self, now: Instant) {
        let Some(reason) = self.life.closing_for() else { return };
        for member in self.links.iter_mut().flat_map(|links| &mut links.others) {
            member.session.close(now, reason);
        }
    }

    /// Sizes windows and send buffers for all links together. `beyond` is the data that must wait
    /// before the slowest link is used.
    fn update_shared_pace(&mut self, beyond: u64) {
        let sum = |rates: &mut dyn Iterator<Item = BitRate>| {
            BitRate::from_bits_per_second(rates.map(BitRate::bits_per_second).sum())
        };
        let own = sum(&mut self.members().map(|member| member.rate.rate()));
        let theirs = sum(&mut self.members().map(|member| member.peer.rate));
        let rtt = self.members().map(|member| member.rtt.smoothed()).max().unwrap_or(LEAST_RTT);
        // A single stream must be able to use all links, so it may hold what the slowest one waits
        // for.
        let limit = unsent_limit(own, self.on_demand) + beyond + beyond / 4;
        self.streams.set_unsent_limit(limit);
        self.streams.set_pace(SessionPace { rtt: rtt.max(LEAST_RTT), rates: [own, theirs] });
        self.streams.wake_writers();
    }

    /// Replaces the first member's own events about reachability by those of the session: it is
    /// reachable while any link works.
    fn update_reachability(&mut self, now: Instant) {
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

    /// Bytes held by all members but the first.
    pub(super) fn held_by_members(&self) -> u64 {
        let held = |member: &Self| (member.sender.held() + member.receiver.held()) as u64;
        self.members().skip(1).map(held).sum()
    }

    /// Adds the other members to the counters of the first.
    pub(super) fn add_members(&self, mut stats: SessionStats) -> SessionStats {
        for member in self.members().skip(1) {
            stats.add_link(&member.stats);
        }
        let rates = self.members().filter(|member| member.is_link_working()).map(Self::rate);
        if self.links.is_some() {
            let bits = rates.map(BitRate::bits_per_second).sum();
            stats.rate = BitRate::from_bits_per_second(bits);
        }
        stats
    }
}
