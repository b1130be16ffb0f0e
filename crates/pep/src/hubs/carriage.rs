//! Chooses what carries a terminal's packets to its hub: UDP, or TCP where UDP is blocked.
//!
//! A hub that does not answer may be blocked, out of sight (a fade) or down. Only a TCP connection that is
//! accepted tells these apart, so one is tried after 2 s, and again as long as the silence lasts. A
//! connection on which the hub is silent for longer is replaced. On TCP, UDP is tested from time to time
//! beside the session, and used again when it answers. While nothing answers, nothing changes: a fade costs
//! neither the session nor its carrier. When another process takes the hub's place, a connection to it is
//! made at once.
//!
//! ```text
//!          silent for 2 s, and TCP connects
//!      ┌──────────────────────────────────────┐
//!  ┌───┴─┐                                 ┌──▼──┐
//!  │ UDP │                                 │ TCP ├──┐ silent for 8 s, and another
//!  └───▲─┘                                 └──┬▲─┘  │ connection is accepted
//!      └──────────────────────────────────────┘└────┘
//!        UDP answers, or the connection ends
//! ```
//!
//! Not modelled: a path on which UDP is slow instead of blocked.

pub mod control;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

/// Silence of the hub after which TCP is tried.
const UDP_PATIENCE: Duration = Duration::from_secs(2);
/// Silence on a connection after which another is tried: longer than TCP takes to repair a loss whose
/// repair was also lost, over 600 ms. It doubles with each connection that stays silent, because packets
/// under way on it are lost and the hub has to find the terminal again.
const TCP_PATIENCE: Duration = Duration::from_secs(8);
const TCP_PATIENCE_MOST: Duration = Duration::from_secs(60);
/// First and longest pause between attempts to connect; pauses double while they fail.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// First and longest pause between tests of UDP; pauses double while they fail.
const ASK_FIRST: Duration = Duration::from_secs(5);
const ASK_MOST: Duration = Duration::from_secs(300);
/// UDP that has worked for this long counts as unblocked again.
const STEADY: Duration = Duration::from_secs(300);

/// Transport below the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HopTransport {
    /// UDP datagrams, one for each packet of the session.
    #[default]
    Udp,
    /// Frames on a TCP connection.
    Tcp,
}

/// Action for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackStep {
    /// Connect to the hub, then call [`TransportFallback::handle_connected`] or
    /// [`TransportFallback::handle_refused`].
    Connect,
    /// Test over UDP, beside the session, whether the hub answers; then call [`TransportFallback::handle_asked`].
    Ask,
    /// Send the session's packets by this transport from now on. [`HopTransport::Tcp`] means the newest
    /// connection; all others are closed.
    Use(HopTransport),
}

/// State machine that chooses the transport.
///
/// After each input, and when [`Self::poll_timeout`] has come, drain [`Self::poll_step`].
#[derive(Debug)]
pub struct TransportFallback {
    carriage: HopTransport,
    /// Start of the hub's silence; `None` while it answers.
    silent: Option<Instant>,
    /// `true` while a connection is being set up.
    connecting: bool,
    /// `true` if the current connection leads to a process that has a successor.
    outdated: bool,
    /// Earliest time of the next attempt to connect.
    connect_at: Instant,
    retry: Duration,
    /// Silence permitted on this connection.
    patience: Duration,
    /// Time of the next test of UDP; `None` on UDP, or while a test is running.
    ask_at: Option<Instant>,
    ask: Duration,
    /// Time at which UDP was used again.
    returned: Option<Instant>,
    steps: VecDeque<FallbackStep>,
}

impl TransportFallback {
    /// Starts on UDP with a hub that has not answered yet.
    pub fn new(now: Instant) -> Self {
        Self {
            carriage: HopTransport::Udp,
            silent: Some(now),
            connecting: false,
            outdated: false,
            connect_at: now,
            retry: RETRY_FIRST,
            patience: TCP_PATIENCE,
            ask_at: None,
            ask: ASK_FIRST,
            returned: None,
            steps: VecDeque::new(),
        }
    }

    /// The transport that carries the session's packets now.
    pub fn carriage(&self) -> HopTransport {
        self.carriage
    }

    /// Handles the start of the hub's silence.
    pub fn handle_silence(&mut self, now: Instant) {
        self.silent.get_or_insert(now);
    }

    /// Handles an answer of the hub.
    pub fn handle_answer(&mut self, now: Instant) {
        (self.silent, self.patience) = (None, TCP_PATIENCE);
        (self.connect_at, self.retry) = (now, RETRY_FIRST);
    }

    /// Another process takes the place of the hub's, whose sessions stay on the current connection. Returns
    /// `true` on TCP: a new connection is needed.
    pub fn handle_successor(&mut self, now: Instant) -> bool {
        self.outdated = self.carriage == HopTransport::Tcp;
        if self.outdated {
            (self.connect_at, self.retry) = (now, RETRY_FIRST);
        }
        self.outdated
    }

    /// Handles a connection to the hub that was opened.
    pub fn handle_connected(&mut self, now: Instant) {
        self.connecting = false;
        // It leads to the successor, whose session the terminal needs; the hub itself has not failed.
        if core::mem::take(&mut self.outdated) {
            self.silent = Some(now);
            return self.steps.push_back(FallbackStep::Use(HopTransport::Tcp));
        }
        if self.silent.is_none() {
            // The hub answered while the connection was being set up, so the transport stays.
            return self.steps.push_back(FallbackStep::Use(self.carriage));
        }
        if self.carriage == HopTransport::Udp {
            // UDP that failed soon after it was used again is tested less and less often.
            let was_open = |returned| now.saturating_since(returned) >= STEADY;
            if self.returned.is_none_or(was_open) {
                self.ask = ASK_FIRST;
            }
            self.ask_at = Some(now + self.ask);
        } else {
            self.patience = (self.patience * 2).min(TCP_PATIENCE_MOST);
        }
        self.carriage = HopTransport::Tcp;
        // The hub has to answer over this connection now.
        (self.silent, self.connect_at) = (Some(now), now + self.retry);
        self.steps.push_back(FallbackStep::Use(HopTransport::Tcp));
    }

    /// Handles a failed attempt to connect.
    pub fn handle_refused(&mut self, now: Instant) {
        self.connecting = false;
        self.pause(now);
    }

    /// Handles the end of the connection that carried the packets.
    pub fn handle_ended(&mut self, now: Instant) {
        if self.carriage == HopTransport::Udp {
            return;
        }
        (self.carriage, self.ask_at, self.outdated) = (HopTransport::Udp, None, false);
        self.handle_silence(now);
        self.pause(now);
        self.steps.push_back(FallbackStep::Use(HopTransport::Udp));
    }

    /// Handles the result of a test of UDP.
    pub fn handle_asked(&mut self, now: Instant, answered: bool) {
        if self.carriage == HopTransport::Udp {
            return;
        }
        self.ask = (self.ask * 2).min(ASK_MOST);
        if !answered {
            self.ask_at = Some(now + self.ask);
            return;
        }
        // Over UDP the successor is reached without a connection of its own.
        (self.carriage, self.returned, self.outdated) = (HopTransport::Udp, Some(now), false);
        self.steps.push_back(FallbackStep::Use(HopTransport::Udp));
    }

    /// Time at which to call [`Self::poll_step`] without another input.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.connect_due(), self.ask_at].into_iter().flatten().min()
    }

    /// Returns the next step if one is due.
    pub fn poll_step(&mut self, now: Instant) -> Option<FallbackStep> {
        if self.connect_due().is_some_and(|at| at <= now) {
            self.connecting = true;
            return Some(FallbackStep::Connect);
        }
        if self.ask_at.take_if(|at| *at <= now).is_some() {
            return Some(FallbackStep::Ask);
        }
        self.steps.pop_front()
    }

    /// Time to connect if the hub stays silent until then.
    fn connect_due(&self) -> Option<Instant> {
        if self.outdated && !self.connecting {
            return Some(self.connect_at);
        }
        let silent = self.silent.filter(|_| !self.connecting)?;
        let patience = match self.carriage {
            HopTransport::Udp => UDP_PATIENCE,
            HopTransport::Tcp => self.patience,
        };
        Some((silent + patience).max(self.connect_at))
    }

    fn pause(&mut self, now: Instant) {
        self.connect_at = now + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MOST);
    }
}
