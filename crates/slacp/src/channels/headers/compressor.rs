//! The sending side: chooses the packets that become contexts, and compresses others with them.

use core::time::Duration;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use units::Instant;

use super::context::{Changes, HeaderContext, LanePosition};
use super::layout::{HEADER_BUFFER, MAX_HEADERS, flow_key, id_counts, is_esp, is_rtp};
use crate::ChannelId;
use crate::spare::ENTRY;
use crate::wire::profile::{HeaderProfile, InnerProtocol};
use crate::wire::varint;

/// A flow that is silent for this long gives up its context to another one, and a context that is
/// no longer used gets new contents only after this time: packets that use it may be late by as
/// much.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Minimum time between two contexts of a flow.
const MIN_RENEWAL: Duration = Duration::from_secs(1);

/// Number of packets in a row that cannot be compressed with the context of their flow, after which
/// it gets a new one.
const MAX_MISSES: u32 = 8;

/// Cost of a new context besides the headers of its packet, in bytes.
const RENEWAL_COST: usize = 16;

type Key = (ChannelId, SmallVec<[u8; 64]>);

/// The form in which a packet is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PacketForm {
    /// As it is, in a PACKET frame.
    Plain,
    /// As it is, in a CONTEXT frame: the peer keeps its headers.
    Context { slot: u8, serial: u32, profile: HeaderProfile },
    /// Without its headers, in a COMPRESSED frame.
    Compressed(CompressedForm),
}

/// The headers of a packet relative to a context.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompressedForm {
    /// The number of the context.
    pub(crate) slot: u8,
    /// Number of packets in the lane since that of the context.
    pub(crate) distance: u64,
    /// Encoded differences from the prediction; empty if there are none.
    pub(crate) changes: Changes,
    /// Size of the headers that are left out, in bytes.
    pub(crate) header: usize,
}

/// The contexts at the peer, and the flows that use them.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    /// Number of contexts that the peer keeps, at most [`super::CONTEXTS`].
    limit: usize,
    slots: Vec<ContextSlot>,
    flows: BTreeMap<Key, CompressedFlow>,
    /// Serial number of the context sent last, which distinguishes successive contents of a slot.
    serial: u32,
}

/// A context at the peer.
#[derive(Debug, Default)]
struct ContextSlot {
    owner: Option<Key>,
    /// The time at which its former owner last used it.
    last_used: Option<Instant>,
}

#[derive(Debug)]
struct CompressedFlow {
    /// The time of the last packet.
    last_used: Instant,
    /// The headers of the last packet.
    last_headers: SmallVec<[u8; HEADER_BUFFER]>,
    /// The context in use; `None` until the peer has acknowledged one.
    active: Option<ActiveContext>,
    /// The context that was sent and is not acknowledged yet.
    pending: Option<PendingContext>,
    renewed: Instant,
    misses: u32,
    /// The context of a later packet, compared with the active one.
    candidate: Option<HeaderContext>,
    /// Number of bytes that the candidate would have saved so far.
    saved: usize,
}

#[derive(Debug)]
struct ActiveContext {
    slot: u8,
    context: HeaderContext,
}

#[derive(Debug)]
struct PendingContext {
    slot: u8,
    serial: u32,
    context: HeaderContext,
}

impl Compressor {
    /// A compressor for a peer that keeps this many contexts.
    pub(crate) fn new(contexts: u16) -> Self {
        Self { limit: usize::from(contexts.min(super::CONTEXTS)), ..Self::default() }
    }

    /// Upper bound of the memory, in bytes. The key and long options of a flow count as an entry.
    pub(crate) fn held(&self) -> usize {
        self.flows.len() * (size_of::<CompressedFlow>() + ENTRY)
            + self.slots.len() * size_of::<ContextSlot>()
    }

    /// Chooses the form of a packet, which is new unless it is sent `again`. The fate of a context
    /// must be reported to [`Self::established`] or [`Self::failed`].
    pub(crate) fn form(
        &mut self,
        now: Instant,
        place: LanePosition,
        packet: &[u8],
        again: bool,
    ) -> PacketForm {
        if self.limit == 0 {
            return PacketForm::Plain;
        }
        let Some(key) = flow_key(packet).map(|flow| (place.0, flow)) else {
            return PacketForm::Plain;
        };
        if !self.flows.contains_key(&key) {
            if !again && self.make_room(now) {
                self.flows.insert(key, CompressedFlow::new(now, packet));
            }
            return PacketForm::Plain;
        }
        let Some(flow) = self.flows.get_mut(&key) else { return PacketForm::Plain };
        let compressed = flow.compress(place, packet);
        // `last`, `misses` and the candidate follow the order of new packets.
        if again {
            return compressed.map_or(PacketForm::Plain, PacketForm::Compressed);
        }
        flow.last_used = now;
        let profile = match flow.wants_context(now, place, packet, compressed.as_ref()) {
            true => Some(flow.profile(packet)),
            false => None,
        };
        flow.last_headers = front(packet);
        if let Some(context) =
            profile.and_then(|profile| HeaderContext::new(profile, place, packet))
            && let Some(form) = self.send_context(now, &key, context)
        {
            return form;
        }
        compressed.map_or(PacketForm::Plain, PacketForm::Compressed)
    }

    fn send_context(
        &mut self,
        now: Instant,
        key: &Key,
        context: HeaderContext,
    ) -> Option<PacketForm> {
        let slot = self.free_slot(now)?;
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let profile = context.profile();
        self.slots[usize::from(slot)] = ContextSlot { owner: Some(key.clone()), last_used: None };
        let flow = self.flows.get_mut(key)?;
        flow.renewed = now;
        flow.forget_candidate();
        flow.pending = Some(PendingContext { slot, serial, context });
        Some(PacketForm::Context { slot, serial, profile })
    }

    /// Handles the acknowledgement of a context: from now on packets are compressed with it.
    pub(crate) fn established(&mut self, slot: u8, serial: u32) {
        let Some(flow) = self.owner(slot) else { return };
        let Some(pending) = flow.pending.take_if(|p| (p.slot, p.serial) == (slot, serial)) else {
            return;
        };
        let active = ActiveContext { slot, context: pending.context };
        let before = flow.active.replace(active);
        let used = flow.last_used;
        if let Some(before) = before {
            // Packets that use it may still be on their way: it is free after `IDLE`.
            self.slots[usize::from(before.slot)] =
                ContextSlot { owner: None, last_used: Some(used) };
        }
    }

    /// Handles the loss of a packet that was to become a context.
    pub(crate) fn failed(&mut self, slot: u8, serial: u32) {
        let Some(flow) = self.owner(slot) else { return };
        // No packet has used it, so it is free at once.
        if flow.pending.take_if(|p| (p.slot, p.serial) == (slot, serial)).is_some() {
            self.slots[usize::from(slot)] = ContextSlot::default();
        }
    }

    fn owner(&mut self, slot: u8) -> Option<&mut CompressedFlow> {
        let key = self.slots.get(usize::from(slot))?.owner.as_ref()?;
        self.flows.get_mut(key)
    }

    /// Makes room for another flow. Returns `false` if all flows are in use.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.flows.len() < self.limit {
            return true;
        }
        let evictable = |flow: &CompressedFlow| {
            flow.has_no_context() || now.saturating_since(flow.last_used) >= IDLE_TIME
        };
        let oldest = self.flows.iter().filter(|(_, flow)| evictable(flow));
        let oldest = oldest.min_by_key(|(_, flow)| flow.last_used).map(|(key, _)| key.clone());
        let Some(flow) = oldest.and_then(|key| self.flows.remove(&key)) else { return false };
        for slot in flow.slots() {
            self.slots[usize::from(slot)] =
                ContextSlot { owner: None, last_used: Some(flow.last_used) };
        }
        true
    }

    /// The number of a context that no packet uses any more.
    fn free_slot(&mut self, now: Instant) -> Option<u8> {
        let is_free = |slot: &ContextSlot| {
            slot.owner.is_none()
                && slot.last_used.is_none_or(|left| now.saturating_since(left) >= IDLE_TIME)
        };
        let free = self.slots.iter().position(is_free);
        let index = free.or_else(|| {
            let next = (self.slots.len() < self.limit).then_some(self.slots.len())?;
            self.slots.push(ContextSlot::default());
            Some(next)
        })?;
        u8::try_from(index).ok()
    }
}

impl CompressedFlow {
    fn new(now: Instant, packet: &[u8]) -> Self {
        Self {
            last_used: now,
            last_headers: front(packet),
            active: None,
            pending: None,
            renewed: now,
            misses: 0,
            candidate: None,
            saved: 0,
        }
    }

    fn has_no_context(&self) -> bool {
        self.active.is_none() && self.pending.is_none()
    }

    fn slots(&self) -> impl Iterator<Item = u8> {
        let active = self.active.iter().map(|active| active.slot);
        active.chain(self.pending.iter().map(|pending| pending.slot))
    }

    fn compress(&self, place: LanePosition, packet: &[u8]) -> Option<CompressedForm> {
        let (channel, lane, sequence) = place;
        let ActiveContext { slot, context } = self.active.as_ref()?;
        // A context holds for its channel and lane only: COMPRESSED does not name them.
        let is_there = (context.channel, context.lane) == (channel, lane);
        let distance = sequence.checked_sub(context.sequence).filter(|_| is_there)?;
        let difference = context.difference(distance, packet)?;
        let changes = difference.changes;
        let header = difference.header;
        let is_shorter =
            varint::len(distance) + changes.len() + 4 <= header + varint::len(sequence);
        is_shorter.then_some(CompressedForm { slot: *slot, distance, changes, header })
    }

    /// Returns `true` if a packet should become the flow's context; `present` is its form with the
    /// active one.
    fn wants_context(
        &mut self,
        now: Instant,
        place: LanePosition,
        packet: &[u8],
        present: Option<&CompressedForm>,
    ) -> bool {
        let Some(present) = present else {
            self.misses += 1;
            let first = self.active.is_none() || self.misses >= MAX_MISSES;
            return first && self.may_renew(now);
        };
        self.misses = 0;
        let cost = varint::len(present.distance) + present.changes.len();
        self.compare(place, packet, cost);
        // A new context must already have paid for itself.
        self.saved > present.header + RENEWAL_COST && self.may_renew(now)
    }

    fn may_renew(&self, now: Instant) -> bool {
        let is_early = self.active.is_some() && now.saturating_since(self.renewed) < MIN_RENEWAL;
        self.pending.is_none() && !is_early
    }

    /// Compares the active context, with which this packet costs `cost` bytes, with the candidate.
    fn compare(&mut self, place: LanePosition, packet: &[u8], cost: usize) {
        /// A new context's distances take one byte at first, and two for a long time.
        const DISTANCE: usize = 2;
        // A new context could not make it shorter.
        if cost <= DISTANCE {
            return;
        }
        if let Some(candidate) = &self.candidate {
            let (_, _, sequence) = place;
            let distance = sequence.saturating_sub(candidate.sequence);
            let difference = candidate.difference(distance, packet);
            let other = difference.map_or(usize::MAX, |found| DISTANCE + found.changes.len());
            if other < cost {
                self.saved += cost - other;
                return;
            }
        }
        let profile = self.profile(packet);
        self.candidate = HeaderContext::new(profile, place, packet);
    }

    fn forget_candidate(&mut self) {
        (self.candidate, self.saved, self.misses) = (None, 0, 0);
    }

    /// The profile that this packet and the one before it suggest for those to come.
    fn profile(&self, packet: &[u8]) -> HeaderProfile {
        let id_counts = id_counts(&self.last_headers, packet);
        let rtp = is_rtp(&self.last_headers, packet);
        let stride = rtp.as_ref().map_or(0, |rtp| rtp.stride);
        let inner = match rtp {
            Some(_) => InnerProtocol::Rtp,
            None if is_esp(&self.last_headers, packet) => InnerProtocol::Esp,
            None => InnerProtocol::None,
        };
        HeaderProfile { inner, id_counts, stride }
    }
}

/// The part of a packet that may hold headers.
fn front(packet: &[u8]) -> SmallVec<[u8; HEADER_BUFFER]> {
    SmallVec::from_slice(&packet[..packet.len().min(MAX_HEADERS)])
}
