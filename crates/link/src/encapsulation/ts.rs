//! The MPEG-2 transport stream (ISO/IEC 13818-1) as a carrier of packets.

/// The length of a transport stream packet in bytes.
const PACKET: u128 = 188;
/// What is left of it behind its header.
const PAYLOAD: u128 = 184;
/// The pointer field says where the first unit that begins in a transport
/// stream packet does.
const POINTER: u128 = 1;

/// The last transport stream packet that was begun.
#[derive(Debug, Default)]
pub(super) struct TransportStream {
    /// How many bytes of its payload are free.
    room: u128,
    /// Whether it has its pointer already.
    pointed: bool,
}

impl TransportStream {
    /// How many bytes of new transport stream packets a unit of `len` bytes
    /// needs. With `packed` it may begin in the last one, if at least `least`
    /// bytes of it fit.
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
        self.pointed = false;
        (begun + more) * PACKET
    }
}
