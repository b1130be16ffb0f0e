//! When a session's packets take another way: another address of the peer, or
//! a path for other sizes.

use core::time::Duration;
use std::net::SocketAddr;

use smallvec::smallvec;
use units::{ByteCount, Instant};

use super::{Session, ip_udp_overhead};
use crate::frame::Frame;
use crate::packet::{Header, TAG};
use crate::received::ACK_DELAY;
use crate::rtt::Rtt;
use crate::sent::Cargo;
use crate::{Event, PathKey, PathMemory};

/// A probe that takes no longer delays what comes behind it by no more than others do.
const UNNOTICED: Duration = Duration::from_millis(10);
/// On a slow link, one packet in so many may be a probe: larger packets save 0.6 % there,
/// and a probe holds up what is sent next.
pub(super) const PROBE_EVERY: u64 = 64;

impl Session {
    /// How long the answer to a challenge takes at most, and some more.
    pub(super) fn challenge_delay(&self) -> Duration {
        self.rtt.probe_delay(ACK_DELAY)
    }

    pub(super) fn path_timeout(&self) -> Option<Instant> {
        self.path.poll_timeout(self.challenge_delay())
    }

    /// Moves to where the peer is now, if that is clear.
    pub(super) fn on_path_timeout(&mut self, now: Instant) {
        let Some((address, rtt)) = self.path.decide(now, self.challenge_delay()) else { return };
        let old = core::mem::replace(&mut self.peer.address, address);
        self.pmtu.restart();
        // What was sent to the old address says nothing of the new one.
        self.last_progress = now;
        if self.fade.is_some() {
            // The answer to the challenge has just come this way.
            self.next_probe = now;
        }
        // Another port of the same address is the same path.
        if old.ip() != address.ip() {
            self.left = Some((old, self.path_memory(now)));
            self.rtt = Rtt::new();
            self.rtt.update(rtt, Duration::ZERO);
            if let Some(auto) = self.rate.auto_mut() {
                auto.move_to(self.sent.next_number());
                self.rate_changed(now);
            }
        }
        self.events.push_back(Event::Moved { address });
    }

    /// The path that the session has left since this was asked last, and what
    /// was learnt of it.
    pub(crate) fn take_left(&mut self) -> Option<(PathKey, Option<PathMemory>)> {
        let (address, memory) = self.left.take()?;
        Some((PathKey::new(self.peer.key, address.ip()), memory))
    }

    /// A packet that asks who is at an address, or says so, alone.
    pub(super) fn transmit_path(
        &mut self,
        now: Instant,
        header: &Header,
        out: &mut Vec<u8>,
    ) -> Option<(SocketAddr, ByteCount)> {
        let (to, frame) = self.path.next(now, self.peer.address, self.challenge_delay())?;
        frame.write(out, false);
        self.seal(now, header, out, to, None)
    }

    /// When the next packet is to be tried that is larger than is known to pass.
    pub(super) fn mtu_probe_at(&self) -> Option<Instant> {
        let usable = self.is_reachable() && self.rate.rate().bits_per_second() > 0;
        let wanted = self.pmtu.probe_at().filter(|_| usable && !self.probe_pending)?;
        (self.stats.bytes_sent >= self.mtu_probe_from || !self.is_slow_for_probes())
            .then_some(wanted)
    }

    /// Whether somebody would notice a probe that goes before what he sends.
    fn is_slow_for_probes(&self) -> bool {
        let noticed = (self.rtt.smoothed() / 10).max(UNNOTICED);
        self.rate.rate().bytes_in(noticed).get() < self.pmtu.most() as u64
    }

    /// A packet that is larger than is known to pass. A small one follows, which
    /// tells soon whether it was lost.
    pub(super) fn transmit_mtu_probe(
        &mut self,
        now: Instant,
        header: &Header,
        out: &mut Vec<u8>,
    ) -> Option<(SocketAddr, ByteCount)> {
        if self.mtu_probe_at()? > now {
            return None;
        }
        let probe = self.pmtu.probe(now)?;
        Frame::Ping.write(out, false);
        self.mtu_probe_from = self.stats.bytes_sent + PROBE_EVERY * probe.size as u64;
        let to = self.peer.address;
        // Padding is zeros.
        out.resize(probe.size - ip_udp_overhead(to) - TAG, 0);
        self.probe_pending = true;
        let cargo = smallvec![Cargo::MtuProbe(probe)];
        self.seal(now, header, out, to, Some((cargo, None)))
    }

    /// When to ask whether anything still arrives though more is being sent:
    /// a path that has come to drop large packets drops everything a busy
    /// session sends.
    pub(super) fn doubt_timeout(&self) -> Option<Instant> {
        let rtt = self.rtt.smoothed();
        let delay = self.rtt.probe_delay(ACK_DELAY.max(rtt / 4));
        let oldest = self.sent.oldest()?;
        let large =
            self.is_reachable() && !self.probe_pending && self.pmtu.size() > self.pmtu.least();
        large.then(|| oldest.max(self.doubted_at) + delay)
    }

    pub(super) fn on_doubt(&mut self, now: Instant) {
        self.doubted_at = now;
        self.probe_pending = true;
        self.careful = true;
    }
}
