//! What carries a terminal's packets to its hub: UDP, or TCP where UDP is blocked.
//!
//! A hub that does not answer may be blocked, out of sight (a fade), or down. Only TCP that connects
//! tells them apart, so this is tried after 2 s, and again as long as the silence lasts. A connection
//! on which the hub is silent for longer is replaced. On TCP, UDP is asked now and then, beside the session, and taken back when it answers. While nothing
//! answers, nothing changes: a fade costs neither a session nor its carrier. When another process takes the hub's place, a
//! connection to it is made at once.
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

/// How long a hub is silent before TCP is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a hub is silent on a connection before another is tried: longer than TCP takes to repair
/// a loss whose repair was lost, too, over 600 ms. Doubled for each connection on which it stays
/// silent, because what was on its way there is lost, and the hub has to find the terminal again.
const TCP_PATIENCE: Duration = Duration::from_secs(8);
const TCP_PATIENCE_MOST: Duration = Duration::from_secs(60);
/// Pauses between attempts to connect, which double while they fail.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// Pauses between questions over UDP, which double while they stay unanswered.
const ASK_FIRST: Duration = Duration::from_secs(5);
const ASK_MOST: Duration = Duration::from_secs(300);
/// UDP that carried for this long without silence counts as open again.
const STEADY: Duration = Duration::from_secs(300);

/// What carries the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carriage {
    /// Datagrams.
    #[default]
    Udp,
    /// Frames on a TCP connection.
    Tcp,
}

/// What the owner has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Connect to the hub, then call [`Fallback::handle_connected`] or
    /// [`Fallback::handle_refused`].
    Connect,
    /// Ask the hub over UDP whether it answers, beside the session, then call
    /// [`Fallback::handle_asked`].
    Ask,
    /// Send the session's packets this way from now on. For [`Carriage::Tcp`] that is the newest
    /// connection; all others are closed.
    Use(Carriage),
}

/// Decides what carries a terminal's packets.
///
/// After each input, and when [`Self::poll_timeout`] has come, drain [`Self::poll_step`].
#[derive(Debug)]
pub struct Fallback {
    carriage: Carriage,
    /// Since when the hub has not answered.
    silent: Option<Instant>,
    /// Whether a connection is being set up.
    connecting: bool,
    /// Whether the present connection leads to a process that has a successor.
    outdated: bool,
    /// The earliest time of the next attempt to connect.
    connect_at: Instant,
    retry: Duration,
    /// How long the hub may be silent on this connection.
    patience: Duration,
    /// When to ask over UDP; `None` on UDP, or while the question is out.
    ask_at: Option<Instant>,
    ask: Duration,
    /// When UDP was taken back.
    returned: Option<Instant>,
    steps: VecDeque<Step>,
}

impl Fallback {
    /// Begins on UDP, with a hub that has not answered yet.
    pub fn new(now: Instant) -> Self {
        Self {
            carriage: Carriage::Udp,
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

    /// What carries the packets now.
    pub fn carriage(&self) -> Carriage {
        self.carriage
    }

    /// The hub no longer answers.
    pub fn handle_silence(&mut self, now: Instant) {
        self.silent.get_or_insert(now);
    }

    /// The hub answers.
    pub fn handle_answer(&mut self, now: Instant) {
        (self.silent, self.patience) = (None, TCP_PATIENCE);
        (self.connect_at, self.retry) = (now, RETRY_FIRST);
    }

    /// Another process takes the place of the hub's, whose sessions stay on the present connection. Returns
    /// whether there is one, so that a new one is needed.
    pub fn handle_successor(&mut self, now: Instant) -> bool {
        self.outdated = self.carriage == Carriage::Tcp;
        if self.outdated {
            (self.connect_at, self.retry) = (now, RETRY_FIRST);
        }
        self.outdated
    }

    /// A connection to the hub is open.
    pub fn handle_connected(&mut self, now: Instant) {
        self.connecting = false;
        if core::mem::take(&mut self.outdated) {
            self.silent = Some(now);
            return self.steps.push_back(Step::Use(Carriage::Tcp));
        }
        if self.silent.is_none() {
            // It answered meanwhile.
            return self.steps.push_back(Step::Use(self.carriage));
        }
        if self.carriage == Carriage::Udp {
            let was_open = |returned| now.saturating_since(returned) >= STEADY;
            if self.returned.is_none_or(was_open) {
                self.ask = ASK_FIRST;
            }
            self.ask_at = Some(now + self.ask);
        } else {
            self.patience = (self.patience * 2).min(TCP_PATIENCE_MOST);
        }
        self.carriage = Carriage::Tcp;
        // It is to answer over this connection now.
        (self.silent, self.connect_at) = (Some(now), now + self.retry);
        self.steps.push_back(Step::Use(Carriage::Tcp));
    }

    /// The hub could not be connected to.
    pub fn handle_refused(&mut self, now: Instant) {
        self.connecting = false;
        self.pause(now);
    }

    /// The connection that carried the packets has ended.
    pub fn handle_ended(&mut self, now: Instant) {
        if self.carriage == Carriage::Udp {
            return;
        }
        (self.carriage, self.ask_at, self.outdated) = (Carriage::Udp, None, false);
        self.handle_silence(now);
        self.pause(now);
        self.steps.push_back(Step::Use(Carriage::Udp));
    }

    /// The hub was asked over UDP.
    pub fn handle_asked(&mut self, now: Instant, answered: bool) {
        if self.carriage == Carriage::Udp {
            return;
        }
        self.ask = (self.ask * 2).min(ASK_MOST);
        if !answered {
            self.ask_at = Some(now + self.ask);
            return;
        }
        (self.carriage, self.returned, self.outdated) = (Carriage::Udp, Some(now), false);
        self.steps.push_back(Step::Use(Carriage::Udp));
    }

    /// When to call [`Self::poll_step`] without another input.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.connect_due(), self.ask_at].into_iter().flatten().min()
    }

    /// The next step, if one is due.
    pub fn poll_step(&mut self, now: Instant) -> Option<Step> {
        if self.connect_due().is_some_and(|at| at <= now) {
            self.connecting = true;
            return Some(Step::Connect);
        }
        if self.ask_at.take_if(|at| *at <= now).is_some() {
            return Some(Step::Ask);
        }
        self.steps.pop_front()
    }

    /// When to connect, if the hub stays silent until then.
    fn connect_due(&self) -> Option<Instant> {
        if self.outdated && !self.connecting {
            return Some(self.connect_at);
        }
        let silent = self.silent.filter(|_| !self.connecting)?;
        let patience = match self.carriage {
            Carriage::Udp => PATIENCE,
            Carriage::Tcp => self.patience,
        };
        Some((silent + patience).max(self.connect_at))
    }

    fn pause(&mut self, now: Instant) {
        self.connect_at = now + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MOST);
    }
}
