//! Scratch buffer for data that cannot go directly between a socket and the memory of a stream.
//!
//! There is one per thread, not per connection: it is filled and emptied within one poll, so an
//! idle connection holds no buffer at all.

use std::cell::RefCell;

/// Buffer size in bytes: large enough that system calls do not dominate.
const SIZE: usize = 256 << 10;
/// Bytes read at a time while the room of the sink is unknown: few, so that little is left over.
pub(crate) const LEAST: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the buffer to `work`, which must not call this again.
pub(crate) fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(SIZE, 0);
        work(buffer)
    })
}
