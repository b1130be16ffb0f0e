//! Bodies that are kept while they pass.

use std::sync::atomic::{AtomicU64, Ordering};

use pep::http::{Asked, ResponseHead};

use super::Shared;
use super::disk::Bytes;
use crate::clock;

/// A body that will be stored, as far as it has come.
pub(super) struct Recording<'a> {
    shared: &'a Shared,
    /// [`None`] once it has become too long.
    bytes: Option<Vec<u8>>,
    longest: u64,
}

/// Memory of all recordings.
#[derive(Debug, Default)]
pub(super) struct Recorded(AtomicU64);

impl<'a> Recording<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        let longest = shared.lock().store().longest();
        Self { shared, bytes: Some(Vec::new()), longest }
    }

    /// Adds what has come. All recordings together may take as much memory as the cache.
    pub(super) fn add(&mut self, more: &[u8]) {
        let Some(bytes) = &mut self.bytes else { return };
        let length = (bytes.len() + more.len()) as u64;
        let all = &self.shared.recorded.0;
        let most = self.shared.config.cache.limits.memory.get();
        if length > self.longest || all.load(Ordering::Relaxed) + more.len() as u64 > most {
            return self.give_up();
        }
        all.fetch_add(more.len() as u64, Ordering::Relaxed);
        bytes.extend_from_slice(more);
    }

    /// All that came; [`None`] if it was too long.
    pub(super) fn whole(mut self) -> Option<Bytes> {
        let body = self.bytes.as_ref().map(|bytes| bytes.as_slice().into());
        self.give_up();
        body
    }

    fn give_up(&mut self) {
        let length = self.bytes.take().map_or(0, |bytes| bytes.len() as u64);
        self.shared.recorded.0.fetch_sub(length, Ordering::Relaxed);
    }

    /// Stores it: it is whole.
    pub(super) fn store(mut self, asked: &Asked, reply: &ResponseHead) {
        let Some(bytes) = &self.bytes else { return };
        let (body, length) = (bytes.as_slice().into(), bytes.len() as u64);
        let now = clock::unix_time();
        self.shared.change(|cache| cache.handle_body(now, asked, reply, body, length));
        self.give_up();
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
