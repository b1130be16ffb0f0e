use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::SeqNr;
use crate::segment::{Cookie, CountOptions, HeaderOptions, SackBlock, Snack, Timestamps};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn path() -> SegmentPath {
    SegmentPath { from: CLIENT, from_port: 40_000, to: SERVER, to_port: 80 }
}

fn encoded(path: &SegmentPath, segment: &Segment<Bytes>) -> Bytes {
    let mut out = Vec::new();
    encode(path, segment, &mut out);
    out.into()
}

fn decoded(bytes: Vec<u8>) -> Result<(SegmentPath, Segment<Bytes>), WireError> {
    decode(CLIENT, SERVER, Ecn::NotEct, &bytes.into())
}

/// The bytes with a correct checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[16..18].fill(0);
    let sum = checksum(pseudo_header_sum(CLIENT, SERVER, bytes.len()), &bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A SYN as Linux sends it: MSS 1460, SACK permitted, timestamps, window scale
/// 7, in this order and with this alignment.
#[test]
fn a_syn_byte_by_byte() {
    let syn = Segment {
        seq: SeqNr::new(0x0102_0304),
        flags: HeaderFlags { syn: true, ..HeaderFlags::default() },
        window: 64_240,
        options: HeaderOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 0x0a0b_0c0d, echo: 0 }),
            ..HeaderOptions::default()
        },
        ..Segment::default()
    };
    let expected: [&[u8]; 9] = [
        &[0x9c, 0x40, 0, 80],
        &[1, 2, 3, 4],
        &[0, 0, 0, 0],
        &[0xa0, 0x02, 0xfa, 0xf0],
        &[0, 0, 0, 0],
        &[2, 4, 0x05, 0xb4],
        &[4, 2, 8, 10],
        &[0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0],
        &[1, 3, 3, 7],
    ];
    assert_eq!(encoded(&path(), &syn), sealed(expected.concat()));
}

/// RFC 1071 §3's example: the words 0001 f203 f4f5 f6f7 sum to ddf2.
#[test]
fn the_checksum_of_the_rfc() {
    assert_eq!(checksum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    // An odd byte is the high half of a word.
    assert_eq!(checksum(0, &[0x12]), !0x1200);
}

#[test]
fn a_short_segment_is_an_error() {
    assert_eq!(decoded(vec![0; 19]), Err(WireError::Short { len: 19 }));
    let mut bytes = vec![0; 24];
    bytes[12] = 0x40;
    assert_eq!(decoded(bytes.clone()), Err(WireError::Offset { offset: 16, len: 24 }));
    bytes[12] = 0x70;
    assert_eq!(decoded(bytes), Err(WireError::Offset { offset: 28, len: 24 }));
}

fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[12] = (((20 + options.len()) / 4) as u8) << 4;
    bytes.extend_from_slice(options);
    sealed(bytes)
}

#[test]
fn impossible_option_lengths_are_refused() {
    for (options, len) in [([1, 1, 2, 0], 0), ([1, 1, 2, 1], 1), ([1, 1, 2, 4], 4)] {
        let error = WireError::OptionLength { kind: 2, at: 2, len };
        assert_eq!(decoded(with_options(&options)), Err(error));
    }
    let cut = WireError::OptionLength { kind: 8, at: 3, len: 0 };
    assert_eq!(decoded(with_options(&[1, 1, 1, 8])), Err(cut));
}

#[test]
fn unknown_options_and_lengths_are_skipped() {
    let read = |options: &[u8]| decoded(with_options(options)).unwrap().1.options;
    let mss = HeaderOptions { mss: Some(258), ..HeaderOptions::default() };
    assert_eq!(read(&[99, 4, 7, 7, 2, 4, 1, 2]), mss);
    // An MSS of the wrong length, then a valid one.
    assert_eq!(read(&[2, 3, 9, 2, 4, 1, 2, 0]), mss);
    // Of two, the first counts; nothing after the end of the list does.
    assert_eq!(read(&[2, 4, 1, 2, 2, 4, 3, 4]), mss);
    assert_eq!(read(&[0, 2, 4, 1]), HeaderOptions::default());
    // SACK blocks have 8 bytes; cookies 0 or 4 to 16, and even.
    assert_eq!(read(&[5, 6, 1, 1, 1, 1, 1, 1]), HeaderOptions::default());
    assert_eq!(read(&[34, 7, 1, 2, 3, 4, 5, 0]), HeaderOptions::default());
    assert_eq!(read(&[34, 2, 0, 0]).fast_open, Some(Cookie::new()));
}

#[test]
fn every_flag_has_its_bit() {
    for bits in 0..=255u8 {
        let mut bytes = vec![0; 20];
        (bytes[12], bytes[13]) = (0x50, bits);
        let (_, segment) = decoded(sealed(bytes)).unwrap();
        let again = encoded(&path(), &segment);
        // URG (0x20) alone is not represented.
        assert_eq!(again[13], bits & !0x20);
    }
}

#[test]
fn blocks_that_find_no_room_are_left_out() {
    let block = |n| SackBlock { start: SeqNr::new(n), end: SeqNr::new(n + 1) };
    let mut options =
        HeaderOptions { sack: (0..4).map(block).collect(), ..HeaderOptions::default() };
    assert_eq!(options.wire_len(), 36);
    options.timestamps = Some(Timestamps::default());
    assert_eq!(options.wire_len(), 40);
    let segment = Segment { options, ..Segment::default() };
    let (_, read) = decoded(encoded(&path(), &segment).to_vec()).unwrap();
    assert_eq!(read.options.sack[..], segment.options.sack[..3]);
}

/// Removes what does not fit together in a real segment.
fn leave_out(options: &mut HeaderOptions) {
    if !options.has_room_for_counts() {
        options.counts = CountOptions::default();
    }
    options.scps = options.scps.filter(|_| options.has_room_for_scps());
    options.snack = options.snack.filter(|_| options.has_room_for_snack());
    options.sack.truncate(options.sack_room(options.len_without_sack()));
}

/// RFC 1644 §3.2: CC and CC.ECHO, as 4.4BSD aligns them.
#[test]
fn counts_byte_by_byte() {
    let counts = CountOptions { cc: 0x0102_0304, new: 0, echo: 5 };
    let options = HeaderOptions { counts, ..HeaderOptions::default() };
    let bytes = encoded(&path(), &Segment { options, ..Segment::default() });
    assert_eq!(bytes[20..], [1, 1, 11, 6, 1, 2, 3, 4, 1, 1, 13, 6, 0, 0, 0, 5]);
}

/// The capabilities and the short form of SNACK (CCSDS 714.0-B-2).
#[test]
fn scps_byte_by_byte() {
    let snack = Some(Snack { offset: 0x0102, size: 3 });
    let options = HeaderOptions { scps: Some(0x40), snack, ..HeaderOptions::default() };
    let bytes = encoded(&path(), &Segment { options, ..Segment::default() });
    assert_eq!(bytes[20..], [20, 4, 0x40, 0, 1, 1, 21, 6, 1, 2, 0, 3]);
    // The long form's bit vector is skipped.
    let mut long = bytes.to_vec();
    long.truncate(20);
    long[12] = 8 << 4;
    long.extend_from_slice(&[21, 9, 0, 1, 0, 2, 0xff, 0xff, 0xff, 0, 0, 0]);
    let (_, read) = decoded(sealed(long)).unwrap();
    assert_eq!(read.options.snack, Some(Snack { offset: 1, size: 2 }));
}

prop_compose! {
    fn options()(
        mss in any::<Option<u16>>(),
        window_scale in any::<Option<u8>>(),
        sack_permitted: bool,
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=3),
        timestamps in any::<Option<(u32, u32)>>(),
        scps in any::<Option<u8>>(),
        snack in any::<Option<(u16, u16)>>(),
        counts in any::<[u32; 3]>(),
        some_counts in any::<[bool; 3]>(),
        cookie in prop::option::of(prop::sample::select(vec![0usize, 4, 6, 8, 10, 12, 14, 16])),
    ) -> HeaderOptions {
        let count = |at: usize| if some_counts[at] { counts[at] } else { 0 };
        let block = |(start, end)| SackBlock { start: SeqNr::new(start), end: SeqNr::new(end) };
        let mut options = HeaderOptions {
            mss,
            window_scale,
            sack_permitted,
            sack: blocks.into_iter().map(block).collect(),
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            fast_open: cookie.map(|len| core::iter::repeat_n(7, len).collect()),
            scps,
            snack: snack.map(|(offset, size)| Snack { offset, size }),
            counts: CountOptions { cc: count(0), new: count(1), echo: count(2) },
        };
        leave_out(&mut options);
        options
    }
}

prop_compose! {
    fn segment()(
        numbers in any::<(u32, Option<u32>, u16)>(),
        flags in any::<[bool; 7]>(),
        options in options(),
        ecn in 0..4u8,
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) -> Segment<Bytes> {
        let [syn, fin, rst, psh, ece, cwr, slow_start] = flags;
        Segment {
            seq: SeqNr::new(numbers.0),
            ack: numbers.1.map(SeqNr::new),
            flags: HeaderFlags { syn, fin, rst, psh, ece, cwr, slow_start },
            window: numbers.2,
            options,
            ecn: Ecn::from_bits(ecn),
            payload: payload.into(),
        }
    }
}

fn any_path() -> impl Strategy<Value = SegmentPath> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<[[u8; 16]; 2]>()
        .prop_map(|[a, b]| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into()));
    (prop_oneof![v4, v6], any::<(u16, u16)>())
        .prop_map(|((from, to), (from_port, to_port))| SegmentPath { from, from_port, to, to_port })
}

proptest! {
    #[test]
    fn written_segments_are_read_back(path in any_path(), segment in segment()) {
        let bytes = encoded(&path, &segment);
        prop_assert_eq!(bytes.len(), segment.wire_len());
        let read = decode(path.from, path.to, segment.ecn, &bytes);
        prop_assert_eq!(read, Ok((path, segment)));
    }

    #[test]
    fn a_changed_bit_is_noticed(path in any_path(), segment in segment(), at: prop::sample::Index) {
        let mut bytes = encoded(&path, &segment).to_vec();
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode(path.from, path.to, segment.ecn, &bytes.into()).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = decoded(bytes.clone());
        if bytes.len() >= 20 {
            bytes[12] = bytes[12].max(0x50);
            if let Ok((path, mut segment)) = decoded(sealed(bytes)) {
                leave_out(&mut segment.options);
                // What was parsed is encoded and parsed the same way.
                let again = decoded(encoded(&path, &segment).to_vec()).unwrap();
                prop_assert_eq!(again, (path, segment));
            }
        }
    }
}
