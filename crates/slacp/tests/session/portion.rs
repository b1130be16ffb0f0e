//! A hub that may use only a portion of its rate, beside another process.

use core::time::Duration;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, open_all};
use link::testkit::Net;

const MB: u64 = 1_000_000;

/// Mbit/s that the hub sends over the next three seconds, after one for the change.
fn rate(net: &mut Net<Host>) -> f64 {
    let sent = |net: &Net<Host>| {
        let hub = &net.peers()[HUB];
        hub.endpoint.stats(hub.session.unwrap()).unwrap().bytes_sent
    };
    net.run_for(Duration::from_secs(1)).unwrap();
    let before = sent(net);
    net.run_for(Duration::from_secs(3)).unwrap();
    (sent(net) - before) as f64 * 8e-6 / 3.0
}

#[test]
fn a_hub_uses_the_portion_of_its_rate_that_it_may() {
    let mut net = Hop::geo(0.0, 3).connected(&[Plan::new(100, 100 * MB)]);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(2)).unwrap();
    for portion in [0.25, 0.6, 1.0] {
        let now = net.now();
        net.peers_mut()[HUB].endpoint.set_portion(now, portion);
        let (rate, most) = (rate(&mut net), 50.0 * portion);
        assert!((0.95 * most..=1.005 * most).contains(&rate), "{rate} of {most} Mbit/s");
    }
    // Not even nothing stops what has to pass.
    let now = net.now();
    net.peers_mut()[HUB].endpoint.set_portion(now, 0.0);
    let rate = rate(&mut net);
    assert!((0.01..0.1).contains(&rate), "{rate} Mbit/s");
}
