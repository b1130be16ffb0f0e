//! A real TCP: a download between two endpoints of the crate `tcp`, in packets of 1500 bytes.

use std::sync::Arc;

use ::tcp::cc::ControllerSpec;
use ::tcp::{ByteRange, Config, Connection, ConnectionEvent, Profile, Segment, SeqNr};
use units::{ByteCount, Instant, Machine};

/// What IPv4 adds to a segment.
pub const HEADER: usize = 20;
/// Buffers that never limit: many BDP of the fastest path.
const BUFFER: ByteCount = ByteCount::new(256 << 20);
/// How much the server writes at a time.
const CHUNK: u64 = 1 << 20;

/// A segment that carries no bytes, only their numbers.
pub type Data = Segment<ByteRange>;

/// How a server decides how much may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Cubic,
    Bbr,
}

impl Control {
    /// The settings of a Linux host. BBR paces, CUBIC does not.
    fn config(self) -> Config {
        let name = match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        };
        let controller: ControllerSpec = name.parse().expect("a controller of the registry");
        let (send_buffer, receive_buffer) = (BUFFER, BUFFER);
        let linux = Profile::Linux.config();
        Config { controller, send_buffer, receive_buffer, ..linux }
    }
}

/// A client that connects at a time, and a server that sends it data without end.
#[derive(Debug)]
pub struct Tcp {
    pub server: Connection<ByteRange>,
    pub client: Connection<ByteRange>,
    /// When it begins, until it has.
    start: Option<Instant>,
    written: u64,
}

impl Tcp {
    pub fn new(control: Control, start: Instant) -> Self {
        let config = Arc::new(control.config());
        Self {
            server: Connection::listen(Arc::clone(&config), SeqNr::default()),
            client: Connection::connect(config, SeqNr::default()),
            start: Some(start),
            written: 0,
        }
    }

    pub fn next(&self) -> Option<Instant> {
        let timers = || [self.server.poll_timeout(), self.client.poll_timeout()];
        self.start.or_else(|| timers().into_iter().flatten().map(|(time, _)| time).min())
    }

    pub fn wake(&mut self, now: Instant) {
        if self.start.is_some_and(|start| start > now) {
            return;
        }
        self.start = None;
        for end in [&mut self.server, &mut self.client] {
            if end.poll_timeout().is_some_and(|(time, _)| time <= now) {
                end.handle_timeout(now);
            }
        }
        self.live();
    }

    /// The server's next segment.
    pub fn serve(&mut self, now: Instant) -> Option<Data> {
        self.start.is_none().then(|| self.server.poll_transmit(now))?
    }

    /// The client's next segment.
    pub fn answer(&mut self, now: Instant) -> Option<Data> {
        self.start.is_none().then(|| self.client.poll_transmit(now))?
    }

    /// A segment reaches the client.
    pub fn arrive(&mut self, now: Instant, segment: &Data) {
        self.client.handle_segment(now, segment);
        self.live();
    }

    /// A segment reaches the server.
    pub fn hear(&mut self, now: Instant, segment: &Data) {
        self.server.handle_segment(now, segment);
        self.live();
    }

    /// Both applications do what they can: one writes, the other reads.
    fn live(&mut self) {
        for end in [&mut self.server, &mut self.client] {
            while let Some(event) = end.poll_event() {
                assert!(!matches!(event, ConnectionEvent::Aborted(_)), "{event:?}");
            }
        }
        while let Ok(taken) = self.server.write(&self.chunk())
            && taken > 0
        {
            self.written += taken as u64;
        }
        while self.client.read(usize::MAX).is_some() {}
    }

    fn chunk(&self) -> ByteRange {
        ByteRange::new(self.written..self.written + CHUNK)
    }
}
