//! Scripted hosts, for tests of how connections end rather than how fast they are.

use core::time::Duration;
use std::collections::VecDeque;

use pep::relay::LegSide;
use tcp::{AbortReason, ByteRange, Connection, ConnectionEvent, TcpState};
use units::Instant;

use crate::agenda::EventAlarm;
use crate::slab::SlabKey;

/// A step of a host's script. The next one begins when this one is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptStep {
    /// Writes this many bytes, as fast as the connection accepts them.
    Write(u64),
    /// Waits until it has read this many bytes in total.
    AwaitBytes(u64),
    /// Waits until it has read everything up to the end of the peer's data.
    AwaitEnd,
    /// Waits for this long.
    Pause(Duration),
    /// Sends a FIN and continues to read, like shutdown(2).
    Finish,
    /// Closes the socket, like close(2). This sends a FIN if all received data was read, otherwise a
    /// RST; data that arrives later is answered with a RST.
    Close,
    /// Resets the connection.
    Reset,
    /// Stops reading; data that arrives stays unread.
    StopReading,
}

/// The behaviour of a host on its connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostScript {
    /// The steps, in order. The rest is skipped if the connection fails.
    pub acts: Vec<ScriptStep>,
    /// Makes a slow reader: the maximum number of bytes per read, and the pause between reads. By
    /// default all data is read as it arrives.
    pub slow: Option<(usize, Duration)>,
}

/// The behaviour of a server when a client connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBehaviour {
    /// It accepts, and follows the script.
    Accept(HostScript),
    /// No process listens: the SYN is answered with a RST.
    Refuse,
    /// The server is switched off and does not answer.
    Silence,
}

/// The state that one end of a connection has reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointState {
    /// True once the handshake was complete.
    pub is_connected: bool,
    /// Number of bytes that the connection has accepted from the script.
    pub written: u64,
    /// Number of bytes sent before it reset the connection. The peer could read them all if the two
    /// hosts were connected directly.
    pub sent: u64,
    /// Number of bytes read. They were checked to be the bytes that the peer wrote, in order.
    pub read: u64,
    /// True once it has sent its FIN.
    pub has_finished: bool,
    /// True once it has read all of the peer's data up to the FIN.
    pub has_ended: bool,
    /// True once it, or its socket after [`ScriptStep::Close`], has reset the connection.
    pub has_reset: bool,
    /// The failure of the connection, unless it was its own reset.
    pub failure: Option<AbortReason>,
}

impl EndpointState {
    /// Returns true when nothing more can happen at this end.
    pub fn is_over(&self) -> bool {
        self.has_reset || self.failure.is_some() || (self.has_finished && self.has_ended)
    }
}

/// One end of a scripted connection.
#[derive(Debug, Default)]
pub(crate) struct ScriptedHost {
    acts: VecDeque<ScriptStep>,
    slow: Option<(usize, Duration)>,
    pub(crate) socket: Option<SlabKey>,
    pub(crate) ending: EndpointState,
    /// Bytes left of the current [`ScriptStep::Write`].
    to_write: u64,
    /// End of the current [`ScriptStep::Pause`].
    paused_until: Option<Instant>,
    /// When a slow reader reads again.
    next_read: Instant,
    /// True once the peer's FIN has arrived.
    peer_has_finished: bool,
    has_closed: bool,
    has_stopped_reading: bool,
    pub(crate) alarm: EventAlarm,
}

impl ScriptedHost {
    fn new(script: HostScript) -> Self {
        Self { acts: script.acts.into(), slow: script.slow, ..Self::default() }
    }

    /// Continues the script as far as possible; returns the time of the next call at the latest.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        tcp: &mut Connection<ByteRange>,
    ) -> Option<Instant> {
        while let Some(event) = tcp.poll_event() {
            match event {
                ConnectionEvent::Connected => self.ending.is_connected = true,
                ConnectionEvent::Finished => self.peer_has_finished = true,
                // The script's own reset is no failure.
                ConnectionEvent::Aborted(AbortReason::Local) => {}
                ConnectionEvent::Aborted(abort) => self.ending.failure = Some(abort),
                _ => {}
            }
        }
        self.read(now, tcp);
        while self.is_following_script() && self.act(now, tcp) {}
        let reads = !self.has_released_socket() && !self.has_stopped_reading;
        let has_more = self.slow.is_some() && tcp.readable() > 0 && reads;
        let next_read = has_more.then_some(self.next_read);
        self.paused_until.filter(|_| self.is_following_script()).into_iter().chain(next_read).min()
    }

    /// Returns true while it follows its script.
    fn is_following_script(&self) -> bool {
        self.ending.failure.is_none() && !self.ending.has_reset
    }

    /// Returns true if the socket is no longer in use: it was closed or reset, or it failed and the
    /// host has stopped reading.
    pub(crate) fn has_released_socket(&self) -> bool {
        let is_left = self.has_stopped_reading && self.ending.failure.is_some();
        self.has_closed || self.ending.has_reset || is_left
    }

    /// Reads as much as the script allows now. A closed socket answers data with a RST.
    fn read(&mut self, now: Instant, tcp: &mut Connection<ByteRange>) {
        if self.has_closed && tcp.readable() > 0 && !self.ending.has_reset {
            self.reset(now, tcp);
        }
        let most = match self.slow {
            _ if self.has_closed || self.has_stopped_reading => 0,
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

    /// Continues the current act; returns true when it is done.
    fn act(&mut self, now: Instant, tcp: &mut Connection<ByteRange>) -> bool {
        let Some(act) = self.acts.front().copied() else { return false };
        let is_done = match act {
            ScriptStep::Write(bytes) => self.write(bytes, tcp),
            // After the peer's end no more bytes can come.
            ScriptStep::AwaitBytes(bytes) => self.ending.read >= bytes || self.ending.has_ended,
            ScriptStep::AwaitEnd => self.ending.has_ended,
            ScriptStep::Pause(pause) => now >= *self.paused_until.get_or_insert(now + pause),
            ScriptStep::StopReading => {
                self.has_stopped_reading = true;
                true
            }
            // A server gets a connection from accept(2) only after the handshake.
            _ if matches!(tcp.state(), TcpState::Listen | TcpState::SynReceived) => false,
            // A CLOSE in SYN-SENT would delete the connection (RFC 9293 §3.10.4).
            ScriptStep::Finish | ScriptStep::Close if tcp.state() == TcpState::SynSent => false,
            ScriptStep::Finish => {
                self.finish(tcp);
                true
            }
            ScriptStep::Close => {
                self.has_closed = true;
                // Unread data would be lost without a sign to the peer (RFC 2525 §2.17).
                if tcp.readable() > 0 {
                    self.reset(now, tcp);
                } else {
                    self.finish(tcp);
                }
                true
            }
            ScriptStep::Reset => {
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
        self.ending.sent = self.ending.written - tcp.unsent().get();
        tcp.abort(now);
        self.ending.has_reset = true;
    }
}

/// A connection between two scripted hosts.
#[derive(Debug)]
pub(crate) struct ScriptedConnection {
    /// The client and the server, indexed by [`LegSide`].
    pub(crate) hosts: [ScriptedHost; 2],
    pub(crate) answer: KernelReaction,
}

/// The reaction of the server's kernel to segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelReaction {
    Accepts,
    Refuses,
    Ignores,
}

impl ScriptedConnection {
    pub(crate) fn new(client: HostScript, server: ServerBehaviour) -> Self {
        let (server, answer) = match server {
            ServerBehaviour::Accept(script) => (script, KernelReaction::Accepts),
            ServerBehaviour::Refuse => (HostScript::default(), KernelReaction::Refuses),
            ServerBehaviour::Silence => (HostScript::default(), KernelReaction::Ignores),
        };
        Self { hosts: [client, server].map(ScriptedHost::new), answer }
    }

    pub(crate) fn host(&mut self, side: LegSide) -> &mut ScriptedHost {
        &mut self.hosts[side as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at_ms, ends, exchange};

    /// Two hosts over an ideal wire.
    struct Pair {
        hosts: [ScriptedHost; 2],
        tcp: [Connection<ByteRange>; 2],
        /// When each wants to be called again.
        next: [Option<Instant>; 2],
    }

    impl Pair {
        fn new(client: Vec<ScriptStep>, server: Vec<ScriptStep>) -> Self {
            Self::with_scripts([client, server].map(|acts| HostScript { acts, slow: None }))
        }

        fn with_scripts([client, server]: [HostScript; 2]) -> Self {
            let scripted = ScriptedConnection::new(client, ServerBehaviour::Accept(server));
            Self { hosts: scripted.hosts, tcp: ends(), next: [None; 2] }
        }

        /// Lets both act at this moment until nothing more happens.
        fn run(&mut self, ms: u64) {
            for _ in 0..10 {
                for (at, host) in self.hosts.iter_mut().enumerate() {
                    self.next[at] = host.serve(at_ms(ms), &mut self.tcp[at]);
                }
                exchange(at_ms(ms), &mut self.tcp);
            }
        }

        fn endings(&self) -> [EndpointState; 2] {
            self.hosts.each_ref().map(|host| host.ending)
        }
    }

    #[test]
    fn acts_are_done_one_after_the_other() {
        let pause = ScriptStep::Pause(Duration::from_millis(10));
        let client =
            vec![ScriptStep::Write(300), pause, ScriptStep::Write(200), ScriptStep::Finish];
        let server = vec![
            ScriptStep::AwaitBytes(500),
            ScriptStep::Write(70),
            ScriptStep::AwaitEnd,
            ScriptStep::Finish,
        ];
        let mut pair = Pair::new(client, server);
        pair.run(1);
        assert_eq!(pair.endings().map(|end| end.read), [0, 300]);
        assert_eq!(pair.next, [Some(at_ms(11)), None]);
        pair.run(10);
        assert_eq!(pair.endings().map(|end| end.read), [0, 300]);
        pair.run(11);
        assert_eq!(pair.endings().map(|end| (end.written, end.read)), [(500, 70), (70, 500)]);
        assert!(pair.endings().iter().all(EndpointState::is_over));
        assert_eq!(pair.next, [None; 2]);
    }

    #[test]
    fn awaiting_bytes_that_never_come_ends_with_the_peer_s_data() {
        let server = vec![ScriptStep::AwaitBytes(500), ScriptStep::Write(9), ScriptStep::Finish];
        let mut pair = Pair::new(vec![ScriptStep::Write(20), ScriptStep::Finish], server);
        pair.run(1);
        assert_eq!(pair.endings().map(|end| end.read), [9, 20]);
    }

    #[test]
    fn a_slow_reader_takes_its_share_at_each_turn_and_sees_the_end_last() {
        let slow = Some((100, Duration::from_millis(10)));
        let reader = HostScript { acts: vec![ScriptStep::AwaitEnd, ScriptStep::Finish], slow };
        let writer =
            HostScript { acts: vec![ScriptStep::Write(250), ScriptStep::Finish], slow: None };
        let mut pair = Pair::with_scripts([writer, reader]);
        let mut seen = Vec::new();
        for ms in [1, 11, 21, 31] {
            pair.run(ms);
            let EndpointState { read, has_ended, .. } = pair.endings()[1];
            seen.push((read, has_ended, pair.next[1]));
        }
        let (soon, later) = (Some(at_ms(11)), Some(at_ms(21)));
        let expected = [(100, false, soon), (200, false, later), (250, true, None)];
        assert_eq!(seen[..3], expected);
        assert_eq!(seen[3], expected[2]);
    }

    #[test]
    fn closing_after_everything_was_read_is_orderly() {
        let server = vec![ScriptStep::AwaitEnd, ScriptStep::Close];
        let mut pair = Pair::new(
            vec![ScriptStep::Write(20), ScriptStep::Finish, ScriptStep::AwaitEnd],
            server,
        );
        pair.run(1);
        assert!(pair.endings().iter().all(|end| end.is_over() && !end.has_reset));
    }

    /// RFC 2525 §2.17: data that nobody reads any more is answered with a RST.
    #[test]
    fn closing_with_unread_data_or_before_it_comes_resets_the_connection() {
        let pause = ScriptStep::Pause(Duration::from_millis(10));
        let slow = Some((1, Duration::from_secs(1)));
        let unread = HostScript { acts: vec![ScriptStep::AwaitBytes(1), ScriptStep::Close], slow };
        let early = HostScript { acts: vec![ScriptStep::Close], slow: None };
        for server in [unread, early] {
            let acts = vec![pause, ScriptStep::Write(500), ScriptStep::AwaitEnd];
            let mut pair = Pair::with_scripts([HostScript { acts, slow: None }, server]);
            pair.run(1);
            pair.run(11);
            let [client, server] = pair.endings();
            assert!(server.has_reset && server.is_over(), "{server:?}");
            assert_eq!((client.failure, server.failure), (Some(AbortReason::Reset), None));
        }
    }

    #[test]
    fn what_left_before_a_reset_is_read_and_what_had_not_left_is_lost() {
        let pause = ScriptStep::Pause(Duration::from_millis(10));
        let server = vec![
            ScriptStep::StopReading,
            ScriptStep::Write(900),
            pause,
            ScriptStep::Write(70),
            ScriptStep::Close,
        ];
        let client = vec![ScriptStep::Write(500), pause, ScriptStep::AwaitEnd];
        let mut pair = Pair::new(client, server);
        pair.run(1);
        pair.run(11);
        let [client, server] = pair.endings();
        assert!(server.has_reset, "it had not read the request");
        assert_eq!((server.read, server.written, server.sent), (0, 970, 900));
        assert_eq!((client.read, client.failure), (900, Some(AbortReason::Reset)));
    }

    #[test]
    fn after_a_reset_the_rest_of_the_script_is_dropped_on_both_sides() {
        let pause = ScriptStep::Pause(Duration::from_millis(10));
        let client = vec![
            ScriptStep::Write(5),
            ScriptStep::AwaitBytes(1),
            ScriptStep::Reset,
            ScriptStep::Write(7),
        ];
        let mut pair =
            Pair::new(client, vec![ScriptStep::Write(1), pause, ScriptStep::Write(1000)]);
        pair.run(1);
        pair.run(11);
        let [client, server] = pair.endings();
        assert_eq!((client.written, client.has_reset, client.failure), (5, true, None));
        assert_eq!((server.written, server.failure), (1, Some(AbortReason::Reset)));
        assert!(client.is_over() && server.is_over());
        assert_eq!(pair.next, [None; 2], "a pause that nobody waits for");
    }

    #[test]
    fn a_client_that_finishes_at_once_waits_for_the_handshake() {
        let (mut host, mut tcp) =
            (ScriptedHost::new(HostScript { acts: vec![ScriptStep::Finish], slow: None }), ends());
        assert_eq!(tcp[0].poll_transmit(at_ms(0)).map(|syn| syn.flags.syn), Some(true));
        host.serve(at_ms(0), &mut tcp[0]);
        assert_eq!((host.ending.has_finished, tcp[0].state()), (false, TcpState::SynSent));
    }
}
