use std::collections::VecDeque;

use proptest::prelude::*;
use units::Machine;

use super::*;
use crate::{ByteRange, Config};

/// Two ends, and the segments in flight to each.
struct Pair {
    now: Instant,
    ends: [Connection<ByteRange>; 2],
    wires: [VecDeque<Segment<ByteRange>>; 2],
    written: [u64; 2],
    predicted: usize,
}

impl Pair {
    fn new(config: &Config) -> Self {
        let client = SeqNr::new(u32::MAX - 2000);
        let server = SeqNr::new(7);
        let ends = [
            Connection::connect(config.clone(), client),
            Connection::listen(config.clone(), server),
        ];
        let wires = [VecDeque::new(), VecDeque::new()];
        let mut it = Self { now: Instant::ZERO, ends, wires, written: [0; 2], predicted: 0 };
        it.drain();
        it
    }

    fn drain(&mut self) {
        for (end, to) in [(0, 1), (1, 0)] {
            let it = &mut self.ends[end];
            if it.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                it.handle_timeout(self.now);
            }
            while it.poll_event().is_some() {}
            while it.read(usize::MAX).is_some() {}
            self.wires[to].extend(core::iter::from_fn(|| it.poll_transmit(self.now)));
        }
    }

    fn write(&mut self, end: usize, len: u64) {
        let at = self.written[end];
        if let Ok(taken) = self.ends[end].write(&ByteRange::new(at..at + len)) {
            self.written[end] += taken as u64;
        }
    }

    /// Delivers the next segment; a predicted one on both paths.
    fn deliver(&mut self, end: usize) {
        let Some(segment) = self.wires[end].pop_front() else { return };
        let now = self.now;
        let it = &mut self.ends[end];
        if it.state == TcpState::Established && it.is_predicted(&segment) {
            self.predicted += 1;
            let mut other = it.clone();
            other.arrive(now, &segment);
            it.handle_segment(now, &segment);
            assert_eq!(format!("{it:?}"), format!("{other:?}"));
        } else {
            it.handle_segment(now, &segment);
        }
    }

    fn act(&mut self, action: u8, end: usize) {
        match action {
            0..4 => self.write(end, 700 * u64::from(action + 1)),
            4 => drop(self.wires[end].pop_front()),
            5 => self.wires[end].extend(self.wires[end].front().cloned()),
            6 if !self.wires[end].is_empty() => self.wires[end].rotate_left(1),
            7 => self.ends[end].close(),
            8 => self.now += Duration::from_millis(300),
            9 => {
                if let Some(segment) =
                    self.wires[end].front_mut().filter(|packet| packet.ecn != Ecn::NotEct)
                {
                    segment.ecn = Ecn::Ce;
                }
            }
            _ => self.deliver(end),
        }
        self.now += Duration::from_millis(3);
        self.drain();
    }
}

#[test]
fn most_of_a_transfer_is_predicted() {
    let mut pair = Pair::new(&Config::default());
    pair.act(0, 0);
    for _ in 0..100 {
        pair.write(1, 3000);
        (0..4).for_each(|_| [0, 1].into_iter().for_each(|end| pair.act(10, end)));
    }
    assert!(pair.predicted > 100, "{}", pair.predicted);
}

proptest! {
    /// The result must not depend on the path a segment takes.
    #[test]
    fn what_is_predicted_changes_what_the_checks_change(
        actions in prop::collection::vec((0u8..24, 0usize..2), 1..300),
        (timestamps, sack, ecn, receive_buffer) in (any::<bool>(), any::<bool>(), any::<bool>(), 2_000u64..50_000),
    ) {
        let receive_buffer = units::ByteCount::new(receive_buffer);
        let mut pair =
            Pair::new(&Config { timestamps, sack, ecn, receive_buffer, ..Config::default() });
        for (action, end) in actions {
            pair.act(action, end);
        }
    }
}
