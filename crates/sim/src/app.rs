//! Applications: what they are told, and what is counted of them.

mod bulk;
mod cbr;
mod page;
mod request;
mod users;

use core::time::Duration;

use units::Instant;

pub use bulk::{Amount, Bulk, Direction};
pub use cbr::Cbr;
pub use page::{Method, Page};
pub use request::RequestReply;
pub use users::{Sizes, Users};

use crate::World;
use crate::packet::Datagram;
use crate::slab::Key;

/// An application, by the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

impl AppId {
    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an application is told.
#[derive(Debug, Clone, Copy)]
pub enum Notice {
    /// It was added; nothing else has happened yet.
    Start,
    /// The time has come that [`World::wake_at`] was given, with its number.
    Wake(u64),
    /// A request is answered; or, if it asks for nothing, has arrived.
    Turn(Key),
    /// A connection is over at both ends.
    Over {
        /// Which.
        talk: Key,
        /// Everything arrived, both ways.
        whole: bool,
    },
    /// A datagram has arrived.
    Datagram(Datagram),
}

/// Both ends of something that communicates.
pub trait App: core::fmt::Debug {
    /// Is told something, and does what it wants by `world`'s methods.
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice);
}

/// What an application has brought about so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Bytes that an application has read, at either end.
    pub bytes: u64,
    /// When the first and the last of them were.
    pub first: Option<Instant>,
    /// When the last of them was.
    pub last: Option<Instant>,
    /// When the application began.
    pub began: Instant,
    /// What it finished, in order.
    pub deeds: Vec<Deed>,
    /// Connections that did not end well.
    pub broken: u64,
    /// Datagrams sent and arrived.
    pub datagrams: [u64; 2],
    /// The sum of the arrived datagrams' delays.
    pub delay: Duration,
    /// It has nothing more to do.
    pub done: bool,
}

impl Tally {
    pub(crate) fn delivered(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Bits per second from the beginning to the last byte.
    pub fn goodput(&self) -> Option<f64> {
        let time = self.last?.saturating_since(self.began).as_secs_f64();
        (time > 0.0).then(|| self.bytes as f64 * 8.0 / time)
    }
}

/// Something that has a beginning and an end: a transfer, a reply, a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deed {
    /// When it was begun, and when it was complete.
    pub begin: Instant,
    /// When it was complete.
    pub end: Instant,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Deed {
    /// How long it took.
    pub fn time(&self) -> Duration {
        self.end.saturating_since(self.begin)
    }
}
