//! Log messages for operators, limited to one a minute for each cause.

use std::io;
use std::sync::Mutex;

use bundles::BundleRefusal;
use shaping::TokenBucket;

use crate::operate::log::cause_limiter::CauseLimiter;
use crate::process::clock;

/// Times of the last log message of each cause. Causes are few: kinds of refusals per configured
/// node, and kinds of operations.
pub(super) struct BundleWarnings {
    last: Mutex<CauseLimiter>,
    reports: Mutex<TokenBucket>,
}

impl Default for BundleWarnings {
    fn default() -> Self {
        // Ten reports a second, after a burst of up to a hundred.
        Self { last: Mutex::default(), reports: Mutex::new(TokenBucket::new(10, 100)) }
    }
}

impl BundleWarnings {
    /// Logs a failure of the disk.
    pub(super) fn disk(&self, what: &str, error: &io::Error) {
        if self.is_due(what) {
            tracing::error!("bundles: cannot {what}: {error}");
        }
    }

    /// Logs the refusal of a received bundle.
    pub(super) fn refusal(&self, from: &str, why: BundleRefusal) {
        if self.is_due(&format!("{from}: {why}")) {
            tracing::warn!("bundles: refused a bundle from {from}: {why}");
        }
    }

    /// Logs that the next node refuses a bundle.
    pub(super) fn unwanted(&self, to: &str, why: &str) {
        if self.is_due(&format!("to {to}: {why}")) {
            tracing::warn!("bundles: {to} does not take one: {why}");
        }
    }

    /// Logs another node's report about a bundle of this node, ten a second at most: their number
    /// is up to others.
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
