//! Drives a DLEP router with the wall clock and sockets.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use config::{DlepConfig, Modem};
use os::Timer;
use pep::dlep::{Output, Phase, Report, Router, Wanted};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use units::Machine;

use super::signals::{self, Signals};
use crate::clock;
use crate::hop::Demand;

/// Size of the read buffer, in bytes.
const READ: usize = 16 << 10;

/// The task that talks to the modem.
pub(super) struct Driver {
    config: DlepConfig,
    router: Router,
    signals: Option<Signals>,
    wire: Wire,
    timer: Timer,
    read: Box<[u8]>,
    report: watch::Sender<Report>,
    waiting: Option<watch::Receiver<Demand>>,
    stop: Arc<Notify>,
}

type Opening = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The TCP connection with the modem.
enum Wire {
    None,
    Opening(Opening),
    /// With bytes that the kernel has not accepted yet. Nothing is read until they are sent.
    Open(TcpStream, Vec<u8>),
}

/// Events that the driver waits for.
enum DriverEvent {
    Time,
    Offer(SocketAddr, Vec<u8>),
    NoOffers,
    Opened(io::Result<TcpStream>),
    Read(usize),
    Closed(String),
    Waiting(Option<Demand>),
    Stop,
}

impl Driver {
    /// Creates a driver that publishes to `report`, asks for what is `waiting`, and runs until
    /// `stop`.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(super) fn new(
        config: DlepConfig,
        report: watch::Sender<Report>,
        waiting: watch::Receiver<Demand>,
        stop: Arc<Notify>,
    ) -> io::Result<Self> {
        let configured = match &config.modem {
            Modem::At(modem) => Some(*modem),
            Modem::Discover(_) => None,
        };
        Ok(Self {
            router: Router::new(clock::now(), configured, config.heartbeat),
            config,
            signals: None,
            wire: Wire::None,
            timer: Timer::new()?,
            read: vec![0; READ].into(),
            report,
            waiting: Some(waiting),
            stop,
        })
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// If the timer fails.
    pub(super) async fn run(mut self) -> io::Result<()> {
        loop {
            self.router.handle_timeout(clock::now());
            while let Some(output) = self.router.poll_output() {
                self.act(output);
            }
            if let Some(report) = self.router.poll_report() {
                log_changes(&self.report.borrow(), &report);
                let is_over = report.phase == Phase::Stopped;
                self.report.send_replace(report);
                if is_over {
                    return Ok(());
                }
            }
            self.timer.set(self.router.poll_timeout().map(|(at, _)| at))?;
            let event = self.wait().await?;
            self.handle(event);
            // A modem may send without end: other tasks of the thread go first.
            tokio::task::yield_now().await;
        }
    }

    async fn wait(&mut self) -> io::Result<DriverEvent> {
        let offers = self.signals.as_ref().filter(|_| self.router.wants_offers());
        Ok(tokio::select! {
            expired = self.timer.expired() => expired.map(|()| DriverEvent::Time)?,
            event = next_offer(offers) => event,
            event = self.wire.next(&mut self.read) => event,
            event = next_waiting(self.waiting.as_mut()) => event,
            () = self.stop.notified() => DriverEvent::Stop,
        })
    }

    fn handle(&mut self, event: DriverEvent) {
        let now = clock::now();
        match event {
            DriverEvent::Time => {}
            DriverEvent::Offer(from, datagram) => self.router.handle_offer(now, from, &datagram),
            DriverEvent::NoOffers => self.signals = None,
            DriverEvent::Opened(Ok(stream)) => {
                self.wire = Wire::Open(stream, Vec::new());
                self.router.handle_connected(now);
            }
            DriverEvent::Opened(Err(error)) => self.end(&error.to_string()),
            DriverEvent::Read(length) => self.router.handle_bytes(now, &self.read[..length]),
            DriverEvent::Closed(why) => self.end(&why),
            DriverEvent::Waiting(Some(demand)) => {
                self.router.request(Wanted::of(demand.waiting, demand.foreseen));
            }
            DriverEvent::Waiting(None) => self.waiting = None,
            DriverEvent::Stop => self.router.stop(now),
        }
    }

    fn end(&mut self, why: &str) {
        self.wire = Wire::None;
        self.router.handle_closed(clock::now(), why);
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Signal(signal) => {
                if let Err(error) = self.send_signal(&signal) {
                    // The next signal opens them again: the interface may have been made anew.
                    self.signals = None;
                    self.router.note(&format!("cannot look for a modem: {error}"));
                }
            }
            Output::Connect(modem) => {
                self.signals = None;
                let interface = match &self.config.modem {
                    Modem::Discover(interface) => Some(interface.clone()),
                    Modem::At(_) => None,
                };
                let (gtsm, heartbeat) = (self.config.gtsm, self.config.heartbeat);
                let opening = signals::connect(modem, interface, gtsm, heartbeat);
                self.wire = Wire::Opening(Box::pin(opening));
            }
            Output::Send(bytes) => self.wire.send(&bytes),
            Output::Close => self.wire = Wire::None,
        }
    }

    fn send_signal(&mut self, signal: &[u8]) -> io::Result<()> {
        let Modem::Discover(interface) = &self.config.modem else { return Ok(()) };
        if self.signals.is_none() {
            self.signals = Some(Signals::open(interface, self.config.gtsm)?);
        }
        self.signals.as_ref().map_or(Ok(()), |signals| signals.send(signal))
    }
}

/// Waits for new queue lengths; `None` in the event if there will be no more. Cancel-safe.
async fn next_waiting(waiting: Option<&mut watch::Receiver<Demand>>) -> DriverEvent {
    match waiting {
        None => std::future::pending().await,
        Some(waiting) => {
            let more = waiting.changed().await.is_ok();
            DriverEvent::Waiting(more.then(|| *waiting.borrow_and_update()))
        }
    }
}

async fn next_offer(signals: Option<&Signals>) -> DriverEvent {
    match signals {
        None => std::future::pending().await,
        Some(signals) => match signals.next().await {
            Ok((from, datagram)) => DriverEvent::Offer(from, datagram),
            Err(_) => DriverEvent::NoOffers,
        },
    }
}

impl Wire {
    /// Waits for the next event. Cancel-safe.
    async fn next(&mut self, read: &mut [u8]) -> DriverEvent {
        match self {
            Self::None => std::future::pending().await,
            Self::Opening(opening) => DriverEvent::Opened(opening.await),
            Self::Open(stream, unsent) => loop {
                if let Err(error) = flush(stream, unsent) {
                    return DriverEvent::Closed(error.to_string());
                }
                let ready = match unsent.is_empty() {
                    true => stream.readable().await,
                    false => stream.writable().await,
                };
                if let Err(error) = ready {
                    return DriverEvent::Closed(error.to_string());
                }
                if !unsent.is_empty() {
                    continue;
                }
                match stream.try_read(read) {
                    Ok(0) => return DriverEvent::Closed("by the modem".to_owned()),
                    Ok(length) => return DriverEvent::Read(length),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return DriverEvent::Closed(error.to_string()),
                }
            },
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Self::Open(stream, unsent) = self {
            unsent.extend(bytes);
            // Reading will report the failure.
            let _ = flush(stream, unsent);
        }
    }
}

/// Writes as much as the kernel accepts.
fn flush(stream: &TcpStream, unsent: &mut Vec<u8>) -> io::Result<()> {
    while !unsent.is_empty() {
        match stream.try_write(unsent) {
            Ok(length) => drop(unsent.drain(..length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Logs changes of the session.
fn log_changes(before: &Report, now: &Report) {
    match (before.phase, now.phase, now.modem) {
        (was, Phase::Up, Some(modem)) if was != Phase::Up => {
            tracing::info!("the modem at {modem} ({}) reports its rate (DLEP)", now.peer_type);
        }
        (Phase::Up, phase, _) if phase != Phase::Up => {
            let why = now.trouble.as_deref().unwrap_or("no reason given");
            tracing::warn!("the modem no longer reports a rate: {why}");
        }
        _ if now.trouble.is_some() && now.trouble != before.trouble => {
            let why = now.trouble.as_deref().unwrap_or_default();
            tracing::warn!("no DLEP session with a modem: {why}");
        }
        _ => {}
    }
}
