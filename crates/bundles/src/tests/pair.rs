//! Two nodes and a link in virtual time. Each node has a disk that survives when the node is killed,
//! which may happen between any two steps.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest as _, Sha256};
use units::{ByteCount, Instant, Machine};

use crate::transfer::{
    BundleDigest, ReceivedPiece, TransferAnnouncement, TransferReception, TransferReplies,
    TransferReply,
};
use crate::{
    Agent, AgentConfig, AgentLimits, BundleFate, BundleId, BundleNodeId, BundleOrigin,
    BundlePurpose, BundleRecord, IncomingTicket, NeighbourConfig, NewBundle, OfferDecision, PeerId,
    ReturnReason, forwarded, read,
};

/// 2026-11-25 in milliseconds since 1970.
const EPOCH: u64 = 1_795_600_000_000;
/// Half of a geostationary hop's round trip.
const DELAY: Duration = Duration::from_millis(300);
const PIECE: usize = 8_000;
const PEER: PeerId = PeerId(0);
/// Where files go.
const SERVICE: &str = "1000";

pub(super) fn limits() -> AgentLimits {
    AgentLimits {
        bytes: ByteCount::new(100_000_000),
        bundles: 5_000,
        largest: ByteCount::new(1_000_000),
        remembered: 20_000,
        lifetime: Duration::from_secs(30 * 86_400),
        window: 16,
        window_bytes: ByteCount::new(200_000),
    }
}

fn node(side: usize) -> BundleNodeId {
    format!("ipn:{}.0", side + 1).parse().unwrap()
}

/// What a node has written.
#[derive(Default)]
struct Disk {
    files: BTreeMap<BundleId, (BundleRecord, Vec<u8>)>,
    known: Vec<(BundleId, BundleFate, u64)>,
    partial: BTreeMap<BundleDigest, Vec<u8>>,
    /// Those of which the file in the inbox has its name.
    named: BTreeSet<BundleId>,
    inbox: Vec<Vec<u8>>,
    /// Writing fails.
    broken: bool,
}

#[derive(Default)]
struct Side {
    disk: Disk,
    agent: Option<Agent>,
    /// How often it has started; what belongs to an earlier life is void.
    life: u32,
    tried: BTreeSet<BundleId>,
    /// What its users still have to hand over.
    users: VecDeque<(BundleId, Vec<u8>)>,
}

struct Transfer {
    opener: usize,
    record: BundleRecord,
    bytes: Vec<u8>,
    announced: TransferAnnouncement,
    replies: TransferReplies,
    reception: TransferReception,
    ticket: Option<IncomingTicket>,
}

/// What has been written, of which the agent does not know yet.
enum Written {
    /// A bundle from a user.
    Own(IncomingTicket, BundleRecord),
    /// A bundle from the other side.
    Received(u64, IncomingTicket, BundleRecord),
    Delivered(BundleId),
    /// The end of a bundle: it is remembered, and then its file is removed.
    Noted(BundleRecord),
    Removed(BundleId),
}

enum Event {
    /// On a transfer's stream, to its acceptor or to its opener.
    Piece(u64, bool, Vec<u8>),
    Written(usize, u32, Box<Written>),
    Kill(usize),
    Start(usize),
    Link(bool),
    /// Users try again, and time passes for the agents.
    Tick,
}

pub(super) struct World {
    rng: ChaCha20Rng,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    next: u64,
    sides: [Side; 2],
    link: bool,
    /// When each direction is free.
    free: [Instant; 2],
    bytes_per_second: u64,
    transfers: BTreeMap<u64, Transfer>,
    /// What travels while the link is down.
    frozen: Vec<Event>,
    limits: AgentLimits,
    pub(super) kills: u32,
}

impl World {
    pub(super) fn new(seed: u64, limits: AgentLimits) -> Self {
        let mut world = Self {
            rng: ChaCha20Rng::seed_from_u64(seed),
            now: Instant::ZERO,
            events: BTreeMap::new(),
            next: 0,
            sides: Default::default(),
            link: false,
            free: [Instant::ZERO; 2],
            bytes_per_second: 250_000,
            transfers: BTreeMap::new(),
            frozen: Vec::new(),
            limits,
            kills: 0,
        };
        (0..2).for_each(|side| world.at(Duration::ZERO, Event::Start(side)));
        world.at(Duration::from_secs(1), Event::Tick);
        world
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.events.insert((self.now + after, self.next), event);
        self.next += 1;
    }

    /// The link comes up or goes down.
    pub(super) fn schedule_link(&mut self, after: Duration, up: bool) {
        self.at(after, Event::Link(up));
    }

    /// A node is killed, and starts again.
    pub(super) fn schedule_kill(&mut self, after: Duration, side: usize) {
        let pause = Duration::from_millis(500 + self.below(20_000));
        self.at(after, Event::Kill(side));
        self.at(after + pause, Event::Start(side));
    }

    pub(super) fn break_disk(&mut self, side: usize, broken: bool) {
        self.sides[side].disk.broken = broken;
    }

    /// A user of a node has a bundle for the other one, and hands it over until it is taken.
    pub(super) fn give(&mut self, side: usize, number: u64, size: usize) -> Vec<u8> {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(size.max(8), number as u8);
        let bundle = NewBundle {
            source: &node(side).service("7").unwrap(),
            destination: &node(1 - side).service(SERVICE).unwrap(),
            created: EPOCH,
            sequence: number,
            lifetime: Duration::from_secs(20 * 86_400),
            file_name: None,
            purpose: BundlePurpose::Data,
            payload: &payload,
        };
        let bytes = bundle.encode();
        self.sides[side].users.push_back((read(&bytes).unwrap().0.id, bytes));
        payload
    }

    /// The time of day, in milliseconds since 1970.
    fn wall(&self) -> u64 {
        EPOCH + self.now.saturating_since(Instant::ZERO).as_millis() as u64
    }

    /// Runs until a time, or until nothing is left to do. Returns whether that is so.
    pub(super) fn run(&mut self, until: Duration) -> bool {
        while let Some((&(at, number), _)) = self.events.first_key_value() {
            if at > Instant::ZERO + until {
                return false;
            }
            let event = self.events.remove(&(at, number)).unwrap();
            self.now = at;
            self.handle(event);
            self.check();
            if self.is_quiet() {
                return true;
            }
        }
        false
    }

    fn is_quiet(&self) -> bool {
        self.sides.iter().all(|side| side.users.is_empty() && side.disk.files.is_empty())
    }

    /// Everything in the inbox of a node, in the order of arrival.
    pub(super) fn inbox(&self, side: usize) -> &[Vec<u8>] {
        &self.sides[side].disk.inbox
    }

    /// What must hold at every step.
    fn check(&self) {
        for side in &self.sides {
            let Some(agent) = &side.agent else { continue };
            let stats = agent.stats();
            assert!(stats.bytes <= self.limits.bytes && stats.waiting <= self.limits.bundles);
            assert!(stats.remembered <= self.limits.remembered);
            let sending =
                self.transfers.values().filter(|it| std::ptr::eq(&self.sides[it.opener], side));
            assert!(sending.count() <= self.limits.window, "more than the window");
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Link(up) => self.set_link(up),
            Event::Kill(side) => self.kill(side),
            Event::Start(side) => self.start(side),
            Event::Piece(..) if !self.link => self.frozen.push(event),
            Event::Piece(transfer, forward, bytes) => self.carry(transfer, forward, &bytes),
            Event::Written(side, life, written) if self.sides[side].life == life => {
                self.written(side, *written);
            }
            Event::Written(..) => {}
            Event::Tick => {
                let (now, wall) = (self.now, self.wall());
                for agent in self.sides.iter_mut().filter_map(|side| side.agent.as_mut()) {
                    agent.handle_timeout(now);
                    agent.expire(wall);
                }
                (0..2).for_each(|side| self.hand_over(side));
                self.at(Duration::from_secs(1), Event::Tick);
            }
        }
        (0..2).for_each(|side| self.drain(side));
    }

    fn set_link(&mut self, up: bool) {
        self.link = up;
        if up {
            for event in std::mem::take(&mut self.frozen) {
                self.at(DELAY, event);
            }
        }
        self.set_peers();
    }

    fn set_peers(&mut self) {
        let up = self.link && self.sides.iter().all(|side| side.agent.is_some());
        for agent in self.sides.iter_mut().filter_map(|side| side.agent.as_mut()) {
            agent.set_peer(PEER, up);
        }
    }

    fn kill(&mut self, side: usize) {
        if self.sides[side].agent.take().is_none() {
            return;
        }
        self.kills += 1;
        self.sides[side].life += 1;
        self.sides[side].tried.clear();
        // What the disk had not yet is lost: the ends of partial bundles.
        let keep = self.below(3);
        for partial in self.sides[side].disk.partial.values_mut() {
            partial.truncate(partial.len() * keep as usize / 2);
        }
        // The session is over, and with it all streams.
        for (_, transfer) in std::mem::take(&mut self.transfers) {
            let now = self.now;
            let (opener, acceptor) = (transfer.opener, 1 - transfer.opener);
            if let Some(agent) = &mut self.sides[opener].agent {
                agent.returned(now, &transfer.record.id, ReturnReason::Lost);
            }
            if let (Some(agent), Some(ticket)) = (&mut self.sides[acceptor].agent, transfer.ticket)
            {
                agent.abandon(ticket);
            }
        }
        self.frozen.clear();
        self.set_peers();
    }

    fn start(&mut self, side: usize) {
        if self.sides[side].agent.is_some() {
            return;
        }
        let neighbour =
            NeighbourConfig { node: node(1 - side), behind: Vec::new(), everything: side == 1 };
        let config = AgentConfig {
            node: node(side),
            peers: vec![neighbour],
            limits: self.limits,
            reports: false,
        };
        let disk = &self.sides[side].disk;
        let records = disk.files.values().map(|(record, _)| record.clone()).collect();
        self.sides[side].agent = Some(Agent::new(config, records, disk.known.clone()));
        self.set_peers();
    }

    /// Users hand over what the node has not confirmed yet, each bundle until it has.
    fn hand_over(&mut self, side: usize) {
        let wall = self.wall();
        let Side { users, agent: Some(agent), .. } = &mut self.sides[side] else { return };
        let Some((id, bytes)) = users.pop_front() else { return };
        let (summary, _) = read(&bytes).unwrap();
        match agent.begin(BundleOrigin::Here, Some(id), summary.length) {
            // Taken before the node was killed.
            Ok(OfferDecision::Duplicate) => return,
            Ok(OfferDecision::Take(ticket)) => match agent.offer(ticket, wall, &summary) {
                Ok(OfferDecision::Take(record)) if self.store(side, &record, bytes.clone()) => {
                    self.wrote(side, Written::Own(ticket, record));
                }
                Ok(_) => self.sides[side].agent.as_mut().unwrap().abandon(ticket),
                Err(why) => assert!(why.is_passing(), "{why}"),
            },
            Err(why) => assert!(why.is_passing(), "{why}"),
        }
        self.sides[side].users.push_back((id, bytes));
    }

    fn store(&mut self, side: usize, record: &BundleRecord, bytes: Vec<u8>) -> bool {
        let disk = &mut self.sides[side].disk;
        if !disk.broken {
            disk.files.insert(record.id, (record.clone(), bytes));
        }
        !disk.broken
    }

    /// Something is on the disk; the agent hears of it a little later, if it lives.
    fn wrote(&mut self, side: usize, what: Written) {
        let after = Duration::from_millis(1 + self.below(20));
        let life = self.sides[side].life;
        self.at(after, Event::Written(side, life, Box::new(what)));
    }

    fn written(&mut self, side: usize, written: Written) {
        let here = &mut self.sides[side];
        let Some(agent) = &mut here.agent else { return };
        match written {
            Written::Own(ticket, record) => {
                here.users.retain(|(id, _)| *id != record.id);
                agent.stored(ticket, record);
                self.hand_over(side);
            }
            Written::Received(transfer, ticket, record) => {
                agent.stored(ticket, record);
                self.say(transfer, TransferReply::Stored);
            }
            Written::Delivered(id) => agent.handle_delivered(&id).unwrap(),
            Written::Noted(record) => {
                here.disk.files.remove(&record.id);
                here.disk.named.remove(&record.id);
                self.wrote(side, Written::Removed(record.id));
            }
            Written::Removed(id) => agent.removed(&id),
        }
    }

    /// Does what an agent wants.
    fn drain(&mut self, side: usize) {
        while let Some((_, record)) = self.agent_of(side).and_then(Agent::poll_send) {
            self.send(side, record);
        }
        while let Some((record, fate)) = self.agent_of(side).and_then(Agent::poll_remove) {
            let disk = &mut self.sides[side].disk;
            if disk.broken {
                let now = self.now;
                self.agent_of(side).unwrap().not_removed(now, &record.id);
                continue;
            }
            disk.known.push((record.id, fate, record.expires));
            self.wrote(side, Written::Noted(record));
        }
        while let Some(record) = self.agent_of(side).and_then(|it| it.take_arrived(Some(SERVICE))) {
            let disk = &mut self.sides[side].disk;
            // Naming the file is one step, after which it is never named again.
            if disk.named.insert(record.id) {
                let bytes = &disk.files[&record.id].1;
                let (summary, _) = read(bytes).unwrap();
                disk.inbox.push(bytes[summary.payload].to_vec());
            }
            self.wrote(side, Written::Delivered(record.id));
        }
    }

    fn agent_of(&mut self, side: usize) -> Option<&mut Agent> {
        self.sides[side].agent.as_mut()
    }

    /// Opens a transfer.
    fn send(&mut self, side: usize, record: BundleRecord) {
        let here = &mut self.sides[side];
        let bytes = forwarded(&here.disk.files[&record.id].1, &node(side), Duration::ZERO);
        let announced = TransferAnnouncement {
            id: record.id,
            digest: Sha256::digest(&bytes).into(),
            length: bytes.len() as u64,
            // What arrived in an earlier life may have been tried then.
            asks: !here.tried.insert(record.id) || here.life > 0,
        };
        let number = self.next;
        let (replies, reception) = Default::default();
        let transfer =
            Transfer { opener: side, record, bytes, announced, replies, reception, ticket: None };
        self.transfers.insert(number, transfer);
        self.transmit(number, true, announced.encode());
        if !announced.asks {
            self.send_from(number, 0);
        }
    }

    fn send_from(&mut self, number: u64, offset: usize) {
        let bytes = self.transfers[&number].bytes[offset..].to_vec();
        bytes.chunks(PIECE).for_each(|piece| self.transmit(number, true, piece.to_vec()));
    }

    /// Sends on a stream: at the link's rate, after what was sent before.
    fn transmit(&mut self, number: u64, forward: bool, bytes: Vec<u8>) {
        let opener = self.transfers[&number].opener;
        let free = &mut self.free[if forward { opener } else { 1 - opener }];
        let takes = Duration::from_secs(bytes.len() as u64) / self.bytes_per_second as u32;
        *free = (*free).max(self.now) + takes;
        let after = free.saturating_since(self.now) + DELAY;
        self.at(after, Event::Piece(number, forward, bytes));
    }

    fn say(&mut self, number: u64, reply: TransferReply) {
        if self.transfers.contains_key(&number) {
            self.transmit(number, false, reply.encode());
        }
    }

    fn carry(&mut self, number: u64, forward: bool, bytes: &[u8]) {
        if !self.transfers.contains_key(&number) {
            return;
        }
        if forward { self.accept(number, bytes) } else { self.reply(number, bytes) }
    }

    fn reply(&mut self, number: u64, mut bytes: &[u8]) {
        let now = self.now;
        let transfer = self.transfers.get_mut(&number).unwrap();
        let (opener, id) = (transfer.opener, transfer.record.id);
        while let Some(reply) = self
            .transfers
            .get_mut(&number)
            .and_then(|transfer| transfer.replies.handle(&mut bytes).unwrap())
        {
            let agent = self.sides[opener].agent.as_mut().unwrap();
            match reply {
                TransferReply::From(offset) => self.send_from(number, offset as usize),
                TransferReply::Stored => {
                    agent.acknowledged(&id);
                    self.transfers.remove(&number);
                }
                TransferReply::Refused(code) => {
                    let passing = TransferReply::is_passing(code);
                    let why = if passing { ReturnReason::NoRoom } else { ReturnReason::Unwanted };
                    agent.returned(now, &id, why);
                    self.transfers.remove(&number);
                }
            }
        }
    }

    fn accept(&mut self, number: u64, mut bytes: &[u8]) {
        let side = 1 - self.transfers[&number].opener;
        let transfer = self.transfers.get_mut(&number).unwrap();
        let mut said = None;
        while let Some(received) = transfer.reception.handle(&mut bytes).unwrap() {
            let (disk, agent) = (&mut self.sides[side].disk, self.sides[side].agent.as_mut());
            match received {
                ReceivedPiece::Announced(it) => {
                    let begun =
                        agent.unwrap().begin(BundleOrigin::Peer(PEER), Some(it.id), it.length);
                    match begun {
                        Ok(OfferDecision::Take(ticket)) => transfer.ticket = Some(ticket),
                        Ok(OfferDecision::Duplicate) => said = Some(TransferReply::Stored),
                        Err(why) => said = Some(TransferReply::refusal(why)),
                    }
                    let partial = disk.partial.entry(it.digest).or_default();
                    if !it.asks {
                        partial.clear();
                    } else if said.is_none() {
                        said = Some(TransferReply::From(partial.len() as u64));
                        transfer.reception.start(partial.len() as u64);
                    }
                }
                ReceivedPiece::Data(data) if transfer.ticket.is_some() => {
                    let partial = disk.partial.get_mut(&transfer.announced.digest).unwrap();
                    partial.extend_from_slice(data);
                }
                ReceivedPiece::Data(_) => {}
            }
        }
        let (whole, ticket) = (transfer.reception.is_whole(), transfer.ticket);
        said.into_iter().for_each(|reply| self.say(number, reply));
        if let Some(ticket) = ticket
            && whole
        {
            self.complete(number, side, ticket);
        }
    }

    fn complete(&mut self, number: u64, side: usize, ticket: IncomingTicket) {
        let (wall, digest) = (self.wall(), self.transfers[&number].announced.digest);
        let bytes = self.sides[side].disk.partial.remove(&digest).unwrap();
        assert_eq!(
            BundleDigest::from(Sha256::digest(&bytes)),
            digest,
            "the parts are of one bundle"
        );
        let (summary, kept) = read(&bytes).unwrap();
        assert_eq!(kept, None, "ours are canonical");
        // What is being stored is stored, whatever becomes of the stream.
        self.transfers.get_mut(&number).unwrap().ticket = None;
        let agent = self.sides[side].agent.as_mut().unwrap();
        let reply = match agent.offer(ticket, wall, &summary) {
            Ok(OfferDecision::Take(record)) => {
                if self.store(side, &record, bytes) {
                    return self.wrote(side, Written::Received(number, ticket, record));
                }
                self.agent_of(side).unwrap().abandon(ticket);
                TransferReply::refusal(crate::BundleRefusal::Disk)
            }
            Ok(OfferDecision::Duplicate) => TransferReply::Stored,
            Err(why) => TransferReply::refusal(why),
        };
        self.say(number, reply);
    }
}
