//! FTP (RFC 959): a control connection, and a data connection for each file.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use scenario::Direction;
use units::Instant;

use super::{App, AppId, AppNotice, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// The dialogue before the first file: the server's greeting, and commands with their replies
/// (RFC 959 §5.4).
const LOGIN: [ExchangeSizes; 4] = [
    turn("", "220 Service ready for new user.\r\n"),
    turn("USER anonymous\r\n", "331 User name okay, need password.\r\n"),
    turn("PASS guest@example.org\r\n", "230 User logged in, proceed.\r\n"),
    turn("TYPE I\r\n", "200 Command okay.\r\n"),
];
const PASSIVE: ExchangeSizes = turn("PASV\r\n", "227 Entering Passive Mode (10,0,0,1,195,80).\r\n");
const RETRIEVE: &str = "RETR file-0001.bin\r\n";
const STORE: &str = "STOR file-0001.bin\r\n";
const OPENING: &str = "150 File status okay; about to open data connection.\r\n";
const COMPLETE: &str = "226 Closing data connection.\r\n";
const QUIT: ExchangeSizes = turn("QUIT\r\n", "221 Service closing control connection.\r\n");

/// Downloads or uploads files one after the other, in passive mode.
///
/// The client connects to the server's data port and then sends the command; it uploads after the
/// server's reply that it is ready. The last reply about a download is sent together with the first,
/// because a server that has written a file to its socket has nothing more to wait for.
#[derive(Debug)]
pub struct FtpTransfer {
    path: Arc<ConnectionPath>,
    direction: Direction,
    /// Size of a file in bytes.
    bytes: u64,
    /// Pause between files.
    think: Duration,
    /// Number of files left, including the current one.
    files: u64,
    start: Instant,
    begun: Instant,
    control: Option<SlabKey>,
    data: Option<SlabKey>,
    step: FtpStep,
}

/// The client's progress, by the event it waits for.
#[derive(Debug)]
enum FtpStep {
    /// The reply to a command of the login; these are the commands after it.
    Login(VecDeque<ExchangeSizes>),
    /// The reply to PASV, with the address for the data connection.
    Passive,
    /// The handshake of the data connection.
    Connecting,
    /// The arrival of the command at the server.
    Asking,
    /// The server's reply that an upload may begin.
    Opening,
    /// The data and, for a download, the reply, in either order; `missing` of them have not arrived.
    Moving { missing: u8 },
    /// The server's reply that it has stored the file.
    Closing,
}

const BEGIN: u64 = 0;
const NEXT: u64 = 1;

/// Sizes of a command and its reply.
pub(super) const fn turn(request: &str, reply: &str) -> ExchangeSizes {
    ExchangeSizes { request: request.len() as u64, reply: reply.len() as u64 }
}

impl FtpTransfer {
    /// Transfers `files` files of `bytes` bytes from `start` on, with a pause of `think` between them.
    pub fn new(
        path: Arc<ConnectionPath>,
        direction: Direction,
        bytes: u64,
        start: Instant,
        files: u64,
        think: Duration,
    ) -> Self {
        Self {
            path,
            direction,
            bytes,
            think,
            files,
            start,
            begun: start,
            control: None,
            data: None,
            step: FtpStep::Login(LOGIN.into()),
        }
    }
}

impl App for FtpTransfer {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start if self.files == 0 => world.set_done(me),
            AppNotice::Start => world.wake_at(me, self.start, BEGIN),
            AppNotice::Wake(BEGIN) => {
                world.begin(me);
                let control = world.open(me, &self.path, FirstCloser::Client, None);
                self.control = Some(control);
                self.go_on(world, me, control);
            }
            AppNotice::Wake(_) => {
                self.begun = world.now();
                self.request_passive(world);
            }
            AppNotice::Connected(talk) if self.data == Some(talk) => self.command(world),
            AppNotice::ExchangeDone(talk) => self.go_on(world, me, talk),
            AppNotice::Ended { talk, whole } => self.over(world, me, talk, whole),
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
    }
}

impl FtpTransfer {
    /// Takes the next step after a reply or the arrival of data.
    fn go_on(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        let Some(control) = self.control else { return };
        if world.app_stats(me).done {
            // The reply is that to QUIT.
            return;
        }
        match &mut self.step {
            FtpStep::Login(turns) => match turns.pop_front() {
                Some(turn) => world.send_request(control, turn),
                None => self.request_passive(world),
            },
            FtpStep::Passive => {
                // The end of a file is the end of its connection, which its sender closes (RFC 959 §3.4.1).
                let closer = match self.direction {
                    Direction::Down => FirstCloser::Server,
                    Direction::Up => FirstCloser::Client,
                };
                let data = world.open(me, &self.path, closer, None);
                (self.data, self.step) = (Some(data), FtpStep::Connecting);
                // Sends the SYN without data, because the client connects before it asks for the file.
                world.connect_now(data);
            }
            FtpStep::Connecting => {}
            FtpStep::Asking => self.run_command(world, control),
            FtpStep::Opening => {
                let Some(data) = self.data else { return };
                self.step = FtpStep::Moving { missing: 1 };
                world.send_request(data, ExchangeSizes { request: self.bytes, reply: 0 });
                world.finish(data);
            }
            // The data and the reply come over two connections, in either order.
            FtpStep::Moving { missing: 2 } => self.step = FtpStep::Moving { missing: 1 },
            FtpStep::Moving { .. } if self.direction == Direction::Up => {
                self.step = FtpStep::Closing;
                world.send_request(control, turn("", COMPLETE));
            }
            FtpStep::Moving { .. } | FtpStep::Closing => self.complete(world, me, control),
        }
        // In stream mode each file has a connection of its own (RFC 959 §3.4.1).
        if self.data == Some(talk) && self.direction == Direction::Down {
            world.finish(talk);
        }
    }

    fn request_passive(&mut self, world: &mut World) {
        self.step = FtpStep::Passive;
        if let Some(control) = self.control {
            world.send_request(control, PASSIVE);
        }
    }

    /// Sends RETR or STOR on the control connection, as soon as the data connection is open.
    fn command(&mut self, world: &mut World) {
        self.step = FtpStep::Asking;
        let command = match self.direction {
            Direction::Down => RETRIEVE,
            Direction::Up => STORE,
        };
        if let Some(control) = self.control {
            world.send_request(control, turn(command, ""));
        }
    }

    /// Lets the server carry out the command that has arrived.
    fn run_command(&mut self, world: &mut World, control: SlabKey) {
        let Some(data) = self.data else { return };
        match self.direction {
            Direction::Down => {
                self.step = FtpStep::Moving { missing: 2 };
                let reply = (OPENING.len() + COMPLETE.len()) as u64;
                world.send_request(control, ExchangeSizes { request: 0, reply });
                world.send_request(data, ExchangeSizes { request: 0, reply: self.bytes });
            }
            Direction::Up => {
                self.step = FtpStep::Opening;
                world.send_request(control, turn("", OPENING));
            }
        }
    }

    fn complete(&mut self, world: &mut World, me: AppId, control: SlabKey) {
        world.record_work_unit(
            me,
            WorkUnit { begin: self.begun, end: world.now(), bytes: self.bytes },
        );
        self.files -= 1;
        if self.files > 0 {
            world.wake_at(me, world.now() + self.think, NEXT);
            return;
        }
        world.set_done(me);
        world.send_request(control, QUIT);
        world.finish(control);
    }

    fn over(&mut self, world: &mut World, me: AppId, talk: SlabKey, whole: bool) {
        if !whole {
            world.record_failure(me);
        }
        // The client does not retry.
        if !whole || self.control == Some(talk) {
            world.set_done(me);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, run_app};

    fn times(direction: Direction, bytes: u64, files: u64) -> Vec<u128> {
        let think = Duration::from_secs(3);
        let (mut world, app) =
            run_app(|path| Box::new(FtpTransfer::new(path, direction, bytes, at(1), files, think)));
        // The last replies and the ends of the connections.
        world.run_until(at(300));
        assert_eq!((world.app_stats(app).failures, world.strays()), (0, 0));
        assert_eq!(world.sockets(), 0);
        world.app_stats(app).work_units.iter().map(|deed| deed.time().as_millis()).collect()
    }

    /// Round trips of 500 ms: connection and greeting 2 (a server speaks when it is connected), USER,
    /// PASS and TYPE; then PASV, the data connection, and RETR with the file.
    #[test]
    fn a_small_file_takes_the_round_trips_of_the_dialogue() {
        let (login, file) = (2 + 3, 3);
        let expected = [login + file, file, file].map(|trips| trips * 500);
        for (time, expected) in times(Direction::Down, 1000, 3).into_iter().zip(expected) {
            assert!((expected..expected + 25).contains(&time), "{time} {expected}");
        }
    }

    /// PASV, the data connection, STOR, then the file and the last reply.
    #[test]
    fn an_upload_waits_for_consent_and_for_the_last_reply() {
        let times = times(Direction::Up, 1000, 2);
        assert!((2000..2025).contains(&times[1]), "{times:?}");
    }

    /// The data connection starts slowly, like any other.
    #[test]
    fn a_large_file_is_a_transfer_of_its_own() {
        let times = times(Direction::Down, 1_000_000, 1);
        assert!(times[0] > 4000 + 2 * 500, "{times:?}");
    }

    #[test]
    fn no_files_are_done_at_once() {
        let (world, app) = run_app(|path| {
            Box::new(FtpTransfer::new(path, Direction::Down, 1, at(1), 0, Duration::ZERO))
        });
        assert_eq!((world.now(), world.app_stats(app).work_units.len()), (at(0), 0));
    }
}
