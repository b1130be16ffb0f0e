//! A terminal's attempts to send a burst by contention.

use units::Probability;

use super::{Backoff, BackoffError, BackoffLimits, BurstSlots, ContentionBlock, RetryDecision};
use crate::Dice;

/// The random access of one terminal: one burst at a time, a capacity request or a short data
/// burst, until the hub has it or it is given up.
///
/// ```text
///            offer             persistence allows
///    Idle ──────────▶ Waiting ────────────────────▶ InAir
///     ▲                                            │    ▲
///     │ delivered, or given up                     │    │
///     ├────────────────────────────────────────────┤    │
///     │                         collided, or no answer  │ pause over, persistence allows
///     │                                            ▼    │
///     └──────────────── late answer ◀────────── BackingOff
/// ```
///
/// It is passed the numbers of blocks, which never decrease:
///
/// | input | when |
/// |---|---|
/// | [`Contention::offer`] | there is something to send |
/// | [`Contention::handle_block`] | a block begins, at least each [`Contention::poll_block`] |
/// | [`Contention::handle_answer`] | the hub answers a burst |
///
/// A block begins before answers that arrive during it. Silence means that the hub did not decode
/// the burst: once the block `answer` blocks later begins, the burst has collided. A lost answer
/// therefore makes the terminal send again what the hub already has; the owner must be able to
/// recognise duplicates. A late answer still ends the attempts, but not those already given up.
///
/// The same seed and inputs give the same bursts.
#[derive(Debug, Clone)]
pub struct Contention {
    block: ContentionBlock,
    answer: u64,
    backoff: Backoff,
    dice: Dice,
    state: ContentionState,
    /// The blocks of the first and the last attempt of this burst.
    attempted: Option<(u64, u64)>,
}

/// The state of a terminal's random access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentionState {
    /// There is no burst to send.
    Idle,
    /// A burst is to be sent for the first time.
    Waiting {
        /// The first block that may carry it.
        from: u64,
    },
    /// A burst has been sent; the hub's answer is not known.
    InAir {
        /// The block that carries it.
        sent: u64,
        /// The block at whose begin a burst without an answer has collided.
        answer_by: u64,
    },
    /// A burst has collided and is to be sent again.
    BackingOff {
        /// The first block that may carry it.
        from: u64,
    },
}

/// The action in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum BlockAction {
    /// Send nothing in this block.
    Quiet,
    /// Send the burst in these slots of the block.
    Send(BurstSlots),
    /// The burst is given up: count it, and decide what becomes of it.
    GaveUp {
        /// Number of attempts that were made, all in vain.
        attempts: u32,
    },
}

/// The outcome of a burst, according to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurstOutcome {
    /// The burst was decoded.
    Succeeded,
    /// The burst was not decoded: it is missing in the hub's list of what it decoded in the block.
    Collided,
}

/// The end of the attempts to send a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum ContentionEnd {
    /// The hub has the burst.
    Delivered {
        /// Number of attempts made, at least 1.
        attempts: u32,
    },
    /// The burst is given up: count it, and decide what becomes of it.
    GaveUp {
        /// Number of attempts that were made, all in vain.
        attempts: u32,
    },
}

impl Contention {
    /// A terminal with nothing to send. `answer` is the number of blocks after that of a burst until
    /// silence means a collision: the round trip and the hub's processing, at least 1.
    ///
    /// # Errors
    /// If the limits of the back-off are impossible.
    pub fn new(
        block: ContentionBlock,
        answer: u32,
        limits: BackoffLimits,
        seed: u64,
    ) -> Result<Self, BackoffError> {
        Ok(Self::with(block, answer, Backoff::new(limits)?, seed))
    }

    /// Like [`Contention::new`], with a back-off in its initial state.
    pub(in crate::dama) fn with(
        block: ContentionBlock,
        answer: u32,
        backoff: Backoff,
        seed: u64,
    ) -> Self {
        Self {
            block,
            // No burst is answered in its own block.
            answer: u64::from(answer.max(1)),
            backoff,
            dice: Dice::new(seed),
            state: ContentionState::Idle,
            attempted: None,
        }
    }

    /// Offers a burst to send, from block `from` on. Returns false if the one before has not ended:
    /// then the owner offers it again later, or sends it with the pending one.
    #[must_use]
    pub fn offer(&mut self, from: u64) -> bool {
        let free = self.state == ContentionState::Idle;
        if free {
            self.state = ContentionState::Waiting { from };
        }
        free
    }

    /// Handles the begin of block `number`. A terminal with a burst sends it with the probability
    /// `persistence` that the hub announces ([`super::LoadControl`]), else it tries again in the
    /// next block.
    pub fn handle_block(&mut self, number: u64, persistence: Probability) -> BlockAction {
        // An answer that has not come in time counts as a collision.
        if let ContentionState::InAir { answer_by, .. } = self.state
            && answer_by <= number
            && let Some(ContentionEnd::GaveUp { attempts }) = self.collided(answer_by)
        {
            return BlockAction::GaveUp { attempts };
        }
        match self.state {
            ContentionState::Waiting { from } | ContentionState::BackingOff { from }
                if from <= number =>
            {
                self.try_to_send(number, persistence)
            }
            _ => BlockAction::Quiet,
        }
    }

    /// Handles the hub's answer to the burst sent in block `sent`, which arrives during block
    /// `number`. Returns the end of the attempts, if this ends them. An answer to another burst
    /// changes nothing.
    #[must_use]
    pub fn handle_answer(
        &mut self,
        number: u64,
        sent: u64,
        outcome: BurstOutcome,
    ) -> Option<ContentionEnd> {
        let (first, last) = self.attempted?;
        match outcome {
            BurstOutcome::Succeeded if (first..=last).contains(&sent) => {
                let unanswered = matches!(self.state, ContentionState::InAir { .. });
                // A late answer is for an attempt that counts as a collision already.
                let attempts = self.backoff.collisions() + u32::from(unanswered);
                self.backoff.succeeded();
                self.end();
                Some(ContentionEnd::Delivered { attempts })
            }
            BurstOutcome::Collided
                if matches!(self.state, ContentionState::InAir { .. }) && sent == last =>
            {
                self.collided(number + 1)
            }
            _ => None,
        }
    }

    /// Cancels the burst, because its content has gone another way. A burst in the air is
    /// forgotten, and its answer changes nothing.
    pub fn cancel(&mut self) {
        self.backoff.succeeded();
        self.end();
    }

    /// Returns the next block for which [`Contention::handle_block`] must be called; `None` if
    /// idle.
    pub const fn poll_block(&self) -> Option<u64> {
        match self.state {
            ContentionState::Idle => None,
            ContentionState::Waiting { from } | ContentionState::BackingOff { from } => Some(from),
            ContentionState::InAir { answer_by, .. } => Some(answer_by),
        }
    }

    /// Returns the current state.
    pub const fn state(&self) -> ContentionState {
        self.state
    }

    /// Returns the number of collisions of the current burst.
    pub const fn collisions(&self) -> u32 {
        self.backoff.collisions()
    }

    fn try_to_send(&mut self, number: u64, persistence: Probability) -> BlockAction {
        if !self.dice.happens(persistence) {
            // The persistence is drawn anew in each block.
            self.state = match self.state {
                ContentionState::Waiting { .. } => ContentionState::Waiting { from: number + 1 },
                _ => ContentionState::BackingOff { from: number + 1 },
            };
            return BlockAction::Quiet;
        }
        debug_assert!(self.attempted.is_none_or(|(_, last)| last < number), "twice in a block");
        let first = self.attempted.map_or(number, |(first, _)| first);
        self.attempted = Some((first, number));
        self.state = ContentionState::InAir { sent: number, answer_by: number + self.answer };
        BlockAction::Send(self.block.draw(&mut self.dice))
    }

    /// Handles a collision of the burst in the air; `next` is the first block in which it could be
    /// sent again.
    fn collided(&mut self, next: u64) -> Option<ContentionEnd> {
        match self.backoff.collided(&mut self.dice) {
            RetryDecision::After(pause) => {
                self.state = ContentionState::BackingOff { from: next + u64::from(pause) };
                None
            }
            RetryDecision::GiveUp { attempts } => {
                self.end();
                Some(ContentionEnd::GaveUp { attempts })
            }
        }
    }

    fn end(&mut self) {
        self.state = ContentionState::Idle;
        self.attempted = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::AccessScheme;
    use super::*;

    /// Answers after 3 blocks; retries at once; 2 attempts.
    fn contention() -> Contention {
        let block = ContentionBlock::new(AccessScheme::Dsa { replicas: 2 }, 10).unwrap();
        let limits = BackoffLimits { first: 1, greatest: 1, attempts: 2 };
        Contention::new(block, 3, limits, 1).unwrap()
    }

    /// One whose burst is in the air since block 5.
    fn in_air() -> Contention {
        let mut contention = contention();
        assert!(contention.offer(5));
        assert!(matches!(contention.handle_block(5, Probability::ONE), BlockAction::Send(_)));
        assert_eq!(contention.state(), ContentionState::InAir { sent: 5, answer_by: 8 });
        contention
    }

    fn sends(contention: &mut Contention, number: u64) -> bool {
        matches!(contention.handle_block(number, Probability::ONE), BlockAction::Send(_))
    }

    #[test]
    fn sends_from_the_block_asked_for() {
        let mut contention = contention();
        assert_eq!(contention.poll_block(), None);
        assert_eq!(contention.handle_block(1, Probability::ONE), BlockAction::Quiet);
        assert!(contention.offer(3));
        assert!(!contention.offer(2), "one burst at a time");
        assert_eq!(contention.poll_block(), Some(3));
        assert!(!sends(&mut contention, 2));
        assert!(sends(&mut contention, 3));
    }

    #[test]
    fn an_answer_ends_the_attempts() {
        let mut contention = in_air();
        assert_eq!(contention.handle_answer(7, 4, BurstOutcome::Succeeded), None);
        let ended = contention.handle_answer(7, 5, BurstOutcome::Succeeded);
        assert_eq!(ended, Some(ContentionEnd::Delivered { attempts: 1 }));
        assert_eq!(contention.state(), ContentionState::Idle);
        assert_eq!(contention.handle_answer(7, 5, BurstOutcome::Succeeded), None, "only once");
    }

    #[test]
    fn silence_is_a_collision_and_the_last_one_is_reported() {
        let mut contention = in_air();
        assert_eq!(contention.poll_block(), Some(8));
        assert_eq!(contention.handle_block(7, Probability::ONE), BlockAction::Quiet);
        assert!(sends(&mut contention, 8));
        let turn = contention.handle_block(11, Probability::ONE);
        assert_eq!(turn, BlockAction::GaveUp { attempts: 2 });
        assert_eq!(contention.state(), ContentionState::Idle);
        assert!(contention.offer(12));
        assert!(sends(&mut contention, 12));
    }

    #[test]
    fn a_bad_answer_saves_the_wait_for_silence() {
        let mut contention = in_air();
        assert_eq!(contention.handle_answer(6, 5, BurstOutcome::Collided), None);
        assert_eq!(contention.state(), ContentionState::BackingOff { from: 7 });
        assert_eq!(contention.handle_answer(6, 5, BurstOutcome::Collided), None, "only once");
        assert!(sends(&mut contention, 7));
        let ended = contention.handle_answer(9, 7, BurstOutcome::Collided);
        assert_eq!(ended, Some(ContentionEnd::GaveUp { attempts: 2 }));
    }

    #[test]
    fn a_late_answer_is_still_good_news() {
        let mut contention = in_air();
        assert_eq!(contention.handle_block(8, Probability::ZERO), BlockAction::Quiet);
        assert_eq!(contention.state(), ContentionState::BackingOff { from: 9 });
        let ended = contention.handle_answer(8, 5, BurstOutcome::Succeeded);
        assert_eq!(ended, Some(ContentionEnd::Delivered { attempts: 1 }));
        let mut again = in_air();
        assert!(sends(&mut again, 8));
        let ended = again.handle_answer(9, 5, BurstOutcome::Succeeded);
        assert_eq!(ended, Some(ContentionEnd::Delivered { attempts: 2 }), "both were on the air");
    }

    #[test]
    fn without_persistence_it_waits_and_counts_no_attempt() {
        let mut contention = contention();
        assert!(contention.offer(0));
        for number in 0..100 {
            assert_eq!(contention.handle_block(number, Probability::ZERO), BlockAction::Quiet);
            assert_eq!(contention.state(), ContentionState::Waiting { from: number + 1 });
        }
    }

    #[test]
    fn a_cancelled_burst_is_not_sent_again() {
        let mut contention = in_air();
        assert_eq!(contention.handle_answer(6, 5, BurstOutcome::Collided), None);
        contention.cancel();
        assert_eq!((contention.state(), contention.poll_block()), (ContentionState::Idle, None));
        assert_eq!(contention.handle_answer(7, 5, BurstOutcome::Succeeded), None);
        assert!(contention.offer(8));
    }

    #[test]
    fn a_late_block_does_all_that_is_due() {
        let mut contention = in_air();
        assert!(sends(&mut contention, 20));
        assert_eq!(contention.state(), ContentionState::InAir { sent: 20, answer_by: 23 });
    }
}
