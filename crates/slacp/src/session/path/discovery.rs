//! Discovery of a path: a new address of the peer, and the path MTU.

use core::ops::Range;
use core::time::Duration;
use std::net::SocketAddr;

use smallvec::smallvec;
use units::Instant;

use super::send::PacketRecord;
use super::{SessionPath, SharedState};
use crate::recovery::path::migration::PathValidation;
use crate::recovery::path::pmtu::PmtuSearch;
use crate::recovery::path::rtt::RttEstimator;
use crate::recovery::received::ACK_DELAY;
use crate::recovery::sent::SentContent;
use crate::session::{PacketEnvelope, ip_udp_overhead};
use crate::wire::frame::Frame;
use crate::wire::packet::TAG;
use crate::{Event, PathMemory};

/// A probe that takes no longer than this on the link delays following packets no more than
/// ordinary traffic does.
const UNNOTICED: Duration = Duration::from_millis(10);
/// On a slow link, at most one packet in this many is an MTU probe: larger packets save only 0.6 %
/// there, and a probe delays the packets behind it.
const PROBE_EVERY: u64 = 64;

/// Validation of new addresses, and the packet size that the path carries. The address in use is in
/// [`RemoteEnd`](super::RemoteEnd).
pub(in crate::session) struct PathDiscovery {
    pub(super) validation: PathValidation,
    /// The address that the path has just left, and the measurements of that path.
    former: Option<(SocketAddr, Option<PathMemory>)>,
    pub(super) pmtu: PmtuSearch,
    /// On a slow link, the total of bytes sent from which the next MTU probe may leave.
    mtu_probe_from: u64,
    /// Source address of the packet being processed.
    pub(super) heard_from: SocketAddr,
}

impl PathDiscovery {
    /// Creates the discovery of the path to `address`. Packets of `mtu` bytes may pass; if the MTU is `known`, they
    /// do.
    pub(super) fn new(address: SocketAddr, mtu: u16, known: bool) -> Self {
        let most = usize::from(mtu);
        Self {
            validation: PathValidation::default(),
            former: None,
            pmtu: if known { PmtuSearch::known(most) } else { PmtuSearch::new(most) },
            mtu_probe_from: PROBE_EVERY * u64::from(mtu),
            heard_from: address,
        }
    }

    /// Returns the address that was left since the last call, and the measurements of that path.
    pub(in crate::session) fn take_former(&mut self) -> Option<(SocketAddr, Option<PathMemory>)> {
        self.former.take()
    }
}

impl SessionPath {
    /// Maximum time for the answer to a path challenge.
    pub(in crate::session) fn challenge_delay(&self) -> Duration {
        self.rtt.probe_delay(ACK_DELAY)
    }

    pub(super) fn path_timeout(&self) -> Option<Instant> {
        self.discovery.validation.poll_timeout(self.challenge_delay())
    }

    /// Moves to the peer's new address once it is validated.
    pub(super) fn on_path_timeout(&mut self, shared: &mut SharedState, now: Instant) {
        let Some((address, rtt)) = self.discovery.validation.decide(now, self.challenge_delay())
        else {
            return;
        };
        let old = core::mem::replace(&mut self.remote.address, address);
        self.discovery.pmtu.restart();
        // Packets sent to the old address say nothing about the new one.
        self.activity.progress = now;
        if !self.is_reachable() {
            // The answer to the challenge has just arrived on this path, so probe at once.
            self.probes.next = now;
        }
        self.marking.restart(self.sender.sent.next_number());
        // A new port at the same address is the same path, whose measurements still hold.
        if old.ip() != address.ip() {
            self.discovery.former = Some((old, self.path_memory(now)));
            self.rtt = RttEstimator::new();
            // The answer to the challenge is the first sample of the new path.
            self.rtt.update(rtt, Duration::ZERO);
            if let Some(auto) = self.rate.auto_mut() {
                auto.move_to(self.sender.sent.next_number());
                self.rate_changed(shared, now);
            }
        }
        self.report_reachability(shared, Event::Moved { address });
    }

    /// Builds a packet with a single path challenge or answer.
    pub(super) fn transmit_path(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        header: &Range<usize>,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        if self.discovery.validation.is_idle() {
            return None;
        }
        let (to, frame) =
            self.discovery.validation.next(now, self.remote.address, self.challenge_delay())?;
        frame.write(out, false);
        self.seal(shared, now, header, out, to, None)
    }

    /// The time at which the next larger packet size is to be tried.
    pub(in crate::session) fn mtu_probe_at(&self) -> Option<Instant> {
        let wanted = self.discovery.pmtu.probe_at()?;
        let usable = self.is_reachable() && self.rate.rate().bits_per_second() > 0;
        // The small PING after the last probe goes first, so that a loss shows at once.
        if !usable || self.probes.is_pending() {
            return None;
        }
        (self.counters.bytes_sent >= self.discovery.mtu_probe_from || !self.is_slow_for_probes())
            .then_some(wanted)
    }

    /// Returns whether an MTU probe would noticeably delay the packets behind it.
    fn is_slow_for_probes(&self) -> bool {
        let noticed = (self.rtt.smoothed() / 10).max(UNNOTICED);
        self.rate.rate().bytes_in(noticed).get() < self.discovery.pmtu.most() as u64
    }

    /// Builds a probe packet larger than the known path MTU. A small packet follows, so that its
    /// loss is noticed soon.
    pub(super) fn transmit_mtu_probe(
        &mut self,
        shared: &mut SharedState,
        now: Instant,
        header: &Range<usize>,
        out: &mut Vec<u8>,
    ) -> Option<PacketEnvelope> {
        if self.mtu_probe_at()? > now {
            return None;
        }
        let probe = self.discovery.pmtu.probe(now)?;
        Frame::Ping.write(out, false);
        self.discovery.mtu_probe_from = self.counters.bytes_sent + PROBE_EVERY * probe.size as u64;
        let to = self.remote.address;
        // PADDING frames are zero bytes.
        out.resize(header.start + probe.size - ip_udp_overhead(to) - TAG, 0);
        self.ping();
        let kept = PacketRecord {
            cargo: smallvec![SentContent::MtuProbe(probe)],
            source: None,
            is_control: false,
            dscp: Some(0),
        };
        self.seal(shared, now, header, out, to, Some(kept))
    }
}
