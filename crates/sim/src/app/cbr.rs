//! Datagrams at a constant rate.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use super::{App, AppId, Notice};
use crate::packet::{Datagram, NodeId};
use crate::world::World;

/// UDP datagrams from one host to another.
#[derive(Debug)]
pub struct Cbr {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Payload rate; must not be zero.
    pub rate: BitRate,
    /// Payload of a datagram in bytes.
    pub size: u32,
    /// When the first leaves.
    pub start: Instant,
    /// The time from which no more datagrams are sent.
    pub stop: Instant,
}

/// The number of the last wake-up.
const LAST: u64 = u64::MAX;
/// Datagrams that have not arrived this long after the last was sent are lost.
const ON_THE_WAY: Duration = Duration::from_secs(10);

impl App for Cbr {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            Notice::Start => world.wake_at(me, self.start, 0),
            Notice::Wake(number) if world.now() < self.stop => {
                if number == 0 {
                    world.begin(me);
                }
                self.send(world, me, number);
                // Computed from the start, so that rounding errors do not accumulate.
                let sent = ByteCount::new((number + 1) * u64::from(self.size));
                let next = self.start + self.rate.time_to_send(sent);
                world.wake_at(me, next, number + 1);
            }
            Notice::Wake(LAST) => world.set_done(me),
            Notice::Wake(_) => world.wake_at(me, world.now() + ON_THE_WAY, LAST),
            Notice::Datagram(datagram) => world.note_datagram(me, datagram),
            _ => {}
        }
    }
}

impl Cbr {
    fn send(&self, world: &mut World, me: AppId, number: u64) {
        let sent_at = world.now();
        let datagram = Datagram { app: me.0, number, sent_at, len: self.size };
        world.send_datagram(self.from, self.to, datagram);
    }
}
