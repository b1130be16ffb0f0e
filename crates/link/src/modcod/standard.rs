//! The MODCODs of the standards, as data.

use core::fmt;
use core::str::FromStr;

use units::Decibels;

use super::Constellation::{self, Apsk16, Apsk32, Psk8, Qpsk};
use super::{CodeRate, Modcod, es_n0_of};
use crate::SettingError;
use crate::text::SettingKind;

const STANDARD: SettingKind =
    SettingKind { what: "standard", expected: "dvb-s2, \"dvb-s2 pilots\", dvb-s or dvb-rcs" };

/// A standard for carriers. Text: `"dvb-s2"`, `"dvb-s2 pilots"`, `"dvb-s"`, `"dvb-rcs"`.
///
/// Thresholds are those of ideal receivers (DVB-S includes 0.8 dB for a real one) with white noise.
/// Further losses of a receiver belong into the margin, or into the Es/N0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standard {
    /// ETSI EN 302 307-1, normal frames (64,800 bits), QPSK 1/4 to 32APSK 9/10. Spectral
    /// efficiencies count the data fields of BBFRAMEs.
    DvbS2 {
        /// Frames have pilot symbols, 36 after every 16 slots, which cost 2.4 %.
        pilots: bool,
    },
    /// ETSI EN 300 421: QPSK with code rates from 1/2 to 7/8. Spectral efficiencies count transport
    /// stream packets of 188 bytes. A DVB-S carrier has one MODCOD; it cannot announce others to
    /// its receivers.
    DvbS,
    /// ETSI EN 301 790: QPSK with turbo codes from 1/3 to 6/7. Spectral efficiencies count the
    /// payload of bursts; preambles and guard times are not charged, because they depend on the
    /// time slots.
    DvbRcs,
}

impl Standard {
    /// Returns its MODCODs, in the order of its table.
    pub fn modcods(self) -> Vec<Modcod> {
        match self {
            Self::DvbS2 { pilots } => DVB_S2
                .iter()
                .map(|&(constellation, (code, es_n0))| dvb_s2(constellation, code, es_n0, pilots))
                .collect(),
            Self::DvbS => DVB_S.iter().map(dvb_s).collect(),
            Self::DvbRcs => DVB_RCS.iter().map(dvb_rcs).collect(),
        }
    }

    /// Returns the MODCOD of that name, such as `8PSK 3/4`, in capital or small letters.
    pub fn modcod(self, name: &str) -> Option<Modcod> {
        let all = self.modcods().into_iter();
        all.into_iter().find(|modcod| modcod.to_string().eq_ignore_ascii_case(name.trim()))
    }
}

impl FromStr for Standard {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        STANDARD.read(text, |text| match text {
            "dvb-s2" => Some(Self::DvbS2 { pilots: false }),
            "dvb-s2 pilots" => Some(Self::DvbS2 { pilots: true }),
            "dvb-s" => Some(Self::DvbS),
            "dvb-rcs" => Some(Self::DvbRcs),
            _ => None,
        })
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DvbS2 { pilots: false } => "dvb-s2",
            Self::DvbS2 { pilots: true } => "dvb-s2 pilots",
            Self::DvbS => "dvb-s",
            Self::DvbRcs => "dvb-rcs",
        })
    }
}

/// A code rate, and its threshold in thousandths of a decibel.
type Row = (CodeRate, i64);

const fn code(k: u8, n: u8) -> CodeRate {
    CodeRate::new(k, n).expect("k of n")
}

/// EN 302 307-1, Table 13: ideal Es/N0 at a packet error rate of 1e-7, normal frames.
const DVB_S2: [(Constellation, Row); 28] = [
    (Qpsk, (code(1, 4), -2_350)),
    (Qpsk, (code(1, 3), -1_240)),
    (Qpsk, (code(2, 5), -300)),
    (Qpsk, (code(1, 2), 1_000)),
    (Qpsk, (code(3, 5), 2_230)),
    (Qpsk, (code(2, 3), 3_100)),
    (Qpsk, (code(3, 4), 4_030)),
    (Qpsk, (code(4, 5), 4_680)),
    (Qpsk, (code(5, 6), 5_180)),
    (Qpsk, (code(8, 9), 6_200)),
    (Qpsk, (code(9, 10), 6_420)),
    (Psk8, (code(3, 5), 5_500)),
    (Psk8, (code(2, 3), 6_620)),
    (Psk8, (code(3, 4), 7_910)),
    (Psk8, (code(5, 6), 9_350)),
    (Psk8, (code(8, 9), 10_690)),
    (Psk8, (code(9, 10), 10_980)),
    (Apsk16, (code(2, 3), 8_970)),
    (Apsk16, (code(3, 4), 10_210)),
    (Apsk16, (code(4, 5), 11_030)),
    (Apsk16, (code(5, 6), 11_610)),
    (Apsk16, (code(8, 9), 12_890)),
    (Apsk16, (code(9, 10), 13_130)),
    (Apsk32, (code(3, 4), 12_730)),
    (Apsk32, (code(4, 5), 13_640)),
    (Apsk32, (code(5, 6), 14_280)),
    (Apsk32, (code(8, 9), 15_690)),
    (Apsk32, (code(9, 10), 16_050)),
];

/// EN 302 307-1, Table 5a: bits of a BBFRAME (K_bch) in a normal frame.
const BBFRAMES: [(CodeRate, u32); 11] = [
    (code(1, 4), 16_008),
    (code(1, 3), 21_408),
    (code(2, 5), 25_728),
    (code(1, 2), 32_208),
    (code(3, 5), 38_688),
    (code(2, 3), 43_040),
    (code(3, 4), 48_408),
    (code(4, 5), 51_648),
    (code(5, 6), 53_840),
    (code(8, 9), 57_472),
    (code(9, 10), 58_192),
];

/// A frame is a PL header of one slot and the coded bits in slots of 90 symbols, with 36 pilot
/// symbols between every 16 slots (EN 302 307-1, 5.5); its BBFRAME begins with a header of 10 bytes
/// (5.1.6).
fn dvb_s2(constellation: Constellation, code: CodeRate, es_n0: i64, pilots: bool) -> Modcod {
    const CODED: u32 = 64_800;
    const SLOT: u32 = 90;
    const PILOTS: u32 = 36;
    const BB_HEADER: u32 = 80;
    let data = CODED / constellation.bits();
    // No pilots follow the last slots.
    let blocks = if pilots { (data / SLOT - 1) / 16 } else { 0 };
    let bbframe = BBFRAMES.iter().find(|(known, _)| *known == code);
    let (_, bbframe) = bbframe.expect("every code rate of DVB_S2 is in BBFRAMES");
    let es_n0 = Decibels::from_thousandths(es_n0);
    let bits = bbframe - BB_HEADER;
    let symbols = SLOT + data + blocks * PILOTS;
    Modcod { constellation, code, es_n0, bits, symbols }
}

/// Rec. ITU-R S.1711-1, Table 16, which has the values of EN 300 421, Table 3: the least Eb/N0.
const DVB_S: [Row; 5] = [
    (code(1, 2), 4_500),
    (code(2, 3), 5_000),
    (code(3, 4), 5_500),
    (code(5, 6), 6_000),
    (code(7, 8), 6_400),
];

/// QPSK, and RS(204, 188) around the inner code (EN 300 421, 4.4). Eb is the energy of a bit before
/// both codes (note 1 of its Table 3; the Recommendation does not say).
fn dvb_s(&(code, eb_n0): &Row) -> Modcod {
    let bits = Qpsk.bits() * u32::from(code.k) * 188;
    let symbols = u32::from(code.n) * 204;
    let es_n0 = es_n0_of(Decibels::from_thousandths(eb_n0), bits, symbols);
    Modcod { constellation: Qpsk, code, es_n0, bits, symbols }
}

/// EN 301 790, turbo codes: Es/N0 at a packet error rate of 1e-7, packets of 188 bytes.
const DVB_RCS: [Row; 7] = [
    (code(1, 3), 740),
    (code(2, 5), 1_730),
    (code(1, 2), 3_200),
    (code(2, 3), 5_250),
    (code(3, 4), 6_360),
    (code(4, 5), 7_340),
    (code(6, 7), 8_340),
];

fn dvb_rcs(&(code, es_n0): &Row) -> Modcod {
    let es_n0 = Decibels::from_thousandths(es_n0);
    let bits = Qpsk.bits() * u32::from(code.k);
    let symbols = u32::from(code.n);
    Modcod { constellation: Qpsk, code, es_n0, bits, symbols }
}

#[cfg(test)]
mod tests {
    use units::SymbolRate;

    use super::*;
    use crate::Modcods;

    const ALL: [Standard; 4] = [
        Standard::DvbS2 { pilots: false },
        Standard::DvbS2 { pilots: true },
        Standard::DvbS,
        Standard::DvbRcs,
    ];

    fn modcod(standard: &str, name: &str) -> Modcod {
        standard.parse::<Standard>().unwrap().modcod(name).unwrap()
    }

    #[test]
    fn names_read_back() {
        for standard in ALL {
            assert_eq!(standard.to_string().parse(), Ok(standard));
            for modcod in standard.modcods() {
                assert_eq!(standard.modcod(&modcod.to_string()), Some(modcod));
                assert_eq!(standard.modcod(&modcod.to_string().to_lowercase()), Some(modcod));
            }
            assert_eq!(standard.modcod("QPSK 1/7"), None);
        }
        let error = "dvb-s3".parse::<Standard>().unwrap_err().to_string();
        assert!(error.contains("is not a valid standard: expected dvb-s2"), "{error}");
    }

    /// Spectral efficiencies of EN 302 307-1, Table 13, in its order.
    const TABLE_13: [f64; 28] = [
        0.490, 0.656, 0.789, 0.988, 1.188, 1.322, 1.487, 1.587, 1.655, 1.767, 1.789, 1.780, 1.981,
        2.228, 2.479, 2.646, 2.679, 2.637, 2.967, 3.166, 3.300, 3.523, 3.567, 3.703, 3.952, 4.120,
        4.398, 4.453,
    ];

    /// The table counts headers of both kinds, but no pilots.
    #[test]
    fn efficiencies_of_dvb_s2_are_those_of_its_table() {
        let all = Standard::DvbS2 { pilots: false }.modcods();
        for (modcod, expected) in all.iter().zip(TABLE_13) {
            // The table cuts some values and rounds others.
            assert!((modcod.efficiency() - expected).abs() < 0.001, "{modcod}: {expected}");
        }
    }

    #[test]
    fn pilots_lengthen_the_frame() {
        for (name, symbols) in [
            ("QPSK 1/2", 33_282),
            ("8PSK 3/4", 22_194),
            ("16APSK 3/4", 16_686),
            ("32APSK 3/4", 13_338),
        ] {
            assert_eq!(modcod("dvb-s2 pilots", name).symbols, symbols, "{name}");
        }
    }

    /// What ITU-R S.1711-1 calls an outbound of 48 Mbit/s needs 34.7 Mbaud at 3/4; and its Eb/N0 of
    /// 5.5 dB is an Es/N0 1.41 dB higher, since a symbol carries 2 · 3/4 · 188/204 = 1.38 bits.
    #[test]
    fn dvb_s_charges_both_codes() {
        let modcod = modcod("dvb-s", "QPSK 3/4");
        assert_eq!(modcod.es_n0, Decibels::from_thousandths(6_906));
        let rate = modcod.rate(SymbolRate::from_baud(34_723_404)).bits_per_second();
        assert_eq!(rate, 47_999_999);
    }

    #[test]
    fn dvb_rcs_charges_its_code() {
        let modcod = modcod("dvb-rcs", "QPSK 4/5");
        assert_eq!((modcod.es_n0, modcod.efficiency()), (Decibels::from_thousandths(7_340), 1.6));
    }

    /// QPSK 8/9 carries less than 8PSK 3/5 and needs more, to name one of six.
    #[test]
    fn modcods_of_dvb_s2_that_are_worth_using() {
        let useful = Modcods::new(Standard::DvbS2 { pilots: false }.modcods()).unwrap();
        let names: Vec<_> = useful.iter().map(Modcod::to_string).collect();
        assert_eq!(
            names.join(", "),
            "QPSK 1/4, QPSK 1/3, QPSK 2/5, QPSK 1/2, QPSK 3/5, QPSK 2/3, QPSK 3/4, QPSK 4/5, \
             QPSK 5/6, 8PSK 3/5, QPSK 9/10, 8PSK 2/3, 8PSK 3/4, 16APSK 2/3, 16APSK 3/4, \
             16APSK 4/5, 16APSK 5/6, 32APSK 3/4, 32APSK 4/5, 32APSK 5/6, 32APSK 8/9, 32APSK 9/10"
        );
        for standard in [Standard::DvbS, Standard::DvbRcs] {
            let all = standard.modcods();
            assert_eq!(Modcods::new(all.clone()).unwrap().iter().count(), all.len());
        }
    }
}
