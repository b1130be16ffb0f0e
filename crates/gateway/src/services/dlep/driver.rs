//! Drives a DLEP router with the wall clock and sockets.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use config::{DlepConfig, ModemLocation};
use os::Timer;
use pep::dlep::{CapacityRequest, DlepOutput, DlepPhase, DlepReport, Router};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use units::Machine;

use super::signals::{self, SignalSockets};
use crate::hop::CapacityDemand;
use crate::process::clock;

/// Size of the read buffer, in bytes.
const READ_SIZE: usize = 16 << 10;

/// The task that talks to the modem.
pub(super) struct DlepDriver {
    config: DlepConfig,
    router: Router,
    signals: Option<SignalSockets>,
    wire: ModemConnection,
    timer: Timer,
    read: Box<[u8]>,
    report: watch::Sender<DlepReport>,
    waiting: Option<watch::Receiver<CapacityDemand>>,
    stop: Arc<Notify>,
}

type PendingConnection = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The TCP connection with the modem.
enum ModemConnection {
    None,
    Opening(PendingConnection),
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
    Waiting(Option<CapacityDemand>),
    Stop,
}

impl DlepDriver {
    /// Creates a driver that publishes to `report`, asks for what is `waiting`, and runs until
    /// `stop`.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(super) fn new(
        config: DlepConfig,
        report: watch::Sender<DlepReport>,
        waiting: watch::Receiver<CapacityDemand>,
        stop: Arc<Notify>,
    ) -> io::Result<Self> {
        let configured = match &config.modem {
            ModemLocation::At(modem) => Some(*modem),
            ModemLocation::Discover(_) => None,
        };
        Ok(Self {
            router: Router::new(clock::now(), configured, config.heartbeat),
            config,
            signals: None,
            wire: ModemConnection::None,
            timer: Timer::new()?,
            read: vec![0; READ_SIZE].into(),
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
                self.carry_out(output);
            }
            if let Some(report) = self.router.poll_report() {
                log_changes(&self.report.borrow(), &report);
                let is_over = report.phase == DlepPhase::Stopped;
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
            // As after a failure to send: the next signal opens the sockets again.
            DriverEvent::NoOffers => self.signals = None,
            DriverEvent::Opened(Ok(stream)) => {
                self.wire = ModemConnection::Open(stream, Vec::new());
                self.router.handle_connected(now);
            }
            DriverEvent::Opened(Err(error)) => self.end(&error.to_string()),
            DriverEvent::Read(length) => self.router.handle_bytes(now, &self.read[..length]),
            DriverEvent::Closed(why) => self.end(&why),
            DriverEvent::Waiting(Some(demand)) => {
                self.router.request(CapacityRequest::of(demand.waiting, demand.foreseen));
            }
            DriverEvent::Waiting(None) => self.waiting = None,
            DriverEvent::Stop => self.router.stop(now),
        }
    }

    fn end(&mut self, why: &str) {
        self.wire = ModemConnection::None;
        self.router.handle_closed(clock::now(), why);
    }

    fn carry_out(&mut self, output: DlepOutput) {
        match output {
            DlepOutput::Signal(signal) => {
                if let Err(error) = self.send_signal(&signal) {
                    // The next signal opens them again: the interface may have been made anew.
                    self.signals = None;
                    self.router.record_trouble(&format!("cannot look for a modem: {error}"));
                }
            }
            DlepOutput::Connect(modem) => {
                self.signals = None;
                let interface = match &self.config.modem {
                    ModemLocation::Discover(interface) => Some(interface.clone()),
                    ModemLocation::At(_) => None,
                };
                let DlepConfig { gtsm, heartbeat, .. } = self.config;
                let opening = signals::connect(modem, interface, gtsm, heartbeat);
                self.wire = ModemConnection::Opening(Box::pin(opening));
            }
            DlepOutput::Send(bytes) => self.wire.send(&bytes),
            DlepOutput::Close => self.wire = ModemConnection::None,
        }
    }

    fn send_signal(&mut self, signal: &[u8]) -> io::Result<()> {
        let ModemLocation::Discover(interface) = &self.config.modem else { return Ok(()) };
        // At the first signal, and again after a failure.
        if self.signals.is_none() {
            self.signals = Some(SignalSockets::open(interface, self.config.gtsm)?);
        }
        self.signals.as_ref().map_or(Ok(()), |signals| signals.send(signal))
    }
}

/// Waits for new queue lengths; `None` in the event if there will be no more. Cancel-safe.
async fn next_waiting(waiting: Option<&mut watch::Receiver<CapacityDemand>>) -> DriverEvent {
    match waiting {
        None => std::future::pending().await,
        Some(waiting) => {
            let more = waiting.changed().await.is_ok();
            DriverEvent::Waiting(more.then(|| *waiting.borrow_and_update()))
        }
    }
}

async fn next_offer(signals: Option<&SignalSockets>) -> DriverEvent {
    match signals {
        None => std::future::pending().await,
        Some(signals) => match signals.next().await {
            Ok((from, datagram)) => DriverEvent::Offer(from, datagram),
            Err(_) => DriverEvent::NoOffers,
        },
    }
}

impl ModemConnection {
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
                // What the modem sends meanwhile waits in the kernel.
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
fn log_changes(before: &DlepReport, now: &DlepReport) {
    match (before.phase, now.phase, now.modem) {
        (was, DlepPhase::Up, Some(modem)) if was != DlepPhase::Up => {
            tracing::info!("the modem at {modem} ({}) reports its rate (DLEP)", now.peer_type);
        }
        (DlepPhase::Up, phase, _) if phase != DlepPhase::Up => {
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
