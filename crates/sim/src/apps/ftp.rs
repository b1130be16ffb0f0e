//! FTP (RFC 959): a control connection, and a data connection for each file.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use scenario::Direction;
use units::Instant;

use super::{App, AppId, Deed, Notice};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::Closer;
use crate::turn::Turn;
use crate::world::World;

/// The dialogue before the first file: the server's greeting, and commands with their replies
/// (RFC 959 §5.4).
const LOGIN: [(&str, &str); 4] = [
    ("", "220 Service ready for new user.\r\n"),
    ("USER anonymous\r\n", "331 User name okay, need password.\r\n"),
    ("PASS guest@example.org\r\n", "230 User logged in, proceed.\r\n"),
    ("TYPE I\r\n", "200 Command okay.\r\n"),
];
const PASSIVE: (&str, &str) = ("PASV\r\n", "227 Entering Passive Mode (10,0,0,1,195,80).\r\n");
const RETRIEVE: &str = "RETR file-0001.bin\r\n";
const STORE: &str = "STOR file-0001.bin\r\n";
const OPENING: &str = "150 File status okay; about to open data connection.\r\n";
const COMPLETE: &str = "226 Closing data connection.\r\n";
const QUIT: (&str, &str) = ("QUIT\r\n", "221 Service closing control connection.\r\n");

/// Downloads or uploads files one after the other, in passive mode.
///
/// The client connects to the server's data port and then sends the command; it uploads after the
/// server's reply that it is ready. The last reply about a download is sent together with the first,
/// because a server that has written a file to its socket has nothing more to wait for.
#[derive(Debug)]
pub struct Ftp {
    path: Arc<Path>,
    direction: Direction,
    /// Size of a file in bytes.
    bytes: u64,
    /// Pause between files.
    think: Duration,
    /// Number of files left, including the current one.
    files: u64,
    start: Instant,
    begun: Instant,
    control: Option<Key>,
    data: Option<Key>,
    step: Step,
}

/// The client's progress, by the event it waits for.
#[derive(Debug)]
enum Step {
    /// The reply to a command of the login; these are the commands after it.
    Login(VecDeque<Turn>),
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

pub(super) fn turn((request, reply): (&str, &str)) -> Turn {
    Turn { request: request.len() as u64, reply: reply.len() as u64 }
}

impl Ftp {
    /// Transfers `files` files of `bytes` bytes from `start` on, with a pause of `think` between them.
    pub fn new(
        path: Arc<Path>,
        direction: Direction,
        bytes: u64,
        start: Instant,
        (files, think): (u64, Duration),
    ) -> Self {
        let step = Step::Login(LOGIN.into_iter().map(turn).collect());
        let (begun, control, data) = (start, None, None);
        Self { path, direction, bytes, think, files, start, begun, control, data, step }
    }
}

impl App for Ftp {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            Notice::Start if self.files == 0 => world.set_done(me),
            Notice::Start => world.wake_at(me, self.start, BEGIN),
            Notice::Wake(BEGIN) => {
                world.begin(me);
                let control = world.open(me, &self.path, Closer::Client, None);
                self.control = Some(control);
                self.go_on(world, me, control);
            }
            Notice::Wake(_) => {
                self.begun = world.now();
                self.ask_where(world);
            }
            Notice::Connected(talk) if self.data == Some(talk) => self.command(world),
            Notice::Turn(talk) => self.go_on(world, me, talk),
            Notice::Over { talk, whole } => self.over(world, me, talk, whole),
            Notice::Connected(_) | Notice::Asked(_) | Notice::Datagram(_) => {}
        }
    }
}

impl Ftp {
    /// Takes the next step after a reply or the arrival of data.
    fn go_on(&mut self, world: &mut World, me: AppId, talk: Key) {
        let Some(control) = self.control else { return };
        if world.tally(me).done {
            // The reply is that to QUIT.
            return;
        }
        match &mut self.step {
            Step::Login(turns) => match turns.pop_front() {
                Some(turn) => world.ask(control, turn),
                None => self.ask_where(world),
            },
            Step::Passive => {
                // The end of a file is the end of its connection, which its sender closes (RFC 959 §3.4.1).
                let closer = match self.direction {
                    Direction::Down => Closer::Server,
                    Direction::Up => Closer::Client,
                };
                let data = world.open(me, &self.path, closer, None);
                (self.data, self.step) = (Some(data), Step::Connecting);
                world.connect_now(data);
            }
            Step::Connecting => {}
            Step::Asking => self.obey(world, control),
            Step::Opening => {
                let Some(data) = self.data else { return };
                self.step = Step::Moving { missing: 1 };
                world.ask(data, Turn { request: self.bytes, reply: 0 });
                world.finish(data);
            }
            Step::Moving { missing: 2 } => self.step = Step::Moving { missing: 1 },
            Step::Moving { .. } if self.direction == Direction::Up => {
                self.step = Step::Closing;
                world.ask(control, turn(("", COMPLETE)));
            }
            Step::Moving { .. } | Step::Closing => self.complete(world, me, control),
        }
        if self.data == Some(talk) && self.direction == Direction::Down {
            world.finish(talk);
        }
    }

    fn ask_where(&mut self, world: &mut World) {
        self.step = Step::Passive;
        if let Some(control) = self.control {
            world.ask(control, turn(PASSIVE));
        }
    }

    /// Sends RETR or STOR on the control connection, as soon as the data connection is open.
    fn command(&mut self, world: &mut World) {
        self.step = Step::Asking;
        let command = match self.direction {
            Direction::Down => RETRIEVE,
            Direction::Up => STORE,
        };
        if let Some(control) = self.control {
            world.ask(control, turn((command, "")));
        }
    }

    /// Lets the server carry out the command that has arrived.
    fn obey(&mut self, world: &mut World, control: Key) {
        let Some(data) = self.data else { return };
        match self.direction {
            Direction::Down => {
                self.step = Step::Moving { missing: 2 };
                let reply = (OPENING.len() + COMPLETE.len()) as u64;
                world.ask(control, Turn { request: 0, reply });
                world.ask(data, Turn { request: 0, reply: self.bytes });
            }
            Direction::Up => {
                self.step = Step::Opening;
                world.ask(control, turn(("", OPENING)));
            }
        }
    }

    fn complete(&mut self, world: &mut World, me: AppId, control: Key) {
        world.note_deed(me, Deed { begin: self.begun, end: world.now(), bytes: self.bytes });
        self.files -= 1;
        if self.files > 0 {
            world.wake_at(me, world.now() + self.think, NEXT);
            return;
        }
        world.set_done(me);
        world.ask(control, turn(QUIT));
        world.finish(control);
    }

    fn over(&mut self, world: &mut World, me: AppId, talk: Key, whole: bool) {
        if !whole {
            world.note_broken(me);
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
        let often = (files, Duration::from_secs(3));
        let (mut world, app) =
            run_app(|path| Box::new(Ftp::new(path, direction, bytes, at(1), often)));
        // The last replies and the ends of the connections.
        world.run_until(at(300));
        assert_eq!((world.tally(app).broken, world.strays()), (0, 0));
        assert_eq!(world.sockets(), 0);
        world.tally(app).deeds.iter().map(|deed| deed.time().as_millis()).collect()
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
        let never = (0, Duration::ZERO);
        let (world, app) =
            run_app(|path| Box::new(Ftp::new(path, Direction::Down, 1, at(1), never)));
        assert_eq!((world.now(), world.tally(app).deeds.len()), (at(0), 0));
    }
}
