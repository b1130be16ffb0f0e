//! Names that an application waits for before it can connect.
//!
//! A client asks the resolver at its terminal. That answers at once what it has, which is drawn for each
//! name, because what others have asked for is not simulated, and everything if answers are instant.
//! Otherwise it asks the hub, which knows all names. A client that gets no answer asks again.
//!
//! Not modelled: what a hub's resolver has to ask, lifetimes of answers, questions for several types
//! of address, and the stream on which a gateway carries a question: it crosses the hop beside
//! the gateways' sessions.

use core::time::Duration;
use std::collections::BTreeMap;

use link::Dice;
use scenario::{IpVersion, NameAnswer, NamesSpec};

use super::{AppId, Notice};
use crate::ids::NodeId;
use crate::packet::Datagram;
use crate::world::World;

/// Sizes of DNS messages, in bytes: for a name of 16 octets a header of 12, the question of 22 and
/// EDNS of 11 (RFC 6891 §6.1.2); an answer has an address of 16 more (RFC 1035 §4.1.3).
const QUESTION: u32 = 12 + 22 + 11;
const ANSWER: u32 = QUESTION + 16;
/// When a client asks again, and how often it asks at most: as resolv.conf(5) has it.
const AGAIN: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 2;
/// Marks wake-ups of look-ups among those of an application.
const MARK: u64 = 1 << 63;
/// Steps of a look-up's datagrams, of which each may be sent: to the resolver, to the hub, and back.
const STEPS: u64 = 4;

/// Where names are asked for and resolved.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// What the terminal's resolver does.
    pub spec: NamesSpec,
    /// For each client: itself, its terminal and its hub. The client may be the terminal.
    pub nodes: Vec<[NodeId; 3]>,
    /// The IP headers of questions and answers.
    pub ip: IpVersion,
    /// Seeds what the resolver has.
    pub seed: u64,
}

/// The look-ups of an application.
#[derive(Debug)]
pub(crate) struct Lookups {
    resolution: Resolution,
    dice: Dice,
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// What the application knows it by.
    name: u64,
    nodes: [NodeId; 3],
    /// Whether the terminal's resolver answers it itself.
    is_known: bool,
    attempts: u32,
}

/// What became of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is not about a name.
    Other,
    /// Nothing for the application.
    Nothing,
    /// This name is known.
    Known(u64),
    /// Nobody answers for this name.
    Unknown(u64),
}

impl Lookups {
    pub(crate) fn new(resolution: Resolution) -> Self {
        let dice = Dice::new(resolution.seed);
        Self { resolution, dice, next: 0, waiting: BTreeMap::new() }
    }

    /// A client asks for a name, which the application knows by this number.
    pub(crate) fn ask(&mut self, world: &mut World, me: AppId, name: u64, client: usize) {
        let nodes = self.resolution.nodes[client];
        let number = self.next;
        self.next += 1;
        let NamesSpec { answer, hit_ratio } = self.resolution.spec;
        // Drawn for each, so that the kind of answers does not change what becomes of others.
        let hit = self.dice.chance() < hit_ratio.get();
        let is_known = hit || answer == NameAnswer::Instant;
        self.waiting.insert(number, Waiting { name, nodes, is_known, attempts: 0 });
        self.send(world, me, number);
    }

    /// Asks, and sees to it that the question is repeated.
    fn send(&mut self, world: &mut World, me: AppId, number: u64) {
        let Some(waiting) = self.waiting.get_mut(&number) else { return };
        waiting.attempts += 1;
        world.wake_at(me, world.now() + AGAIN, MARK | number);
        self.step(world, me, number * STEPS);
    }

    fn step(&mut self, world: &mut World, me: AppId, datagram: u64) {
        let (number, step) = (datagram / STEPS, datagram % STEPS);
        let Some(waiting) = self.waiting.get(&number) else { return };
        let [client, terminal, hub] = waiting.nodes;
        let (from, to, len) = [
            (client, terminal, QUESTION),
            (terminal, hub, QUESTION),
            (hub, terminal, ANSWER),
            (terminal, client, ANSWER),
        ][step as usize];
        let (app, sent_at) = (me.0, world.now());
        let datagram = Datagram { app, number: datagram, sent_at, len, dscp: 0 };
        world.send_unaccounted([from, to], self.resolution.ip, datagram);
    }

    /// Takes a notification if it is about a name.
    pub(crate) fn hear(&mut self, world: &mut World, me: AppId, notice: &Notice) -> Heard {
        match notice {
            Notice::Datagram(datagram) => self.arrived(world, me, datagram.number),
            Notice::Wake(wish) if wish & MARK != 0 => {
                let number = wish & !MARK;
                match self.waiting.get(&number) {
                    Some(waiting) if waiting.attempts >= ATTEMPTS => {
                        let gone = self.waiting.remove(&number);
                        gone.map_or(Heard::Nothing, |it| Heard::Unknown(it.name))
                    }
                    Some(_) => {
                        self.send(world, me, number);
                        Heard::Nothing
                    }
                    None => Heard::Nothing,
                }
            }
            _ => Heard::Other,
        }
    }

    fn arrived(&mut self, world: &mut World, me: AppId, datagram: u64) -> Heard {
        let (number, step) = (datagram / STEPS, datagram % STEPS);
        let Some(waiting) = self.waiting.get(&number) else { return Heard::Nothing };
        let next = match step {
            0 if waiting.is_known => 3,
            0..=2 => step + 1,
            _ => {
                let known = self.waiting.remove(&number);
                return known.map_or(Heard::Nothing, |it| Heard::Known(it.name));
            }
        };
        self.step(world, me, number * STEPS + next);
        Heard::Nothing
    }
}
