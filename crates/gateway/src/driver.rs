//! Drives the endpoint with the wall clock and a UDP socket.
//!
//! One task owns the socket and the timer. Everything runs on one thread (a
//! current-thread runtime): a packet costs a few microseconds, the work is
//! serialised by the session's packet numbers anyway, and nothing waits for a
//! lock or another core. The handles are `Send` all the same.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slacp::{Event, Notice, Wake};
use tokio::sync::mpsc::UnboundedSender;
use units::{Instant, Machine};

use crate::clock;
use crate::counters::Counters;
use crate::hop::{Hop, HopEvent};
use crate::sources::Sources;
use crate::timer::Timer;
use crate::tunnel::Port;
use crate::udp::{Batch, Reception, UdpLink};

/// Receptions taken before anything else gets its turn.
const RECEPTIONS_PER_TURN: usize = 4;
/// How long timers wait at least while the kernel takes no datagram.
const WHILE_BLOCKED: Duration = Duration::from_millis(1);
/// How long the link may lie idle so that several packets leave in one go: a
/// wake-up for each costs more than the packet itself. Two packets at 50 Mbit/s;
/// the pacer lets a late driver catch up.
const QUANTUM: Duration = Duration::from_micros(500);
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// The task that moves datagrams.
pub(crate) struct Driver {
    hop: Hop,
    link: UdpLink,
    timer: Timer,
    events: UnboundedSender<HopEvent>,
    counters: Arc<Counters>,
    /// Where packets that are not split go.
    tunnel: Option<Arc<Port>>,
    reception: Reception,
    batch: Batch,
    /// A datagram that the endpoint has given out and no batch holds yet.
    waiting: Vec<u8>,
    waiting_to: Option<SocketAddr>,
    sources: Sources,
    complaint: Complaint,
}

impl Driver {
    /// A driver of `hop` over `link`. Events go to `events`.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new(
        hop: Hop,
        link: UdpLink,
        sources: Sources,
        events: UnboundedSender<HopEvent>,
        counters: Arc<Counters>,
        tunnel: Option<Arc<Port>>,
    ) -> io::Result<Self> {
        Ok(Self {
            hop,
            link,
            timer: Timer::new()?,
            events,
            counters,
            tunnel,
            reception: Reception::new(),
            batch: Batch::default(),
            waiting: Vec::new(),
            waiting_to: None,
            sources,
            complaint: Complaint::default(),
        })
    }

    /// Runs until dropped, or until the socket or the timer fails for good.
    pub(crate) async fn run(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.turn().await {
                return error;
            }
        }
    }

    /// Serves the endpoint, then waits for its next input.
    async fn turn(&mut self) -> io::Result<()> {
        let now = clock::now();
        self.tell_time(now);
        if self.hand_out_events() {
            // Packets may follow that only make sense to who knows of the session.
            tokio::task::yield_now().await;
        }
        self.hand_out_packets();
        let flowing = self.transmit(now);
        let deadline = self.deadline(now, flowing);
        if deadline.is_some_and(|at| at <= now) {
            tokio::task::yield_now().await;
            return self.receive();
        }
        self.timer.set(deadline)?;
        tokio::select! {
            readable = self.link.readable() => {
                readable?;
                self.receive()
            }
            expired = self.timer.expired() => expired,
            () = self.hop.work() => Ok(()),
            writable = self.link.writable(), if !flowing => writable,
        }
    }

    /// When to wake up though nothing comes.
    fn deadline(&self, now: Instant, flowing: bool) -> Option<Instant> {
        let (at, why) = self.hop.lock().endpoint.poll_timeout()?;
        let earliest = match why {
            // What is due to be sent must wait.
            _ if !flowing => now + WHILE_BLOCKED,
            Wake::Pacing => now + QUANTUM,
            _ => Instant::ZERO,
        };
        Some(at.max(earliest))
    }

    fn tell_time(&self, now: Instant) {
        let mut state = self.hop.lock();
        if state.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            state.endpoint.handle_timeout(now);
        }
    }

    /// Whether one was about a session.
    fn hand_out_events(&mut self) -> bool {
        let events: Vec<HopEvent> = {
            let mut state = self.hop.lock();
            while let Some(notice) = state.endpoint.poll_notice() {
                tell(&notice, &self.counters);
            }
            std::iter::from_fn(|| self.hop.take_event(&mut state)).collect()
        };
        let news = events.iter().any(|event| matches!(event, HopEvent::Session(..)));
        for event in events {
            if let HopEvent::Session(session, Event::Down(_)) = event {
                self.sources.forget(session);
            }
            // Nobody listens any more while the gateway shuts down. A stream
            // inside is reset by being dropped, which needs the lock.
            let _ = self.events.send(event);
        }
        news
    }

    /// Gives the tunnel what has come for it.
    fn hand_out_packets(&self) {
        let Some(tunnel) = &self.tunnel else { return };
        let mut state = self.hop.lock();
        while let Some((session, _, packet)) = state.endpoint.poll_packet() {
            tunnel.deliver(session, &packet);
        }
    }

    /// Sends what may be sent now; whether the kernel took it all.
    fn transmit(&mut self, now: Instant) -> bool {
        loop {
            self.fill(now);
            if self.batch.count() == 0 {
                return true;
            }
            if !self.flush(now) {
                return false;
            }
        }
    }

    /// Gathers datagrams of the endpoint that can be sent together.
    fn fill(&mut self, now: Instant) {
        let most = self.link.most_segments();
        let mut state = self.hop.lock();
        while !self.batch.is_closed(most) {
            if self.waiting_to.is_none() {
                self.waiting.clear();
                self.waiting_to = state.endpoint.poll_transmit(now, &mut self.waiting);
            }
            let Some(to) = self.waiting_to else { return };
            if !self.batch.join(to, &self.waiting, most) {
                return;
            }
            self.waiting_to = None;
        }
    }

    /// Hands the batch to the kernel; false if it has no room now.
    fn flush(&mut self, now: Instant) -> bool {
        let from = self.sources.of(self.batch.destination());
        match self.link.send(&self.batch, from) {
            Ok(()) => self.counters.datagrams_sent.add(self.batch.count() as u64),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The datagrams are lost; the protocol notices. EMSGSIZE: the
            // network device takes less than the configured MTU, which the
            // search for the path's MTU has just found out.
            Err(error) if quinn_udp::is_msg_size_err(&error) => {
                self.counters.too_large.add(self.batch.count() as u64);
            }
            Err(error) => {
                self.counters.socket_errors.increment();
                self.complaint.tell(now, &format!("cannot send: {error}"));
            }
        }
        self.batch.clear();
        true
    }

    /// Takes what has arrived, as far as this turn goes.
    fn receive(&mut self) -> io::Result<()> {
        let now = clock::now();
        for _ in 0..RECEPTIONS_PER_TURN {
            let mut state = self.hop.lock();
            let (sources, counters) = (&mut self.sources, &self.counters);
            let taken = self.link.receive(&mut self.reception, |from, ours, datagram| {
                counters.datagrams_received.increment();
                let session = state.endpoint.handle_datagram(now, from, datagram);
                sources.remember(from, ours, session);
            });
            match taken {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An ICMP error of some earlier datagram: not ours to judge.
                Err(error) => {
                    self.counters.socket_errors.increment();
                    self.complaint.tell(now, &format!("cannot receive: {error}"));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Tells whoever operates the gateway what has happened outside sessions.
fn tell(notice: &Notice, counters: &Counters) {
    if matches!(notice, Notice::SharedKey { .. }) {
        counters.shared_keys.increment();
    }
    tracing::warn!("{notice}");
}

/// Keeps a lasting fault from filling the log.
#[derive(Default)]
struct Complaint {
    last: Option<Instant>,
}

impl Complaint {
    fn tell(&mut self, now: Instant, what: &str) {
        if self.last.is_none_or(|last| now.saturating_since(last) >= COMPLAINT_INTERVAL) {
            tracing::warn!("UDP socket: {what}");
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use slacp::PublicKey;

    use super::*;

    #[test]
    fn two_machines_with_one_key_are_counted() {
        let (counters, at) = (Counters::default(), |port| SocketAddr::from(([192, 0, 2, 1], port)));
        let shared = Notice::SharedKey { key: PublicKey([1; 32]), served: at(1), refused: at(2) };
        for notice in [&shared, &Notice::Refused { parameter: 7 }, &shared] {
            tell(notice, &counters);
        }
        assert_eq!(counters.shared_keys.get(), 2);
    }
}
