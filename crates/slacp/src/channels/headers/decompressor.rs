//! The receiving side: the peer's contexts, and packets rebuilt with them.

use super::context::Context;
use crate::ChannelId;
use crate::wire::frame::CompressedPacket;
use crate::wire::profile::Profile;

/// The contexts of the peer.
#[derive(Debug, Default)]
pub(crate) struct Decompressor {
    /// By their numbers; as many as the peer has used.
    slots: Vec<Option<Kept>>,
    /// Memory in bytes.
    held: usize,
}

#[derive(Debug)]
struct Kept {
    /// The SLACP packet that brought it. The peer uses a context in later packets only, and replaces
    /// it when it no longer uses it: what comes in an earlier packet used an earlier context.
    number: u64,
    context: Context,
}

/// A packet as it was, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
    pub(crate) packet: Vec<u8>,
}

impl Decompressor {
    /// Memory in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held + self.slots.capacity() * size_of::<Option<Kept>>()
    }

    /// Keeps the headers of a packet, which came in SLACP packet `number`.
    pub(crate) fn keep(
        &mut self,
        number: u64,
        slot: u8,
        profile: Profile,
        place: (ChannelId, u8, u64),
        packet: &[u8],
    ) {
        let index = usize::from(slot);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let kept = &mut self.slots[index];
        if kept.as_ref().is_some_and(|kept| kept.number >= number) {
            return;
        }
        // A packet that makes no context leaves none that could be mistaken for it.
        let context = Context::new(profile, place, packet).map(|context| Kept { number, context });
        let held = |kept: &Option<Kept>| kept.as_ref().map_or(0, |kept| kept.context.spilled());
        self.held = self.held + held(&context) - held(kept);
        *kept = context;
    }

    /// Rebuilds a packet that came in SLACP packet `number`; `None` if there is no context for it, or
    /// it is malformed. Neither happens with a peer that follows the protocol, but for packets that
    /// come more than ten seconds late.
    pub(crate) fn rebuild(&self, number: u64, found: &CompressedPacket) -> Option<Rebuilt> {
        let kept = self.slots.get(usize::from(found.slot))?.as_ref()?;
        if number <= kept.number {
            return None;
        }
        let Context { channel, lane, sequence, .. } = kept.context;
        let packet = kept.context.rebuild(found.distance, found.has_changed, found.data)?;
        Some(Rebuilt { channel, lane, sequence: sequence + found.distance, packet })
    }
}
