//! A terminal of an aggregate that acknowledges what has not arrived.

use core::time::Duration;

use slacp::fuzzing::acknowledge_all;
use slacp::{Endpoint, SessionId};
use units::Instant;

use crate::carrier::Carrier;

const MBIT: f64 = 50.0;

/// It claims that what was lost has arrived.
fn hides_losses(endpoint: &mut Endpoint, now: Instant, session: SessionId) {
    acknowledge_all(endpoint, now, session, 0);
}

/// It claims that 100 packets which are still under way have arrived.
fn looks_ahead(endpoint: &mut Endpoint, now: Instant, session: SessionId) {
    acknowledge_all(endpoint, now, session, 100);
}

/// Two download over one link. From 10 s on the first lies; `foresees` makes it right about everything
/// but the numbers that the hub has skipped.
fn run(lie: fn(&mut Endpoint, Instant, SessionId), foresees: bool, seed: u64) -> Carrier {
    let ms = Duration::from_millis;
    let mut carrier = Carrier::new(MBIT, ms(20), ms(600), 2, true, seed);
    for _ in 0..2 {
        carrier.add(ms(560), &[(2.0, 1e6)], seed);
    }
    carrier.run(10.0);
    carrier.terminals[0].lies = Some(lie);
    if foresees {
        carrier.set_foresight(0, ms(1));
    }
    // The hub skips a number within 4,096 packets, less than two seconds' at this rate, and may wait
    // as long again while packets are to be protected.
    for second in 11..=20 {
        carrier.run(f64::from(second));
        if carrier.closed.contains_key(&0) {
            break;
        }
    }
    carrier
}

/// The hub closes its session when it acknowledges a number that was skipped. Until then the honest
/// terminal keeps its share.
#[test]
fn who_acknowledges_what_has_not_arrived_is_closed() {
    for (name, lie, foresees) in [
        ("hides losses", hides_losses as fn(&mut Endpoint, Instant, SessionId), false),
        ("foresees", hides_losses, true),
        ("looks ahead", looks_ahead, false),
    ] {
        for seed in 1..=3 {
            let carrier = run(lie, foresees, seed);
            let end = carrier.now.as_nanos() as f64 * 1e-9;
            let (rates, queue) = (carrier.rates(10.0, end), carrier.queue(95.0, 10.0, end));
            let case = format!("{name}, seed {seed}: {rates:.1?} until {end} s, {queue:.0} ms");
            println!("{case}");
            assert_eq!(carrier.closed, [(0, 1)].into(), "{case}");
            assert!(rates[1] >= 0.8 * MBIT / 2.0, "{case}");
        }
    }
}
