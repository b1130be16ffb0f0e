//! The sending side: which packets become contexts, and which are compressed with them.

use core::time::Duration;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use units::Instant;

use super::context::{Changes, Context};
use super::layout::{FRONT, LONGEST, flow_key, id_counts, is_esp, is_rtp};
use crate::ChannelId;
use crate::spare::ENTRY;
use crate::wire::profile::{Inner, Profile};
use crate::wire::varint;

/// A flow silent for this long gives its context up to another, and a context that is no longer used
/// gets other contents only after this time: packets that still use it may be late by as much.
const IDLE: Duration = Duration::from_secs(10);

/// A flow changes its context at most this often.
const RENEWAL: Duration = Duration::from_secs(1);

/// A flow whose packets have nothing in common with its context this many times in a row gets a new
/// one.
const MISSES: u32 = 8;

/// What a new context costs besides its packet's own headers, in bytes.
const RENEWAL_COST: usize = 16;

/// A packet's place: channel, lane, and number in the lane.
pub(crate) type Place = (ChannelId, u8, u64);

type Key = (ChannelId, SmallVec<[u8; 64]>);

/// How a packet is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole.
    Plain,
    /// Whole, and the peer keeps its headers as a context.
    Context { slot: u8, serial: u32, profile: Profile },
    /// Without its headers.
    Compressed(Difference),
}

/// A packet without its headers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) slot: u8,
    /// How far the packet is behind the context in its lane.
    pub(crate) distance: u64,
    /// How it differs from its prediction; empty if it does not.
    pub(crate) changes: Changes,
    /// Number of bytes left out at its front.
    pub(crate) header: usize,
}

/// The contexts at the peer, and the flows that use them.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    /// Number of contexts that the peer keeps, at most [`super::CONTEXTS`].
    limit: usize,
    slots: Vec<Slot>,
    flows: BTreeMap<Key, Flow>,
    /// Tells apart the contents of a slot.
    serial: u32,
}

/// A context at the peer.
#[derive(Debug, Default)]
struct Slot {
    owner: Option<Key>,
    /// When it was last used by a former owner.
    left: Option<Instant>,
}

#[derive(Debug)]
struct Flow {
    used: Instant,
    /// The headers of the last packet.
    last: SmallVec<[u8; FRONT]>,
    active: Option<Active>,
    /// Sent, and not acknowledged yet.
    pending: Option<Pending>,
    renewed: Instant,
    misses: u32,
    /// Another packet that would make a better context, if `saved` says so.
    candidate: Option<Context>,
    /// Bytes that the candidate would have saved.
    saved: usize,
}

#[derive(Debug)]
struct Active {
    slot: u8,
    context: Context,
}

#[derive(Debug)]
struct Pending {
    slot: u8,
    serial: u32,
    context: Context,
}

impl Compressor {
    /// The compressor for a peer that keeps this many contexts.
    pub(crate) fn new(contexts: u16) -> Self {
        Self { limit: usize::from(contexts.min(super::CONTEXTS)), ..Self::default() }
    }

    /// Memory in bytes, at most. Keys and spilled options count as an entry.
    pub(crate) fn held(&self) -> usize {
        self.flows.len() * (size_of::<Flow>() + ENTRY) + self.slots.len() * size_of::<Slot>()
    }

    /// How to send a packet, which is new unless it is sent `again`. If it is to be a context, that
    /// must be reported to [`Self::established`] or [`Self::failed`].
    pub(crate) fn form(&mut self, now: Instant, place: Place, packet: &[u8], again: bool) -> Form {
        if self.limit == 0 {
            return Form::Plain;
        }
        let Some(key) = flow_key(packet).map(|flow| (place.0, flow)) else { return Form::Plain };
        if !self.flows.contains_key(&key) {
            if !again && self.make_room(now) {
                self.flows.insert(key, Flow::new(now, packet));
            }
            return Form::Plain;
        }
        let Some(flow) = self.flows.get_mut(&key) else { return Form::Plain };
        let compressed = flow.compress(place, packet);
        if again {
            return compressed.map_or(Form::Plain, Form::Compressed);
        }
        flow.used = now;
        let profile = match flow.wants_context(now, place, packet, compressed.as_ref()) {
            true => Some(flow.profile(packet)),
            false => None,
        };
        flow.last = front(packet);
        if let Some(context) = profile.and_then(|profile| Context::new(profile, place, packet))
            && let Some(form) = self.send_context(now, &key, context)
        {
            return form;
        }
        compressed.map_or(Form::Plain, Form::Compressed)
    }

    fn send_context(&mut self, now: Instant, key: &Key, context: Context) -> Option<Form> {
        let slot = self.free_slot(now)?;
        self.serial = self.serial.wrapping_add(1);
        let (serial, profile) = (self.serial, context.profile());
        self.slots[usize::from(slot)] = Slot { owner: Some(key.clone()), left: None };
        let flow = self.flows.get_mut(key)?;
        flow.renewed = now;
        flow.forget_candidate();
        flow.pending = Some(Pending { slot, serial, context });
        Some(Form::Context { slot, serial, profile })
    }

    /// The peer has this context.
    pub(crate) fn established(&mut self, slot: u8, serial: u32) {
        let Some(flow) = self.owner(slot) else { return };
        let Some(pending) = flow.pending.take_if(|p| (p.slot, p.serial) == (slot, serial)) else {
            return;
        };
        let active = Active { slot, context: pending.context };
        let (before, used) = (flow.active.replace(active), flow.used);
        if let Some(before) = before {
            self.slots[usize::from(before.slot)] = Slot { owner: None, left: Some(used) };
        }
    }

    /// The packet that was to be this context is lost.
    pub(crate) fn failed(&mut self, slot: u8, serial: u32) {
        let Some(flow) = self.owner(slot) else { return };
        if flow.pending.take_if(|p| (p.slot, p.serial) == (slot, serial)).is_some() {
            self.slots[usize::from(slot)] = Slot::default();
        }
    }

    fn owner(&mut self, slot: u8) -> Option<&mut Flow> {
        let key = self.slots.get(usize::from(slot))?.owner.as_ref()?;
        self.flows.get_mut(key)
    }

    /// Makes room for a flow; whether there is any.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.flows.len() < self.limit {
            return true;
        }
        let evictable =
            |flow: &Flow| flow.has_no_context() || now.saturating_since(flow.used) >= IDLE;
        let oldest = self.flows.iter().filter(|(_, flow)| evictable(flow));
        let oldest = oldest.min_by_key(|(_, flow)| flow.used).map(|(key, _)| key.clone());
        let Some(flow) = oldest.and_then(|key| self.flows.remove(&key)) else { return false };
        for slot in flow.slots() {
            self.slots[usize::from(slot)] = Slot { owner: None, left: Some(flow.used) };
        }
        true
    }

    fn free_slot(&mut self, now: Instant) -> Option<u8> {
        let is_free = |slot: &Slot| {
            slot.owner.is_none() && slot.left.is_none_or(|left| now.saturating_since(left) >= IDLE)
        };
        let free = self.slots.iter().position(is_free);
        let index = free.or_else(|| {
            let next = (self.slots.len() < self.limit).then_some(self.slots.len())?;
            self.slots.push(Slot::default());
            Some(next)
        })?;
        u8::try_from(index).ok()
    }
}

impl Flow {
    fn new(now: Instant, packet: &[u8]) -> Self {
        Self {
            used: now,
            last: front(packet),
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

    fn compress(&self, (channel, lane, sequence): Place, packet: &[u8]) -> Option<Difference> {
        let Active { slot, context } = self.active.as_ref()?;
        let is_there = (context.channel, context.lane) == (channel, lane);
        let distance = sequence.checked_sub(context.sequence).filter(|_| is_there)?;
        let difference = context.difference(distance, packet)?;
        let (changes, header) = (difference.changes, difference.header);
        let is_shorter =
            varint::len(distance) + changes.len() + 4 <= header + varint::len(sequence);
        is_shorter.then_some(Difference { slot: *slot, distance, changes, header })
    }

    /// Whether a packet, with its present form, should become the flow's context.
    fn wants_context(
        &mut self,
        now: Instant,
        place: Place,
        packet: &[u8],
        present: Option<&Difference>,
    ) -> bool {
        let Some(present) = present else {
            self.misses += 1;
            let first = self.active.is_none() || self.misses >= MISSES;
            return first && self.may_renew(now);
        };
        self.misses = 0;
        let cost = varint::len(present.distance) + present.changes.len();
        self.compare(place, packet, cost);
        self.saved > present.header + RENEWAL_COST && self.may_renew(now)
    }

    fn may_renew(&self, now: Instant) -> bool {
        let is_early = self.active.is_some() && now.saturating_since(self.renewed) < RENEWAL;
        self.pending.is_none() && !is_early
    }

    /// Compares the context, with which this packet costs so many bytes, with a newer one.
    fn compare(&mut self, (channel, lane, sequence): Place, packet: &[u8], cost: usize) {
        /// A new context's distances take one byte at first, and two for a long time.
        const DISTANCE: usize = 2;
        if cost <= DISTANCE {
            return;
        }
        if let Some(candidate) = &self.candidate {
            let distance = sequence.saturating_sub(candidate.sequence);
            let difference = candidate.difference(distance, packet);
            let other = difference.map_or(usize::MAX, |found| DISTANCE + found.changes.len());
            if other < cost {
                self.saved += cost - other;
                return;
            }
        }
        let profile = self.profile(packet);
        self.candidate = Context::new(profile, (channel, lane, sequence), packet);
    }

    fn forget_candidate(&mut self) {
        (self.candidate, self.saved, self.misses) = (None, 0, 0);
    }

    /// What this packet and the one before say of those to come.
    fn profile(&self, packet: &[u8]) -> Profile {
        let id_counts = id_counts(&self.last, packet);
        let rtp = is_rtp(&self.last, packet);
        let stride = rtp.as_ref().map_or(0, |rtp| rtp.stride);
        let inner = match rtp {
            Some(_) => Inner::Rtp,
            None if is_esp(&self.last, packet) => Inner::Esp,
            None => Inner::None,
        };
        Profile { inner, id_counts, stride }
    }
}

/// The part of a packet that may hold headers.
fn front(packet: &[u8]) -> SmallVec<[u8; FRONT]> {
    SmallVec::from_slice(&packet[..packet.len().min(LONGEST)])
}
