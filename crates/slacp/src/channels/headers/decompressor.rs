//! The receiving side: the peer's contexts, and packets rebuilt with them.

use super::context::{HeaderContext, LanePosition};
use crate::ChannelId;
use crate::wire::frame::CompressedPacket;
use crate::wire::profile::HeaderProfile;

/// The contexts of the peer, and the packets that they rebuild.
#[derive(Debug, Default)]
pub(crate) struct Decompressor {
    /// Contexts by their numbers, up to the highest that the peer has used.
    slots: Vec<Option<StoredContext>>,
    /// Memory of the contexts besides their slots, in bytes.
    held: usize,
}

#[derive(Debug)]
struct StoredContext {
    /// Number of the SLACP packet that brought the context. The peer uses it in later packets only,
    /// and replaces it when it no longer uses it: an earlier packet refers to earlier contents.
    number: u64,
    context: HeaderContext,
}

/// A packet with its headers restored, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RebuiltPacket {
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
    pub(crate) packet: Vec<u8>,
}

impl Decompressor {
    /// Memory of all contexts, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held + self.slots.capacity() * size_of::<Option<StoredContext>>()
    }

    /// Keeps the headers of a packet that came in SLACP packet `number` as context `slot`.
    pub(crate) fn store(
        &mut self,
        number: u64,
        slot: u8,
        profile: HeaderProfile,
        place: LanePosition,
        packet: &[u8],
    ) {
        let index = usize::from(slot);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let kept = &mut self.slots[index];
        // A CONTEXT that newer contents have overtaken.
        if kept.as_ref().is_some_and(|kept| kept.number >= number) {
            return;
        }
        // Without compressible headers the slot becomes empty: earlier contents do not apply.
        let context = HeaderContext::new(profile, place, packet)
            .map(|context| StoredContext { number, context });
        let held =
            |kept: &Option<StoredContext>| kept.as_ref().map_or(0, |kept| kept.context.spilled());
        self.held = self.held + held(&context) - held(kept);
        *kept = context;
    }

    /// Rebuilds a packet that came in SLACP packet `number`. `None` if there is no context for it,
    /// or if it is malformed. With a peer that follows the protocol, that happens only to packets
    /// that are more than ten seconds late.
    pub(crate) fn rebuild(&self, number: u64, found: &CompressedPacket) -> Option<RebuiltPacket> {
        let kept = self.slots.get(usize::from(found.slot))?.as_ref()?;
        // It refers to contents that have been replaced.
        if number <= kept.number {
            return None;
        }
        let HeaderContext { channel, lane, sequence, .. } = kept.context;
        let packet = kept.context.rebuild(found.distance, found.has_changed, found.data)?;
        Some(RebuiltPacket { channel, lane, sequence: sequence + found.distance, packet })
    }
}
