//! Idle terminals, all in one thread: each has its own endpoint, key and UDP socket, on the single
//! address of a host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::PrivateKey;
use lab::NetNs;
use slacp::{Config, Endpoint, Event, SessionId};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use units::Machine;

use crate::Failure;

/// Time limit for every step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time from the common start until a terminal reached each stage.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// It has a session.
    pub(crate) up: Duration,
    /// The hub has answered on it, so both sides have the session.
    pub(crate) answered: Duration,
}

impl Progress {
    fn max(self, other: Self) -> Self {
        Self { up: self.up.max(other.up), answered: self.answered.max(other.answered) }
    }
}

/// Running terminals, stopped when dropped.
pub(crate) struct Terminals {
    count: usize,
    progress: Receiver<Progress>,
    _stop: oneshot::Sender<()>,
}

impl Terminals {
    /// Starts one terminal for each key, all at once, with these settings.
    pub(crate) fn start(
        node: &NetNs,
        keys: &[PrivateKey],
        hub: (&PrivateKey, SocketAddr),
        config: &Config,
    ) -> Result<Self, Failure> {
        let start = Instant::now();
        let (sender, progress) = channel();
        let (stop, stopped) = oneshot::channel();
        let bind = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_nonblocking(true).map(|()| socket)
        };
        let sockets: io::Result<Vec<UdpSocket>> =
            node.run(|| keys.iter().map(|_| bind()).collect());
        let mut terminals = Vec::new();
        for (socket, key) in sockets?.into_iter().zip(keys) {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed)?;
            let endpoint =
                Endpoint::terminal(config.clone(), key.pair(), hub.0.public(), vec![hub.1], seed);
            let (progress, session) = (sender.clone(), None);
            terminals.push((Terminal { endpoint, start, session, progress }, socket));
        }
        thread::spawn(move || drive(terminals, stopped));
        Ok(Self { count: keys.len(), progress, _stop: stop })
    }

    /// Waits for all of them; returns the progress of the slowest.
    pub(crate) fn wait(&self) -> Result<Progress, Failure> {
        let mut last = Progress::default();
        for done in 0..self.count {
            let next = self.progress.recv_timeout(PATIENCE);
            last = last.max(next.map_err(|_| format!("{done} of {} are up", self.count))?);
        }
        Ok(last)
    }
}

/// Drives all terminals until stopped, or until one fails.
fn drive(terminals: Vec<(Terminal, UdpSocket)>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut tasks: JoinSet<_> =
            terminals.into_iter().map(|(terminal, socket)| terminal.run(socket)).collect();
        tokio::select! {
            Some(ended) = tasks.join_next() => panic!("an idle terminal ended: {ended:?}"),
            _ = stopped => {}
        }
    });
}

struct Terminal {
    endpoint: Endpoint,
    start: Instant,
    /// The session, and when it came up, until the hub has answered on it.
    session: Option<(SessionId, Duration)>,
    progress: Sender<Progress>,
}

impl Terminal {
    fn now(&self) -> units::Instant {
        // Not zero, which is reserved for the time before everything.
        units::Instant::from_nanos(1) + self.start.elapsed()
    }

    async fn run(mut self, socket: UdpSocket) -> Result<(), Failure> {
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let (mut sent, mut received) = (Vec::new(), [0; 2048]);
        loop {
            let now = self.now();
            if self.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.endpoint.handle_timeout(now);
            }
            self.follow()?;
            while let Some(to) = self.endpoint.poll_transmit(now, &mut sent) {
                socket.send_to(&sent, to).await?;
            }
            let (next, _) = self.endpoint.poll_timeout().ok_or("a terminal never rests")?;
            let deadline = Instant::now() + next.saturating_since(now);
            tokio::select! {
                taken = socket.recv_from(&mut received) => {
                    let (count, from) = taken?;
                    let now = self.now();
                    self.endpoint.handle_datagram(now, from, &mut received[..count]);
                }
                () = pin!(sleep_until(deadline.into())) => {}
            }
        }
    }

    /// Reports when it is up and the hub has answered. Fails if its session ends.
    fn follow(&mut self) -> Result<(), Failure> {
        while let Some((session, event)) = self.endpoint.poll_event() {
            match event {
                Event::Up { .. } => self.session = Some((session, self.start.elapsed())),
                Event::Down(why) => return Err(format!("down: {why:?}").into()),
                _ => {}
            }
        }
        let answered = |(session, _): &mut (SessionId, Duration)| {
            self.endpoint.stats(*session).is_some_and(|stats| stats.packets_received > 0)
        };
        if let Some((_, up)) = self.session.take_if(answered) {
            // The receiver may be gone.
            let _ = self.progress.send(Progress { up, answered: self.start.elapsed() });
        }
        Ok(())
    }
}
