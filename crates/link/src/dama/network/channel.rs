//! A contention channel: the position of its blocks, the bursts on the air, and the hub's receiver.

use std::collections::VecDeque;

use units::{Instant, Probability};

use crate::dama::config::{ContentionChannel, ContentionError, DamaConfig, RequestPlace};
use crate::dama::frames::Frames;
use crate::dama::random_access::{
    Backoff, BlockReceiver, BlockReception, BurstSlots, ContentionBlock, ContentionBurst,
    LoadControl,
};

/// The use of a contention channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelKind {
    /// The channel for capacity requests.
    Requests,
    /// The channel for the cells of packets.
    Packets,
}

/// The announcement about a channel in a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContentionTerms {
    /// The probability with which a terminal that has a burst sends it.
    pub(super) persistence: Probability,
    /// Load of the channel, in bursts per slot.
    pub(super) load: f64,
}

/// A terminal that sent in a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct BurstSender {
    pub(super) terminal: u32,
    /// Number of bursts that it sent.
    pub(super) bursts: u32,
    /// Number of these that the hub has decoded.
    pub(super) decoded: u32,
    /// Its carrier, counted among those of the channel.
    pub(super) carrier: u32,
}

/// A burst of a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBurst {
    /// Index of its packet among those that the terminal sends.
    pub(super) place: u32,
    /// The replicas that arrive, if any.
    pub(super) arriving: Option<BurstSlots>,
}

/// A burst of which a replica arrives.
#[derive(Debug)]
struct ArrivingBurst {
    /// Index of its sender in the frame.
    sender: u32,
    place: u32,
    carrier: u32,
    slots: BurstSlots,
}

/// The blocks of a frame, with all bursts sent in them.
#[derive(Debug)]
struct FrameOnAir {
    frame: u64,
    senders: Vec<BurstSender>,
    bursts: Vec<ArrivingBurst>,
}

/// The bursts that the hub has decoded in the blocks of a frame.
#[derive(Debug, Default)]
pub(super) struct ReceivedBlocks {
    pub(super) frame: u64,
    /// All terminals that sent, decoded or not.
    pub(super) senders: Vec<BurstSender>,
    /// The decoded bursts: index of the sender, and of its packet.
    pub(super) decoded: Vec<(u32, u32)>,
}

/// A contention channel of the return link.
#[derive(Debug)]
pub(super) struct RandomAccessChannel {
    pub(super) block: ContentionBlock,
    /// The block's first slot in the frame.
    pub(super) first_slot: u32,
    /// The first carrier with a block, and the number of carriers.
    first_carrier: u32,
    pub(super) carriers: u32,
    /// Frames after which a terminal has an answer in any case.
    pub(super) answer: u32,
    /// A back-off with checked limits, to be copied for each terminal.
    pub(super) backoff: Backoff,
    frames: Frames,
    receiver: BlockReceiver,
    control: LoadControl,
    /// True if the load is controlled, not only measured.
    controlled: bool,
    /// Announcements for each superframe, from number `oldest` on.
    announced: VecDeque<ContentionTerms>,
    oldest: u64,
    /// Number of the next frame that the hub receives.
    next: u64,
    /// Frames with bursts on the air, in order.
    air: VecDeque<FrameOnAir>,
}

impl RandomAccessChannel {
    /// Creates the channel for requests, if it is configured.
    pub(super) fn for_requests(config: &DamaConfig) -> Result<Option<Self>, ContentionError> {
        let Some(request) = config.requests.transport.slots() else { return Ok(None) };
        let slots = config.frames.slots;
        let others = config.random_access.map_or(0, |access| access.carriers);
        let number = config.request_block(request.place)?;
        let carriers = match request.place {
            RequestPlace::Slots(_) => 1,
            RequestPlace::Carriers(carriers) => carriers,
        };
        let block = request.channel.block(number, slots)?;
        let mut channel = Self::new(config, &request.channel, block, carriers)?;
        // The block is at the end of the frame, on the last carriers before those of random access.
        channel.first_slot = slots - number;
        channel.first_carrier = config.frames.carriers - others - carriers;
        Ok(Some(channel))
    }

    /// Creates the channel for packets, if it is configured.
    pub(super) fn for_packets(config: &DamaConfig) -> Result<Option<Self>, ContentionError> {
        let Some(access) = &config.random_access else { return Ok(None) };
        let slots = config.frames.slots;
        let block = access.channel.block(slots, slots)?;
        let mut channel = Self::new(config, &access.channel, block, access.carriers)?;
        channel.first_carrier = config.frames.carriers - access.carriers;
        Ok(Some(channel))
    }

    fn new(
        config: &DamaConfig,
        how: &ContentionChannel,
        block: ContentionBlock,
        carriers: u32,
    ) -> Result<Self, ContentionError> {
        let frames = config.frames;
        // The block, the way to the hub, the wait for the next plan, and its way back.
        let way = config.delay.greatest() + config.forward_delay + config.processing;
        let way = way.as_nanos().div_ceil(frames.duration.as_nanos().max(1));
        let way = u32::try_from(way).unwrap_or(u32::MAX);
        let answer = way.saturating_add(frames.per_superframe).saturating_add(2);
        Ok(Self {
            block,
            first_slot: 0,
            first_carrier: 0,
            carriers,
            answer,
            backoff: Backoff::new(how.backoff)?,
            frames,
            receiver: BlockReceiver::new(block),
            // Every carrier's block is one observation of the channel.
            control: LoadControl::new(block, answer.saturating_mul(carriers)),
            controlled: how.load_control,
            announced: VecDeque::new(),
            oldest: 0,
            next: 0,
            air: VecDeque::new(),
        })
    }

    /// Returns the time at which the block of a frame begins. All blocks end with their frame.
    pub(super) fn begin(&self, origin: Instant, frame: u64) -> Instant {
        self.frames.slot_begin(origin, frame, self.first_slot)
    }

    /// Returns the first frame whose block begins at or after `now`.
    pub(super) fn first_from(&self, origin: Instant, now: Instant) -> u64 {
        let next = self.frames.first_from(origin, now);
        match next.checked_sub(1) {
            Some(before) if self.begin(origin, before) >= now => before,
            _ => next,
        }
    }

    /// Converts the number of a carrier of this channel to its number among all carriers.
    pub(super) fn carrier(&self, carrier: u32) -> u32 {
        self.first_carrier + carrier
    }

    /// Returns the announcement that holds in a frame.
    pub(super) fn terms(&self, frame: u64) -> ContentionTerms {
        let since = (frame / u64::from(self.frames.per_superframe)).saturating_sub(self.oldest);
        let quiet = ContentionTerms { persistence: Probability::ONE, load: 0.0 };
        self.announced.get(since as usize).copied().unwrap_or(quiet)
    }

    /// Puts the bursts of a terminal on the air. Returns true if they are the first of their frame,
    /// which is the current one.
    pub(super) fn send(
        &mut self,
        frame: u64,
        sender: BurstSender,
        bursts: impl IntoIterator<Item = SentBurst>,
    ) -> bool {
        let is_first = self.air.back().is_none_or(|air| air.frame != frame);
        if is_first {
            self.air.push_back(FrameOnAir { frame, senders: Vec::new(), bursts: Vec::new() });
        }
        let Some(air) = self.air.back_mut() else { return false };
        let number = air.senders.len() as u32;
        air.senders.push(sender);
        let arriving = |SentBurst { place, arriving }: SentBurst| {
            let carrier = sender.carrier;
            arriving.map(|slots| ArrivingBurst { sender: number, place, carrier, slots })
        };
        air.bursts.extend(bursts.into_iter().filter_map(arriving));
        is_first
    }

    /// Receives the blocks of the next frame with bursts on the air.
    pub(super) fn receive(&mut self) -> ReceivedBlocks {
        let Some(FrameOnAir { frame, mut senders, mut bursts }) = self.air.pop_front() else {
            return ReceivedBlocks::default();
        };
        self.receive_idle(frame);
        self.next = frame + 1;
        let in_force = self.in_force(frame);
        // By carrier; the stable sort keeps the order in which the bursts were sent.
        bursts.sort_by_key(|burst| burst.carrier);
        let mut decoded = Vec::new();
        let mut rest = &bursts[..];
        for carrier in 0..self.carriers {
            let count = rest.iter().take_while(|burst| burst.carrier == carrier).count();
            let (here, others) = rest.split_at(count);
            rest = others;
            let of =
                |(id, burst): (u32, &ArrivingBurst)| ContentionBurst { id, slots: burst.slots };
            let on_air: Vec<_> = (0..).zip(here).map(of).collect();
            let reception = self.receiver.receive(&on_air, &[]);
            self.control.handle_block(&reception, in_force);
            for id in reception.decoded {
                let ArrivingBurst { sender, place, .. } = here[*id as usize];
                senders[sender as usize].decoded += 1;
                decoded.push((sender, place));
            }
        }
        ReceivedBlocks { frame, senders, decoded }
    }

    /// Receives the empty blocks before frame number `until`, up to the next with bursts on the
    /// air.
    pub(super) fn receive_idle(&mut self, until: u64) {
        let until = self.air.front().map_or(until, |air| until.min(air.frame));
        let slots = self.block.slots();
        // Idle blocks count, too, or the estimate of the load would never fall.
        let idle =
            BlockReception { decoded: &[], idle: slots, intact: slots, unresolved: 0, passes: 0 };
        while self.next < until {
            let in_force = self.in_force(self.next);
            (0..self.carriers).for_each(|_| self.control.handle_block(&idle, in_force));
            self.next += 1;
        }
    }

    /// Returns the persistence of a frame that is being received, and drops earlier announcements.
    fn in_force(&mut self, frame: u64) -> Probability {
        let superframe = frame / u64::from(self.frames.per_superframe);
        while self.oldest < superframe && self.announced.pop_front().is_some() {
            self.oldest += 1;
        }
        self.terms(frame).persistence
    }

    /// Announces persistence and load for the next superframe, with its plan.
    pub(super) fn announce(&mut self) {
        let controlled = self.controlled.then(|| self.control.persistence());
        let persistence = controlled.unwrap_or(Probability::ONE);
        self.announced.push_back(ContentionTerms { persistence, load: self.control.load() });
    }
}
