//! Datagrams at a constant rate, with delays by the one clock of the machine.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use lab::{NetNs, Node};
use os::clock;
use scenario::{FlowTraffic, ScenarioFlow};
use sim::AppStats;
use socket2::SockRef;
use units::{BitRate, ByteCount, Instant};

use super::traffic::at;
use super::{CaseInLab, LabRunError, limits};

/// Size in bytes of a datagram's head: its number and its sending time.
pub(super) const HEAD: usize = 16;
/// Datagrams that have not arrived this long after the last was sent are lost, as in the simulator.
const ON_THE_WAY: Duration = Duration::from_secs(10);
/// Interval at which the receiver checks the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// One direction between two hosts.
struct DatagramSource {
    from: NetNs,
    to: NetNs,
    rate: BitRate,
    size: usize,
    dscp: u8,
    /// Sending time of the first datagram, and the time from which no more are sent.
    span: [Instant; 2],
}

impl CaseInLab<'_> {
    /// Runs one application of a flow of datagrams.
    pub(super) fn datagrams(
        &self,
        flow: &ScenarioFlow,
        number: u32,
    ) -> Result<AppStats, LabRunError> {
        let FlowTraffic::Udp { direction, rate, size, dscp, time } = &flow.traffic else {
            return Ok(AppStats::default());
        };
        let start = Self::start(flow, number);
        let stop = time.map_or(self.case.time, |time| (start + time).min(self.case.time));
        let nodes = [self.client(number), Node::Server];
        let [from, to] = if limits::is_up(*direction) { nodes } else { [nodes[1], nodes[0]] };
        let source = DatagramSource {
            from: self.lab.node(from).clone(),
            to: self.lab.node(to).clone(),
            rate: *rate,
            size: *size as usize,
            dscp: *dscp,
            span: [start, stop].map(|after| self.origin + after),
        };
        let end = self.origin + self.case.time;
        let mut tally = source.run(self.lab.address4(to).into(), self.origin, end)?;
        tally.began = at(start);
        Ok(tally)
    }
}

impl DatagramSource {
    fn run(
        &self,
        to: std::net::IpAddr,
        origin: Instant,
        end: Instant,
    ) -> Result<AppStats, LabRunError> {
        // Bound first, or the sender's first datagrams would find no socket.
        let receiver = self.to.run(|| UdpSocket::bind(os::any_address(0)))?;
        receiver.set_read_timeout(Some(LOOK_INTERVAL))?;
        let to = SocketAddr::new(to, receiver.local_addr()?.port());
        thread::scope(|scope| {
            let sending = scope.spawn(|| self.from.run(|| self.send(to)));
            let until = (self.span[1] + ON_THE_WAY).min(end);
            let mut tally = self.receive(&receiver, origin, until)?;
            tally.datagrams[0] = sending.join().map_err(|_| LabRunError::Panicked)??;
            // Otherwise late datagrams may have been cut off by the end of the case.
            tally.done = until < end;
            Ok(tally)
        })
    }

    /// Sends all datagrams; returns their number.
    fn send(&self, to: SocketAddr) -> io::Result<u64> {
        let socket = UdpSocket::bind(os::any_address(0))?;
        let set = SockRef::from(&socket);
        // The socket is one for both families, where the machine has both.
        let _ = set.set_tclass_v6(u32::from(self.dscp) << 2);
        set.set_tos_v4(u32::from(self.dscp) << 2)?;
        let mut datagram = vec![0; self.size];
        let [start, stop] = self.span;
        let mut number = 0u64;
        loop {
            let sent = ByteCount::new(number * self.size as u64);
            // Counted from the start, because waking late must not lower the rate.
            let due = start + self.rate.time_to_send(sent);
            if due >= stop {
                return Ok(number);
            }
            thread::sleep(clock::until(due));
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            datagram[8..HEAD].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
            // One that the kernel has no room for counts as lost.
            let _ = socket.send_to(&datagram, to);
            number += 1;
        }
    }

    /// Counts the datagrams that arrive before `until`; times count from `origin`.
    fn receive(&self, socket: &UdpSocket, origin: Instant, until: Instant) -> io::Result<AppStats> {
        let mut tally = AppStats::default();
        // One byte more shows datagrams that are too long.
        let mut buffer = vec![0; self.size + 1];
        while clock::now() < until {
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                // A time-out, whose only purpose is to check the time.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            let now = clock::now();
            let mut sent = [0; 8];
            // Not a datagram of this flow.
            if length != self.size {
                continue;
            }
            sent.copy_from_slice(&buffer[8..HEAD]);
            tally.datagrams[1] += 1;
            tally.bytes += length as u64;
            let arrived = at(now.saturating_since(origin));
            tally.first.get_or_insert(arrived);
            tally.last = Some(arrived);
            tally.delays.push(now.saturating_since(Instant::from_nanos(u64::from_be_bytes(sent))));
        }
        Ok(tally)
    }
}
