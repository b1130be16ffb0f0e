//! Capacity requests and their coding.

use units::BitRate;

/// The capacity that a terminal requests in one message. All parts may be present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalRequest {
    /// RBDC: a rate, beyond what CRA gives. It replaces the one before, and holds until its
    /// time-out. A rate of 0 ends it.
    pub rate: Option<BitRate>,
    /// VBDC or AVBDC: a volume.
    pub volume: Option<VolumeRequest>,
    /// Forecast of cells, granted from slots that no terminal has requested. It replaces the number
    /// before; 0 withdraws it.
    pub foreseen: Option<u32>,
}

impl TerminalRequest {
    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A requested volume, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeRequest {
    /// VBDC: added to what is still outstanding.
    More(u32),
    /// AVBDC: replaces what is still outstanding, which repairs a lost request.
    All(u32),
}

/// A number that a capacity request carries in 8 bits and a scaling factor (EN 301 790 §8.5.3):
/// units up to 255, then multiples of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Code {
    mantissa: u8,
    scaled: bool,
}

const SCALE: u64 = 16;
/// The largest codable number of units.
const MOST: u64 = u8::MAX as u64 * SCALE;

impl Code {
    /// Returns the nearest code, at most the largest. Only 0 becomes 0.
    fn nearest(units: u64) -> Self {
        match u8::try_from(units) {
            Ok(mantissa) => Self { mantissa, scaled: false },
            Err(_) => {
                let mantissa = (units.saturating_add(SCALE / 2) / SCALE).min(u8::MAX.into()) as u8;
                Self { mantissa, scaled: true }
            }
        }
    }

    fn units(self) -> u64 {
        u64::from(self.mantissa) * if self.scaled { SCALE } else { 1 }
    }
}

/// Rate of one unit of a rate request: 2 kbit/s (EN 301 790 §8.5.3).
const RATE_UNIT: u64 = 2_000;

/// Largest volume that one request can carry: 4,080 cells.
pub const MOST_VOLUME: u32 = MOST as u32;

/// Returns a rate as the network control centre reads it: in steps of 2 kbit/s up to 510, then of
/// 32 up to 8,160 kbit/s, rounded to the nearest, but up from less than a step.
pub fn coded_rate(rate: BitRate) -> BitRate {
    let bits = rate.bits_per_second();
    let units =
        // A small rate is not rounded to 0, which would end the request.
        (bits / RATE_UNIT + u64::from(bits % RATE_UNIT >= RATE_UNIT / 2)).max(u64::from(bits > 0));
    BitRate::from_bits_per_second(Code::nearest(units).units() * RATE_UNIT)
}

/// Returns a volume as the network control centre reads it: in cells up to 255, then in steps of 16
/// up to 4,080, rounded to the nearest.
pub fn coded_volume(cells: u32) -> u32 {
    Code::nearest(cells.into()).units() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_rounded_to_their_step() {
        let coded = |bits| coded_rate(BitRate::from_bits_per_second(bits)).bits_per_second();
        assert_eq!([0, 1, 2_999, 3_000].map(coded), [0, 2_000, 2_000, 4_000]);
        assert_eq!([510_000, 512_000, 520_000].map(coded), [510_000, 512_000, 512_000]);
        assert_eq!(coded(u64::MAX), 8_160_000);
    }

    #[test]
    fn volumes_are_rounded_and_never_wrap() {
        assert_eq!([0, 1, 255, 256, 263, 264].map(coded_volume), [0, 1, 255, 256, 256, 272]);
        assert_eq!([4_080, 65_536, 70_000, u32::MAX].map(coded_volume), [4_080; 4]);
    }

    proptest! {
        #[test]
        fn a_volume_is_off_by_half_a_step_at_most(cells in 0..MOST_VOLUME) {
            let step = if cells > 255 { 16 } else { 1 };
            prop_assert!(coded_volume(cells).abs_diff(cells) <= step / 2);
        }
    }
}
