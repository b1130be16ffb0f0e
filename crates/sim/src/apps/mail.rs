//! Mail by SMTP (RFC 5321): a dialogue with a message in the middle.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::Instant;

use super::ftp::turn;
use super::{App, AppId, AppNotice, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// The server's greeting, and the client's EHLO with the list of extensions (RFC 5321 §D.1).
const HELLO: [ExchangeSizes; 2] = [
    turn("", "220 mail.example.org Simple Mail Transfer Service Ready\r\n"),
    turn(
        "EHLO client.example.org\r\n",
        "250-mail.example.org greets client.example.org\r\n250-8BITMIME\r\n250-SIZE\r\n\
         250 PIPELINING\r\n",
    ),
];
/// Commands that precede a message: sender, recipient and DATA.
const ENVELOPE: [ExchangeSizes; 3] = [
    turn("MAIL FROM:<smith@client.example.org>\r\n", "250 OK\r\n"),
    turn("RCPT TO:<jones@mail.example.org>\r\n", "250 OK\r\n"),
    turn("DATA\r\n", "354 Start mail input; end with <CRLF>.<CRLF>\r\n"),
];
const END_OF_MESSAGE: ExchangeSizes = turn("\r\n.\r\n", "250 OK\r\n");
const QUIT: ExchangeSizes =
    turn("QUIT\r\n", "221 mail.example.org Service closing transmission channel\r\n");

/// Sends messages from a client to a server, one after the other, over one connection.
#[derive(Debug)]
pub struct MailTransfer {
    path: Arc<ConnectionPath>,
    /// Size of a message in bytes.
    bytes: u64,
    /// True if the commands of an envelope are sent together (RFC 2920).
    pipelining: bool,
    /// Pause between messages.
    think: Duration,
    /// Number of messages left, including the current one.
    messages: u64,
    start: Instant,
    begun: Instant,
    talk: Option<SlabKey>,
    /// Remaining commands of this message, with the lengths of their replies.
    turns: VecDeque<ExchangeSizes>,
}

const BEGIN: u64 = 0;
const NEXT: u64 = 1;

impl MailTransfer {
    /// Sends `messages` messages of `bytes` bytes from `start` on, with a pause of `think` between them.
    pub fn new(
        path: Arc<ConnectionPath>,
        bytes: u64,
        pipelining: bool,
        start: Instant,
        messages: u64,
        think: Duration,
    ) -> Self {
        Self {
            path,
            bytes,
            pipelining,
            think,
            messages,
            start,
            begun: start,
            talk: None,
            turns: HELLO.into(),
        }
    }

    /// Queues the commands of the next message.
    fn compose(&mut self) {
        if self.pipelining {
            // DATA must end its group (RFC 2920 §3.1), so the message waits for the reply.
            let sum = |of: fn(&ExchangeSizes) -> u64| ENVELOPE.iter().map(of).sum();
            let turn =
                ExchangeSizes { request: sum(|turn| turn.request), reply: sum(|turn| turn.reply) };
            self.turns.push_back(turn);
        } else {
            self.turns.extend(ENVELOPE);
        }
        let ExchangeSizes { request, reply } = END_OF_MESSAGE;
        self.turns.push_back(ExchangeSizes { request: self.bytes + request, reply });
    }

    fn go_on(&mut self, world: &mut World, me: AppId) {
        let Some(talk) = self.talk else { return };
        match self.turns.pop_front() {
            Some(turn) => world.send_request(talk, turn),
            None => self.complete(world, me, talk),
        }
    }

    fn complete(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        if world.app_stats(me).done {
            // The reply is that to QUIT.
            return;
        }
        world.record_work_unit(
            me,
            WorkUnit { begin: self.begun, end: world.now(), bytes: self.bytes },
        );
        self.messages -= 1;
        if self.messages > 0 {
            world.wake_at(me, world.now() + self.think, NEXT);
            return;
        }
        world.set_done(me);
        world.send_request(talk, QUIT);
        world.finish(talk);
    }
}

impl App for MailTransfer {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start if self.messages == 0 => world.set_done(me),
            AppNotice::Start => world.wake_at(me, self.start, BEGIN),
            AppNotice::Wake(BEGIN) => {
                world.begin(me);
                self.talk = Some(world.open(me, &self.path, FirstCloser::Client, None));
                self.compose();
                self.go_on(world, me);
            }
            AppNotice::Wake(_) => {
                self.begun = world.now();
                self.compose();
                self.go_on(world, me);
            }
            AppNotice::ExchangeDone(_) => self.go_on(world, me),
            AppNotice::Ended { whole, .. } => {
                if !whole {
                    world.record_failure(me);
                }
                world.set_done(me);
            }
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, run_app};

    fn times(bytes: u64, pipelining: bool, messages: u64) -> Vec<u128> {
        let think = Duration::from_secs(3);
        let (mut world, app) = run_app(|path| {
            Box::new(MailTransfer::new(path, bytes, pipelining, at(1), messages, think))
        });
        world.run_until(at(300));
        assert_eq!((world.app_stats(app).failures, world.sockets()), (0, 0));
        world.app_stats(app).work_units.iter().map(|deed| deed.time().as_millis()).collect()
    }

    /// Round trips of 500 ms: connection and greeting 2 (a server speaks when it is connected), EHLO;
    /// then MAIL, RCPT, DATA and the message.
    #[test]
    fn a_short_message_takes_the_round_trips_of_the_dialogue() {
        for (pipelining, envelope) in [(false, 3), (true, 1)] {
            let expected = [2 + 1 + envelope + 1, envelope + 1].map(|trips| trips * 500);
            for (time, expected) in times(1000, pipelining, 2).into_iter().zip(expected) {
                assert!((expected..expected + 25).contains(&time), "{time} {expected}");
            }
        }
    }

    #[test]
    fn no_messages_are_done_at_once() {
        let (world, app) =
            run_app(|path| Box::new(MailTransfer::new(path, 1, true, at(1), 0, Duration::ZERO)));
        assert_eq!((world.now(), world.app_stats(app).work_units.len()), (at(0), 0));
    }
}
