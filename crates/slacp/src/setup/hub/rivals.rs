//! A newcomer with the key of a session in use (`docs/slacp.md`, Two machines with one key).

use std::net::SocketAddr;

use units::Instant;

use super::Hub;
use crate::session::IncumbentSession;
use crate::session::group::EndpointCore;
use crate::setup::replacement::{FURTHER_QUESTIONS, ReplacementVerdict, question_interval};
use crate::{EndpointNotice, PublicKey, SessionId};

/// The pending decision about a newcomer.
#[derive(Debug)]
pub(super) struct RivalryCheck {
    /// Number of further PINGs to the session in use.
    questions: u8,
    /// The time of the next PING, or of the decision.
    next: Option<Instant>,
    /// Source of the newcomer's first data packet. Nothing is decided before that.
    used_from: Option<SocketAddr>,
}

impl RivalryCheck {
    /// Starts the decision. The session in use, if there is one, was pinged for the first time
    /// `now`.
    pub(super) fn new(now: Instant, present: Option<&IncumbentSession>) -> Self {
        let next = present.map(|present| now + question_interval(present.patience));
        Self { questions: FURTHER_QUESTIONS, next, used_from: None }
    }
}

impl Hub {
    /// The session in use of a key, with its signs of life for a newcomer at an address.
    fn present(
        &self,
        core: &EndpointCore,
        key: &PublicKey,
        from: SocketAddr,
    ) -> Option<(SessionId, IncumbentSession)> {
        let id = self.peers.get(key)?.session?;
        Some((id, core.session(id)?.incumbent(from.ip())))
    }

    /// Returns whether to answer an initiation. Otherwise newcomers with this key are held off, and
    /// the session in use was pinged.
    pub(super) fn screens(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        key: &PublicKey,
    ) -> bool {
        let Some((id, present)) = self.present(core, key, from) else { return true };
        let Some(known) = self.peers.get_mut(key) else { return false };
        let admitted = known.replacement.screen(now, &present) == ReplacementVerdict::Admit;
        if !admitted {
            core.ping(id);
        }
        admitted
    }

    /// Pings the session in use, if any, because a newcomer has come.
    pub(super) fn begin_rivalry(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        key: &PublicKey,
    ) -> RivalryCheck {
        let present = self.present(core, key, from);
        present.inspect(|(id, _)| core.ping(*id));
        let rivalry = RivalryCheck::new(now, present.as_ref().map(|(_, present)| present));
        rivalry.next.inspect(|next| _ = self.rivalries.insert((*next, *key)));
        rivalry
    }

    /// Returns whether a newcomer that has used its session may replace the one in use now. If that
    /// is still open, the decision is scheduled.
    pub(super) fn may_replace(
        &mut self,
        core: &mut EndpointCore,
        now: Instant,
        from: SocketAddr,
        key: &PublicKey,
    ) -> bool {
        let Some((id, present)) = self.present(core, key, from) else { return true };
        let Some(known) = self.peers.get_mut(key) else { return false };
        let Some(tentative) = &mut known.tentative else { return false };
        tentative.rivalry.used_from = Some(from);
        match known.replacement.judge(now, tentative.initiation.answered, &present) {
            ReplacementVerdict::Admit => return true,
            ReplacementVerdict::Wait(until) => {
                let rivalry = &mut tentative.rivalry;
                // Otherwise PINGs are still to be sent, and the decision follows them.
                if rivalry.next.is_none() {
                    rivalry.next = Some(until);
                    self.rivalries.insert((until, *key));
                }
            }
            ReplacementVerdict::Refuse { news } => {
                if let Some(session) = core.session(id).filter(|_| news) {
                    let served = session.address();
                    let shared = EndpointNotice::SharedKey { key: *key, served, refused: from };
                    core.notices.push_back(shared);
                }
                self.forget_tentative(core, key);
            }
        }
        false
    }

    /// Returns whether an initiation names the tentative session that its own machine is waiting
    /// for.
    pub(super) fn awaits_session(&self, key: &PublicKey, name: Option<u64>) -> bool {
        self.tentative(key).is_some_and(|tentative| {
            tentative.rivalry.used_from.is_some() && name == Some(tentative.session.name)
        })
    }

    /// The time of the next PING to a session in use, or of the next decision.
    pub(super) fn next_rivalry(&self) -> Option<Instant> {
        self.rivalries.first().map(|(next, _)| *next)
    }

    /// Pings the sessions in use again, and decides about newcomers whose time is over.
    pub(super) fn follow_rivalries(&mut self, core: &mut EndpointCore, now: Instant) {
        while let Some((at, key)) = self.rivalries.first().copied().filter(|(at, _)| *at <= now) {
            self.rivalries.remove(&(at, key));
            self.follow_rivalry(core, now, &key);
        }
    }

    fn follow_rivalry(&mut self, core: &mut EndpointCore, now: Instant, key: &PublicKey) {
        let Some(known) = self.peers.get_mut(key) else { return };
        let Some(tentative) = &mut known.tentative else { return };
        let (rivalry, address) = (&mut tentative.rivalry, tentative.session.address());
        rivalry.next = None;
        let used_from = rivalry.used_from;
        if rivalry.questions > 0 {
            rivalry.questions -= 1;
            let present = self.present(core, key, address);
            if let Some((id, present)) = present {
                core.ping(id);
                return self.look_again(key, now + question_interval(present.patience));
            }
        }
        if let Some(from) = used_from
            && self.may_replace(core, now, from, key)
            && let Some(id) = self.promote(core, key)
        {
            // Put into use by a timer instead of a packet, so no input settles it.
            core.touch(id);
        }
    }

    fn look_again(&mut self, key: &PublicKey, at: Instant) {
        let known = self.peers.get_mut(key);
        if let Some(tentative) = known.and_then(|known| known.tentative.as_mut()) {
            tentative.rivalry.next = Some(at);
            self.rivalries.insert((at, *key));
        }
    }

    /// Cancels the scheduled PING or decision about a newcomer.
    pub(super) fn end_rivalry(&mut self, key: &PublicKey, rivalry: &RivalryCheck) {
        rivalry.next.inspect(|next| _ = self.rivalries.remove(&(*next, *key)));
    }
}
