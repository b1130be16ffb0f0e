//! Random access: terminals send without asking, in contention blocks of the return link.
//!
//! ```text
//!  terminal                                             hub
//!  Contention ── Block::draw ─▶ slots of a block ─▶ Receiver ─▶ decoded bursts
//!      ▲                                                │            │
//!      └── answer or silence, Backoff ◀─────────────────│────────────┘
//!      └── persistence ◀──────────────── LoadControl ◀──┘ idle slots
//! ```
//!
//! A [`ContentionBlock`] is a number of slots that follow each other in time, as in a frame of the return
//! link. A terminal sends a capacity request or a short data burst in slots drawn at random. If no
//! answer comes, it tries again in a later block. Everything here is passed block numbers, not
//! times: the owner knows when the block with a number is on the air.
//!
//! | type | where | decides |
//! |---|---|---|
//! | [`AccessScheme`], [`ContentionBlock`] | both | number of replicas; their slots |
//! | [`BlockReceiver`] | hub | which bursts of a block can be decoded |
//! | [`Backoff`] | terminal | the pause after a collision, and when to give up |
//! | [`Contention`] | terminal | when to send, when silence means a collision |
//! | [`LoadControl`] | hub | the share of the waiting terminals that may send |
//! | [`choose`] | terminal | contention or assignment, for the next packet |
//!
//! Not modelled:
//! - the capture of the strongest of several bursts in a slot, as the bursts of a network with
//!   power control arrive equally strong;
//! - imperfect cancellation (errors of the channel estimate, phase noise): a
//!   real receiver resolves a little less;
//! - a block that spans several carriers, where a terminal with one transmitter must not draw two
//!   slots at the same time.
//!
//! A [`Contention`] sends one burst. [`super::Dama`] sends the cells of packets in one block, as one
//! attempt of a [`Contention`], with slots from [`ContentionBlock::draw_among`].

mod backoff;
mod burst;
mod choice;
mod contention;
mod load_control;
mod open_loop;
mod receiver;
mod scheme;
#[cfg(test)]
mod tests;

pub use backoff::{Backoff, BackoffError, BackoffLimits, RetryDecision};
pub use burst::{
    BlockError, BurstSlots, ContentionBlock, ContentionBurst, MAX_REPLICAS, SlotsError,
};
pub use choice::{AccessChoice, AccessLimits, choose};
pub use contention::{BlockAction, BurstOutcome, Contention, ContentionEnd, ContentionState};
pub use load_control::LoadControl;
pub use open_loop::{OpenLoop, open_loop};
pub use receiver::{BlockReceiver, BlockReception};
pub use scheme::AccessScheme;
