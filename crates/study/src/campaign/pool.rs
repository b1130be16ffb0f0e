//! A pool of threads that works through jobs in a given order.

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

/// Calls `work` for each index in `order`, which holds each once: a thread that is free takes the
/// next one. The results are in the order of the indices, whichever thread computed them.
///
/// # Errors
/// If the threads cannot be started.
pub(crate) fn run_in_order<T: Send>(
    order: &[usize],
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Result<Vec<T>, ThreadPoolBuildError> {
    // Rayon takes 0 for its own choice; threads without a job would only cost their start.
    let threads = threads.clamp(1, order.len().max(1));
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    let done = Mutex::new(Vec::new());
    let work = &work;
    // First in, first out, so that a caller can have the longest jobs begin first.
    pool.scope_fifo(|scope| {
        for index in order {
            let done = &done;
            scope.spawn_fifo(move |_| {
                let result = work(*index);
                // `work` returns before the lock is taken, so a panic leaves no half-written list.
                done.lock().unwrap_or_else(PoisonError::into_inner).push((*index, result));
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // They are in the order in which they finished.
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_indices() {
        for threads in [0, 1, 3, 9] {
            assert_eq!(run_in_order(&[2, 0, 1], threads, |index| index * 10).unwrap(), [0, 10, 20]);
        }
        assert!(run_in_order(&[], 4, |index| index).unwrap().is_empty());
    }

    #[test]
    fn work_starts_in_the_given_order() {
        let started = Mutex::new(Vec::new());
        run_in_order(&[2, 0, 1], 1, |index| started.lock().unwrap().push(index)).unwrap();
        assert_eq!(started.into_inner().unwrap(), [2, 0, 1]);
    }
}
