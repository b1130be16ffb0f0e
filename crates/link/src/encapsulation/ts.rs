//! The MPEG-2 transport stream (ISO/IEC 13818-1) as a carrier of packets.

/// Size of a transport stream packet in bytes.
const PACKET: u128 = 188;
/// Its payload after the header, in bytes.
const PAYLOAD: u128 = 184;
/// The pointer field, which gives the position of the first unit that starts in a transport stream
/// packet.
const POINTER: u128 = 1;

/// The last transport stream packet started.
#[derive(Debug, Default)]
pub(super) struct TransportStream {
    /// Free bytes of its payload.
    room: u128,
    /// True if it already has a pointer field.
    pointed: bool,
}

impl TransportStream {
    /// Returns the bytes of new transport stream packets that a unit of `len` bytes needs. If
    /// `packed`, it may start in the last one, provided that at least `least` bytes of it fit.
    pub(super) fn charge(&mut self, len: u128, least: u128, packed: bool) -> u128 {
        let pointer = if self.pointed { 0 } else { POINTER };
        let mut begun = 0;
        if packed && self.room >= pointer + least {
            self.room -= pointer;
        } else {
            begun = 1;
            self.room = PAYLOAD - POINTER;
        }
        self.pointed = true;
        if len <= self.room {
            self.room -= len;
            return begun * PACKET;
        }
        let rest = len - self.room;
        let more = rest.div_ceil(PAYLOAD);
        self.room = more * PAYLOAD - rest;
        // Only packets in which a unit starts have the pointer field.
        self.pointed = false;
        (begun + more) * PACKET
    }
}
