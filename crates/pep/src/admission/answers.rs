//! Notices that SYNs which were redirected to the gateway are never answered: something between the
//! redirection and the listener drops them (a firewall, the kernel's bridge). Its rules are in place then,
//! but carry nothing, and clients must pass unaccelerated instead.
//!
//! A client's word is a SYN that it repeats while no SYN-ACK was sent to it in between. It counts for the
//! client itself, which passes from then on. All clients pass on the word of [`SEVERAL`], if nobody was
//! answered meanwhile: one host can make SYNs that the kernel does not answer (a wrong checksum, an
//! impossible source), and bare SYNs by the thousand, but those that are answered prove that all is well.
//!
//! Not modelled: answers that are lost on their way to the client, which no gateway sees.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use units::Instant;

use crate::traffic::Prefix;

/// A SYN is repeated if it comes again after this time. Systems wait 1 s or longer (RFC 6298 §2.1); two
/// copies of one SYN, as some networks make, arrive together.
const AGAIN: Duration = Duration::from_millis(800);
/// Time for the answer to the repeated SYN, and for the report of it.
const GRACE: Duration = Duration::from_millis(400);
/// A SYN that is not repeated within this time is forgotten; clients double their pauses from 1 s.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// Clients whose word counts for all.
const SEVERAL: usize = 3;
/// First time for which clients pass. Doubles if nothing has changed after it, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(960);
/// Most SYNs without an answer to remember, and most clients. Others are intercepted as ever.
const MOST_SYNS: usize = 4096;
const MOST_CLIENTS: usize = 64;

/// Source and destination of a connection.
type Ends = (SocketAddr, SocketAddr);

/// Watches which SYNs are answered.
#[derive(Debug, Default)]
pub struct AnswerWatch {
    pending: BTreeMap<Ends, PendingAnswer>,
    clients: BTreeMap<ClientNetwork, Unanswered>,
    /// When an answer was last sent to anybody.
    answered: Option<Instant>,
    /// End of the last time for which all clients passed, and its length.
    everyone: Option<(Instant, Duration)>,
    /// The clients that the interception knows.
    known: Vec<Prefix>,
    pause: Option<Duration>,
    /// When the next SYN is to be judged or forgotten, or the next client's time ends.
    due: Option<Instant>,
}

/// A SYN without an answer.
#[derive(Debug)]
struct PendingAnswer {
    first: Instant,
    repeated: Option<Instant>,
}

impl PendingAnswer {
    /// When it is judged, or forgotten.
    fn due(&self) -> Instant {
        self.repeated.map_or(self.first + FORGOTTEN, |at| at + GRACE)
    }
}

/// A client's address, or its /64 of IPv6: hosts change the rest of it.
type ClientNetwork = (IpAddr, u8);

/// A client that was not answered.
#[derive(Debug)]
struct Unanswered {
    /// When its SYN came that was not answered.
    since: Instant,
    /// End of the time for which it passes, and its length.
    until: Instant,
    lasting: Duration,
}

impl AnswerWatch {
    /// A SYN from a client was redirected.
    pub fn handle_syn(&mut self, now: Instant, source: SocketAddr, destination: SocketAddr) {
        let ends = (source, destination);
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

    /// A SYN of `source` was answered in the name of `destination`.
    pub fn handle_answer(&mut self, now: Instant, source: SocketAddr, destination: SocketAddr) {
        self.answered = Some(now);
        self.pending.remove(&(source, destination));
    }

    /// Some answers were not seen, so nothing follows from their absence.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    /// Everything may have changed: begins anew.
    pub fn reset(&mut self) {
        let known = std::mem::take(&mut self.known);
        *self = Self { known, ..Self::default() };
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Judges the SYNs that had time for an answer.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.judge(now);
        let pending = self.pending.values().map(PendingAnswer::due);
        let ends = self.clients.values().map(|client| client.until).filter(|until| *until > now);
        self.due = pending.chain(ends).min();
    }

    fn judge(&mut self, now: Instant) {
        let due = self.pending.extract_if(.., |_, pending| pending.due() <= now);
        let repeated = due.filter(|(_, pending)| pending.repeated.is_some());
        let complaints: Vec<(IpAddr, Instant)> =
            repeated.map(|((source, _), pending)| (source.ip(), pending.first)).collect();
        self.clients.retain(|_, client| client.until + client.lasting > now);
        let has_complaints = !complaints.is_empty();
        for (client, since) in complaints {
            self.let_pass(now, client, since);
        }
        if has_complaints {
            self.judge_everyone(now);
        }
    }

    fn let_pass(&mut self, now: Instant, client: IpAddr, since: Instant) {
        let network = network_of(client);
        if self.clients.len() >= MOST_CLIENTS && !self.clients.contains_key(&network) {
            return;
        }
        let fresh = Unanswered { since, until: now, lasting: FIRST };
        let client = self.clients.entry(network).and_modify(|client| {
            // It was intercepted again, in vain.
            if client.until <= now {
                client.lasting = (client.lasting * 2).min(LONGEST);
                client.since = since;
            }
        });
        let client = client.or_insert(fresh);
        client.until = now + client.lasting;
    }

    fn judge_everyone(&mut self, now: Instant) {
        let mut complaints: Vec<Instant> =
            self.clients.values().filter(|it| it.until > now).map(|it| it.since).collect();
        complaints.sort_unstable();
        // The latest of them: earlier clients may have been told otherwise since.
        let several = complaints.iter().rev().nth(SEVERAL - 1);
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

    /// For how long all clients are to pass from now on, once.
    pub fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    /// The clients to let pass, if they have changed since the last call.
    pub fn take_change(&mut self, now: Instant) -> Option<Vec<Prefix>> {
        let passing = self.clients.iter().filter(|(_, client)| client.until > now);
        let passing: Vec<Prefix> = passing
            .filter_map(|((address, length), _)| Prefix::around(*address, *length))
            .collect();
        if passing == self.known {
            return None;
        }
        self.known.clone_from(&passing);
        Some(passing)
    }

    /// Number of clients that pass.
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
