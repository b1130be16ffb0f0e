//! Flows of IP packets over the packet channels of a hop, beside streams.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;
use std::collections::BTreeMap;

use link::testkit::{Net, Peer};
use slacp::{ChannelConfig, ChannelId, ChannelStats, Config, ErrorControl, LogEntry, SessionId};
use units::{Instant, Machine};

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at};

/// Channels 0 to 3 of [`channels`], by their error control.
pub const NONE: u8 = 0;
pub const FEC: u8 = 1;
pub const ARQ: u8 = 2;
pub const FEC_ARQ: u8 = 3;

pub fn id(channel: u8) -> ChannelId {
    ChannelId::new(channel).unwrap()
}

/// One channel of every kind, with the defaults.
pub fn channels(config: &mut Config) {
    let kinds = [ErrorControl::None, ErrorControl::Fec, ErrorControl::Arq, ErrorControl::FecArq];
    for (channel, kind) in (0..).zip(kinds) {
        config.add_channel(id(channel), ChannelConfig::new(kind)).unwrap();
    }
}

/// What the packets of a flow carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// UDP with a number and noise, and headers that no host would send: they are not compressed.
    Noise,
    /// RTP with as many bytes of voice: the packets of a call, with the right checksums.
    Voice(usize),
}

/// Packets of one UDP flow, one every `every` from `start` on.
#[derive(Debug, Clone)]
pub struct Flow {
    pub channel: u8,
    pub contents: Contents,
    /// The size of the IP packets, at least [`HEADERS`].
    pub size: usize,
    pub every: Duration,
    pub start: Instant,
    pub count: u64,
}

/// IPv4 and UDP headers and the number of the packet.
pub const HEADERS: usize = 20 + 8 + 8;

impl Flow {
    /// A flow of `mbit` Mbit/s of IP packets for `seconds`, starting at 5 s.
    pub fn new(channel: u8, size: usize, mbit: f64, seconds: f64) -> Self {
        let every = Duration::from_secs_f64(size as f64 * 8.0 / (mbit * 1e6));
        let count = (seconds / every.as_secs_f64()) as u64;
        Self { channel, contents: Contents::Noise, size, every, start: at(5.0), count }
    }

    /// A call with G.729: packets of 60 bytes, 20 of them voice, every 20 ms for `seconds`, the first
    /// `phase` after 5 s.
    pub fn call(channel: u8, phase: Duration, seconds: f64) -> Self {
        let every = Duration::from_millis(20);
        let count = (seconds / every.as_secs_f64()) as u64;
        let contents = Contents::Voice(20);
        Self { channel, contents, size: 60, every, start: at(5.0) + phase, count }
    }

    pub fn sent_at(&self, number: u64) -> Instant {
        self.start + self.every * u32::try_from(number).unwrap()
    }

    /// Packet `number` of flow `port`.
    pub fn packet(&self, port: u16, number: u64) -> Vec<u8> {
        if let Contents::Voice(size) = self.contents {
            return voice(port, number, size);
        }
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        packet.splice(2..4, (self.size as u16).to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend([0; 6]);
        packet.extend(number.to_be_bytes());
        let mut byte = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(port);
        packet.resize_with(self.size, || {
            byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (byte >> 56) as u8
        });
        packet
    }
}

/// Packet `number` of a call from this port.
fn voice(port: u16, number: u64, size: usize) -> Vec<u8> {
    let mut udp = [port, 5004, 20 + size as u16, 0].map(u16::to_be_bytes).concat();
    udp.extend([0x80, 18]);
    udp.extend((number as u16).to_be_bytes());
    udp.extend((number as u32 * 160).to_be_bytes());
    udp.extend((0xfeed_0000 + u32::from(port)).to_be_bytes());
    let noise = |i: u64| (number ^ i << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    udp.extend((0..size as u64).map(|i| noise(i) as u8));
    let (from, to) = ([10, 1, 0, 1], [10, 2, 0, 1]);
    let pseudo = tcp::wire::pseudo_header_sum(from.into(), to.into(), udp.len());
    let sum = tcp::wire::checksum(pseudo + 17 - 6, &udp);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x45, 0xb8];
    packet.extend((20 + udp.len() as u16).to_be_bytes());
    packet.extend((number as u16 + port * 1000).to_be_bytes());
    packet.extend([0x40, 0, 63, 17, 0, 0]);
    packet.extend(from.into_iter().chain(to));
    let sum = tcp::wire::checksum(0, &packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(udp);
    packet
}

/// What arrived of a flow.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// Number and delay of each packet as delivered.
    pub packets: Vec<(u64, Duration)>,
}

impl Arrivals {
    /// The delay at this quantile of the packets.
    pub fn delay(&self, share: f64) -> Duration {
        let mut delays: Vec<Duration> = self.packets.iter().map(|(_, delay)| *delay).collect();
        delays.sort();
        delays[((delays.len() - 1) as f64 * share) as usize]
    }

    pub fn are_in_order(&self) -> bool {
        self.packets.windows(2).all(|pair| pair[0].0 < pair[1].0)
    }

    pub fn are_once(&self) -> bool {
        let mut numbers: Vec<u64> = self.packets.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.windows(2).all(|pair| pair[0] < pair[1])
    }
}

/// A host that also sends flows of packets and checks those it receives.
pub struct Node {
    pub host: Host,
    /// Flows of this side; the index is the source port.
    pub flows: Vec<Flow>,
    /// Flows of the other side.
    pub expected: Vec<Flow>,
    next: Vec<u64>,
    pub arrivals: BTreeMap<u16, Arrivals>,
    pub log: Vec<LogEntry>,
}

impl Node {
    pub fn session(&self) -> SessionId {
        self.host.session.expect("a session")
    }

    pub fn stats(&self, channel: u8) -> ChannelStats {
        self.host.endpoint.channel_stats(self.session(), id(channel)).unwrap()
    }

    /// When the next packet is due, and of which flow.
    fn next(&self) -> Option<(Instant, usize)> {
        let due = |(flow, next): (&Flow, &u64)| (*next < flow.count).then(|| flow.sent_at(*next));
        let flows = self.flows.iter().zip(&self.next).enumerate();
        flows.filter_map(|(port, flow)| Some((due(flow)?, port))).min()
    }

    fn send(&mut self, now: Instant) {
        let Some(session) = self.host.session else { return };
        while let Some((due, port)) = self.next()
            && due <= now
        {
            let flow = &self.flows[port];
            let packet = flow.packet(port as u16, self.next[port]);
            let channel = id(flow.channel);
            self.host.endpoint.send_packet(now, session, channel, &packet).unwrap();
            self.next[port] += 1;
        }
    }

    fn take(&mut self, now: Instant) {
        while let Some((_, channel, packet)) = self.host.endpoint.poll_packet() {
            let port = u16::from_be_bytes([packet[20], packet[21]]);
            let flow = &self.expected[usize::from(port)];
            let number = match flow.contents {
                Contents::Noise => u64::from_be_bytes(packet[28..36].try_into().unwrap()),
                Contents::Voice(_) => u16::from_be_bytes([packet[30], packet[31]]).into(),
            };
            assert_eq!(channel, id(flow.channel));
            assert_eq!(packet, flow.packet(port, number));
            let delay = now.saturating_since(flow.sent_at(number));
            self.arrivals.entry(port).or_default().packets.push((number, delay));
        }
        while let Some(entry) = self.host.endpoint.poll_log() {
            self.log.push(entry);
        }
    }
}

impl Machine for Node {
    type Wake = String;

    fn poll_timeout(&self) -> Option<(Instant, String)> {
        let next = self.next().filter(|_| self.host.session.is_some());
        let next = next.map(|(due, _)| (due, "packet".to_owned()));
        units::earliest(next, self.host.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(now);
        self.send(now);
        self.take(now);
    }
}

impl Peer for Node {
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>) {
        self.host.receive(now, from, datagram);
        self.take(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let datagram = self.host.transmit(now);
        self.take(now);
        datagram
    }
}

/// A hub that sends `down` and a terminal that sends `up`. The session is set up by 5 s, when the
/// flows start.
pub fn net(hop: &Hop, plans: &[Plan], up: &[Flow], down: &[Flow]) -> Net<Node> {
    let node = |me: usize, flows: &[Flow], expected: &[Flow]| Node {
        host: hop.host(me, plans, 0),
        flows: flows.to_vec(),
        expected: expected.to_vec(),
        next: vec![0; flows.len()],
        arrivals: BTreeMap::new(),
        log: Vec::new(),
    };
    let mut net = Net::new(vec![node(TERMINAL, up, down), node(HUB, down, up)], hop.seed);
    // Four bytes of every datagram belong to the test.
    net.set_overhead(link::testkit::UDP_IPV4_OVERHEAD - 4);
    net.connect(HUB, TERMINAL, hop.link(hop.forward));
    net.connect(TERMINAL, HUB, hop.link(hop.ret));
    net
}

/// Runs until 3 s after all flows have ended.
pub fn run(net: &mut Net<Node>) {
    let end = |flow: &Flow| flow.sent_at(flow.count);
    let ends = net.peers().iter().flat_map(|node| node.flows.iter().map(end));
    let end = ends.max().unwrap_or_else(|| at(5.0)) + Duration::from_secs(3);
    net.run_for(end.saturating_since(net.now())).unwrap();
}
