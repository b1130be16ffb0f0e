//! Conversations between two applications over one connection: requests and replies, of which only
//! the lengths are simulated.

use core::time::Duration;
use std::collections::VecDeque;

use tcp::{ByteRange, Connection, Event, Payload as _};

use crate::cache::{Cache, Found};
use crate::ids::AppId;
use crate::slab::Key;
use crate::turn::Turn;

/// Length of a transfer that only [`crate::World::stop`] ends, in bytes.
pub const ENDLESS: u64 = 1 << 60;

/// The side that closes the connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closer {
    /// The client, after the last request.
    Client,
    /// The server, after its first reply, as in HTTP/1.0.
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// One direction of the connection, in bytes.
#[derive(Debug, Default)]
struct Stream {
    /// Number of bytes that the sender is to write in total.
    goal: u64,
    written: u64,
    received: u64,
    closed: bool,
    /// True once the sender's FIN has arrived.
    finished: bool,
}

impl Stream {
    fn write(&mut self, tcp: &mut Connection<ByteRange>) {
        while self.written < self.goal {
            // In parts whose length fits into a 32-bit `usize`.
            let end = self.goal.min(self.written + (1 << 30));
            let Ok(taken) = tcp.write(&ByteRange::new(self.written..end)) else { return };
            if taken == 0 {
                return;
            }
            self.written += taken as u64;
        }
    }

    /// Reads all data that has arrived and checks its position; returns the number of bytes.
    fn read(&mut self, tcp: &mut Connection<ByteRange>) -> u64 {
        let before = self.received;
        while let Some(data) = tcp.read(usize::MAX) {
            assert_eq!(data.range().start, self.received, "a byte is not where it was written");
            self.received += data.len() as u64;
        }
        self.received - before
    }

    fn is_written(&self) -> bool {
        self.written >= self.goal
    }
}

/// An event of a conversation, for its application or its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The client's end is open.
    Connected,
    /// A request has arrived, in a conversation that reports requests.
    Asked,
    /// A reply or, for a request without one, the request has arrived.
    Turn,
    /// A cache needs this reply from the server.
    Fetch(Turn),
    /// A cache searches its store for a reply, for this long.
    Looks(Duration),
    /// The connection has ended on both sides; not `whole` if it was cut off.
    Over { whole: bool },
}

/// Both ends of a connection, as seen by the applications.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) app: AppId,
    /// Name under which its senders are recorded, if they are.
    pub(crate) watch: Option<String>,
    closer: Closer,
    up: Stream,
    down: Stream,
    /// Requests, with the offsets at which they end.
    asked: VecDeque<(u64, Turn)>,
    /// The offsets at which replies end.
    replies: VecDeque<u64>,
    /// True once the last request has been made.
    ended: bool,
    answered: bool,
    /// For each end, true once it has closed.
    ends: [bool; 2],
    /// True once the end of the conversation was reported.
    told: bool,
    /// True if each request that arrives is reported to the application.
    pub(crate) tells_requests: bool,
    open: [bool; 2],
    /// A cache in the server's place.
    pub(crate) cache: Option<Cache>,
    /// The client's conversation, if this one fetches a reply for its cache.
    pub(crate) feeds: Option<Key>,
    /// The applications' sockets, client first.
    pub(crate) sockets: [Option<Key>; 2],
    pub(crate) news: VecDeque<News>,
}

impl Talk {
    pub(crate) fn new(app: AppId, closer: Closer, watch: Option<String>) -> Self {
        Self {
            app,
            watch,
            closer,
            up: Stream::default(),
            down: Stream::default(),
            asked: VecDeque::new(),
            replies: VecDeque::new(),
            ended: false,
            answered: false,
            ends: [false; 2],
            told: false,
            tells_requests: false,
            open: [false; 2],
            cache: None,
            feeds: None,
            sockets: [None; 2],
            news: VecDeque::new(),
        }
    }

    /// Puts a cache in the server's place, if there is one.
    pub(crate) fn with(self, cache: Option<Cache>) -> Self {
        Self { cache, ..self }
    }

    /// Creates a conversation that fetches a reply for the cache at the end of the conversation `client`.
    pub(crate) fn fetching(app: AppId, client: Key) -> Self {
        Self { feeds: Some(client), ..Self::new(app, Closer::Server, None) }
    }

    pub(crate) fn ask(&mut self, turn: Turn) {
        self.up.goal = self.up.goal.saturating_add(turn.request);
        self.asked.push_back((self.up.goal, turn));
    }

    pub(crate) fn finish(&mut self) {
        self.ended = true;
    }

    /// Stops writing: bytes that have not been written are dropped.
    pub(crate) fn stop(&mut self) {
        for stream in [&mut self.up, &mut self.down] {
            stream.goal = stream.written;
        }
        // Requests that have not arrived get no reply.
        for (need, turn) in &mut self.asked {
            (*need, turn.reply) = ((*need).min(self.up.goal), 0);
        }
        if let Some(cache) = &mut self.cache {
            cache.awaits = 0;
        }
        self.ended = true;
    }

    fn is_fetching(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.awaits > 0)
    }

    /// Lets the cache pass on `bytes` that have come from the server.
    pub(crate) fn feed(&mut self, bytes: u64) {
        let Some(cache) = &mut self.cache else { return };
        let bytes = bytes.min(cache.awaits);
        cache.awaits -= bytes;
        self.down.goal += bytes;
    }

    /// Returns the bytes received by the server and by the client.
    pub(crate) fn received(&self) -> [u64; 2] {
        [self.up.received, self.down.received]
    }

    /// Reads, writes and closes for the application at one end; returns the number of bytes read.
    pub(crate) fn serve(&mut self, side: Side, tcp: &mut Connection<ByteRange>) -> u64 {
        while let Some(event) = tcp.poll_event() {
            self.note(side, event);
        }
        match side {
            Side::Client => self.serve_client(tcp),
            Side::Server => self.serve_server(tcp),
        }
    }

    fn note(&mut self, side: Side, event: Event) {
        match event {
            Event::Connected if side == Side::Client => {
                self.open[0] = true;
                self.news.push_back(News::Connected);
            }
            // Data on a SYN may be answered before the handshake is complete.
            Event::Connected | Event::Readable => self.open[side as usize] = true,
            Event::Finished if side == Side::Client => self.down.finished = true,
            Event::Finished => self.up.finished = true,
            Event::Closed => self.end([side == Side::Client, side == Side::Server], true),
            Event::Aborted(_) => self.end([true; 2], false),
            _ => {}
        }
    }

    fn end(&mut self, ends: [bool; 2], whole: bool) {
        self.ends = [self.ends[0] | ends[0], self.ends[1] | ends[1]];
        if self.ends == [true; 2] && !self.told {
            self.told = true;
            let whole = whole && self.up.finished && self.down.finished;
            self.news.push_back(News::Over { whole });
        }
    }

    fn serve_client(&mut self, tcp: &mut Connection<ByteRange>) -> u64 {
        let read = self.down.read(tcp);
        while self.replies.front().is_some_and(|end| *end <= self.down.received) {
            self.replies.pop_front();
            self.news.push_back(News::Turn);
        }
        self.up.write(tcp);
        let done = self.ended && self.up.is_written() || self.down.finished;
        if done && self.open[0] && !self.up.closed {
            self.up.closed = true;
            tcp.close();
        }
        read
    }

    fn serve_server(&mut self, tcp: &mut Connection<ByteRange>) -> u64 {
        let read = self.up.read(tcp);
        while let Some(&(need, turn)) = self.asked.front()
            && self.open[1]
            && need <= self.up.received
            && !self.is_fetching()
        {
            self.asked.pop_front();
            self.answered = true;
            if self.tells_requests {
                self.news.push_back(News::Asked);
            }
            let end = self.down.goal.saturating_add(turn.reply);
            match turn.reply {
                0 => self.news.push_back(News::Turn),
                _ => self.replies.push_back(end),
            }
            match self.cache.as_mut().map_or(Found::Here, |cache| cache.find(turn)) {
                Found::Here => self.down.goal = end,
                Found::Elsewhere => self.news.push_back(News::Fetch(turn)),
                Found::Looking(time) => self.news.push_back(News::Looks(time)),
            }
        }
        self.down.write(tcp);
        let closes = self.closer == Closer::Server && self.answered;
        let done = self.asked.is_empty() && self.down.is_written() && !self.is_fetching();
        if done && (closes || self.up.finished) && self.open[1] && !self.down.closed {
            self.down.closed = true;
            tcp.close();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;
    use crate::testkit::{at_ms, ends, exchange};

    /// A conversation over an ideal wire, on which a call of [`Chat::run`] takes a second.
    struct Chat {
        talk: Talk,
        tcp: [Connection<ByteRange>; 2],
        now: Instant,
    }

    impl Chat {
        fn new(closer: Closer) -> Self {
            let talk = Talk::new(AppId(0), closer, None);
            Self { talk, tcp: ends(), now: Instant::ZERO }
        }

        /// Lets both sides act until nothing more happens; returns the news.
        fn run(&mut self) -> Vec<News> {
            for _ in 0..20 {
                self.now += Duration::from_millis(50);
                self.talk.serve(Side::Client, &mut self.tcp[0]);
                self.talk.serve(Side::Server, &mut self.tcp[1]);
                exchange(self.now, &mut self.tcp);
            }
            self.talk.news.drain(..).filter(|news| *news != News::Connected).collect()
        }
    }

    const ASK: Turn = Turn { request: 100, reply: 5000 };

    #[test]
    fn each_request_is_answered_in_order_and_the_client_closes() {
        let mut chat = Chat::new(Closer::Client);
        chat.talk.ask(ASK);
        chat.talk.ask(Turn { request: 30, reply: 0 });
        assert_eq!(chat.run(), [News::Turn; 2]);
        assert_eq!(chat.talk.received(), [130, 5000]);
        chat.talk.ask(ASK);
        assert_eq!(chat.run(), [News::Turn]);
        chat.talk.finish();
        assert_eq!(chat.run(), [News::Over { whole: true }]);
        assert_eq!(chat.talk.received(), [230, 10_000]);
    }

    #[test]
    fn a_server_that_closes_does_so_after_its_first_reply() {
        let mut chat = Chat::new(Closer::Server);
        chat.talk.ask(ASK);
        assert_eq!(chat.run(), [News::Turn, News::Over { whole: true }]);
        assert_eq!(chat.talk.received(), [100, 5000]);
    }

    #[test]
    fn a_reset_ends_both_sides_once() {
        let mut chat = Chat::new(Closer::Client);
        chat.talk.ask(ASK);
        chat.run();
        chat.tcp[0].abort(chat.now);
        assert_eq!(chat.run(), [News::Over { whole: false }]);
        assert_eq!(chat.run(), []);
    }

    #[test]
    fn a_transfer_stopped_half_way_ends_with_what_was_written() {
        let mut chat = Chat::new(Closer::Client);
        chat.talk.ask(Turn { request: 0, reply: ENDLESS });
        chat.run();
        let [_, before] = chat.talk.received();
        chat.talk.stop();
        let written = chat.talk.down.written;
        chat.run();
        assert!(before > 0);
        assert_eq!(chat.talk.received(), [0, written]);
        assert!(chat.talk.down.closed && chat.talk.up.closed);
    }

    #[test]
    fn a_transfer_stopped_before_it_is_connected_sends_nothing() {
        let mut chat = Chat::new(Closer::Client);
        chat.talk.ask(Turn { request: 0, reply: ENDLESS });
        chat.talk.stop();
        chat.run();
        assert_eq!(chat.talk.received(), [0, 0]);
        assert!(chat.talk.down.closed && chat.talk.up.closed);
    }

    #[test]
    fn a_client_that_stops_does_not_wait_for_requests_it_never_made() {
        let mut chat = Chat::new(Closer::Client);
        // More than the windows take.
        for _ in 0..2 {
            chat.talk.ask(Turn { request: 1 << 40, reply: 10 });
        }
        chat.run();
        chat.talk.stop();
        let written = chat.talk.up.written;
        for _ in 0..100 {
            chat.run();
        }
        assert_eq!(chat.talk.received(), [written, 0]);
        assert!(chat.talk.down.closed && chat.talk.up.closed);
    }

    #[test]
    fn nothing_is_answered_before_the_handshake_is_complete() {
        let mut chat = Chat::new(Closer::Client);
        chat.talk.ask(Turn { request: 0, reply: 10 });
        assert_eq!(chat.talk.serve(Side::Server, &mut chat.tcp[1]), 0);
        assert_eq!(chat.talk.down.goal, 0);
        exchange(at_ms(1), &mut chat.tcp);
        chat.talk.serve(Side::Server, &mut chat.tcp[1]);
        assert_eq!((chat.talk.down.goal, chat.talk.down.written), (10, 10));
    }
}
