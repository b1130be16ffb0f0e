//! Chooses the hub that a terminal uses, and what carries packets to it ([`carriage`]).
//!
//! A terminal uses the first of its hubs in the order of [`ranking`]. It has sessions with others only
//! while it needs them:
//!
//! ```text
//!  in use     state                              the terminal
//!  ─────────  ─────────────────────────────────  ──────────────────────────────────────────────────
//!  answers                                       asks better-ranked hubs from time to time; one that stays
//!                                                up for a while gets new connections
//!  silent     no hub answers: a fade             keeps everything, and asks the others too
//!             another hub answers                asks the silent one once more; if it stays silent,
//!                                                moves over and gives up its connections
//!  leaves     (drain)                            asks the next; once that is up, new connections go
//!                                                there and the old ones end where they are
//!  gone       session over                       asks it and the next, and uses the first that is up
//! ```
//!
//! A hub that is left without having failed keeps its session until its last connection ends.
//!
//! A hub may be replaced by another process at its address. The terminal then has two sessions with it: the
//! one in use, and the *former* one, whose connections continue. The former process is given up when it
//! stays silent although the next one, at the same address, answers.
//!
//! Not modelled: the load of hubs (the ranking spreads terminals evenly) and differences in path quality:
//! all hubs that answer count as equal.

pub mod carriage;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use slacp::PublicKey;
use units::Instant;

/// Time to wait for a hub before the next one is asked as well. Longer than the slowest round trip, two
/// hops over geostationary satellites.
const STAGGER: Duration = Duration::from_secs(2);
/// Time for a silent hub to answer once more after another one has answered, in round trips of its session,
/// with a minimum: after a fade both are heard again, but not at the same moment.
const CHANCE_RTTS: f64 = 1.5;
const CHANCE_LEAST: Duration = Duration::from_millis(500);
/// Time for a better-ranked hub to answer when it is asked.
const ANSWER: Duration = Duration::from_secs(6);
/// First and longest pause between attempts at a better-ranked hub; pauses double while it does not answer.
const ASK_FIRST: Duration = Duration::from_secs(15);
const ASK_MOST: Duration = Duration::from_secs(300);
/// Time that a better-ranked hub must have been up before it is used again. It doubles each time that the
/// hub fails within [`FLAP`] of being used.
const STEADY_FIRST: Duration = Duration::from_secs(30);
const STEADY_MOST: Duration = Duration::from_secs(600);
const FLAP: Duration = Duration::from_secs(600);
/// Silence of a former process, while the next one answers, after which it is given up. After a fade both
/// are heard again, one of them at most two probes later.
const FORMER_SILENT: Duration = Duration::from_secs(10);
/// Shortest time that a former session is kept, even without connections: openings may be under way.
const FORMER_LEAST: Duration = Duration::from_secs(2);
/// Time during which a hub that has left is asked only if there is no other.
const LEFT: Duration = Duration::from_secs(10);

/// A hub by its index in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HubId(pub usize);

/// Order in which hubs are tried. Key `hub_order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HubOrder {
    /// By a rendezvous hash of terminal and hub, which spreads terminals evenly over hubs. If a hub fails,
    /// its terminals spread over the others, and no other terminal moves.
    #[default]
    Spread,
    /// In the order of the configuration.
    Listed,
}

/// The hubs of a terminal, the best first.
pub fn ranking(order: HubOrder, terminal: &PublicKey, hubs: &[PublicKey]) -> Vec<HubId> {
    let mut ranking: Vec<HubId> = (0..hubs.len()).map(HubId).collect();
    if order == HubOrder::Spread {
        ranking.sort_by_key(|id| core::cmp::Reverse(score(terminal, &hubs[id.0])));
    }
    ranking
}

/// Highest-random-weight score of a hub for a terminal (Thaler and Ravishankar 1998). Public keys are
/// uniformly distributed, so any well-mixing function will do: this is that of SplitMix64.
fn score(terminal: &PublicKey, hub: &PublicKey) -> u64 {
    let mut score = 0u64;
    for (ours, theirs) in terminal.0.chunks_exact(8).zip(hub.0.chunks_exact(8)) {
        for chunk in [ours, theirs] {
            let word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            score = mix(score ^ word);
        }
    }
    score
}

fn mix(word: u64) -> u64 {
    let mut word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Action for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubStep {
    /// Set up a session with this hub, again if it is lost (`true`), or no longer (`false`). An existing
    /// session continues.
    Want(HubId, bool),
    /// Probe this hub over its session.
    Ask(HubId),
    /// Use this hub for new connections.
    Use(HubId),
    /// Close the session with this hub, and the former one.
    Close(HubId),
    /// Close the session with this hub's former process.
    CloseFormer(HubId),
}

/// State of one hub.
#[derive(Debug)]
struct HubEntry {
    contact: ContactState,
    /// The session with its previous process.
    former: Option<FormerSession>,
    /// The value of the last [`HubStep::Want`].
    wanted: bool,
    /// `true` if its session is kept only for the connections that it still carries.
    retiring: bool,
    /// Earliest time to ask it while another hub is, or may be, in use.
    ask_at: Instant,
    pause: Duration,
    /// Time that it must be up before it is used again.
    steady: Duration,
    /// Time at which it came into use; `None` if it has not since it was up.
    used: Option<Instant>,
}

/// A session with a process that another has replaced.
#[derive(Debug, Clone, Copy)]
struct FormerSession {
    since: Instant,
    /// Start of its silence.
    silent: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContactState {
    /// There is no session, and none is wanted.
    None,
    /// A session has been wanted since this time.
    Asked(Instant),
    /// There is a session, which may be silent.
    Up {
        since: Instant,
        /// Start of its silence.
        silent: Option<Instant>,
        leaving: bool,
    },
}

impl ContactState {
    fn is_up(self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Returns `true` if the session can take new connections.
    fn is_good(self) -> bool {
        matches!(self, Self::Up { silent: None, leaving: false, .. })
    }

    fn is_silent(self) -> bool {
        matches!(self, Self::Up { silent: Some(_), .. })
    }
}

/// State machine that decides which hubs have a session and which one is used.
///
/// After each input, and when [`Self::poll_timeout`] has come, drain [`Self::poll_step`].
#[derive(Debug)]
pub struct HubSelection {
    /// Indexed by [`HubId`].
    hubs: Vec<HubEntry>,
    /// All hubs, the best first.
    ranking: Vec<HubId>,
    /// The hub used for new connections.
    current: Option<HubId>,
    /// Time at which the next hub is asked, while one is needed.
    next_ask: Instant,
    /// Deadline for the silent hub in use to answer, once another one has.
    chance: Option<Instant>,
    chance_for: Duration,
    steps: VecDeque<HubStep>,
}

impl HubSelection {
    /// Starts without sessions. `ranking` contains each hub once, the best first.
    pub fn new(now: Instant, ranking: Vec<HubId>) -> Self {
        let hub = || HubEntry {
            contact: ContactState::None,
            former: None,
            wanted: false,
            retiring: false,
            ask_at: now,
            pause: ASK_FIRST,
            steady: STEADY_FIRST,
            used: None,
        };
        let hubs = ranking.iter().map(|_| hub()).collect();
        let mut new = Self {
            hubs,
            ranking,
            current: None,
            next_ask: now,
            chance: None,
            chance_for: CHANCE_LEAST,
            steps: VecDeque::new(),
        };
        new.decide(now);
        new
    }

    /// The hub for new connections; `None` until one is up.
    pub fn current(&self) -> Option<HubId> {
        self.current
    }

    /// Returns `true` if the hub in use answers and takes new connections.
    pub fn is_good(&self) -> bool {
        self.current.is_some_and(|id| self.hubs[id.0].contact.is_good())
    }

    /// Returns `true` if the hub in use has a session and does not answer.
    pub fn is_silent(&self) -> bool {
        self.current.is_some_and(|id| self.hubs[id.0].contact.is_silent())
    }

    /// Returns `true` if the hub in use is about to stop.
    pub fn is_leaving(&self) -> bool {
        let leaving = |id: HubId| matches!(self.hubs[id.0].contact, ContactState::Up { leaving, .. } if leaving);
        self.current.is_some_and(leaving)
    }

    /// Returns `true` if a hub should answer and does not: it is being asked, or its session is silent.
    pub fn is_waited_for(&self, id: HubId) -> bool {
        let contact = self.hubs[id.0].contact;
        matches!(contact, ContactState::Asked(_)) || contact.is_silent()
    }

    /// Time at which a hub without a session was asked for one; `None` if it is not being asked.
    pub fn asked_since(&self, id: HubId) -> Option<Instant> {
        match self.hubs[id.0].contact {
            ContactState::Asked(since) => Some(since),
            ContactState::None | ContactState::Up { .. } => None,
        }
    }

    /// State of a hub for the status display, in a word or two.
    pub fn state(&self, id: HubId) -> &'static str {
        let used = self.current == Some(id);
        match (self.hubs[id.0].contact, self.hubs[id.0].retiring) {
            (ContactState::None, _) => "not needed",
            (ContactState::Asked(_), _) => "asked",
            (ContactState::Up { silent: Some(_), .. }, _) => "silent",
            (ContactState::Up { leaving: true, .. }, _) => "draining",
            (ContactState::Up { .. }, _) if used => "in use",
            (ContactState::Up { .. }, true) => "ending",
            (ContactState::Up { .. }, false) => "ready",
        }
    }

    /// Hubs whose sessions are kept only for the connections that they still carry.
    pub fn retiring(&self) -> impl Iterator<Item = HubId> {
        self.ranking.iter().copied().filter(|id| self.hubs[id.0].retiring)
    }

    /// Handles a new session with a hub.
    pub fn handle_up(&mut self, now: Instant, id: HubId) {
        let hub = &mut self.hubs[id.0];
        (hub.contact, hub.retiring) =
            (ContactState::Up { since: now, silent: None, leaving: false }, false);
        // It answers again, so it may be asked often.
        hub.pause = ASK_FIRST;
        self.decide(now);
    }

    /// Handles a session with the next process of a hub, beside the existing one.
    pub fn handle_next_process(&mut self, now: Instant, id: HubId) {
        let silent = match self.hubs[id.0].contact {
            ContactState::Up { silent, .. } => silent,
            ContactState::None | ContactState::Asked(_) => None,
        };
        // The session becomes the former one in the state that it had.
        self.hubs[id.0].former = Some(FormerSession { since: now, silent });
        if self.current == Some(id) {
            self.steps.push_back(HubStep::Use(id));
        }
        self.handle_up(now, id);
    }

    /// Handles the start or the end of a former process's silence.
    pub fn handle_former(&mut self, now: Instant, id: HubId, answers: bool) {
        if let Some(former) = &mut self.hubs[id.0].former {
            former.silent = (!answers).then_some(now);
        }
    }

    /// Handles the end of the session with a former process.
    pub fn handle_former_down(&mut self, id: HubId) {
        self.hubs[id.0].former = None;
    }

    /// Handles a session with a former process that no longer carries anything.
    pub fn handle_former_idle(&mut self, now: Instant, id: HubId) {
        let linger = |former: &mut FormerSession| former.since + FORMER_LEAST <= now;
        if self.hubs[id.0].former.take_if(linger).is_some() {
            self.steps.push_back(HubStep::CloseFormer(id));
        }
    }

    /// Handles the start of a hub's silence; `rtt` is the round-trip time of its session.
    pub fn handle_silence(&mut self, now: Instant, id: HubId, rtt: Duration) {
        if let ContactState::Up { silent, .. } = &mut self.hubs[id.0].contact {
            silent.get_or_insert(now);
        }
        if self.current == Some(id) {
            // Only another hub that answers tells a failure from a fade.
            (self.next_ask, self.chance) = (now, None);
            self.chance_for = rtt.mul_f64(CHANCE_RTTS).max(CHANCE_LEAST);
        }
        self.decide(now);
    }

    /// Handles an answer of a hub after silence.
    pub fn handle_answer(&mut self, now: Instant, id: HubId) {
        if let ContactState::Up { since, silent, .. } = &mut self.hubs[id.0].contact
            && silent.take().is_some()
        {
            // The time for which it is steady starts anew.
            *since = now;
        }
        self.decide(now);
    }

    /// Handles a hub's announcement that it is about to stop.
    pub fn handle_leaving(&mut self, now: Instant, id: HubId) {
        if let ContactState::Up { leaving, .. } = &mut self.hubs[id.0].contact {
            *leaving = true;
        }
        if self.current == Some(id) {
            self.next_ask = now;
        }
        self.decide(now);
    }

    /// Handles the end of the session with a hub.
    pub fn handle_down(&mut self, now: Instant, id: HubId) {
        let left = matches!(self.hubs[id.0].contact, ContactState::Up { leaving: true, .. });
        let hub = &mut self.hubs[id.0];
        // A session that was only kept for its connections ends in the same way.
        if hub.retiring || left {
            // It has just stopped, so it is asked again only if there is no other.
            hub.ask_at = now + LEFT;
        }
        if self.current == Some(id) {
            (self.current, self.next_ask) = (None, now);
            self.failed(now, id);
        }
        self.forget(id);
        self.decide(now);
    }

    /// Handles the end of the last connection on a session kept for them.
    pub fn handle_idle(&mut self, now: Instant, id: HubId) {
        if self.hubs[id.0].retiring {
            self.close(id);
            self.hubs[id.0].ask_at = now + ASK_FIRST;
        }
        self.decide(now);
    }

    /// Time at which to call [`Self::poll_step`] without another input.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let formers = (0..self.hubs.len()).map(HubId).filter_map(|id| self.former_due(id)).min();
        self.choice_due().into_iter().chain(formers).min()
    }

    /// Time at which to reconsider the hub in use.
    fn choice_due(&self) -> Option<Instant> {
        if !self.is_good() {
            // When every hub has been asked there is nothing to do but wait for an answer.
            let more = self.next_to_ask(Instant::MAX).is_some();
            return more.then_some(self.next_ask).into_iter().chain(self.chance).min();
        }
        self.better().filter_map(|id| self.due(id)).min()
    }

    /// Returns the next step if one is due.
    pub fn poll_step(&mut self, now: Instant) -> Option<HubStep> {
        if self.steps.is_empty() && self.poll_timeout().is_some_and(|at| at <= now) {
            self.decide(now);
        }
        self.steps.pop_front()
    }

    /// Time at which a silent former process is given up.
    fn former_due(&self, id: HubId) -> Option<Instant> {
        let hub = &self.hubs[id.0];
        let silent = hub.former.and_then(|former| former.silent)?;
        match hub.contact {
            ContactState::Up { since, silent: None, .. } => Some(since.max(silent) + FORMER_SILENT),
            _ => None,
        }
    }

    fn decide(&mut self, now: Instant) {
        for id in (0..self.hubs.len()).map(HubId) {
            if self.former_due(id).is_some_and(|at| at <= now) {
                self.hubs[id.0].former = None;
                self.steps.push_back(HubStep::CloseFormer(id));
            }
        }
        if self.is_good() {
            self.return_to_better(now);
        }
        // It may have moved to a better hub just now.
        if self.is_good() {
            return self.settle();
        }
        self.ask_around(now);
        self.move_to_best(now);
    }

    /// Asks one hub after the other while the hub in use cannot take connections.
    fn ask_around(&mut self, now: Instant) {
        while self.next_ask <= now {
            let Some(id) = self.next_to_ask(now) else { return };
            self.want(id, now);
            self.next_ask = now + STAGGER;
        }
    }

    /// The next hub to ask: in the order of the ranking, those that left recently last.
    fn next_to_ask(&self, now: Instant) -> Option<HubId> {
        let idle = |id: &&HubId| self.hubs[id.0].contact == ContactState::None;
        let mut candidates = self.ranking.iter().filter(idle);
        let ready = candidates.clone().find(|id| self.hubs[id.0].ask_at <= now);
        ready.or_else(|| candidates.next()).copied()
    }

    /// Moves over to the best usable hub if the one in use is not.
    fn move_to_best(&mut self, now: Instant) {
        let good = |id: &&HubId| self.hubs[id.0].contact.is_good();
        let Some(next) = self.ranking.iter().find(good).copied() else {
            // No other hub answers, so this may be a fade.
            self.chance = None;
            return;
        };
        let Some(old) = self.current else { return self.use_hub(now, next) };
        if !self.hubs[old.0].contact.is_silent() {
            // It is about to stop: its connections may end there.
            self.retire(old);
            return self.use_hub(now, next);
        }
        if self.chance.is_none() {
            self.steps.push_back(HubStep::Ask(old));
        }
        if *self.chance.get_or_insert(now + self.chance_for) <= now {
            self.failed(now, old);
            self.close(old);
            // It failed while another hub answered, so it is not asked at once again.
            self.hubs[old.0].ask_at = now + ASK_FIRST;
            self.use_hub(now, next);
        }
    }

    fn use_hub(&mut self, now: Instant, id: HubId) {
        (self.current, self.chance) = (Some(id), None);
        let hub = &mut self.hubs[id.0];
        (hub.retiring, hub.used) = (false, Some(now));
        self.set_wanted(id, true);
        self.steps.push_back(HubStep::Use(id));
        for better in self.ranking.clone().into_iter().take_while(|better| *better != id) {
            let hub = &mut self.hubs[better.0];
            // The better ones could not be used, so they are asked only after a pause.
            hub.ask_at = hub.ask_at.max(now + hub.pause);
        }
        self.settle();
    }

    /// Drops sessions and attempts that are no longer needed.
    fn settle(&mut self) {
        self.chance = None;
        let Some(current) = self.current else { return };
        let worse = self.ranking.iter().copied().skip_while(|id| *id != current).skip(1);
        for id in worse.collect::<Vec<_>>() {
            match self.hubs[id.0].contact {
                ContactState::Asked(_) => self.forget_wanted(id),
                ContactState::Up { .. } if !self.hubs[id.0].retiring => self.close(id),
                _ => {}
            }
        }
    }

    /// Hubs ranked better than the one in use.
    fn better(&self) -> impl Iterator<Item = HubId> {
        self.ranking.iter().copied().take_while(|id| Some(*id) != self.current)
    }

    /// Time at which a better-ranked hub must be handled.
    fn due(&self, id: HubId) -> Option<Instant> {
        let hub = &self.hubs[id.0];
        match hub.contact {
            ContactState::None => Some(hub.ask_at),
            ContactState::Asked(since) => Some(since + ANSWER),
            ContactState::Up { since, silent: None, leaving: false } => Some(since + hub.steady),
            ContactState::Up { .. } => None,
        }
    }

    /// Asks better-ranked hubs from time to time, and returns to one that has been up for long enough.
    fn return_to_better(&mut self, now: Instant) {
        for id in self.better().collect::<Vec<_>>() {
            if self.due(id).is_none_or(|at| at > now) {
                continue;
            }
            match self.hubs[id.0].contact {
                ContactState::None => self.want(id, now),
                ContactState::Asked(_) => {
                    self.forget_wanted(id);
                    let hub = &mut self.hubs[id.0];
                    hub.pause = (hub.pause * 2).min(ASK_MOST);
                    hub.ask_at = now + hub.pause;
                }
                ContactState::Up { .. } => {
                    self.current.into_iter().for_each(|old| self.retire(old));
                    return self.use_hub(now, id);
                }
            }
        }
    }

    /// Records that the hub in use has failed. If it fails soon after it came into use, it must be up for
    /// longer the next time.
    fn failed(&mut self, now: Instant, id: HubId) {
        let hub = &mut self.hubs[id.0];
        // Taken, so that one failure counts once.
        let flaps = hub.used.take().is_some_and(|used| now.saturating_since(used) < FLAP);
        hub.steady = if flaps { (hub.steady * 2).min(STEADY_MOST) } else { STEADY_FIRST };
    }

    fn want(&mut self, id: HubId, now: Instant) {
        self.hubs[id.0].contact = ContactState::Asked(now);
        self.set_wanted(id, true);
    }

    fn forget_wanted(&mut self, id: HubId) {
        self.hubs[id.0].contact = ContactState::None;
        self.set_wanted(id, false);
    }

    /// Replaces a pending [`HubStep::Want`]: only the last one counts, and a handshake under way must not
    /// start again.
    fn set_wanted(&mut self, id: HubId, wanted: bool) {
        if std::mem::replace(&mut self.hubs[id.0].wanted, wanted) == wanted {
            return;
        }
        let pending = self.steps.len();
        self.steps.retain(|step| *step != HubStep::Want(id, !wanted));
        if self.steps.len() == pending {
            self.steps.push_back(HubStep::Want(id, wanted));
        }
    }

    /// Keeps a session only for the connections that it still carries.
    fn retire(&mut self, id: HubId) {
        self.hubs[id.0].retiring = true;
        self.set_wanted(id, false);
    }

    fn close(&mut self, id: HubId) {
        self.forget_wanted(id);
        let hub = &mut self.hubs[id.0];
        (hub.retiring, hub.former) = (false, None);
        self.steps.push_back(HubStep::Close(id));
    }

    /// Forgets a session that is over if it is no longer wanted.
    fn forget(&mut self, id: HubId) {
        self.hubs[id.0].retiring = false;
        if self.hubs[id.0].contact.is_up() {
            self.forget_wanted(id);
        }
    }
}
