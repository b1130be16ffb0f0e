//! A file in bundles (BPv7, RFC 9171), which every node on the way stores and forwards.
//!
//! [`Agent`] decides which bundles a node accepts, sends next and may forget, as in a gateway. From
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
use bundles::tcpcl::{ContactHeader, KEEPALIVE, Message, SEGMENT};
use units::Instant;

use super::{App, AppId, Deed, Notice};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::Closer;
use crate::turn::Turn;
use crate::world::World;
use chain::Chain;

/// Longest time for setting up a session; the same as in the gateway.
const PATIENCE: Duration = Duration::from_secs(30);
/// First and longest pause before the next attempt; the same as in the gateway.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Silence after which a peer is considered gone (RFC 9174 §5.1.1).
const SILENCE: Duration = Duration::from_secs(2 * KEEPALIVE as u64);

/// A file from the first node of a chain to the last.
#[derive(Debug)]
pub struct Bundles {
    chain: Chain,
    /// Sessions from each node to the next, in the order of the chain.
    links: Vec<Link>,
    bytes: u64,
    start: Instant,
}

/// The session of a node with the next one.
#[derive(Debug)]
struct Link {
    path: Arc<Path>,
    talk: Option<Key>,
    is_up: bool,
    /// Messages that the next node has not answered, in order.
    said: VecDeque<Said>,
    /// Number of these messages that have arrived there.
    arrived: usize,
    /// When the next node last answered, or when the oldest unanswered message was sent after a pause.
    heard: Instant,
    /// True while a wake-up is set that checks for silence.
    is_watched: bool,
    /// Pause before the next attempt to connect.
    pause: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Said {
    Contact,
    Parameters,
    /// A segment of a bundle; the last one carries the bundle's id.
    Segment(Option<BundleId>),
}

// Numbers of wake-ups: the beginning, then two for each link.
const BEGIN: u64 = 0;
const CONNECT: u64 = 1;
const LOOK: u64 = 2;

impl Bundles {
    /// Sends a file of `bytes` bytes in bundles of `bundle` bytes each, with at most `window` of them
    /// unacknowledged on a hop. `hops` lead from each node to the next.
    ///
    /// # Panics
    /// If `bundle` is zero.
    pub fn new(
        hops: Vec<Arc<Path>>,
        [bytes, bundle]: [u64; 2],
        window: u32,
        start: Instant,
    ) -> Self {
        let chain = Chain::new(hops.len() + 1, [bytes, bundle], window);
        let links = hops.into_iter().map(|path| Link::new(path, start)).collect();
        Self { chain, links, bytes, start }
    }
}

impl App for Bundles {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            Notice::Start => world.wake_at(me, self.start, BEGIN),
            Notice::Wake(BEGIN) => {
                world.begin(me);
                self.chain.hand_in();
                (0..self.links.len()).for_each(|at| self.connect(world, me, at));
            }
            Notice::Wake(wish) => {
                let at = ((wish - CONNECT) / 2) as usize;
                match wish - 2 * at as u64 {
                    CONNECT => self.connect(world, me, at),
                    _ => self.look(world, me, at),
                }
            }
            Notice::Asked(talk) => self.arrived(world, me, talk),
            Notice::Turn(talk) => self.answered(world, me, talk),
            Notice::Over { talk, .. } => {
                if let Some(at) = self.link_of(talk)
                    && !world.tally(me).done
                {
                    self.lose(world, me, at);
                }
            }
            Notice::Connected(_) | Notice::Datagram(_) => {}
        }
    }
}

impl Bundles {
    fn link_of(&self, talk: Key) -> Option<usize> {
        self.links.iter().position(|link| link.talk == Some(talk))
    }

    fn connect(&mut self, world: &mut World, me: AppId, at: usize) {
        if world.tally(me).done {
            return;
        }
        let talk = world.open(me, &self.links[at].path, Closer::Client, None);
        self.links[at].talk = Some(talk);
        world.tell_requests(talk);
        let header = ContactHeader::OURS.encode().len() as u64;
        self.say(world, me, at, (Turn { request: header, reply: header }, Said::Contact));
    }

    fn say(&mut self, world: &mut World, me: AppId, at: usize, (turn, what): (Turn, Said)) {
        let link = &mut self.links[at];
        let Some(talk) = link.talk else { return };
        if link.said.is_empty() {
            // Silence counts from the first message that awaits an answer.
            link.heard = world.now();
        }
        link.said.push_back(what);
        world.ask(talk, turn);
        self.watch(world, me, at);
    }

    /// Sets the wake-up that detects a silent peer, unless it is already set.
    fn watch(&mut self, world: &mut World, me: AppId, at: usize) {
        let link = &mut self.links[at];
        if !link.is_watched {
            link.is_watched = true;
            world.wake_at(me, link.heard + link.patience(), LOOK + 2 * at as u64);
        }
    }

    fn look(&mut self, world: &mut World, me: AppId, at: usize) {
        let link = &mut self.links[at];
        link.is_watched = false;
        if link.said.is_empty() {
            return;
        }
        if world.now() >= link.heard + link.patience() {
            self.lose(world, me, at);
        } else {
            self.watch(world, me, at);
        }
    }

    /// Handles the arrival of a message at the next node.
    fn arrived(&mut self, world: &mut World, me: AppId, talk: Key) {
        let Some(at) = self.link_of(talk) else { return };
        let link = &mut self.links[at];
        let what = link.said.get(link.arrived).copied();
        link.arrived += 1;
        if let Some(Said::Segment(Some(id))) = what {
            self.chain.pass(at, id);
            self.go_on(world, me);
        }
    }

    /// Handles an answer of the next node.
    fn answered(&mut self, world: &mut World, me: AppId, talk: Key) {
        let Some(at) = self.link_of(talk) else { return };
        let link = &mut self.links[at];
        let Some(what) = link.said.pop_front() else { return };
        link.arrived -= 1;
        link.heard = world.now();
        match what {
            Said::Contact => {
                let [request, reply] = self.chain.parameters(at);
                let what = (Turn { request, reply }, Said::Parameters);
                self.say(world, me, at, what);
            }
            Said::Parameters => {
                (link.is_up, link.pause) = (true, PAUSES.0);
                self.chain.set_link(at, true);
                self.go_on(world, me);
            }
            Said::Segment(Some(id)) => {
                self.chain.acknowledged(at, &id);
                self.go_on(world, me);
            }
            Said::Segment(None) => {}
        }
    }

    /// Sends the bundles that the agents have ready; finishes when all have been delivered.
    fn go_on(&mut self, world: &mut World, me: AppId) {
        while let Some((at, id, bytes)) = self.chain.next_to_send() {
            self.send(world, me, at, (id, bytes));
        }
        if self.chain.is_delivered() && !world.tally(me).done {
            let deed = Deed { begin: self.start, end: world.now(), bytes: self.bytes };
            world.note_deed(me, deed);
            world.set_done(me);
            self.links.iter().filter_map(|link| link.talk).for_each(|talk| world.finish(talk));
        }
    }

    fn send(&mut self, world: &mut World, me: AppId, at: usize, (id, bytes): (BundleId, u64)) {
        for offset in (0..bytes).step_by(SEGMENT as usize) {
            let size = SEGMENT.min(bytes - offset);
            let (start, end) = (offset == 0, offset + size == bytes);
            let total = start.then_some(bytes);
            let segment =
                Message::XferSegment { start, end, id: 0, total, critical: false, length: size };
            let ack = Message::XferAck { start, end, id: 0, length: size };
            let turn = Turn { request: length(&segment) + size, reply: length(&ack) };
            self.say(world, me, at, (turn, Said::Segment(end.then_some(id))));
        }
    }

    /// Ends a session: returns its unacknowledged bundles to the agent, and reconnects after a pause.
    fn lose(&mut self, world: &mut World, me: AppId, at: usize) {
        world.note_broken(me);
        let link = &mut self.links[at];
        let (talk, said) = (link.talk.take(), core::mem::take(&mut link.said));
        (link.is_up, link.arrived) = (false, 0);
        let next = world.now() + link.pause;
        link.pause = (2 * link.pause).min(PAUSES.1);
        self.chain.set_link(at, false);
        for what in said {
            if let Said::Segment(Some(id)) = what {
                self.chain.returned(world.now(), at, &id);
            }
        }
        if let Some(talk) = talk {
            world.abort(talk);
        }
        world.wake_at(me, next, CONNECT + 2 * at as u64);
    }
}

impl Link {
    fn new(path: Arc<Path>, start: Instant) -> Self {
        Self {
            path,
            talk: None,
            is_up: false,
            said: VecDeque::new(),
            arrived: 0,
            heard: start,
            is_watched: false,
            pause: PAUSES.0,
        }
    }

    fn patience(&self) -> Duration {
        if self.is_up { SILENCE } else { PATIENCE }
    }
}

/// The size of a message without the data of its segment, in bytes.
fn length(message: &Message<'_>) -> u64 {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes.len() as u64
}
