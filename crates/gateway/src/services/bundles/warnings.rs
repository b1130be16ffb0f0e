//! What operators must know of, once a minute at most for each cause.

use std::io;
use std::sync::Mutex;

use bundles::Refusal;
use shaping::Bucket;

use crate::clock;
use crate::occasions::Occasions;

/// When each was logged last. The causes are few: kinds of refusals for each configured node, and
/// kinds of operations.
pub(super) struct Warnings {
    last: Mutex<Occasions>,
    reports: Mutex<Bucket>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { last: Mutex::default(), reports: Mutex::new(Bucket::new(10, 100)) }
    }
}

impl Warnings {
    /// The disk has failed.
    pub(super) fn disk(&self, what: &str, error: &io::Error) {
        if self.is_due(what) {
            tracing::error!("bundles: cannot {what}: {error}");
        }
    }

    /// A bundle is not taken.
    pub(super) fn refusal(&self, from: &str, why: Refusal) {
        if self.is_due(&format!("{from}: {why}")) {
            tracing::warn!("bundles: one from {from} is not taken: {why}");
        }
    }

    /// The next node does not take a bundle.
    pub(super) fn unwanted(&self, to: &str, why: &str) {
        if self.is_due(&format!("to {to}: {why}")) {
            tracing::warn!("bundles: {to} does not take one: {why}");
        }
    }

    /// Another node has reported on a bundle of ours. These are not warnings, but as many as others like:
    /// the log has ten a second at most.
    pub(super) fn report(&self, what: &str) {
        let mut reports = self.reports.lock().expect("nobody panics while holding the bucket");
        if reports.take(clock::now()) {
            tracing::info!("bundles: report: {what}");
        }
    }

    fn is_due(&self, cause: &str) -> bool {
        let mut last = self.last.lock().expect("nobody panics while holding the list");
        last.is_due(clock::now(), cause)
    }
}
