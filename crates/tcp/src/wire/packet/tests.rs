use proptest::prelude::*;

use super::*;

fn paths() -> [wire::SegmentPath; 2] {
    [("192.0.2.1", "198.51.100.2"), ("2001:db8::1", "2001:db8::2")].map(|(from, to)| {
        let from = from.parse().unwrap();
        let to = to.parse().unwrap();
        wire::SegmentPath { from, from_port: 4000, to, to_port: 80 }
    })
}

fn segment(length: usize) -> Segment<Bytes> {
    let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let flags = HeaderFlags { fin: true, psh: true, cwr: true, ..HeaderFlags::default() };
    let seq = SeqNr::new(7);
    let ack = Some(SeqNr::new(9));
    Segment { seq, ack, flags, ecn: Ecn::Ect0, payload: payload.into(), ..Segment::default() }
}

fn written(path: &wire::SegmentPath, segment: Segment<Bytes>, mtu: u16) -> Vec<Bytes> {
    let mut packets = Vec::new();
    let mut out = Vec::new();
    let send = |packet: &[u8]| {
        packets.push(Bytes::copy_from_slice(packet));
        Ok(())
    };
    write(path, segment, 46, mtu, &mut out, send).unwrap();
    packets
}

#[test]
fn what_is_written_is_read_back() {
    for path in paths() {
        let packets = written(&path, segment(1000), 1500);
        let [packet] = &packets[..] else { panic!("{} packets", packets.len()) };
        assert_eq!(read(packet), Some(IncomingPacket::Segment(path, segment(1000), 46)));
        // Checksums protect all of it but the hop limit of IPv6.
        let mut changed = packet.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(read(&changed.into()), None);
    }
}

#[test]
fn a_segment_too_long_for_the_path_is_cut() {
    for path in paths() {
        let packets = written(&path, segment(3000), 1300);
        assert!(packets.len() == 3 && packets.iter().all(|packet| packet.len() <= 1300));
        let mut next = SeqNr::new(7);
        let mut whole = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            let Some(IncomingPacket::Segment(_, part, _)) = read(packet) else {
                panic!("no segment")
            };
            assert_eq!((part.seq, part.ack), (next, Some(SeqNr::new(9))));
            let is_last = index == 2;
            let HeaderFlags { fin, psh, cwr, .. } = part.flags;
            assert_eq!((fin, psh, cwr), (is_last, is_last, index == 0));
            next = next.advance(part.payload.len() as u64);
            whole.extend_from_slice(&part.payload);
        }
        assert_eq!(whole, segment(3000).payload);
    }
}

/// An ICMP error of a router about the first bytes of `packet`. A path MTU makes it one of IPv6's
/// errors of that kind.
fn error(path: &wire::SegmentPath, packet: &[u8], code: u8, mtu: u16) -> Bytes {
    let [a, b] = mtu.to_be_bytes();
    match path.from {
        IpAddr::V4(from) => {
            // RFC 792: the IP header and eight bytes.
            let quote = &packet[..28];
            let length = 8 + quote.len() as u16;
            let icmp = IpNumber::ICMP;
            let header = Ipv4Header::new(length, 64, icmp, [10, 0, 0, 1], from.octets());
            let message = [3, code, 0, 0, 0, 0, a, b];
            [&header.unwrap().to_bytes()[..], &message, quote].concat().into()
        }
        IpAddr::V6(from) => {
            let quote = &packet[..packet.len().min(1232)];
            let header = Ipv6Header {
                payload_length: 8 + quote.len() as u16,
                next_header: IpNumber::IPV6_ICMP,
                destination: from.octets(),
                ..Ipv6Header::default()
            };
            let message = [if mtu == 0 { 1 } else { 2 }, code, 0, 0, 0, 0, a, b];
            [&header.to_bytes()[..], &message, quote].concat().into()
        }
    }
}

#[test]
fn errors_about_our_segments_name_them() {
    let seq = SeqNr::new(7);
    let [v4, v6] = paths();
    for path in [v4, v6] {
        let packet = &written(&path, segment(1000), 1500)[0];
        let codes = if path.from.is_ipv4() { [1, 13] } else { [0, 4] };
        for code in codes {
            let expected = IncomingPacket::Unreachable(path, seq);
            assert_eq!(read(&error(&path, packet, code, 0)), Some(expected), "code {code}");
        }
    }
    let packet = &written(&v4, segment(1000), 1500)[0];
    for (told, believed) in [(1400, 1400), (0, MIN_MTU_V4), (68, MIN_MTU_V4)] {
        assert_eq!(read(&error(&v4, packet, 4, told)), Some(IncomingPacket::TooBig(v4, believed)));
    }
    assert_eq!(read(&error(&v4, packet, 5, 0)), None, "source routes: not ours");
    let packet = &written(&v6, segment(1000), 1500)[0];
    for (told, believed) in [(1400, 1400), (68, MIN_MTU_V6)] {
        assert_eq!(read(&error(&v6, packet, 0, told)), Some(IncomingPacket::TooBig(v6, believed)));
    }
}

#[test]
fn a_syn_that_is_not_answered_may_be_told_why() {
    for path in paths() {
        for prohibited in [false, true] {
            let error = unreachable(&path, SeqNr::new(9), prohibited).unwrap();
            let told = read(&error.clone().into());
            assert_eq!(told, Some(IncomingPacket::Unreachable(path, SeqNr::new(9))));
            let sliced = SlicedPacket::from_ip(&error).unwrap();
            let is_intact = match sliced.transport.unwrap() {
                TransportSlice::Icmpv4(it) => {
                    Icmpv4Header::with_checksum(it.icmp_type(), it.payload()).checksum
                        == it.checksum()
                }
                TransportSlice::Icmpv6(it) => {
                    let octets = |address: IpAddr| match address {
                        IpAddr::V6(address) => address.octets(),
                        IpAddr::V4(_) => unreachable!("it is IPv6"),
                    };
                    it.is_checksum_valid(octets(path.to), octets(path.from))
                }
                _ => false,
            };
            assert!(is_intact);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..4,
    ) {
        // Foreign bytes, and such behind valid headers.
        let [v4, v6] = paths();
        let packet: Bytes = match kind {
            0 => bytes.into(),
            1 => error(&v4, &[bytes, vec![0; 28]].concat(), 4, 1400),
            2 => error(&v6, &[bytes, vec![0; 28]].concat(), 0, 1400),
            _ => {
                let mut packet = written(&v4, segment(100), 1500)[0].to_vec();
                let at = usize::from(bytes.len() as u16) % packet.len();
                packet.truncate(at);
                packet.into()
            }
        };
        let _ = read(&packet);
    }
}
