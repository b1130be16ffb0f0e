//! Headers of packets are compressed on each of several links, whatever overtakes what.

use core::time::Duration;
use std::collections::BTreeMap;

use slacp::{ChannelConfig, ChannelStats, Config, ErrorControl, QueueDiscipline};

use crate::hop::{HUB, Plan, TERMINAL};
use crate::links::{Kind, Net};
use crate::packets::{Contents, Flow, id};

const GEO: usize = 0;
const LEO: usize = 1;
const CHANNEL: u8 = 0;
const FLOWS: u16 = 8;
const STEP: Duration = Duration::from_millis(20);

/// RTP flows of one side.
struct Calls {
    flow: Flow,
    per_step: u64,
    sent: u64,
    step: u64,
    /// The packets that have come, and after how many steps.
    arrived: BTreeMap<(u16, u64), u64>,
}

impl Calls {
    fn new(size: usize, per_step: u64) -> Self {
        let call = Flow::call(CHANNEL, Duration::ZERO, 0.0);
        let flow = Flow { contents: Contents::Voice(size), ..call };
        Self { flow, per_step, sent: 0, step: 0, arrived: BTreeMap::new() }
    }

    fn send(&mut self, net: &mut Net, from: usize) {
        let now = net.now;
        let host = &mut net.hosts[from];
        let session = host.session.unwrap();
        for number in self.sent..self.sent + self.per_step {
            for port in 0..FLOWS {
                let packet = self.flow.packet(port, number);
                host.endpoint.send_packet(now, session, id(CHANNEL), &packet).unwrap();
            }
        }
        self.sent += self.per_step;
        self.step += 1;
    }

    /// Takes what has come, which is what was sent, and nothing twice.
    fn take(&mut self, net: &mut Net, at: usize) {
        while let Some((_, _, packet)) = net.hosts[at].endpoint.poll_packet() {
            let port = u16::from_be_bytes([packet[20], packet[21]]);
            let number = u16::from_be_bytes([packet[30], packet[31]]).into();
            assert_eq!(packet, self.flow.packet(port, number));
            let steps = self.step - number / self.per_step;
            let twice = self.arrived.insert((port, number), steps);
            assert_eq!(twice, None, "{number} of {port}");
        }
    }

    /// The share of what was sent that has come after these steps.
    fn share(&self, steps: core::ops::RangeInclusive<u64>) -> f64 {
        let come = self.arrived.values().filter(|after| steps.contains(after)).count();
        come as f64 / (self.sent * u64::from(FLOWS)) as f64
    }
}

fn with_channel(_: usize, config: &mut Config) {
    let channel = ChannelConfig {
        // What comes is delivered at once, in any order.
        deadline: Duration::ZERO,
        discipline: QueueDiscipline::DropTail,
        compress: true,
        ..ChannelConfig::new(ErrorControl::FecArq)
    };
    config.add_channel(id(CHANNEL), channel).unwrap();
}

fn step(net: &mut Net, down: &mut Calls, up: &mut Calls) {
    down.send(net, HUB);
    up.send(net, TERMINAL);
    net.run_for(STEP);
    down.take(net, TERMINAL);
    up.take(net, HUB);
}

fn stats(net: &Net, side: usize) -> ChannelStats {
    let host = &net.hosts[side];
    host.endpoint.channel_stats(host.session.unwrap(), id(CHANNEL)).unwrap()
}

fn without_context(net: &Net, side: usize) -> u64 {
    let host = &net.hosts[side];
    host.endpoint.stats(host.session.unwrap()).unwrap().without_context
}

#[test]
fn headers_are_compressed_on_links_that_lose_reorder_and_fail() {
    let lossy = |kind| Kind { per: 0.01, ..kind };
    // A download beside them fills both links, so that the packets take both.
    let plans = [Plan::new(100, 80_000_000)];
    let mut net = Net::new(&[lossy(Kind::geo()), lossy(Kind::leo())], &plans, 31, with_channel);
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
    net.open_all();
    let (mut down, mut up) = (Calls::new(1100, 2), Calls::new(20, 1));
    for number in 0..400 {
        match number {
            100 => net.cut(LEO, Duration::from_secs(1)),
            250 => net.cut(GEO, Duration::from_secs(1)),
            // What is sent later overtakes, on each link.
            _ if number % 7 == 0 => net.set_delay(LEO, Duration::from_millis(10 + number % 50)),
            _ if number % 11 == 0 => net.set_delay(GEO, Duration::from_millis(240 + number % 60)),
            _ => {}
        }
        step(&mut net, &mut down, &mut up);
    }
    net.run_for(Duration::from_secs(12));
    down.take(&mut net, TERMINAL);
    up.take(&mut net, HUB);
    // The links fail with what is in flight on them.
    for calls in [&down, &up] {
        let share = calls.share(0..=u64::MAX);
        assert!(share > 0.9, "{share}");
    }
    // Within 100 ms over LEO, after 200 ms and more over GEO.
    let (quick, slow) = (down.share(0..=5), down.share(10..=50));
    assert!(quick > 0.1 && slow > 0.1, "{quick} {slow}");
    for (side, calls) in [(HUB, &down), (TERMINAL, &up)] {
        assert_eq!(without_context(&net, side), 0);
        let stats = stats(&net, side);
        let share = stats.compressed as f64 / (calls.sent * u64::from(FLOWS)) as f64;
        // Whole are the first ones of a flow on each link, until its context there is acknowledged.
        assert!(share > 0.85, "of the packets of side {side}, {share} were compressed");
    }
}

#[test]
fn headers_are_compressed_if_only_one_side_has_links() {
    for lone in [TERMINAL, HUB] {
        let only = |me, config: &mut Config| {
            with_channel(me, config);
            if me == lone {
                config.links.clear();
            }
        };
        let mut net = Net::new(&[Kind::geo(), Kind::leo()], &[], 32, only);
        net.run_until(30.0, |net| net.hosts.iter().all(|host| host.session.is_some()));
        let (mut down, mut up) = (Calls::new(20, 1), Calls::new(20, 1));
        for _ in 0..150 {
            step(&mut net, &mut down, &mut up);
        }
        for side in [HUB, TERMINAL] {
            assert_eq!((net.link_stats(side).len(), without_context(&net, side)), (1, 0));
            assert!(stats(&net, side).compressed > 500, "{lone} {side}: {:?}", stats(&net, side));
        }
    }
}
