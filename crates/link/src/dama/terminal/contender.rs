//! A terminal as a user of the contention channels.

use units::{ByteCount, Instant};

use super::{SatelliteTerminal, TerminalDeparture};
use crate::dama::agent::RequestAgent;
use crate::dama::mac::{SegmentedPacket, TerminalBuffers};
use crate::dama::random_access::{
    AccessChoice, AccessLimits, Backoff, BurstSlots, Contention, ContentionBlock, choose,
};
use crate::propagation::reception::ReceptionTime;
use crate::{CarriedPacket, Dice};

/// A terminal's random access on one channel.
#[derive(Debug)]
pub(in crate::dama) struct Contender {
    pub(in crate::dama) contention: Contention,
    /// The frame of the block for which an event is scheduled.
    pub(in crate::dama) alarm: Option<u64>,
    dice: Dice,
    /// The longest pause, in frames.
    longest_pause: u32,
    /// The frame of the last attempt, and the slots of it that were used, as numbers in the frame.
    sent: Option<(u64, Vec<u32>)>,
}

impl Contender {
    /// A contender with nothing to send.
    pub(in crate::dama) fn new(
        block: ContentionBlock,
        answer: u32,
        backoff: Backoff,
        seed: u64,
    ) -> Self {
        let mut dice = Dice::new(seed);
        let contention = Contention::with(block, answer, backoff, dice.bits());
        let longest_pause = backoff.limits().greatest;
        Self { contention, alarm: None, dice, longest_pause, sent: None }
    }

    /// Draws one of `carriers`.
    pub(in crate::dama) fn carrier(&mut self, carriers: u32) -> u32 {
        // No draw for a single carrier, so that later random numbers stay as they were.
        if carriers > 1 { self.dice.below(carriers.into()) as u32 } else { 0 }
    }

    /// Draws a pause in frames after giving up, so that terminals that gave up together do not
    /// begin again together.
    pub(in crate::dama) fn pause(&mut self) -> u64 {
        self.dice.below(self.longest_pause.into())
    }

    /// Draws the slots of `bursts` bursts from those that are `free`.
    pub(in crate::dama) fn draw(
        &mut self,
        block: ContentionBlock,
        mut free: Vec<u16>,
        bursts: usize,
    ) -> Vec<BurstSlots> {
        (0..bursts).filter_map(|_| block.draw_among(&mut free, &mut self.dice)).collect()
    }
}

impl<P: CarriedPacket> SatelliteTerminal<P> {
    pub(in crate::dama) fn buffers(&mut self) -> &mut TerminalBuffers<P> {
        &mut self.buffers
    }

    pub(in crate::dama) fn agent(&mut self) -> &mut RequestAgent {
        &mut self.agent
    }

    /// Returns the begin of the first granted slot that the terminal knows of and can use. Plans
    /// are known up to frame number `known`, exclusive.
    pub(in crate::dama) fn first_slot(&self, known: u64) -> Option<Instant> {
        let run = self.runs.front().filter(|run| run.frame < known)?;
        Some(self.frames.slot_begin(self.origin, run.frame, run.slot))
    }

    /// Returns true if it has a granted slot at `now` or after, before frame number `known`.
    pub(in crate::dama) fn has_slots(&self, now: Instant, known: u64) -> bool {
        let begins = |(frame, slot)| self.frames.slot_begin(self.origin, frame, slot) == now;
        self.begun.is_some_and(begins) || self.first_slot(known).is_some()
    }

    /// Returns the slots of a block, at slot number `first` of a frame, in which the terminal is
    /// silent: it has no granted slot on another carrier then, and no burst on another channel.
    pub(in crate::dama) fn silent_slots(
        &self,
        frame: u64,
        first: u32,
        block: ContentionBlock,
    ) -> Vec<u16> {
        // Runs are in the order of their frames.
        let granted: Vec<_> = self.runs.iter().take_while(|run| run.frame <= frame).collect();
        let sends = |slot: u32| {
            let has = |run: &&super::SlotRun| (run.slot..run.slot + run.count).contains(&slot);
            let bursts = self.contenders.iter().flatten().filter_map(|each| each.sent.as_ref());
            granted.iter().any(|run| run.frame == frame && has(run))
                || self.begun == Some((frame, slot))
                || bursts.into_iter().any(|(sent, slots)| *sent == frame && slots.contains(&slot))
        };
        (0..block.slots()).filter(|slot| !sends(first + u32::from(*slot))).collect()
    }

    /// Records the slots of an attempt, and returns the replicas that arrive. A replica that is hit
    /// by error bursts, outages or the loss model is too weak to reach the hub.
    pub(in crate::dama) fn transmit(
        &mut self,
        channel: usize,
        frame: u64,
        first: u32,
        bursts: &[BurstSlots],
    ) -> Vec<Option<BurstSlots>> {
        // Taken out meanwhile, because losses need the rest of the terminal, too.
        let Some(mut contender) = self.contenders[channel].take() else { return Vec::new() };
        let number = |slot: &u16| first + u32::from(*slot);
        let used = bursts.iter().flat_map(|burst| burst.as_slice().iter().map(number)).collect();
        contender.sent = Some((frame, used));
        let arrives = |burst: &BurstSlots| {
            let mut slots = burst.as_slice().to_vec();
            slots.retain(|slot| !self.loses_replica(frame, number(slot), &mut contender.dice));
            BurstSlots::new(&slots).ok()
        };
        let arriving = bursts.iter().map(arrives).collect();
        self.contenders[channel] = Some(contender);
        self.slots.contention_bursts += bursts.len() as u64;
        arriving
    }

    /// Returns true if the replica in this slot of a frame does not arrive.
    fn loses_replica(&mut self, frame: u64, slot: u32, dice: &mut Dice) -> bool {
        let begin = |slot| self.frames.slot_begin(self.origin, frame, slot);
        let reception = ReceptionTime { from: begin(slot), until: begin(slot + 1) };
        let struck = self.is_hit(reception);
        // Asked even after a hit, because the channel's state advances with every burst.
        let lost = self.channel.loses(self.frames.cell.wire as usize, reception, || dice.chance());
        struck || lost
    }

    /// Takes the packets that `choose` sends by contention; returns true if there are any.
    pub(in crate::dama) fn gather(&mut self, most: u32, load: f64, limits: &AccessLimits) -> bool {
        let waiting = ByteCount::new(self.buffers.backlog());
        let sent = self.sent_bytes;
        self.buffers.gather(most, |taken| {
            let sent = ByteCount::new(sent.saturating_add(taken));
            choose(waiting, sent, load, limits) == AccessChoice::Contention
        })
    }

    /// Passes on a packet that has left in granted slots, unless the hub lacks one before it. If it
    /// filled the last gap, those behind it follow.
    pub(super) fn put_in_order(
        &mut self,
        packet: TerminalDeparture<P>,
        contended: bool,
        departed: &mut impl FnMut(TerminalDeparture<P>),
    ) {
        let at = packet.at;
        if contended {
            departed(packet);
            while let Some(SegmentedPacket { frame, is_hit: struck, .. }) = self.buffers.follow(at)
            {
                departed(TerminalDeparture { at, frame, lost: struck });
            }
            while let Some(packet) = self.after_gap() {
                departed(packet);
            }
        } else if self.buffers.has_gap() {
            self.behind_gap.push_back(packet);
        } else {
            departed(packet);
        }
    }

    /// Returns the next packet that has waited at the hub behind a gap, once that is filled.
    fn after_gap(&mut self) -> Option<TerminalDeparture<P>> {
        if self.buffers.has_gap() { None } else { self.behind_gap.pop_front() }
    }

    /// Returns the next packet that the hub passes on after the blocks that have ended at `end`.
    pub(in crate::dama) fn release(&mut self, end: Instant) -> Option<TerminalDeparture<P>> {
        let Some(SegmentedPacket { frame, is_hit: struck, .. }) = self.buffers.release() else {
            return self.after_gap();
        };
        self.sent_bytes = self.sent_bytes.saturating_add(frame.len as u64);
        Some(TerminalDeparture { at: end, frame, lost: struck })
    }

    /// Returns the next packet that was given up at `at`, which is lost unless the hub has all of
    /// its cells; then those that have waited behind it.
    pub(in crate::dama) fn give_up(&mut self, at: Instant) -> Option<TerminalDeparture<P>> {
        let Some(SegmentedPacket { frame, is_hit: struck, left, .. }) = self.buffers.give_up(at)
        else {
            return self.after_gap();
        };
        self.slots.packets_given_up += u64::from(left > 0);
        Some(TerminalDeparture { at, frame, lost: struck || left > 0 })
    }
}
