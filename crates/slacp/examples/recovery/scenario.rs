//! A hop like that of the SLACP paper, and what is lost on it.

use core::ops::Range;
use core::time::Duration;

use link::LossModel;
use link::testkit::{Mangle, Net};
use slacp::{ChannelId, Config, LogEntry, LogEvent, Wake};
use units::{BitRate, ByteCount, Instant, Machine};

use crate::hop::{HUB, Hop, TERMINAL, at};
use crate::packets::{self, ARQ, Contents, FEC, Flow, Node};

/// The rates and the one-way delay of the paper's emulated link.
const FORWARD: BitRate = BitRate::from_bits_per_second(512_000);
const RETURN: BitRate = BitRate::from_bits_per_second(128_000);
const DELAY: Duration = Duration::from_millis(250);
/// 200 kbit/s of IP packets, 12 in a round trip as in the paper's Fig. 3.
const SIZE: usize = 1000;
const EVERY: Duration = Duration::from_millis(40);
/// IP, UDP and SLACP headers of a packet on the hop, about.
const HEADERS: usize = 53;
/// How long before the first loss the logs begin.
const BEFORE: Duration = Duration::from_millis(200);
/// How long the logs last: two round trips and what is waited between them.
const LASTING: Duration = Duration::from_millis(1800);

/// The channel of the flow. It has no FEC of its own: only what is sent again is
/// protected, as in the paper.
pub(crate) const CHANNEL: ChannelId = ChannelId::new(ARQ).expect("a channel below 32");

/// A recovery to be drawn.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// So many packets in a row are lost …
    lost: u32,
    /// … and so many of their retransmissions, from the second on.
    lost_again: u32,
    /// An acknowledgement behind the losses is lost too. It shares its packet with one
    /// that FEC protects.
    acknowledgement: bool,
}

/// As in Fig. 3 and as in Fig. 4.
pub(crate) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "arq",
        title: "Recovery by retransmission",
        lost: 3,
        lost_again: 0,
        acknowledgement: false,
    },
    Scenario {
        name: "fec",
        title: "Recovery by retransmission and FEC",
        lost: 5,
        lost_again: 3,
        acknowledgement: true,
    },
];

/// What both sides noted.
pub(crate) struct Logs {
    pub(crate) hub: Vec<LogEntry>,
    pub(crate) terminal: Vec<LogEntry>,
}

impl Scenario {
    /// Runs a flow from hub to terminal; gives the logs of its recovery.
    pub(crate) fn run(&self) -> Logs {
        let contents = Contents::Noise;
        let flow =
            Flow { contents, channel: ARQ, size: SIZE, every: EVERY, start: at(5.0), count: 200 };
        // Sent when its time has been found.
        let answer =
            Flow { contents, channel: FEC, size: 60, every: EVERY, start: Instant::MAX, count: 1 };
        let first_lost = flow.sent_at(100);
        let mut net = packets::net(&hop(), &[], &[answer], &[flow]);
        run_to(&mut net, first_lost - BEFORE);
        net.peers_mut().iter_mut().for_each(|node| node.log.clear());
        let behind = first_lost + EVERY * self.lost;
        lose(&mut net, HUB, first_lost..behind);
        if self.acknowledgement {
            lose_acknowledgement(&mut net, behind);
        }
        if self.lost_again > 0 {
            lose_again(&mut net, self.lost_again);
        }
        run_to(&mut net, first_lost - BEFORE + LASTING);
        let [terminal, hub] =
            [TERMINAL, HUB].map(|side| core::mem::take(&mut net.peers_mut()[side].log));
        Logs { hub, terminal }
    }
}

fn hop() -> Hop {
    let (forward, ret) = (FORWARD, RETURN);
    let loss = LossModel::None;
    Hop { forward, ret, delay: DELAY, loss, configure, ..Hop::geo(0.0, 1) }
}

fn configure(config: &mut Config) {
    packets::channels(config);
    // Of the paper.
    config.mtu = 1450;
    config.event_log = 10_000;
}

fn run_to(net: &mut Net<Node>, time: Instant) {
    let left = time.saturating_since(net.now());
    net.run_for(left).expect("time moves on");
}

/// Loses what one side sends in a time.
fn lose(net: &mut Net<Node>, from: usize, sent: Range<Instant>) {
    let outages = vec![sent.start + DELAY..sent.end + DELAY];
    net.mangle(from, TERMINAL + HUB - from, Mangle { outages, ..Mangle::default() });
}

/// Waits until an acknowledgement is due of what came `behind` the losses, and has the
/// terminal send a packet of its own at that moment; loses the SLACP packet with both.
fn lose_acknowledgement(net: &mut Net<Node>, behind: Instant) {
    let told = |now: Instant, nodes: &mut [Node]| {
        let Node { host, log, .. } = &nodes[TERMINAL];
        let due = host.endpoint.poll_timeout();
        let due = due.is_some_and(|(time, why)| time <= now && why == Wake::Acknowledgement);
        let behind = |entry: &LogEntry| {
            entry.time >= behind + DELAY && matches!(entry.event, LogEvent::Received { .. })
        };
        due && log.iter().any(behind)
    };
    let now = net.drive_until(told, behind + LASTING).expect("an acknowledgement");
    let nodes = net.peers_mut();
    nodes[TERMINAL].flows[0].start = now;
    nodes[HUB].expected[0].start = now;
    nodes[TERMINAL].handle_timeout(now);
    lose(net, TERMINAL, now..now + EVERY);
}

/// Waits for the first retransmission; loses so many of those behind it.
fn lose_again(net: &mut Net<Node>, count: u32) {
    let again = |node: &Node| {
        let again = |entry: &&LogEntry| matches!(entry.event, LogEvent::Placed { again: true, .. });
        node.log.iter().find(again).map(|entry| entry.time)
    };
    let limit = net.now() + LASTING;
    net.run_until(|nodes| again(&nodes[HUB]).is_some(), limit).expect("a retransmission");
    let first = again(&net.peers()[HUB]).expect("the one waited for");
    let each = FORWARD.time_to_send(ByteCount::new((SIZE + HEADERS) as u64));
    let begin = first + each * 3 / 2;
    lose(net, HUB, begin..begin + each * count);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::events;
    use crate::points::{Point, Recovery};

    fn sequences(points: &[Point]) -> BTreeSet<u64> {
        points.iter().map(|point| point.sequence).collect()
    }

    fn drawn(scenario: &Scenario) -> Recovery {
        let logs = scenario.run();
        let recovery = Recovery::of(&events(&logs.hub), &events(&logs.terminal), CHANNEL);
        assert!(recovery.delivered.is_sorted_by(|a, b| a.sequence + 1 == b.sequence));
        assert_eq!(sequences(&recovery.resent).len(), scenario.lost as usize);
        assert!(sequences(&recovery.resent).is_disjoint(&sequences(&recovery.received)));
        recovery
    }

    /// What follows the losses is held back until the last of them is there.
    fn held_back_until(recovery: &Recovery, there: &[Point]) {
        let first = recovery.resent[0].sequence;
        let mut behind = recovery.delivered.iter().filter(|point| point.sequence > first + 4);
        let last = there.iter().map(|point| point.time).max();
        assert!(behind.next().unwrap().time >= last.unwrap());
        let waited = recovery.received.iter().find(|point| point.sequence > first + 4);
        assert!(waited.unwrap().time + DELAY < last.unwrap());
    }

    #[test]
    fn every_loss_is_sent_again_and_arrives() {
        let recovery = drawn(&SCENARIOS[0]);
        assert_eq!(sequences(&recovery.resent), sequences(&recovery.resent_received));
        assert!(recovery.restored.is_empty() && recovery.restored_acknowledgements.is_empty());
        held_back_until(&recovery, &recovery.resent_received);
    }

    #[test]
    fn data_lost_twice_and_the_acknowledgement_are_restored() {
        let scenario = &SCENARIOS[1];
        let recovery = drawn(scenario);
        assert_eq!(sequences(&recovery.restored).len(), scenario.lost_again as usize);
        let first = recovery.resent[0].sequence;
        assert_eq!(sequences(&recovery.restored).first(), Some(&(first + 1)));
        assert!(sequences(&recovery.restored).is_disjoint(&sequences(&recovery.resent_received)));
        assert_eq!(recovery.restored_acknowledgements.len(), 1);
        let told = recovery.restored_acknowledgements[0].time;
        assert!(recovery.restored.iter().all(|point| point.time > told));
        held_back_until(&recovery, &recovery.restored);
    }
}
