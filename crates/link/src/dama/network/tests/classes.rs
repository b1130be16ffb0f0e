//! Classes of traffic and the capacity that each uses.

use proptest::prelude::*;

use super::*;
use crate::TrafficClass;

/// An IPv4 packet with this code point.
fn packet(dscp: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    (packet[0], packet[1]) = (0x45, dscp << 2);
    packet
}

const EF: u8 = 46;
const AF41: u8 = 34;

/// A terminal whose voice has only the constant rate.
fn with_voice(cra: u64, rbdc: u64, vbdc: u32) -> Dama<Vec<u8>> {
    let categories = ClassCapacities::default().with(TrafficClass::Voice, CapacityKind::Cra);
    let mac = MacLimit::Cells(4_000);
    let config = config(vec![TerminalConfig { categories, mac, ..terminal(cra, rbdc, vbdc) }]);
    let mut network = Dama::new(config, 1).unwrap();
    network.record_events();
    network
}

/// Rates and volumes in the requests sent so far.
fn asked(network: &mut Dama<Vec<u8>>) -> [u32; 2] {
    let mut asked = [0; 2];
    while let Some(event) = network.poll_event() {
        if let DamaEvent::Requested { request, .. } = event {
            asked[0] += u32::from(request.rate.is_some());
            asked[1] += u32::from(request.volume.is_some());
        }
    }
    asked
}

fn drain(network: &mut Dama<Vec<u8>>, end: Instant) -> Vec<(Instant, u8, usize)> {
    let mut all = Vec::new();
    while let Some((next, _)) = network.poll_timeout()
        && next <= end
    {
        network.handle_timeout(next);
        while let Some((at, _, packet)) = network.poll_arrival(next) {
            all.push((at, packet[1] >> 2, packet.len()));
        }
    }
    all
}

#[test]
fn each_class_asks_for_its_own_kind_of_capacity() {
    for (dscp, expected) in [(EF, [false, false]), (AF41, [true, false]), (0, [false, true])] {
        let mut network = with_voice(8_000, 64_000, 512);
        (0..20).for_each(|_| network.handle_packet(millis(100), 0, packet(dscp, 400)));
        assert_eq!(drain(&mut network, millis(20_000)).len(), 20);
        assert_eq!(asked(&mut network).map(|count| count > 0), expected, "{dscp}");
    }
}

/// Bulk that was granted a volume has 20 of its 31 cells left when only the constant rate of four
/// cells in a frame goes on. Voice does not wait for them, and loses none of its own cells.
#[test]
fn voice_with_a_constant_rate_breaks_into_a_packet() {
    let mut network = with_voice(32_000, 0, 0);
    network.handle_packet(at(1), 0, packet(0, 1450));
    // Frames 1 to 3 carry 12 cells of it.
    drain(&mut network, millis(200));
    network.handle_packet(millis(200), 0, packet(EF, 100));
    let all = drain(&mut network, millis(5_000));
    let frame = |at: Instant| (at - DELAY).as_nanos() / FRAME.as_nanos() as u64;
    let all: Vec<_> = all.into_iter().map(|(at, dscp, _)| (frame(at), dscp)).collect();
    // 31 and 3 cells, four in each frame but the first, whose first slot had begun.
    assert_eq!(all, [(4, EF), (8, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Voice within the constant rate arrives within two frames, whatever else is sent, asks for
    /// nothing, and nothing is lost or changes its order within a class.
    #[test]
    fn voice_within_its_rate_waits_for_its_slots_only(
        phase in 0u64..30,
        others in prop::collection::vec((0u64..20_000, prop::bool::ANY, 40usize..1500), 0..60),
    ) {
        // Four cells in a frame; voice brings at most 2 packets of 2 cells in one.
        let mut network = with_voice(32_000, 64_000, 512);
        let voice = (0..500).map(|number| (phase + 30 * number, EF, 60));
        let others = others.into_iter().map(|(at, streams, len)| (at, if streams { AF41 } else { 0 }, len));
        let mut sent: Vec<(u64, u8, usize)> = voice.chain(others).collect();
        sent.sort_by_key(|(at, ..)| *at);
        let mut arrived = Vec::new();
        for (at, dscp, len) in &sent {
            arrived.extend(drain(&mut network, millis(*at)));
            network.handle_packet(millis(*at), 0, packet(*dscp, *len));
        }
        arrived.extend(drain(&mut network, millis(100_000)));
        for class in [EF, AF41, 0] {
            let sent: Vec<_> = sent.iter().filter(|(_, dscp, _)| *dscp == class).collect();
            let came: Vec<_> = arrived.iter().filter(|(_, dscp, _)| *dscp == class).collect();
            prop_assert!(sent.iter().map(|sent| sent.2).eq(came.iter().map(|came| came.2)), "{class}");
            if class == EF {
                for ((left, ..), (came, ..)) in sent.into_iter().zip(came) {
                    let waited = came.saturating_since(millis(*left)) - DELAY;
                    prop_assert!(waited <= 2 * FRAME, "{waited:?}");
                }
            }
        }
    }
}
