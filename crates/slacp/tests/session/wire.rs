//! The overhead of SLACP on the wire.

use core::time::Duration;

use crate::pair::{Pair, address, pass};
use slacp::{ReadOutcome, StreamId};
use units::{BitRate, Machine};

/// The design goal for a full packet, in bytes: header, frame and tag.
const OVERHEAD: usize = 27;

/// Makes the hub fill a stream; returns the overhead of each full packet. Nothing is acknowledged
/// meanwhile.
fn overheads(pair: &mut Pair, id: StreamId) -> Vec<usize> {
    let [terminal, hub] = pair.ids;
    let mut overheads = Vec::new();
    let (mut datagram, mut buffer) = (Vec::new(), vec![0; 10_000]);
    for _ in 0..2000 {
        pair.hub.write(hub, id, &[7; 3000]).unwrap();
        pair.now += Duration::from_micros(120);
        pair.hub.handle_timeout(pair.now);
        while pair.hub.poll_transmit(pair.now, &mut datagram).is_some() {
            let length = datagram.len();
            pair.terminal.handle_datagram(pair.now, address(), &mut datagram);
            let carried = match pair.terminal.read(terminal, id, &mut buffer) {
                Ok(ReadOutcome::Data(count)) => count,
                _ => 0,
            };
            if length > 1440 {
                overheads.push(length - carried);
            }
        }
    }
    overheads
}

#[test]
fn a_full_packet_of_a_stream_has_27_bytes_of_overhead() {
    let mut pair = Pair::new(BitRate::from_mbit(1000));
    let id = pair.open();
    let mut overheads = overheads(&mut pair, id);
    assert!(overheads.len() > 1500, "{}", overheads.len());
    overheads.sort_unstable();
    // One packet in several dozen also carries SETTLED.
    let usual = overheads[overheads.len() * 9 / 10];
    assert!(usual <= OVERHEAD, "{usual} bytes");
}

/// Only keepalives, key changes and their acknowledgements: a packet a second would be too many.
#[test]
fn a_stream_lives_through_an_idle_hour() {
    let mut pair = Pair::new(BitRate::from_mbit(10));
    let id = pair.open();
    let [terminal, hub] = pair.ids;
    let talk = |pair: &mut Pair, text: &[u8]| {
        let mut heard = [0; 16];
        assert_eq!(pair.terminal.write(terminal, id, text), Ok(text.len()));
        assert_eq!(pair.hub.write(hub, id, text), Ok(text.len()));
        pair.exchange();
        assert_eq!(pair.terminal.read(terminal, id, &mut heard), Ok(ReadOutcome::Data(text.len())));
        assert_eq!(pair.hub.read(hub, id, &mut heard), Ok(ReadOutcome::Data(text.len())));
        assert!(heard.starts_with(text));
    };
    talk(&mut pair, b"before");
    let mut datagrams = 0;
    for _ in 0..36_000 {
        pair.now += Duration::from_millis(100);
        datagrams += pass(pair.now, &mut pair.terminal, &mut pair.hub);
        datagrams += pass(pair.now, &mut pair.hub, &mut pair.terminal);
    }
    assert!((360..3600).contains(&datagrams), "{datagrams} datagrams in an hour");
    talk(&mut pair, b"after");
}
