//! A session over several links (`docs/slacp.md`, Links).
//!
//! Each link is a path of the session, from a handshake over that link. The session decides what
//! each may carry, and passes questions and reports about one on to the others.
//!
//! Not modelled: delays that differ by direction, and one link's rate that other sessions share.

pub(crate) mod division;
mod reports;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use units::{BitRate, Instant, earliest};

use self::division::{LinkView, link_turns, max_waiting};
use super::{
    LEAST_RTT, PacketBatch, PacketEnvelope, Session, SessionPath, SharedState, Wake, unsent_limit,
};
use crate::event::stats::SessionStats;
use crate::ids::networks::network;
use crate::streams::flow::SessionPace;
use crate::wire::ecn::Ecn;
use crate::wire::packet::{Index, PacketHeader};
use crate::{Event, LinkStats};

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

/// The state of all links of a session together.
pub(super) struct SessionLinks {
    /// The time since which no link works.
    lost_at: Option<Instant>,
    give_up: Duration,
    /// The position of the path that the next CLOSE takes.
    pub(super) next_close: usize,
}

impl Session {
    /// Prepares a session on link `link` for further links.
    pub(crate) fn enable_links(&mut self, link: u8) {
        self.first_mut().enable_links(link);
        // Truncated offsets are completed by packet numbers, which are not comparable between
        // links.
        self.shared.streams.send_full_offsets();
    }

    /// The number of the first path's link; `None` if the session has one link only.
    pub(crate) fn link(&self) -> Option<u8> {
        self.first().link()
    }

    /// Returns whether the session has several links, or had.
    pub(crate) fn has_links(&self) -> bool {
        self.links.is_some()
    }

    /// Returns whether the peer has acknowledged a packet on a link.
    pub(crate) fn has_proven(&self, link: u8) -> bool {
        self.paths.iter().any(|path| path.link() == Some(link) && path.has_acknowledged())
    }

    /// Adds a path that [joins](SessionPath::join) the session. Replaces an earlier one on the same
    /// link and returns the index of that one.
    pub(crate) fn join(&mut self, now: Instant, path: SessionPath) -> Option<Index> {
        let old = path.link().and_then(|link| self.remove_link(now, link));
        let give_up = self.first_mut().set_siblings();
        let links = || SessionLinks { lost_at: None, give_up, next_close: 0 };
        self.links.get_or_insert_with(|| links().into());
        // A path takes kilobytes, and few are added.
        self.paths.reserve_exact(1);
        self.paths.push(path);
        self.update_links(now);
        old
    }

    /// Removes the path of a link, if it is not the first, and sends its data in flight on the
    /// others. Returns its index.
    fn remove_link(&mut self, now: Instant, link: u8) -> Option<Index> {
        let is_removed = |path: &SessionPath| !path.is_first() && path.link() == Some(link);
        let number = self.paths.iter().position(is_removed)?;
        let mut removed = self.paths.swap_remove(number);
        removed.abandon_cargo(&mut self.shared, now);
        removed.index()
    }

    /// The receiver indices of all paths but the first.
    pub(crate) fn link_indices(&self) -> Vec<Index> {
        self.paths.iter().filter_map(SessionPath::index).collect()
    }

    /// Statistics of each link, by link number.
    pub(crate) fn link_stats(&self) -> Vec<LinkStats> {
        let mut stats: Vec<LinkStats> = self.paths.iter().map(SessionPath::link_stats).collect();
        stats.sort_unstable_by_key(|link| link.link);
        stats
    }

    /// Limits each link to this portion of its configured rate.
    pub(crate) fn set_portion(&mut self, portion: f64) {
        self.paths.iter_mut().for_each(|path| path.set_portion(portion));
    }

    /// Holds new data back from a link, or releases it. Acknowledgements, retransmissions, repairs
    /// and control frames leave in any case.
    pub(crate) fn hold_back(&mut self, link: u8, held: bool) {
        let path = self.paths.iter_mut().find(|path| path.link().unwrap_or(0) == link);
        if let Some(path) = path {
            path.held_back = held;
        }
    }

    /// Returns whether the peer answers on any link.
    pub(crate) fn is_connected(&self) -> bool {
        self.paths.iter().any(SessionPath::is_reachable)
    }

    /// Returns whether the peer has this address on any link.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.paths.iter().any(|path| path.remote.address.ip().to_canonical() == address)
    }

    /// The session's signs of life, for the decision about a newcomer at this address.
    pub(crate) fn incumbent(&self, newcomer: IpAddr) -> IncumbentSession {
        let all = || self.paths.iter();
        let heard = all().map(|path| path.activity.heard).max();
        let acknowledged = all().map(|path| path.activity.acknowledged).max();
        let near = |path: &SessionPath| network(path.remote.address.ip()) == network(newcomer);
        IncumbentSession {
            heard: heard.unwrap_or(Instant::ZERO),
            acknowledged: acknowledged.unwrap_or(Instant::ZERO),
            patience: all().map(SessionPath::challenge_delay).max().unwrap_or_default(),
            is_near: all().any(near),
        }
    }

    /// Sends a PING on every link, which the peer must acknowledge.
    pub(crate) fn ping_all_links(&mut self) {
        self.paths.iter_mut().for_each(SessionPath::ping);
    }

    /// Returns whether the session may recently have sent a packet with this header on any link.
    pub(crate) fn may_have_sent(&self, header: &PacketHeader) -> bool {
        self.paths.iter().any(|path| path.may_have_sent(header))
    }

    /// Processes a data packet that arrived on a further link. Returns whether it was authentic.
    pub(crate) fn handle_link_packet(
        &mut self,
        now: Instant,
        link: u8,
        origin: (SocketAddr, Ecn),
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> bool {
        let further = self.paths.iter_mut().filter(|path| !path.is_first());
        let path = further.into_iter().find(|path| path.link() == Some(link));
        path.is_some_and(|path| path.handle_packet(&mut self.shared, now, origin, header, datagram))
    }

    /// The time of the next [`Self::handle_timeout`], over all links.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        if !self.is_usable() {
            return self.shared.life.poll_timeout();
        }
        let timeouts = self.paths.iter().map(|path| path.poll_timeout(&self.shared));
        let lost = self.links_end().map(|time| (time, Wake::Silence));
        let of_all = earliest(self.shared.poll_timeout(), lost);
        earliest(timeouts.fold(None, earliest), of_all)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.is_usable() {
            let is_reachable = self.is_connected();
            let (first, shared) = self.first_and_shared();
            shared.handle_timeout(now, is_reachable, &mut first.log);
        }
        for path in &mut self.paths {
            if self.shared.is_usable() {
                path.handle_timeout(&mut self.shared, now);
            }
        }
        if !self.is_usable() {
            self.shared.life.handle_timeout(now);
        } else if self.links_end().is_some_and(|end| end <= now) {
            self.shared.life.give_up();
        }
    }

    /// The time at which the session ends because no link works.
    fn links_end(&self) -> Option<Instant> {
        let links = self.links.as_ref()?;
        Some(links.lost_at? + links.give_up)
    }

    /// The earliest time at which [`Self::transmit`] may have a packet; see
    /// [`SessionPath::send_time`].
    pub(crate) fn send_time(&self) -> Option<(Instant, Wake)> {
        if !self.is_usable() {
            return self.shared.life.send_time();
        }
        self.paths.iter().map(|path| path.send_time(&self.shared)).fold(None, earliest)
    }

    /// Appends the next packet of the session to `out`, on the quickest link that may carry it.
    /// Leaves `out` unchanged if there is none.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PacketEnvelope> {
        let before = out.len();
        let sent = match &mut self.paths[..] {
            _ if !self.shared.is_usable() => self.transmit_close(now, out),
            [only] => only.transmit(&mut self.shared, now, out),
            _ => self.transmit_on_any(now, out),
        };
        if sent.is_none() {
            out.truncate(before);
        }
        sent
    }

    /// Begins a batch of packets like `like`, which [`Self::transmit`] built at `now`; `None` if it
    /// might build other ones.
    pub(crate) fn stretch(
        &mut self,
        now: Instant,
        like: PacketEnvelope,
    ) -> Option<PacketBatch<'_>> {
        let (path, shared) = self.first_and_shared();
        path.stretch(shared, now, like)
    }

    fn transmit_on_any(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PacketEnvelope> {
        let mut order: Vec<(Duration, usize)> =
            self.paths.iter().map(|path| path.rtt.smoothed()).zip(0..).collect();
        order.sort_unstable();
        let before = out.len();
        order.into_iter().find_map(|(_, number)| {
            // A path without a packet may have left a header behind.
            out.truncate(before);
            let path = &mut self.paths[number];
            path.send_time(&self.shared).filter(|(time, _)| *time <= now)?;
            path.transmit(&mut self.shared, now, out)
        })
    }

    /// Decides which data each link may carry. Runs after every input and command.
    pub(crate) fn update_links(&mut self, now: Instant) {
        if self.links.is_none() {
            return;
        }
        self.exchange_reports(now);
        let views: Vec<LinkView> = self.paths.iter().map(SessionPath::view).collect();
        let working = self.paths.iter().filter(|path| path.is_working());
        let working =
            working.filter_map(SessionPath::link).fold(0, |links, link| links | 1 << link);
        let turns = link_turns(&views);
        self.update_shared_pace(max_waiting(&turns));
        self.update_reachability(now);
        for (number, (path, turn)) in self.paths.iter_mut().zip(turns).enumerate() {
            path.set_turn(turn, others_of(&views, number), working);
            path.release_stranded(&mut self.shared, now);
        }
    }

    /// Sizes windows and send buffers for all links together. `beyond` is the data that must wait
    /// before the slowest link is used.
    fn update_shared_pace(&mut self, beyond: u64) {
        let own = sum(self.paths.iter().map(|path| path.rate.rate()));
        let theirs = sum(self.paths.iter().map(|path| path.remote.rate));
        let rtt = self.paths.iter().map(|path| path.rtt.smoothed()).max().unwrap_or(LEAST_RTT);
        let SharedState { streams, on_demand, .. } = &mut self.shared;
        // A single stream must be able to use all links, so it may hold what the slowest one waits
        // for.
        let limit = unsent_limit(own, *on_demand) + beyond + beyond / 4;
        streams.set_unsent_limit(limit);
        streams.set_pace(SessionPace { rtt: rtt.max(LEAST_RTT), rates: [own, theirs] });
        streams.wake_writers();
    }

    /// Tells the owner whether the session is reachable, which it is while any link works.
    fn update_reachability(&mut self, now: Instant) {
        let connected = self.is_connected();
        let Some(links) = &mut self.links else { return };
        match (connected, links.lost_at) {
            (false, None) => {
                links.lost_at = Some(now);
                self.shared.events.push_back(Event::Unreachable);
            }
            (true, Some(_)) => {
                links.lost_at = None;
                self.shared.events.push_back(Event::Reachable);
            }
            _ => {}
        }
    }

    /// Adds the counters of all links.
    pub(super) fn add_links(&self, mut stats: SessionStats) -> SessionStats {
        self.paths.iter().for_each(|path| stats.add_link(&path.counters));
        if self.links.is_some() {
            let working = self.paths.iter().filter(|path| path.is_working());
            stats.rate = sum(working.map(|path| path.rate.rate()));
        }
        stats
    }
}

/// The total rate, and the least round-trip time, of the links that work besides the one at a
/// position; `None` without any.
fn others_of(links: &[LinkView], number: usize) -> Option<(BitRate, Duration)> {
    let others = links.iter().enumerate().filter(|(other, link)| *other != number && link.works);
    let least = others.clone().map(|(_, link)| link.delay * 2).min()?;
    Some((sum(others.map(|(_, link)| link.rate)), least))
}

fn sum(rates: impl Iterator<Item = BitRate>) -> BitRate {
    BitRate::from_bits_per_second(rates.map(BitRate::bits_per_second).sum())
}
