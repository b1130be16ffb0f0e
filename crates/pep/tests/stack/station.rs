//! What hosts and gateways have in common: stacks of connections, towards one neighbour each.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use tcp::{Config, Ecn, SeqNr, Stack, StackEvent, StackLimits, TimerKind, wire};
use units::{Instant, Machine, earliest};

/// Addresses before a segment, in bytes.
const ADDRESSES: usize = 8;
const LIMITS: StackLimits = StackLimits { flows: 100, incoming: 100 };
/// The port of the server.
pub(crate) const SERVER_PORT: u16 = 80;

/// The address of the client, and of the server.
pub(crate) fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

pub(crate) const CLIENT: u8 = 1;
pub(crate) const SERVER: u8 = 4;

/// Stacks, and the neighbours that they lead to.
pub(crate) struct Station {
    pub(crate) now: Instant,
    pub(crate) stacks: Vec<(usize, Stack<Bytes>)>,
    serial: u32,
}

impl Station {
    pub(crate) fn new(neighbours: &[usize]) -> Self {
        let stack = |neighbour: &usize| (*neighbour, Stack::new(LIMITS));
        let stacks = neighbours.iter().map(stack).collect();
        Self { now: Instant::ZERO, stacks, serial: 0 }
    }

    pub(crate) fn stack(&mut self, index: usize) -> &mut Stack<Bytes> {
        &mut self.stacks[index].1
    }

    /// An initial sequence number; the first ones are about to wrap.
    pub(crate) fn iss(&mut self) -> SeqNr {
        self.serial += 1;
        SeqNr::new(u32::MAX - 3000).advance(u64::from(self.serial) * 64_000)
    }

    /// Events with the index of their stack.
    pub(crate) fn poll_event(&mut self) -> Option<(usize, StackEvent)> {
        let mut stacks = self.stacks.iter_mut().enumerate();
        stacks.find_map(|(index, (_, stack))| Some((index, stack.poll_event()?)))
    }

    pub(crate) fn receive(&mut self, now: Instant, from: usize, datagram: &[u8]) {
        self.now = now;
        let address = |at: usize| {
            IpAddr::from([datagram[at], datagram[at + 1], datagram[at + 2], datagram[at + 3]])
        };
        let bytes = Bytes::copy_from_slice(&datagram[ADDRESSES..]);
        let decoded = wire::decode(address(0), address(4), Ecn::NotEct, &bytes);
        let (path, segment) = decoded.expect("nothing damages segments");
        let stack = self.stacks.iter_mut().find(|(neighbour, _)| *neighbour == from);
        let (_, stack) = stack.expect("a stack for each neighbour");
        stack.handle_segment(now, &path, &segment);
    }

    pub(crate) fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.now = now;
        let mut stacks = self.stacks.iter_mut();
        let (to, (path, segment)) =
            stacks.find_map(|(to, stack)| Some((*to, stack.poll_transmit(now)?)))?;
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(_) => unreachable!("all addresses are IPv4"),
        };
        let mut out = [octets(path.from), octets(path.to)].concat();
        wire::encode(&path, &segment, &mut out);
        Some((to, out))
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        let timers = self.stacks.iter().map(|(_, stack)| stack.poll_timeout());
        timers.fold(None, earliest)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        for (_, stack) in &mut self.stacks {
            stack.handle_timeout(now);
        }
    }
}

/// A byte of the stream that a side of a connection sends.
pub(crate) fn byte(port: u16, from_server: bool, offset: u64) -> u8 {
    let stream = u64::from(port) << 1 | u64::from(from_server);
    ((offset ^ stream << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Settings of hosts and of a gateway's side towards them.
pub(crate) fn lan() -> Arc<Config> {
    let keepalive = tcp::KeepaliveConfig {
        idle: core::time::Duration::from_secs(60),
        interval: core::time::Duration::from_secs(10),
        probes: 6,
    };
    Arc::new(Config { nagle: false, keepalive: Some(keepalive), ..Config::default() })
}
