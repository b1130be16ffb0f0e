//! Works through jobs on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};

/// Does `work` for each index in `order`, which holds each once: a thread that is free takes the
/// next one. The results are in the order of the indices, whichever thread made them.
pub(crate) fn each<T: Send>(
    order: &[usize],
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*index, work(*index)));
        }
        done
    };
    let mut all = thread::scope(|scope| {
        let threads = threads.clamp(1, order.len().max(1));
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        let done = threads.into_iter().map(thread::ScopedJoinHandle::join);
        let done = done.map(|done| done.unwrap_or_else(|panic| panic::resume_unwind(panic)));
        done.flatten().collect::<Vec<_>>()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_indices() {
        for threads in [0, 1, 3, 9] {
            assert_eq!(each(&[2, 0, 1], threads, |index| index * 10), [0, 10, 20]);
        }
        assert!(each(&[], 4, |index| index).is_empty());
    }

    #[test]
    fn work_starts_in_the_given_order() {
        let started = Mutex::new(Vec::new());
        each(&[2, 0, 1], 1, |index| started.lock().unwrap().push(index));
        assert_eq!(started.into_inner().unwrap(), [2, 0, 1]);
    }
}
