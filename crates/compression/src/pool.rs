//! Decompression contexts shared by the decoders of a session.

use std::sync::{Arc, Mutex, PoisonError};

use zstd_safe::{DCtx, DParameter, ResetDirective};

use super::malformed::MalformedStream;
use super::{ContextSlot, ContextSlots, WINDOW, dictionary};

/// Contexts kept for later frames: one for a direction whose frames follow each other, and one more.
const SPARE: usize = 2;

/// Work of preparing a context that is new, or was used before, in [units](super::Decoder::work).
const NEW: u64 = 20_000;
const USED: u64 = 1_000;

type SpareContexts = Arc<Mutex<Vec<DCtx<'static>>>>;

/// A limited number of decompression contexts, which are reused: creating one costs more work than a frame
/// costs a peer. Clones share them.
#[derive(Clone)]
pub struct DecoderPool {
    slots: ContextSlots,
    spare: SpareContexts,
}

/// A context for a frame, which returns to its pool when dropped.
pub(super) struct PooledContext {
    /// `None` only during the drop.
    context: Option<DCtx<'static>>,
    spare: SpareContexts,
    _slot: ContextSlot,
}

impl DecoderPool {
    /// Creates a pool of which `most` contexts may be in use at a time.
    pub fn new(most: usize) -> Self {
        Self { slots: ContextSlots::new(most), spare: Arc::default() }
    }

    /// Takes a context for a frame; also returns the work of preparing it.
    pub(super) fn take(
        &self,
        has_dictionary: bool,
    ) -> Result<(PooledContext, u64), MalformedStream> {
        let open = self.slots.taken();
        let slot = self.slots.take().ok_or(MalformedStream::TooMany { open })?;
        // The lock protects a list that is consistent at any time, so a panic elsewhere does no harm.
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (context, work) = match spare {
            Some(context) => (context, USED),
            None => (DCtx::try_create().ok_or(MalformedStream::Frame)?, NEW),
        };
        let spare = Arc::clone(&self.spare);
        let mut pooled = PooledContext { context: Some(context), spare, _slot: slot };
        pooled.prepare(has_dictionary).ok_or(MalformedStream::Frame)?;
        Ok((pooled, work))
    }
}

impl PooledContext {
    fn prepare(&mut self, has_dictionary: bool) -> Option<()> {
        let context = self.get();
        context.reset(ResetDirective::SessionAndParameters).ok()?;
        // In range.
        context.set_parameter(DParameter::WindowLogMax(WINDOW)).ok()?;
        if has_dictionary {
            context.ref_ddict(&dictionary::OF_DECODERS).ok()?;
        }
        Some(())
    }

    pub(super) fn get(&mut self) -> &mut DCtx<'static> {
        self.context.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for PooledContext {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.extend(self.context.take());
        }
    }
}
