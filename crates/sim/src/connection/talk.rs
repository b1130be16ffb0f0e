//! Conversations between two applications over one connection: requests and replies, of which only
//! the lengths are simulated.

use core::time::Duration;
use std::collections::VecDeque;

use tcp::{ByteRange, Connection, ConnectionEvent, SegmentPayload as _};

use super::cache::{CacheDecision, ServerReplyCache};
use super::turn::ExchangeSizes;
use crate::ids::AppId;
use crate::slab::SlabKey;

/// Length of a transfer that only [`crate::World::stop`] ends, in bytes.
pub const ENDLESS: u64 = 1 << 60;

/// The side that closes the connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstCloser {
    /// The client, after the last request.
    Client,
    /// The server, after its first reply, as in HTTP/1.0.
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConversationSide {
    Client,
    Server,
}

/// One direction of the connection, in bytes.
#[derive(Debug, Default)]
struct ConversationStream {
    /// Number of bytes that the sender is to write in total.
    goal: u64,
    written: u64,
    received: u64,
    closed: bool,
    /// True once the sender's FIN has arrived.
    finished: bool,
}

impl ConversationStream {
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
pub(crate) enum ConversationEvent {
    /// The client's end is open.
    Connected,
    /// A request has arrived, in a conversation that reports requests.
    RequestArrived,
    /// A reply or, for a request without one, the request has arrived.
    ExchangeDone,
    /// A cache needs this reply from the server.
    Fetch(ExchangeSizes),
    /// A cache searches its store for a reply, for this long.
    Search(Duration),
    /// The connection has ended on both sides; not `whole` if it was cut off.
    Ended { whole: bool },
}

/// Both ends of a connection, as seen by the applications.
#[derive(Debug)]
pub(crate) struct AppConversation {
    pub(crate) app: AppId,
    /// Name under which its senders are recorded, if they are.
    pub(crate) watch: Option<String>,
    closer: FirstCloser,
    up: ConversationStream,
    down: ConversationStream,
    /// Requests, with the offsets at which they end.
    requests: VecDeque<(u64, ExchangeSizes)>,
    /// The offsets at which replies end.
    replies: VecDeque<u64>,
    /// True once the last request has been made.
    ended: bool,
    answered: bool,
    /// For each end, true once it has closed.
    ends: [bool; 2],
    /// True once the end of the conversation was reported.
    end_reported: bool,
    /// True if each request that arrives is reported to the application.
    pub(crate) reports_requests: bool,
    open: [bool; 2],
    /// A cache in the server's place.
    pub(crate) cache: Option<ServerReplyCache>,
    /// The client's conversation, if this one fetches a reply for its cache.
    pub(crate) fetches_for: Option<SlabKey>,
    /// The applications' sockets, client first.
    pub(crate) sockets: [Option<SlabKey>; 2],
    pub(crate) news: VecDeque<ConversationEvent>,
}

impl AppConversation {
    pub(crate) fn new(app: AppId, closer: FirstCloser, watch: Option<String>) -> Self {
        Self {
            app,
            watch,
            closer,
            up: ConversationStream::default(),
            down: ConversationStream::default(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            ended: false,
            answered: false,
            ends: [false; 2],
            end_reported: false,
            reports_requests: false,
            open: [false; 2],
            cache: None,
            fetches_for: None,
            sockets: [None; 2],
            news: VecDeque::new(),
        }
    }

    /// Puts a cache in the server's place, if there is one.
    pub(crate) fn with_cache(self, cache: Option<ServerReplyCache>) -> Self {
        Self { cache, ..self }
    }

    /// Creates a conversation that fetches a reply for the cache at the end of the conversation `client`.
    pub(crate) fn for_fetch(app: AppId, client: SlabKey) -> Self {
        Self { fetches_for: Some(client), ..Self::new(app, FirstCloser::Server, None) }
    }

    pub(crate) fn ask(&mut self, turn: ExchangeSizes) {
        self.up.goal = self.up.goal.saturating_add(turn.request);
        self.requests.push_back((self.up.goal, turn));
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
        for (need, turn) in &mut self.requests {
            (*need, turn.reply) = ((*need).min(self.up.goal), 0);
        }
        if let Some(cache) = &mut self.cache {
            cache.awaited = 0;
        }
        self.ended = true;
    }

    fn is_fetching(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.awaited > 0)
    }

    /// Lets the cache pass on `bytes` that have come from the server.
    pub(crate) fn feed(&mut self, bytes: u64) {
        let Some(cache) = &mut self.cache else { return };
        let bytes = bytes.min(cache.awaited);
        cache.awaited -= bytes;
        self.down.goal += bytes;
    }

    /// Returns the bytes received by the server and by the client.
    pub(crate) fn received(&self) -> [u64; 2] {
        [self.up.received, self.down.received]
    }

    /// Reads, writes and closes for the application at one end; returns the number of bytes read.
    pub(crate) fn serve(&mut self, side: ConversationSide, tcp: &mut Connection<ByteRange>) -> u64 {
        while let Some(event) = tcp.poll_event() {
            self.handle_event(side, event);
        }
        match side {
            ConversationSide::Client => self.serve_client(tcp),
            ConversationSide::Server => self.serve_server(tcp),
        }
    }

    fn handle_event(&mut self, side: ConversationSide, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Connected if side == ConversationSide::Client => {
                self.open[0] = true;
                self.news.push_back(ConversationEvent::Connected);
            }
            // Data on a SYN may be answered before the handshake is complete.
            ConnectionEvent::Connected | ConnectionEvent::Readable => {
                self.open[side as usize] = true;
            }
            ConnectionEvent::Finished if side == ConversationSide::Client => {
                self.down.finished = true;
            }
            ConnectionEvent::Finished => self.up.finished = true,
            ConnectionEvent::Closed => {
                self.end(
                    [side == ConversationSide::Client, side == ConversationSide::Server],
                    true,
                );
            }
            ConnectionEvent::Aborted(_) => self.end([true; 2], false),
            _ => {}
        }
    }

    fn end(&mut self, ends: [bool; 2], whole: bool) {
        // One end that has closed says nothing of the other; a connection that was aborted is over at both.
        self.ends = [self.ends[0] | ends[0], self.ends[1] | ends[1]];
        if self.ends == [true; 2] && !self.end_reported {
            self.end_reported = true;
            let whole = whole && self.up.finished && self.down.finished;
            self.news.push_back(ConversationEvent::Ended { whole });
        }
    }

    fn serve_client(&mut self, tcp: &mut Connection<ByteRange>) -> u64 {
        let read = self.down.read(tcp);
        while self.replies.front().is_some_and(|end| *end <= self.down.received) {
            self.replies.pop_front();
            self.news.push_back(ConversationEvent::ExchangeDone);
        }
        self.up.write(tcp);
        let done = self.ended && self.up.is_written() || self.down.finished;
        // A CLOSE in SYN-SENT would delete the connection (RFC 9293 §3.10.4).
        if done && self.open[0] && !self.up.closed {
            self.up.closed = true;
            tcp.close();
        }
        read
    }

    fn serve_server(&mut self, tcp: &mut Connection<ByteRange>) -> u64 {
        let read = self.up.read(tcp);
        // Replies keep the order of their requests, so the next one waits for a reply that is being fetched.
        while let Some(&(need, turn)) = self.requests.front()
            && self.open[1]
            && need <= self.up.received
            && !self.is_fetching()
        {
            self.requests.pop_front();
            self.answered = true;
            if self.reports_requests {
                self.news.push_back(ConversationEvent::RequestArrived);
            }
            let end = self.down.goal.saturating_add(turn.reply);
            match turn.reply {
                0 => self.news.push_back(ConversationEvent::ExchangeDone),
                _ => self.replies.push_back(end),
            }
            match self.cache.as_mut().map_or(CacheDecision::Hit, |cache| cache.decide(turn)) {
                CacheDecision::Hit => self.down.goal = end,
                CacheDecision::Miss => self.news.push_back(ConversationEvent::Fetch(turn)),
                CacheDecision::Search(time) => self.news.push_back(ConversationEvent::Search(time)),
            }
        }
        self.down.write(tcp);
        let closes = self.closer == FirstCloser::Server && self.answered;
        let done = self.requests.is_empty() && self.down.is_written() && !self.is_fetching();
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
        talk: AppConversation,
        tcp: [Connection<ByteRange>; 2],
        now: Instant,
    }

    impl Chat {
        fn new(closer: FirstCloser) -> Self {
            let talk = AppConversation::new(AppId(0), closer, None);
            Self { talk, tcp: ends(), now: Instant::ZERO }
        }

        /// Lets both sides act until nothing more happens; returns the news.
        fn run(&mut self) -> Vec<ConversationEvent> {
            for _ in 0..20 {
                self.now += Duration::from_millis(50);
                self.talk.serve(ConversationSide::Client, &mut self.tcp[0]);
                self.talk.serve(ConversationSide::Server, &mut self.tcp[1]);
                exchange(self.now, &mut self.tcp);
            }
            self.talk.news.drain(..).filter(|news| *news != ConversationEvent::Connected).collect()
        }
    }

    const ASK: ExchangeSizes = ExchangeSizes { request: 100, reply: 5000 };

    #[test]
    fn each_request_is_answered_in_order_and_the_client_closes() {
        let mut chat = Chat::new(FirstCloser::Client);
        chat.talk.ask(ASK);
        chat.talk.ask(ExchangeSizes { request: 30, reply: 0 });
        assert_eq!(chat.run(), [ConversationEvent::ExchangeDone; 2]);
        assert_eq!(chat.talk.received(), [130, 5000]);
        chat.talk.ask(ASK);
        assert_eq!(chat.run(), [ConversationEvent::ExchangeDone]);
        chat.talk.finish();
        assert_eq!(chat.run(), [ConversationEvent::Ended { whole: true }]);
        assert_eq!(chat.talk.received(), [230, 10_000]);
    }

    #[test]
    fn a_server_that_closes_does_so_after_its_first_reply() {
        let mut chat = Chat::new(FirstCloser::Server);
        chat.talk.ask(ASK);
        assert_eq!(
            chat.run(),
            [ConversationEvent::ExchangeDone, ConversationEvent::Ended { whole: true }]
        );
        assert_eq!(chat.talk.received(), [100, 5000]);
    }

    #[test]
    fn a_reset_ends_both_sides_once() {
        let mut chat = Chat::new(FirstCloser::Client);
        chat.talk.ask(ASK);
        chat.run();
        chat.tcp[0].abort(chat.now);
        assert_eq!(chat.run(), [ConversationEvent::Ended { whole: false }]);
        assert_eq!(chat.run(), []);
    }

    #[test]
    fn a_transfer_stopped_half_way_ends_with_what_was_written() {
        let mut chat = Chat::new(FirstCloser::Client);
        chat.talk.ask(ExchangeSizes { request: 0, reply: ENDLESS });
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
        let mut chat = Chat::new(FirstCloser::Client);
        chat.talk.ask(ExchangeSizes { request: 0, reply: ENDLESS });
        chat.talk.stop();
        chat.run();
        assert_eq!(chat.talk.received(), [0, 0]);
        assert!(chat.talk.down.closed && chat.talk.up.closed);
    }

    #[test]
    fn a_client_that_stops_does_not_wait_for_requests_it_never_made() {
        let mut chat = Chat::new(FirstCloser::Client);
        // More than the windows take.
        for _ in 0..2 {
            chat.talk.ask(ExchangeSizes { request: 1 << 40, reply: 10 });
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
        let mut chat = Chat::new(FirstCloser::Client);
        chat.talk.ask(ExchangeSizes { request: 0, reply: 10 });
        assert_eq!(chat.talk.serve(ConversationSide::Server, &mut chat.tcp[1]), 0);
        assert_eq!(chat.talk.down.goal, 0);
        exchange(at_ms(1), &mut chat.tcp);
        chat.talk.serve(ConversationSide::Server, &mut chat.tcp[1]);
        assert_eq!((chat.talk.down.goal, chat.talk.down.written), (10, 10));
    }
}
