//! The buffer through which bytes pass between a TCP socket and a stream.
//!
//! One for each thread, not for each connection: it is filled and emptied within
//! one poll. An idle connection holds no buffer at all.

use std::cell::RefCell;

/// Large enough that system calls do not dominate, small enough that what a full
/// socket leaves over is little.
const SIZE: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the buffer for the duration of `work`, which must not lend it again.
pub(crate) fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(SIZE, 0);
        work(buffer)
    })
}
