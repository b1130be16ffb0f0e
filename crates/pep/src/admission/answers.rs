//! Detects that SYNs redirected to the gateway are never answered: a firewall or the kernel's bridge drops
//! them between the redirection and the listener. The interception rules are then in place but carry
//! nothing, and clients must pass unaccelerated.
//!
//! The evidence is a SYN that a client repeats while no SYN-ACK was sent to it in between. It counts for
//! that client, whose connections then pass. All clients pass on the evidence of [`CLIENTS_FOR_ALL`] clients, if
//! no client was answered meanwhile: a single host can send SYNs that the kernel does not answer (a wrong
//! checksum, an impossible source), and bare SYNs by the thousand, but an answered SYN proves that
//! interception works.
//!
//! Not modelled: answers lost on their way to the client, which no gateway sees.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use units::Instant;

use crate::traffic::Prefix;

/// A SYN that arrives again after at least this time was retransmitted. Systems wait 1 s or longer (RFC
/// 6298 §2.1); copies made by the network arrive together.
const AGAIN: Duration = Duration::from_millis(800);
/// Time allowed for the answer to the retransmitted SYN and for its report.
const GRACE: Duration = Duration::from_millis(400);
/// A SYN that is not retransmitted within this time is forgotten; clients double their time-outs from 1 s.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// Number of clients whose evidence counts for all.
const CLIENTS_FOR_ALL: usize = 3;
/// First period for which clients pass. It doubles up to `LONGEST` while interception stays broken.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(960);
/// Most unanswered SYNs and clients that are remembered. Others are intercepted as before.
const MOST_SYNS: usize = 4096;
const MOST_CLIENTS: usize = 64;

/// Source and destination of a connection.
type Ends = (SocketAddr, SocketAddr);

/// Watches which SYNs are answered.
#[derive(Debug, Default)]
pub struct AnswerWatch {
    pending: BTreeMap<Ends, PendingAnswer>,
    clients: BTreeMap<ClientNetwork, UnansweredClient>,
    /// Time of the last answer to any client.
    answered: Option<Instant>,
    /// End and length of the last period for which all clients passed.
    everyone: Option<(Instant, Duration)>,
    /// Clients that the interception lets pass, as last reported.
    known: Vec<Prefix>,
    pause: Option<Duration>,
    /// Time at which a SYN is judged or forgotten, or a client's period ends.
    due: Option<Instant>,
}

/// A SYN that was not answered yet.
#[derive(Debug)]
struct PendingAnswer {
    first: Instant,
    repeated: Option<Instant>,
}

impl PendingAnswer {
    /// Time at which it is judged or forgotten.
    fn due(&self) -> Instant {
        self.repeated.map_or(self.first + FORGOTTEN, |at| at + GRACE)
    }
}

/// Address of a client, or its IPv6 /64: hosts change the rest of their addresses.
type ClientNetwork = (IpAddr, u8);

/// A client whose SYNs were not answered.
#[derive(Debug)]
struct UnansweredClient {
    /// Arrival of the SYN that was not answered.
    since: Instant,
    /// End and length of the period for which the client passes.
    until: Instant,
    lasting: Duration,
}

impl AnswerWatch {
    /// Handles a client's SYN that was redirected.
    pub fn handle_syn(&mut self, now: Instant, source: SocketAddr, destination: SocketAddr) {
        let ends = (source, destination);
        // A flood of SYNs only costs its own clients the watch.
        if self.pending.len() >= MOST_SYNS && !self.pending.contains_key(&ends) {
            return;
        }
        let pending =
            self.pending.entry(ends).or_insert(PendingAnswer { first: now, repeated: None });
        if now >= pending.first + AGAIN && pending.repeated.is_none() {
            pending.repeated = Some(now);
        }
        let due = pending.due();
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Handles an answer to a SYN of `source`, sent from the address `destination`.
    pub fn handle_answer(&mut self, now: Instant, source: SocketAddr, destination: SocketAddr) {
        self.answered = Some(now);
        self.pending.remove(&(source, destination));
    }

    /// Forgets the pending SYNs: some answers may have been missed.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    /// Starts anew, because everything may have changed.
    pub fn reset(&mut self) {
        let known = std::mem::take(&mut self.known);
        *self = Self { known, ..Self::default() };
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Judges the SYNs whose time for an answer has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.judge(now);
        let pending = self.pending.values().map(PendingAnswer::due);
        // Also when a period ends, so that the owner takes the client out of the interception.
        let ends = self.clients.values().map(|client| client.until).filter(|until| *until > now);
        self.due = pending.chain(ends).min();
    }

    fn judge(&mut self, now: Instant) {
        let due = self.pending.extract_if(.., |_, pending| pending.due() <= now);
        let repeated = due.filter(|(_, pending)| pending.repeated.is_some());
        let complaints: Vec<(IpAddr, Instant)> =
            repeated.map(|((source, _), pending)| (source.ip(), pending.first)).collect();
        // Kept for another period, so that a client that is still not answered passes for longer.
        self.clients.retain(|_, client| client.until + client.lasting > now);
        let has_complaints = !complaints.is_empty();
        for (client, since) in complaints {
            self.pass_client(now, client, since);
        }
        if has_complaints {
            self.judge_everyone(now);
        }
    }

    fn pass_client(&mut self, now: Instant, client: IpAddr, since: Instant) {
        let network = network_of(client);
        if self.clients.len() >= MOST_CLIENTS && !self.clients.contains_key(&network) {
            return;
        }
        let fresh = UnansweredClient { since, until: now, lasting: FIRST };
        let client = self.clients.entry(network).and_modify(|client| {
            // The client was intercepted again after its period, and still not answered.
            if client.until <= now {
                client.lasting = (client.lasting * 2).min(LONGEST);
                client.since = since;
            }
        });
        let client = client.or_insert(fresh);
        client.until = now + client.lasting;
    }

    fn judge_everyone(&mut self, now: Instant) {
        let mut complaints: Vec<Instant> = self
            .clients
            .values()
            .filter(|client| client.until > now)
            .map(|client| client.since)
            .collect();
        complaints.sort_unstable();
        // The earliest of the latest complaints: clients that complained before may have been answered
        // since.
        let several = complaints.iter().rev().nth(CLIENTS_FOR_ALL - 1);
        let Some(since) = several.filter(|since| self.answered.is_none_or(|at| at < **since))
        else {
            return;
        };
        let lasting = match self.everyone {
            Some((until, _)) if until > now => return,
            Some((until, lasting)) if until + lasting > *since => (lasting * 2).min(LONGEST),
            _ => FIRST,
        };
        self.everyone = Some((now + lasting, lasting));
        self.pause = Some(lasting);
    }

    /// Takes the period for which all clients pass from now on; it is returned once.
    pub fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    /// The clients to let pass, if the list has changed since the last call.
    pub fn take_change(&mut self, now: Instant) -> Option<Vec<Prefix>> {
        let passing = self.clients.iter().filter(|(_, client)| client.until > now);
        let passing: Vec<Prefix> = passing
            .filter_map(|((address, length), _)| Prefix::around(*address, *length))
            .collect();
        // Each change rebuilds the interception table.
        if passing == self.known {
            return None;
        }
        self.known.clone_from(&passing);
        Some(passing)
    }

    /// Number of clients that pass now.
    pub fn clients(&self) -> usize {
        self.known.len()
    }
}

fn network_of(client: IpAddr) -> ClientNetwork {
    let client = client.to_canonical();
    let length = if client.is_ipv4() { 32 } else { 64 };
    let network = Prefix::around(client, length).map_or(client, Prefix::address);
    (network, length)
}

#[cfg(test)]
mod tests;
