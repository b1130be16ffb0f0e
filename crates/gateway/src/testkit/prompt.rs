//! Checks that work does not hold up a gateway's thread, whatever peers send: a poll may take 50 ms of
//! processor time, which does not depend on the load of the machine.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::process::runtime::watchdog::{report_turns, thread_time};

/// Maximum processor time of a poll.
const MOST: Duration = Duration::from_millis(50);

/// Does work as within one poll, and fails if it takes too long.
pub(crate) fn prompt<T>(work: impl FnOnce() -> T) -> T {
    let begin = thread_time();
    let result = work();
    let took = thread_time() - begin;
    assert!(took <= MOST, "a poll has computed for {took:?}");
    result
}

/// A future that fails if one of its polls takes too long.
pub(crate) struct Prompt<F>(Pin<Box<F>>);

impl<F: Future> Prompt<F> {
    pub(crate) fn new(work: F) -> Self {
        Self(Box::pin(work))
    }
}

impl<F: Future> Future for Prompt<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        prompt(|| self.0.as_mut().poll(context))
    }
}

/// Watches all tasks of the calling thread's runtime.
pub(crate) struct Watch {
    longest: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let (longest, mut task) = (Arc::<AtomicU64>::default(), JoinSet::new());
        let noted = Arc::clone(&longest);
        task.spawn(report_turns(move |took| {
            noted.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
        }));
        Self { longest, _task: task }
    }

    /// Fails if the thread has computed for too long at once.
    pub(crate) fn assert_prompt(&self) {
        let longest = Duration::from_nanos(self.longest.load(Ordering::Relaxed));
        assert!(longest > Duration::ZERO && longest <= MOST, "{longest:?} at once");
    }
}
