//! Superframes, frames, carriers and slots.

use core::time::Duration;

use thiserror::Error;
use units::{BitRate, Instant};

/// A cell: the burst of one time slot, by its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Bytes of packets that it carries.
    pub payload: u32,
    /// Bytes that it takes of the carrier. Rates of DAMA count these.
    pub wire: u32,
    /// Bytes that segmentation adds to each packet: headers, trailers, checksums.
    pub per_packet: u32,
}

impl Cell {
    /// An ATM cell, 48 of 53 bytes, with the 8-byte trailer of AAL5 (ITU-T I.363.5).
    pub const ATM: Self = Self { payload: 48, wire: 53, per_packet: 8 };
    /// An MPEG-2 transport stream packet, 184 of 188 bytes, with the header and the CRC of MPE
    /// (EN 301 192 §7).
    pub const MPEG: Self = Self { payload: 184, wire: 188, per_packet: 16 };

    /// Returns the number of cells of a packet of `len` bytes.
    pub fn count(self, len: usize) -> u32 {
        let bytes = (len as u64).saturating_add(self.per_packet.into());
        u32::try_from(bytes.div_ceil(self.payload.max(1).into())).unwrap_or(u32::MAX)
    }
}

/// The frame structure of the return link: carriers, each divided into slots.
///
/// Frames begin at the same time on all carriers. A slot carries one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    /// Duration of a frame, on all carriers.
    pub duration: Duration,
    /// Frames in a superframe. Capacity is allocated once per superframe.
    pub per_superframe: u32,
    /// Number of carriers, also those for contention.
    pub carriers: u32,
    /// Slots in a frame of one carrier. A terminal has one transmitter and can use at most these.
    pub slots: u32,
    /// Sizes of the cell that a slot carries.
    pub cell: Cell,
}

/// The reason why a frame structure cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FramesError {
    /// A size is 0, or a duration too short for its slots.
    #[error("frames, carriers, slots and cells must not be empty")]
    Empty,
    /// The carrier is too slow for one cell per frame.
    #[error("a carrier of {carrier} sends {bits} bits in a frame, less than a cell of {cell} bits")]
    TooSlow {
        /// Configured rate of a carrier.
        carrier: BitRate,
        /// Bits that it sends in a frame.
        bits: u64,
        /// Size of a cell in bits.
        cell: u64,
    },
    /// There are too many slots to count.
    #[error("a superframe must have less than 2^24 slots")]
    TooMany,
}

impl Frames {
    /// Divides carriers of the rate `carrier` into as many whole slots as fit into a frame.
    ///
    /// # Errors
    /// [`FramesError`].
    pub fn new(
        duration: Duration,
        per_superframe: u32,
        carriers: u32,
        carrier: BitRate,
        cell: Cell,
    ) -> Result<Self, FramesError> {
        let bits = carrier.bytes_in(duration).get().saturating_mul(8);
        if cell.wire == 0 || cell.payload == 0 || per_superframe == 0 || carriers == 0 {
            return Err(FramesError::Empty);
        }
        let frames = Self { duration, per_superframe, carriers, slots: 0, cell };
        // A rest that is shorter than a slot stays unused.
        let slots = frames.slots_of(bits.into());
        if slots == 0 {
            let cell = u64::from(cell.wire) * 8;
            return Err(FramesError::TooSlow { carrier, bits, cell });
        }
        let slots = u32::try_from(slots).map_err(|_| FramesError::TooMany)?;
        let frames = Self { slots, ..frames };
        frames.check().map(|()| frames)
    }

    /// Checks that it can be built.
    ///
    /// # Errors
    /// [`FramesError`].
    pub fn check(&self) -> Result<(), FramesError> {
        const MOST: u64 = 1 << 24;
        let Self { per_superframe, carriers, slots, cell, .. } = *self;
        let empty = [per_superframe, carriers, slots, cell.payload, cell.wire].contains(&0);
        // Slots are timed in nanoseconds, so each must last at least one.
        if empty || self.duration.as_nanos() < u128::from(slots) {
            return Err(FramesError::Empty);
        }
        let product = [carriers, slots].iter().try_fold(u64::from(per_superframe), |all, one| {
            all.checked_mul(u64::from(*one)).filter(|all| *all < MOST)
        });
        product.map(|_| ()).ok_or(FramesError::TooMany)
    }

    /// Returns the whole slots that this number of bits fills, headers of cells included.
    pub(super) fn slots_of(&self, bits: u128) -> u128 {
        bits / (u128::from(self.cell.wire) * 8).max(1)
    }

    /// Returns true if these frames have all slots of a carrier of this rate.
    pub fn can_hold(&self, carrier: BitRate) -> bool {
        let bits = u128::from(carrier.bytes_in(self.duration).get()) * 8;
        self.slots_of(bits) <= self.slots.into()
    }

    /// Returns the slots of a frame on all carriers.
    pub fn per_frame(&self) -> u32 {
        self.carriers * self.slots
    }

    /// Returns the slots of a superframe on all carriers.
    pub fn capacity(&self) -> u32 {
        self.per_frame() * self.per_superframe
    }

    /// Returns the slots that one terminal can use in a superframe: it has one transmitter.
    pub fn slots_per_terminal(&self) -> u32 {
        self.slots * self.per_superframe
    }

    /// Returns the duration of a superframe.
    pub fn superframe(&self) -> Duration {
        self.duration * self.per_superframe
    }

    /// Returns the duration of a slot, rounded down to the nanosecond.
    pub fn slot(&self) -> Duration {
        self.duration / self.slots
    }

    /// Returns the rate of all slots together, with cell headers.
    pub fn rate(&self) -> BitRate {
        let bits = u128::from(self.per_frame()) * u128::from(self.cell.wire) * 8;
        let rate = bits * 1_000_000_000 / self.duration.as_nanos().max(1);
        BitRate::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the time at which frame number `frame` begins, if frame 0 begins at `origin`.
    pub(super) fn begin(&self, origin: Instant, frame: u64) -> Instant {
        origin + Duration::from_nanos(self.nanos().saturating_mul(frame))
    }

    /// Returns the time at which slot number `slot` of frame number `frame` begins.
    pub(super) fn slot_begin(&self, origin: Instant, frame: u64, slot: u32) -> Instant {
        // Multiplied first, so that rounding errors of slots do not add up over the frame.
        let within = u128::from(self.nanos()) * u128::from(slot) / u128::from(self.slots);
        self.begin(origin, frame) + Duration::from_nanos(within as u64)
    }

    /// Returns the number of the first frame that begins at or after `now`.
    pub(super) fn first_from(&self, origin: Instant, now: Instant) -> u64 {
        let since = now.saturating_since(origin).as_nanos();
        u64::try_from(since.div_ceil(u128::from(self.nanos()))).unwrap_or(u64::MAX)
    }

    /// Returns the number of the frame in which `now` is.
    pub(super) fn at(&self, origin: Instant, now: Instant) -> u64 {
        let since = now.saturating_since(origin).as_nanos();
        u64::try_from(since / u128::from(self.nanos())).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds in a frame, saturating after 584 years.
    fn nanos(&self) -> u64 {
        u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A number of slots per superframe, as a fixed-point number with [`Self::BITS`] binary digits
/// after the point, so that rates add up exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct SlotFraction(pub(super) u64);

impl SlotFraction {
    const BITS: u32 = 24;
    /// One slot per superframe.
    pub(super) const SLOT: Self = Self(1 << Self::BITS);

    /// Converts a rate, which counts cells with their headers; rounds up.
    pub(super) fn of(rate: BitRate, frames: &Frames) -> Self {
        let bits = u128::from(rate.bits_per_second()) * frames.superframe().as_nanos();
        let slot = u128::from(frames.cell.wire) * 8 * 1_000_000_000;
        let most = u128::from(u32::MAX);
        // Rounded up, so that a terminal never gets less than its rate.
        Self((bits << Self::BITS).div_ceil(slot).min(most << Self::BITS) as u64)
    }

    /// Converts from whole slots.
    pub(super) const fn from_slots(slots: u32) -> Self {
        Self((slots as u64) << Self::BITS)
    }

    /// Returns the whole slots, without the fraction.
    pub(super) const fn whole(self) -> u32 {
        (self.0 >> Self::BITS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of the SLACP paper's link: 128 kbit/s are 16 slots of 8 kbit/s.
    pub(crate) fn paper() -> Frames {
        let rate = BitRate::from_bits_per_second(128_000);
        Frames::new(Duration::from_millis(53), 2, 1, rate, Cell::ATM).unwrap()
    }

    #[test]
    fn a_cell_in_53_ms_is_8_kbit() {
        let frames = paper();
        assert_eq!((frames.slots, frames.capacity()), (16, 32));
        assert_eq!(frames.rate(), BitRate::from_bits_per_second(128_000));
        let slot = BitRate::from_bits_per_second(8_000);
        assert_eq!(SlotFraction::of(slot, &frames), SlotFraction::from_slots(2));
    }

    /// 1450 bytes and AAL5's trailer fill 31 cells (30.4), 40 bytes one.
    #[test]
    fn packets_fill_cells() {
        assert_eq!([1450, 40, 41, 0].map(|len| Cell::ATM.count(len)), [31, 1, 2, 1]);
        assert_eq!(Cell::MPEG.count(1500), 9);
    }

    #[test]
    fn slots_divide_the_frame_without_a_rest() {
        let frames = paper();
        let origin = Instant::from_nanos(5);
        let begin = |frame, slot| frames.slot_begin(origin, frame, slot).as_nanos();
        assert_eq!(begin(0, 0), 5);
        assert_eq!(begin(0, 16), begin(1, 0));
        assert_eq!(begin(3, 8) - begin(3, 0), 26_500_000);
        assert_eq!(frames.first_from(origin, origin), 0);
        assert_eq!(frames.first_from(origin, origin + Duration::from_nanos(1)), 1);
        assert_eq!(frames.first_from(origin, frames.begin(origin, 7)), 7);
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let new = |millis, count, carriers, rate| {
            let rate = BitRate::from_bits_per_second(rate);
            Frames::new(Duration::from_millis(millis), count, carriers, rate, Cell::ATM)
        };
        assert_eq!(new(53, 0, 1, 128_000), Err(FramesError::Empty));
        assert!(matches!(new(53, 2, 1, 7_000), Err(FramesError::TooSlow { bits: 368, .. })));
        assert_eq!(new(1000, 1000, 1000, 1_000_000_000), Err(FramesError::TooMany));
        assert!(new(53, 2, 140, 76_800).is_ok());
    }
}
