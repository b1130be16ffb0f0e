//! The hub is killed, and comes back at once or after a while.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::gateways::Keys;
use crate::inside::{Gateway, Mirror, exchange};
use crate::tell;

const PORT: u16 = 7000;
/// Connections that exist when the hub is killed.
const OLD: usize = 20;
/// Interval of new connection attempts.
const EVERY: Duration = Duration::from_millis(50);
/// Time limit for each answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the hub stays away.
const AWAY: Duration = Duration::from_secs(10);
/// Time limit for a whole case.
const LIMIT: Duration = Duration::from_secs(60);

/// A pair with connections through it.
struct Scene {
    keys: Keys,
    hub: Gateway,
    mirror: Mirror,
    old: Vec<TcpStream>,
    _terminal: Gateway,
}

impl Scene {
    fn set() -> Self {
        let keys = Keys::new(1);
        let hub = hub(&keys);
        let terminal = keys.terminal(1, "rate = \"10 Mbit/s\"\ncontrol = \"none\"", "");
        let mirror = Mirror::start(PORT);
        let mut old: Vec<TcpStream> = (0..OLD).map(|_| mirror.connect_carried()).collect();
        old.iter_mut().for_each(exchange);
        Self { keys, hub, mirror, old, _terminal: terminal }
    }
}

fn hub(keys: &Keys) -> Gateway {
    keys.hub("rate = \"50 Mbit/s\"\ncontrol = \"none\"", "")
}

/// Kills the hub and starts it again at once.
pub(crate) fn restarts() {
    let Scene { keys, hub: killed, mirror, old, _terminal } = Scene::set();
    let begin = Instant::now();
    killed.end_by(Signal::SIGKILL);
    let resets = thread::spawn(move || all_are_reset(old, begin));
    let mut attempts = Attempts::begin(mirror);
    let _hub = hub(&keys);
    tell("the hub is in service again, after the kill", begin.elapsed());
    attempts.tell_first("a new connection", "the kill", begin, |_| true);
    attempts.tell_first("one through the hub", "the kill", begin, |attempt| attempt.carried);
    tell("the last old one is reset", resets.join().expect("all are reset"));
}

/// Kills the hub and starts it again after a while.
pub(crate) fn is_absent() {
    let Scene { keys, hub: killed, mirror, old, _terminal } = Scene::set();
    let begin = Instant::now();
    killed.end_by(Signal::SIGKILL);
    let mut attempts = Attempts::begin(mirror);
    attempts.tell_first("one that bypasses the hub", "the kill", begin, |attempt| !attempt.carried);
    thread::sleep(AWAY.saturating_sub(begin.elapsed()));
    let _hub = hub(&keys);
    let back = Instant::now();
    attempts.tell_first("one through the hub", "its return", back, |attempt| attempt.carried);
    tell("the last old one is reset, at the latest", all_are_reset(old, back));
}

/// A connection attempt that was answered.
#[derive(Clone, Copy)]
struct Attempt {
    opened: Instant,
    answered: Instant,
    carried: bool,
}

/// A client that connects repeatedly, for ever.
struct Attempts {
    answers: Receiver<Attempt>,
    seen: Vec<Attempt>,
}

impl Attempts {
    fn begin(mirror: Mirror) -> Self {
        let (sender, answers) = channel();
        let mirror = Arc::new(mirror);
        thread::spawn(move || {
            loop {
                let (mirror, sender) = (mirror.clone(), sender.clone());
                thread::spawn(move || attempt(&mirror, &sender));
                thread::sleep(EVERY);
            }
        });
        Self { answers, seen: Vec::new() }
    }

    /// Reports when the first matching attempt after `begin` was made, and when it was answered.
    fn tell_first(
        &mut self,
        which: &str,
        event: &str,
        begin: Instant,
        is_such: impl Fn(&Attempt) -> bool,
    ) {
        let fits = |attempt: &Attempt| attempt.opened >= begin && is_such(attempt);
        let first = loop {
            if let Some(first) = self.seen.iter().find(|attempt| fits(attempt)) {
                break first;
            }
            self.seen.push(self.answers.recv_timeout(LIMIT).expect("connections work"));
        };
        tell(&format!("{which} is opened, after {event}"), first.opened - begin);
        tell(&format!("{which} has its answer, after {event}"), first.answered - begin);
    }
}

fn attempt(mirror: &Mirror, answers: &Sender<Attempt>) {
    let opened = Instant::now();
    if let Some((_, carried)) = mirror.try_connect(PATIENCE) {
        // The case may be over.
        let _ = answers.send(Attempt { opened, answered: Instant::now(), carried });
    }
}

/// Time from `begin` until all have been reset. Any other end is a failure.
fn all_are_reset(old: Vec<TcpStream>, begin: Instant) -> Duration {
    for mut socket in old {
        socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let end = socket.read(&mut [0]);
        assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    }
    begin.elapsed()
}
