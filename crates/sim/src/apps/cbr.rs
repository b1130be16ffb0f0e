//! Datagrams at a constant rate.

use core::time::Duration;

use scenario::IpVersion;
use units::{BitRate, ByteCount, Instant};

use super::{App, AppId, AppNotice};
use crate::ids::NodeId;
use crate::network::packet::AppDatagram;
use crate::world::World;

/// UDP datagrams from one host to another.
#[derive(Debug)]
pub struct CbrSource {
    /// The sending node.
    pub from: NodeId,
    /// The receiving node.
    pub to: NodeId,
    /// Payload rate; must not be zero.
    pub rate: BitRate,
    /// Payload of a datagram in bytes.
    pub size: u32,
    /// Code point of the datagrams, 0 to 63.
    pub dscp: u8,
    /// IP version of the datagrams.
    pub ip: IpVersion,
    /// When the first datagram is sent.
    pub start: Instant,
    /// The time from which no more datagrams are sent.
    pub stop: Instant,
}

/// The number of the wake-up that ends the application.
const LAST: u64 = u64::MAX;
/// Time after the last datagram at which datagrams that have not arrived count as lost.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

impl App for CbrSource {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start => world.wake_at(me, self.start, 0),
            AppNotice::Wake(number) if world.now() < self.stop => {
                if number == 0 {
                    world.begin(me);
                }
                self.send(world, me, number);
                // Computed from the start, so that rounding errors do not accumulate.
                let sent = ByteCount::new((number + 1) * u64::from(self.size));
                let next = self.start + self.rate.time_to_send(sent);
                world.wake_at(me, next, number + 1);
            }
            AppNotice::Wake(LAST) => world.set_done(me),
            AppNotice::Wake(_) => world.wake_at(me, world.now() + ARRIVAL_TIMEOUT, LAST),
            AppNotice::Datagram(datagram) => world.record_datagram(me, datagram),
            _ => {}
        }
    }
}

impl CbrSource {
    fn send(&self, world: &mut World, me: AppId, number: u64) {
        let sent_at = world.now();
        let datagram = AppDatagram { app: me.0, number, sent_at, len: self.size, dscp: self.dscp };
        world.send_datagram([self.from, self.to], self.ip, datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, at_ms, geo};

    fn run(size: u32, start: Instant, stop: Instant, until: Instant) -> crate::app::AppStats {
        let mut world = World::new(1);
        let (from, to, _) = geo(&mut world);
        let rate = BitRate::from_mbit(3);
        let app = world.add_app(Box::new(CbrSource {
            from,
            to,
            rate,
            size,
            dscp: 0,
            ip: IpVersion::Ipv4,
            start,
            stop,
        }));
        world.run_until(until);
        world.app_stats(app).clone()
    }

    #[test]
    fn rounding_does_not_add_up() {
        // 1000 bytes at 3 Mbit/s take 2.666… ms: exactly 375 in each second.
        let tally = run(1000, at(1), at(361), at(370));
        assert_eq!(tally.datagrams, [375 * 360; 2]);
    }

    #[test]
    fn it_is_done_when_late_datagrams_are_lost() {
        let stop = at(2);
        assert!(!run(1000, at(1), stop, at_ms(11_900)).done);
        assert!(run(1000, at(1), stop, at_ms(12_100)).done);
    }

    #[test]
    fn a_source_that_stops_before_it_starts_sends_nothing() {
        let tally = run(1000, at(5), at(4), at(20));
        assert_eq!((tally.datagrams, tally.done, tally.goodput()), ([0, 0], true, None));
    }
}
