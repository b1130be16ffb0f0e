//! Hosts that follow a script: for connections whose ends matter more than their speed.

use core::time::Duration;
use std::collections::VecDeque;

use pep::relay::Side;
use tcp::{Abort, ByteRange, Connection, Event, State};
use units::Instant;

use crate::agenda::Alarm;
use crate::slab::Key;

/// Something that a host does. It does the next one when this is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Writes this many bytes, as fast as the connection takes them.
    Write(u64),
    /// Waits until it has read this many bytes in all.
    AwaitBytes(u64),
    /// Waits until it has read everything up to the end of the peer's data.
    AwaitEnd,
    /// Waits for this long.
    Pause(Duration),
    /// Ends its data and reads on: shutdown(2), a FIN.
    Finish,
    /// Closes its socket: close(2). Its data ends if everything that has arrived was read; data
    /// that arrives later is answered with a RST.
    Close,
    /// Resets the connection.
    Reset,
}

/// What a host does on its connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// In this order. The rest is not done if the connection fails.
    pub acts: Vec<Act>,
    /// A slow reader takes at most this many bytes at a time, with this pause between. By default
    /// all that has arrived is read at once.
    pub slow: Option<(usize, Duration)>,
}

/// How a server answers a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It accepts, and follows the script.
    Accept(Script),
    /// No process listens: a RST.
    Refuse,
    /// It is switched off: no answer.
    Silence,
}

/// What has become of one end of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending {
    /// Whether it was connected.
    pub is_connected: bool,
    /// Bytes written.
    pub written: u64,
    /// Bytes read. They were the bytes that the peer had written, in their order.
    pub read: u64,
    /// Whether it has ended its data.
    pub has_finished: bool,
    /// Whether it has read everything up to the end of the peer's data.
    pub has_ended: bool,
    /// Whether it has reset the connection, or its socket has for it ([`Act::Close`]).
    pub has_reset: bool,
    /// How the connection has failed, if not by its own reset.
    pub failure: Option<Abort>,
}

impl Ending {
    /// Whether the host has nothing more to expect.
    pub fn is_over(&self) -> bool {
        self.has_reset || self.failure.is_some() || (self.has_finished && self.has_ended)
    }
}

/// One end of a scripted connection.
#[derive(Debug, Default)]
pub(crate) struct Host {
    acts: VecDeque<Act>,
    slow: Option<(usize, Duration)>,
    pub(crate) socket: Option<Key>,
    pub(crate) ending: Ending,
    /// What is left of the current [`Act::Write`].
    to_write: u64,
    /// End of the current [`Act::Pause`].
    paused_until: Option<Instant>,
    /// When a slow reader reads again.
    next_read: Instant,
    /// Whether the peer's FIN has arrived.
    peer_has_finished: bool,
    has_closed: bool,
    pub(crate) alarm: Alarm,
}

impl Host {
    fn new(script: Script) -> Self {
        Self { acts: script.acts.into(), slow: script.slow, ..Self::default() }
    }

    /// Does what can be done now; returns when to be called again at the latest.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        tcp: &mut Connection<ByteRange>,
    ) -> Option<Instant> {
        while let Some(event) = tcp.poll_event() {
            match event {
                Event::Connected => self.ending.is_connected = true,
                Event::Finished => self.peer_has_finished = true,
                Event::Aborted(Abort::Local) => {}
                Event::Aborted(abort) => self.ending.failure = Some(abort),
                _ => {}
            }
        }
        self.read(now, tcp);
        while self.goes_on() && self.act(now, tcp) {}
        let has_more = self.slow.is_some() && tcp.readable() > 0 && !self.has_let_go();
        let next_read = has_more.then_some(self.next_read);
        self.paused_until.filter(|_| self.goes_on()).into_iter().chain(next_read).min()
    }

    /// Whether it follows its script.
    fn goes_on(&self) -> bool {
        self.ending.failure.is_none() && !self.ending.has_reset
    }

    /// Whether it reads no more: it has closed its socket, or reset it.
    pub(crate) fn has_let_go(&self) -> bool {
        self.has_closed || self.ending.has_reset
    }

    /// Reads what the script has it read now. A closed socket answers data with a RST.
    fn read(&mut self, now: Instant, tcp: &mut Connection<ByteRange>) {
        if self.has_closed && tcp.readable() > 0 && !self.ending.has_reset {
            self.reset(now, tcp);
        }
        let most = match self.slow {
            _ if self.has_closed => 0,
            Some(_) if now < self.next_read => 0,
            Some((bytes, every)) if tcp.readable() > 0 => {
                self.next_read = now + every;
                bytes
            }
            _ => usize::MAX,
        };
        while most > 0
            && let Some(data) = tcp.read(most)
        {
            assert_eq!(data.range().start, self.ending.read, "a byte is not where it was written");
            self.ending.read = data.range().end;
            if self.slow.is_some() {
                break;
            }
        }
        self.ending.has_ended = self.peer_has_finished && tcp.readable() == 0;
    }

    /// Goes on with the current act; returns whether it is done.
    fn act(&mut self, now: Instant, tcp: &mut Connection<ByteRange>) -> bool {
        let Some(act) = self.acts.front().copied() else { return false };
        let is_done = match act {
            Act::Write(bytes) => self.write(bytes, tcp),
            Act::AwaitBytes(bytes) => self.ending.read >= bytes || self.ending.has_ended,
            Act::AwaitEnd => self.ending.has_ended,
            Act::Pause(pause) => now >= *self.paused_until.get_or_insert(now + pause),
            // A server hears of a connection when it is complete.
            _ if matches!(tcp.state(), State::Listen | State::SynReceived) => false,
            // A CLOSE in SYN-SENT would give the connection up.
            Act::Finish | Act::Close if tcp.state() == State::SynSent => false,
            Act::Finish => {
                self.finish(tcp);
                true
            }
            Act::Close => {
                self.has_closed = true;
                if tcp.readable() > 0 {
                    self.reset(now, tcp);
                } else {
                    self.finish(tcp);
                }
                true
            }
            Act::Reset => {
                self.reset(now, tcp);
                true
            }
        };
        if is_done {
            self.acts.pop_front();
            (self.to_write, self.paused_until) = (0, None);
        }
        is_done
    }

    fn write(&mut self, bytes: u64, tcp: &mut Connection<ByteRange>) -> bool {
        if self.to_write == 0 {
            self.to_write = bytes;
        }
        let start = self.ending.written;
        let data = ByteRange::new(start..start + self.to_write);
        let taken = tcp.write(&data).unwrap_or(0) as u64;
        (self.ending.written, self.to_write) = (start + taken, self.to_write - taken);
        self.to_write == 0
    }

    fn finish(&mut self, tcp: &mut Connection<ByteRange>) {
        tcp.close();
        self.ending.has_finished = true;
    }

    fn reset(&mut self, now: Instant, tcp: &mut Connection<ByteRange>) {
        tcp.abort(now);
        self.ending.has_reset = true;
    }
}

/// A connection between two scripted hosts.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// Indexed by side.
    pub(crate) hosts: [Host; 2],
    pub(crate) answer: Answering,
}

/// What the server's kernel does with segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answering {
    Accepts,
    Refuses,
    Ignores,
}

impl Scripted {
    pub(crate) fn new(client: Script, server: Answer) -> Self {
        let (server, answer) = match server {
            Answer::Accept(script) => (script, Answering::Accepts),
            Answer::Refuse => (Script::default(), Answering::Refuses),
            Answer::Silence => (Script::default(), Answering::Ignores),
        };
        Self { hosts: [client, server].map(Host::new), answer }
    }

    pub(crate) fn host(&mut self, side: Side) -> &mut Host {
        &mut self.hosts[side as usize]
    }
}
