//! Name resolution, for which applications wait before they connect.
//!
//! A client asks the resolver at its terminal. The resolver answers from its cache or, if answers are
//! instant, always; otherwise it asks the hub, which knows all names. Cache hits are drawn at random
//! for each name, because the queries of others are not simulated. A client that gets no answer asks
//! again.
//!
//! Not modelled: queries of the hub's resolver to other servers, lifetimes of answers, queries for
//! several types of address, and the stream on which a gateway carries a query: here it crosses the
//! hop beside the gateways' sessions.

use core::time::Duration;
use std::collections::BTreeMap;

use link::Dice;
use scenario::{IpVersion, NameAnswer, NamesSpec};

use super::{AppId, AppNotice};
use crate::ids::NodeId;
use crate::network::packet::AppDatagram;
use crate::world::World;

/// Sizes of DNS messages, in bytes: for a name of 16 octets a header of 12, the question of 22 and
/// EDNS of 11 (RFC 6891 §6.1.2); an answer has an address of 16 more (RFC 1035 §4.1.3).
const QUESTION: u32 = 12 + 22 + 11;
const ANSWER: u32 = QUESTION + 16;
/// Time until a client asks again, and number of its attempts: the defaults of resolv.conf(5).
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 2;
/// Bit that distinguishes wake-ups of look-ups from the application's own.
const LOOKUP_WAKE: u64 = 1 << 63;
/// Number of datagrams of a look-up: to the resolver, to the hub, and two on the way back.
const STEPS: u64 = 4;

/// The nodes and settings with which an application's names are resolved.
#[derive(Debug, Clone)]
pub struct ResolutionSetup {
    /// Behaviour of the terminal's resolver.
    pub spec: NamesSpec,
    /// For each client: its node, its terminal and its hub. The client may be the terminal.
    pub nodes: Vec<[NodeId; 3]>,
    /// IP version of queries and answers.
    pub ip: IpVersion,
    /// Seed for the resolver's cache hits.
    pub seed: u64,
}

/// The look-ups of an application.
#[derive(Debug)]
pub(crate) struct NameLookups {
    resolution: ResolutionSetup,
    dice: Dice,
    next: u64,
    waiting: BTreeMap<u64, PendingLookup>,
}

#[derive(Debug)]
struct PendingLookup {
    /// The application's number for the name.
    name: u64,
    nodes: [NodeId; 3],
    /// True if the terminal's resolver answers without the hub.
    is_known: bool,
    attempts: u32,
}

/// The result of a notification for the look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// The notification does not concern a look-up.
    Unrelated,
    /// It was handled, and the application has nothing to do.
    Handled,
    /// The name with this number is resolved.
    Resolved(u64),
    /// All attempts for the name with this number went unanswered.
    Unresolved(u64),
}

impl NameLookups {
    pub(crate) fn new(resolution: ResolutionSetup) -> Self {
        let dice = Dice::new(resolution.seed);
        Self { resolution, dice, next: 0, waiting: BTreeMap::new() }
    }

    /// Starts a look-up by a client; the application chooses the number `name`.
    pub(crate) fn ask(&mut self, world: &mut World, me: AppId, name: u64, client: usize) {
        let nodes = self.resolution.nodes[client];
        let number = self.next;
        self.next += 1;
        let NamesSpec { answer, hit_ratio } = self.resolution.spec;
        // Drawn even if not used, so that `answer` does not change the random numbers of later names.
        let hit = self.dice.chance() < hit_ratio.get();
        let is_known = hit || answer == NameAnswer::Instant;
        self.waiting.insert(number, PendingLookup { name, nodes, is_known, attempts: 0 });
        self.send(world, me, number);
    }

    /// Sends the query, and sets the wake-up that repeats it.
    fn send(&mut self, world: &mut World, me: AppId, number: u64) {
        let Some(waiting) = self.waiting.get_mut(&number) else { return };
        waiting.attempts += 1;
        world.wake_at(me, world.now() + RETRY_INTERVAL, LOOKUP_WAKE | number);
        self.step(world, me, number * STEPS);
    }

    fn step(&mut self, world: &mut World, me: AppId, datagram: u64) {
        // A datagram's number tells its look-up and its step.
        let number = datagram / STEPS;
        let step = datagram % STEPS;
        let Some(waiting) = self.waiting.get(&number) else { return };
        let [client, terminal, hub] = waiting.nodes;
        let (from, to, len) = [
            (client, terminal, QUESTION),
            (terminal, hub, QUESTION),
            (hub, terminal, ANSWER),
            (terminal, client, ANSWER),
        ][step as usize];
        let app = me.0;
        let sent_at = world.now();
        let datagram = AppDatagram { app, number: datagram, sent_at, len, dscp: 0 };
        world.send_unaccounted([from, to], self.resolution.ip, datagram);
    }

    /// Handles a notification if it concerns a look-up.
    pub(crate) fn handle_notice(
        &mut self,
        world: &mut World,
        me: AppId,
        notice: &AppNotice,
    ) -> LookupOutcome {
        match notice {
            AppNotice::Datagram(datagram) => self.arrived(world, me, datagram.number),
            AppNotice::Wake(wish) if wish & LOOKUP_WAKE != 0 => {
                let number = wish & !LOOKUP_WAKE;
                match self.waiting.get(&number) {
                    Some(waiting) if waiting.attempts >= ATTEMPTS => {
                        let gone = self.waiting.remove(&number);
                        gone.map_or(LookupOutcome::Handled, |lookup| {
                            LookupOutcome::Unresolved(lookup.name)
                        })
                    }
                    Some(_) => {
                        self.send(world, me, number);
                        LookupOutcome::Handled
                    }
                    None => LookupOutcome::Handled,
                }
            }
            _ => LookupOutcome::Unrelated,
        }
    }

    fn arrived(&mut self, world: &mut World, me: AppId, datagram: u64) -> LookupOutcome {
        let number = datagram / STEPS;
        let step = datagram % STEPS;
        let Some(waiting) = self.waiting.get(&number) else { return LookupOutcome::Handled };
        let next = match step {
            0 if waiting.is_known => 3,
            0..=2 => step + 1,
            _ => {
                let known = self.waiting.remove(&number);
                return known
                    .map_or(LookupOutcome::Handled, |lookup| LookupOutcome::Resolved(lookup.name));
            }
        };
        self.step(world, me, number * STEPS + next);
        LookupOutcome::Handled
    }
}
