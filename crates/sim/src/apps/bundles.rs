//! A file in bundles (BPv7, RFC 9171), which every node on the way stores and forwards.
//!
//! [`bundles::Agent`] decides which bundles a node accepts, sends next and may forget, as in a gateway. From
//! node to node a TCPCLv4 session (RFC 9174) runs over one TCP connection, which the sending node
//! opens: contact headers, parameters, then bundles in segments, each of which is acknowledged. The
//! next node owns a bundle when it has acknowledged the last segment. A session whose peer is silent
//! ends, and the bundles that were not acknowledged are sent again over the next one.
//!
//! Not modelled: disks (storing takes no time, and stores are never full), the few bytes by which a
//! bundle grows on its way, keepalives and the orderly end of a session.

mod chain;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use bundles::BundleId;
use bundles::tcpcl::{ContactHeader, KEEPALIVE, SEGMENT, TcpclMessage};
use units::Instant;

use super::{App, AppId, AppNotice, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;
use chain::NodeChain;

/// Longest time for setting up a session; the same as in the gateway.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// First and longest pause before the next attempt; the same as in the gateway.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Silence after which a peer is considered gone (RFC 9174 §5.1.1).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2 * KEEPALIVE as u64);

/// A file from the first node of a chain to the last.
#[derive(Debug)]
pub struct BundleTransfer {
    chain: NodeChain,
    /// Sessions from each node to the next, in the order of the chain.
    links: Vec<BundleSession>,
    bytes: u64,
    start: Instant,
}

/// The session of a node with the next one.
#[derive(Debug)]
struct BundleSession {
    path: Arc<ConnectionPath>,
    talk: Option<SlabKey>,
    is_up: bool,
    /// Messages that the next node has not answered, in order.
    unanswered: VecDeque<BundleMessage>,
    /// Number of these messages that have arrived there.
    arrived: usize,
    /// When the next node last answered, or when the oldest unanswered message was sent after a pause.
    last_heard: Instant,
    /// True while a wake-up is set that checks for silence.
    is_watched: bool,
    /// Pause before the next attempt to connect.
    pause: Duration,
}

#[derive(Debug, Clone, Copy)]
enum BundleMessage {
    Contact,
    Parameters,
    /// A segment of a bundle; the last one carries the bundle's id.
    Segment(Option<BundleId>),
}

// Numbers of wake-ups: the beginning, then two for each link.
const BEGIN: u64 = 0;
const CONNECT: u64 = 1;
const LOOK: u64 = 2;

impl BundleTransfer {
    /// Sends a file of `bytes` bytes in bundles of `bundle` bytes each, with at most `window` of them
    /// unacknowledged on a hop. `hops` lead from each node to the next.
    ///
    /// # Panics
    /// If `bundle` is zero.
    pub fn new(
        hops: Vec<Arc<ConnectionPath>>,
        [bytes, bundle]: [u64; 2],
        window: u32,
        start: Instant,
    ) -> Self {
        let chain = NodeChain::new(hops.len() + 1, [bytes, bundle], window);
        let links = hops.into_iter().map(|path| BundleSession::new(path, start)).collect();
        Self { chain, links, bytes, start }
    }
}

impl App for BundleTransfer {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start => world.wake_at(me, self.start, BEGIN),
            AppNotice::Wake(BEGIN) => {
                world.begin(me);
                self.chain.submit_file();
                (0..self.links.len()).for_each(|at| self.connect(world, me, at));
            }
            AppNotice::Wake(wish) => {
                // Each link has two numbers, from CONNECT on.
                let at = ((wish - CONNECT) / 2) as usize;
                match wish - 2 * at as u64 {
                    CONNECT => self.connect(world, me, at),
                    _ => self.check_silence(world, me, at),
                }
            }
            AppNotice::RequestArrived(talk) => self.arrived(world, me, talk),
            AppNotice::ExchangeDone(talk) => self.answered(world, me, talk),
            AppNotice::Ended { talk, .. } => {
                if let Some(at) = self.link_of(talk)
                    && !world.app_stats(me).done
                {
                    self.end_session(world, me, at);
                }
            }
            AppNotice::Connected(_) | AppNotice::Datagram(_) => {}
        }
    }
}

impl BundleTransfer {
    fn link_of(&self, talk: SlabKey) -> Option<usize> {
        self.links.iter().position(|link| link.talk == Some(talk))
    }

    fn connect(&mut self, world: &mut World, me: AppId, at: usize) {
        if world.app_stats(me).done {
            return;
        }
        let talk = world.open(me, &self.links[at].path, FirstCloser::Client, None);
        self.links[at].talk = Some(talk);
        world.report_requests(talk);
        let header = ContactHeader::OURS.encode().len() as u64;
        let turn = ExchangeSizes { request: header, reply: header };
        self.send_message(world, me, at, turn, BundleMessage::Contact);
    }

    fn send_message(
        &mut self,
        world: &mut World,
        me: AppId,
        at: usize,
        turn: ExchangeSizes,
        what: BundleMessage,
    ) {
        let link = &mut self.links[at];
        let Some(talk) = link.talk else { return };
        if link.unanswered.is_empty() {
            // Silence counts from the first message that awaits an answer.
            link.last_heard = world.now();
        }
        link.unanswered.push_back(what);
        world.send_request(talk, turn);
        self.watch(world, me, at);
    }

    /// Sets the wake-up that detects a silent peer, unless it is already set.
    fn watch(&mut self, world: &mut World, me: AppId, at: usize) {
        let link = &mut self.links[at];
        if !link.is_watched {
            link.is_watched = true;
            world.wake_at(me, link.last_heard + link.silence_limit(), LOOK + 2 * at as u64);
        }
    }

    fn check_silence(&mut self, world: &mut World, me: AppId, at: usize) {
        let link = &mut self.links[at];
        link.is_watched = false;
        if link.unanswered.is_empty() {
            return;
        }
        if world.now() >= link.last_heard + link.silence_limit() {
            self.end_session(world, me, at);
        } else {
            // The peer has answered since the wake-up was set.
            self.watch(world, me, at);
        }
    }

    /// Handles the arrival of a message at the next node.
    fn arrived(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        let Some(at) = self.link_of(talk) else { return };
        let link = &mut self.links[at];
        // Segments arrive in order, so this is the first one that had not arrived.
        let what = link.unanswered.get(link.arrived).copied();
        link.arrived += 1;
        if let Some(BundleMessage::Segment(Some(id))) = what {
            self.chain.handle_crossed(at, id);
            self.send_ready(world, me);
        }
    }

    /// Handles an answer of the next node.
    fn answered(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        let Some(at) = self.link_of(talk) else { return };
        let link = &mut self.links[at];
        let Some(what) = link.unanswered.pop_front() else { return };
        link.arrived -= 1;
        link.last_heard = world.now();
        match what {
            BundleMessage::Contact => {
                let [request, reply] = self.chain.parameters(at);
                let turn = ExchangeSizes { request, reply };
                self.send_message(world, me, at, turn, BundleMessage::Parameters);
            }
            BundleMessage::Parameters => {
                // A session that could be set up ends the growth of the pauses.
                (link.is_up, link.pause) = (true, PAUSES.0);
                self.chain.set_link(at, true);
                self.send_ready(world, me);
            }
            BundleMessage::Segment(Some(id)) => {
                self.chain.acknowledged(at, &id);
                self.send_ready(world, me);
            }
            BundleMessage::Segment(None) => {}
        }
    }

    /// Sends the bundles that the agents have ready; finishes when all have been delivered.
    fn send_ready(&mut self, world: &mut World, me: AppId) {
        while let Some((at, id, bytes)) = self.chain.next_to_send() {
            self.send(world, me, at, id, bytes);
        }
        if self.chain.is_delivered() && !world.app_stats(me).done {
            let deed = WorkUnit { begin: self.start, end: world.now(), bytes: self.bytes };
            world.record_work_unit(me, deed);
            world.set_done(me);
            self.links.iter().filter_map(|link| link.talk).for_each(|talk| world.finish(talk));
        }
    }

    fn send(&mut self, world: &mut World, me: AppId, at: usize, id: BundleId, bytes: u64) {
        for offset in (0..bytes).step_by(SEGMENT as usize) {
            let size = SEGMENT.min(bytes - offset);
            let start = offset == 0;
            let end = offset + size == bytes;
            let total = start.then_some(bytes);
            // Any ID will do: only lengths count, and all IDs have 64 bits (RFC 9174 §5.2.2).
            let segment = TcpclMessage::XferSegment {
                start,
                end,
                id: 0,
                total,
                critical: false,
                length: size,
            };
            let ack = TcpclMessage::XferAck { start, end, id: 0, length: size };
            let turn = ExchangeSizes { request: length(&segment) + size, reply: length(&ack) };
            self.send_message(world, me, at, turn, BundleMessage::Segment(end.then_some(id)));
        }
    }

    /// Ends a session: returns its unacknowledged bundles to the agent, and reconnects after a pause.
    fn end_session(&mut self, world: &mut World, me: AppId, at: usize) {
        world.record_failure(me);
        let link = &mut self.links[at];
        let talk = link.talk.take();
        let said = core::mem::take(&mut link.unanswered);
        (link.is_up, link.arrived) = (false, 0);
        let next = world.now() + link.pause;
        link.pause = (2 * link.pause).min(PAUSES.1);
        self.chain.set_link(at, false);
        for what in said {
            if let BundleMessage::Segment(Some(id)) = what {
                self.chain.returned(world.now(), at, &id);
            }
        }
        if let Some(talk) = talk {
            world.abort(talk);
        }
        world.wake_at(me, next, CONNECT + 2 * at as u64);
    }
}

impl BundleSession {
    fn new(path: Arc<ConnectionPath>, start: Instant) -> Self {
        Self {
            path,
            talk: None,
            is_up: false,
            unanswered: VecDeque::new(),
            arrived: 0,
            last_heard: start,
            is_watched: false,
            pause: PAUSES.0,
        }
    }

    fn silence_limit(&self) -> Duration {
        if self.is_up { SILENCE_TIMEOUT } else { SETUP_TIMEOUT }
    }
}

/// The size of a message without the data of its segment, in bytes.
fn length(message: &TcpclMessage<'_>) -> u64 {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes.len() as u64
}
