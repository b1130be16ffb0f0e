//! Bodies that are collected for the cache while they are forwarded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use http_cache::{ForwardedRequest, ResponseHead};
use units::ByteCount;

use super::kept::ResponseCache;
use crate::process::clock;

/// A body being collected. It gives up when the body gets too long or memory runs out.
pub(super) struct BodyRecorder<'a> {
    kept: &'a ResponseCache,
    /// The body so far; [`None`] after giving up.
    bytes: Option<Vec<u8>>,
    longest: u64,
}

/// Memory for all bodies being collected: as much again as the cache may take.
#[derive(Debug)]
pub(super) struct RecordingMemory {
    most: u64,
    taken: Mutex<MemoryUse>,
}

#[derive(Debug, Default)]
struct MemoryUse {
    all: u64,
    /// Reserved for bodies still to come, by client.
    ahead: BTreeMap<IpAddr, u64>,
}

/// Reserved memory for a whole body. Dropping it releases the memory.
pub(super) struct BodyReservation {
    kept: Arc<ResponseCache>,
    client: IpAddr,
    length: u64,
}

impl RecordingMemory {
    pub(super) fn new(most: ByteCount) -> Self {
        Self { most: most.get(), taken: Mutex::default() }
    }

    fn change<R>(&self, change: impl FnOnce(&mut MemoryUse) -> R) -> R {
        change(&mut self.taken.lock().expect("nobody panics while holding this"))
    }

    fn take(&self, length: u64) -> bool {
        self.change(|taken| {
            let fits = taken.all + length <= self.most;
            taken.all += if fits { length } else { 0 };
            fits
        })
    }

    fn release(&self, length: u64) {
        self.change(|taken| taken.all -= length);
    }
}

impl BodyReservation {
    /// Reserves memory for a body of `length` bytes. A client gets half of the total at most: its
    /// server may announce a body that never comes.
    pub(super) fn new(kept: &Arc<ResponseCache>, client: IpAddr, length: u64) -> Option<Self> {
        let recorded = &kept.recorded;
        let longest = kept.lock().store().longest_body();
        let ahead = recorded.change(|taken| taken.ahead.get(&client).copied().unwrap_or(0));
        if length > longest || ahead + length > recorded.most / 2 || !recorded.take(length) {
            return None;
        }
        recorded.change(|taken| *taken.ahead.entry(client).or_default() += length);
        Some(Self { kept: kept.clone(), client, length })
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let Self { client, length, .. } = *self;
        self.kept.recorded.change(|taken| {
            taken.all -= length;
            let of_client = taken.ahead.entry(client).or_default();
            *of_client -= length;
            if *of_client == 0 {
                taken.ahead.remove(&client);
            }
        });
    }
}

impl<'a> BodyRecorder<'a> {
    pub(super) fn new(kept: &'a ResponseCache) -> Self {
        let longest = kept.lock().store().longest_body();
        Self { kept, bytes: Some(Vec::new()), longest }
    }

    pub(super) fn add(&mut self, more: &[u8]) {
        let Some(bytes) = &mut self.bytes else { return };
        let length = (bytes.len() + more.len()) as u64;
        if length > self.longest || !self.kept.recorded.take(more.len() as u64) {
            return self.give_up();
        }
        bytes.extend_from_slice(more);
    }

    fn give_up(&mut self) {
        let length = self.bytes.take().map_or(0, |bytes| bytes.len() as u64);
        self.kept.recorded.release(length);
    }

    /// Stores the body, which is complete.
    pub(super) fn store(mut self, asked: &ForwardedRequest, reply: &ResponseHead) {
        let Some(bytes) = &self.bytes else { return };
        let body = bytes.as_slice().into();
        let length = bytes.len() as u64;
        let now = clock::unix_time();
        self.kept.change(|cache| cache.handle_body(now, asked, reply, body, length));
        // The cache has a copy, for which it has memory of its own.
        self.give_up();
    }
}

impl Drop for BodyRecorder<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
