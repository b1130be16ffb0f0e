//! The life cycle of a session, from the end of its handshake until the endpoint forgets it.

use core::time::Duration;

use units::Instant;

use super::Wake;
use crate::{CloseReason, DownReason};

/// Times of the further CLOSEs, counted from the first: the link may lose one.
const CLOSE_COPIES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];
/// Minimum interval between CLOSEs to a peer that keeps sending.
const CLOSE_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a session, and the reason why it left [`LifeCycleState::Established`].
///
/// ```text
///                      close                     CLOSE of the peer,
///                   (the owner, or              or enough time for it
///                    a violation)
///  ┌─────────────┐               ┌─────────┐               ┌────────┐
///  │ Established ├──────────────►│ Closing ├──────────────►│ Closed │
///  └──────┬──────┘               └─────────┘               └────────┘
///         │      CLOSE of the peer, or an outage longer         ▲
///         └─────────── than `Config::give_up` ──────────────────┘
/// ```
///
/// | state | sends | accepts | ends |
/// |---|---|---|---|
/// | Established | everything; during an outage of all paths only probes, acknowledgements and path frames | every frame | as above |
/// | Closing | CLOSE over every path: at once, after 50 and 150 ms, then at most every 100 ms in reply to packets | CLOSE; other frames have no effect | with the peer's CLOSE, or after three probe delays |
/// | Closed | nothing | nothing | the endpoint forgets the session before its next input |
///
/// The owner can use the session only while it is established, and gets the reason for its end
/// exactly once ([`Self::take_end`]): the first one.
///
/// Two states precede these: until its handshake completes, a session belongs to `Terminal`, and
/// the hub keeps it as tentative until its first authentic packet.
#[derive(Debug, Default)]
pub(super) struct LifeCycle {
    state: LifeCycleState,
    /// The reason for the session's end, until the owner has taken it.
    unreported: Option<DownReason>,
}

#[derive(Debug, Default)]
enum LifeCycleState {
    #[default]
    Established,
    Closing(CloseSchedule),
    Closed,
}

/// The reason for closing and the schedule of CLOSEs.
#[derive(Debug)]
struct CloseSchedule {
    reason: CloseReason,
    begun: Instant,
    /// CLOSEs sent so far.
    sent: usize,
    /// Due time of the next one; `None` until another packet arrives.
    next: Option<Instant>,
    /// End of the time in which the peer can learn of it.
    until: Instant,
}

impl LifeCycle {
    /// Returns whether the owner can use the session.
    pub(super) fn is_established(&self) -> bool {
        matches!(self.state, LifeCycleState::Established)
    }

    /// Returns whether CLOSE is being sent.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, LifeCycleState::Closing(_))
    }

    /// The reason that this side gives in CLOSE, while it is closing.
    pub(super) fn closing_for(&self) -> Option<CloseReason> {
        match &self.state {
            LifeCycleState::Closing(closing) => Some(closing.reason),
            LifeCycleState::Established | LifeCycleState::Closed => None,
        }
    }

    /// Returns whether the session can be forgotten.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, LifeCycleState::Closed)
    }

    /// Established → Closing, for `lasting` at most. No effect in the other states: the first
    /// reason holds.
    pub(super) fn close(&mut self, now: Instant, reason: CloseReason, lasting: Duration) {
        if !self.is_established() {
            return;
        }
        self.unreported = Some(match reason {
            CloseReason::Violation => DownReason::Violation,
            reason => DownReason::Closed(reason),
        });
        let until = now + lasting;
        self.state = LifeCycleState::Closing(CloseSchedule {
            reason,
            begun: now,
            sent: 0,
            next: Some(now),
            until,
        });
    }

    /// Established or Closing → Closed, because the peer has closed the session.
    pub(super) fn closed_by_peer(&mut self, reason: CloseReason) {
        self.end(DownReason::ClosedByPeer(reason));
    }

    /// Established → Closed, because the peer has been unreachable for too long. A session that is
    /// closing waits for no peer.
    pub(super) fn give_up(&mut self) {
        debug_assert!(!self.is_closing(), "a closing session has its own end");
        self.end(DownReason::GivenUp);
    }

    fn end(&mut self, why: DownReason) {
        if self.is_established() {
            self.unreported = Some(why);
        }
        self.state = LifeCycleState::Closed;
    }

    /// Returns the reason for the session's end, only once.
    pub(super) fn take_end(&mut self) -> Option<DownReason> {
        self.unreported.take()
    }

    /// The time of the next [`Self::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        match &self.state {
            LifeCycleState::Closing(closing) => Some((closing.until, Wake::Closing)),
            LifeCycleState::Established | LifeCycleState::Closed => None,
        }
    }

    /// Closing → Closed once the peer has had enough time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if matches!(&self.state, LifeCycleState::Closing(closing) if closing.until <= now) {
            self.state = LifeCycleState::Closed;
        }
    }

    /// The time from which [`Self::take_message`] returns a message.
    pub(super) fn send_time(&self) -> Option<(Instant, Wake)> {
        match &self.state {
            LifeCycleState::Closing(closing) => Some((closing.next?, Wake::Closing)),
            LifeCycleState::Established | LifeCycleState::Closed => None,
        }
    }

    /// Returns the reason for the CLOSE that is due, if one is, and schedules the next.
    pub(super) fn take_message(&mut self, now: Instant) -> Option<CloseReason> {
        let LifeCycleState::Closing(closing) = &mut self.state else { return None };
        closing.next.filter(|next| *next <= now)?;
        closing.next = CLOSE_COPIES.get(closing.sent).map(|after| closing.begun + *after);
        closing.sent += 1;
        Some(closing.reason)
    }

    /// Schedules another CLOSE, because a packet shows that the peer has not received one yet.
    pub(super) fn schedule_reply(&mut self, now: Instant) {
        if let LifeCycleState::Closing(closing) = &mut self.state {
            // At most one CLOSE per interval, however many packets arrive.
            closing.next.get_or_insert(now + CLOSE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTING: Duration = Duration::from_secs(2);
    const SHUTDOWN: CloseReason = CloseReason::Shutdown;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// A session that was closed at time 0.
    fn closing() -> LifeCycle {
        let mut life = LifeCycle::default();
        life.close(at(0), SHUTDOWN, LASTING);
        life
    }

    /// Whether the session is established, closing and closed.
    fn state(life: &LifeCycle) -> [bool; 3] {
        [life.is_established(), life.is_closing(), life.is_closed()]
    }

    const ESTABLISHED: [bool; 3] = [true, false, false];
    const CLOSING: [bool; 3] = [false, true, false];
    const CLOSED: [bool; 3] = [false, false, true];

    /// The times of the CLOSEs until `end`.
    fn messages(life: &mut LifeCycle, end: u64) -> Vec<u64> {
        (0..end).filter(|ms| life.take_message(at(*ms)).is_some()).collect()
    }

    #[test]
    fn an_established_session_has_no_end_no_timer_and_no_message() {
        let mut life = LifeCycle::default();
        assert_eq!(state(&life), ESTABLISHED);
        assert_eq!((life.take_end(), life.poll_timeout(), life.send_time()), (None, None, None));
        life.handle_timeout(at(1_000_000));
        life.schedule_reply(at(1_000_000));
        assert!(messages(&mut life, 1000).is_empty());
        assert_eq!(state(&life), ESTABLISHED);
    }

    #[test]
    fn established_to_closing_when_the_owner_closes() {
        let mut life = closing();
        assert_eq!(state(&life), CLOSING);
        assert_eq!(life.take_end(), Some(DownReason::Closed(SHUTDOWN)));
        assert_eq!(life.take_end(), None);
    }

    #[test]
    fn established_to_closing_after_a_violation() {
        let mut life = LifeCycle::default();
        life.close(at(0), CloseReason::Violation, LASTING);
        assert_eq!(state(&life), CLOSING);
        assert_eq!(life.take_end(), Some(DownReason::Violation));
        assert_eq!(life.take_message(at(0)), Some(CloseReason::Violation));
    }

    #[test]
    fn established_to_closed_when_the_peer_closes() {
        let mut life = LifeCycle::default();
        life.closed_by_peer(SHUTDOWN);
        assert_eq!(state(&life), CLOSED);
        assert_eq!(life.take_end(), Some(DownReason::ClosedByPeer(SHUTDOWN)));
        assert_eq!(life.take_end(), None);
    }

    #[test]
    fn established_to_closed_when_the_peer_is_given_up() {
        let mut life = LifeCycle::default();
        life.give_up();
        assert_eq!(state(&life), CLOSED);
        assert_eq!(life.take_end(), Some(DownReason::GivenUp));
    }

    #[test]
    fn closing_to_closed_when_the_peer_closes_too() {
        let mut life = closing();
        life.closed_by_peer(CloseReason::Violation);
        assert_eq!(state(&life), CLOSED);
        assert_eq!(life.take_end(), Some(DownReason::Closed(SHUTDOWN)), "the first reason");
        assert_eq!(life.take_end(), None);
    }

    #[test]
    fn closing_to_closed_after_enough_time() {
        let mut life = closing();
        assert_eq!(life.poll_timeout(), Some((at(2000), Wake::Closing)));
        life.handle_timeout(at(1999));
        assert_eq!(state(&life), CLOSING);
        life.handle_timeout(at(2000));
        assert_eq!(state(&life), CLOSED);
    }

    #[test]
    fn close_is_sent_three_times_and_then_in_reply_to_packets() {
        let mut life = closing();
        assert_eq!(life.send_time(), Some((at(0), Wake::Closing)));
        assert_eq!(messages(&mut life, 500), [0, 50, 150]);
        assert_eq!(life.send_time(), None);
        for ms in 500..590 {
            life.schedule_reply(at(ms));
        }
        assert_eq!(life.send_time(), Some((at(600), Wake::Closing)));
        assert_eq!(messages(&mut life, 2000), [600]);
    }

    #[test]
    fn a_closing_session_does_not_start_again() {
        let mut life = closing();
        assert_eq!(life.take_end(), Some(DownReason::Closed(SHUTDOWN)));
        life.close(at(1000), CloseReason::Violation, LASTING);
        assert_eq!(life.poll_timeout(), Some((at(2000), Wake::Closing)));
        assert_eq!(life.take_message(at(1000)), Some(SHUTDOWN));
        assert_eq!(life.take_end(), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "its own end")]
    fn a_closing_session_gives_no_peer_up() {
        closing().give_up();
    }

    #[test]
    fn a_closed_session_stays_closed_and_has_one_end() {
        let mut life = LifeCycle::default();
        life.closed_by_peer(SHUTDOWN);
        life.close(at(0), CloseReason::Violation, LASTING);
        life.closed_by_peer(CloseReason::Violation);
        life.give_up();
        life.schedule_reply(at(0));
        life.handle_timeout(at(0));
        assert_eq!(state(&life), CLOSED);
        assert_eq!((life.poll_timeout(), life.send_time()), (None, None));
        assert_eq!(life.take_message(at(1000)), None);
        assert_eq!(life.take_end(), Some(DownReason::ClosedByPeer(SHUTDOWN)));
        assert_eq!(life.take_end(), None);
    }
}
