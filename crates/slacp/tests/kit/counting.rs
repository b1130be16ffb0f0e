//! Counts the allocations of each thread, and so of each test.

#![allow(dead_code, unreachable_pub, missing_docs, unsafe_code)]

use core::alloc::Layout;
use core::cell::Cell;
use std::alloc::{GlobalAlloc, System};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MADE: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LIVE.try_with(|live| live.set(live.get() + layout.size() as isize));
        let _ = MADE.try_with(|made| made.set(made.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let _ = LIVE.try_with(|live| live.set(live.get() - layout.size() as isize));
        // SAFETY: `place` came from `alloc` with this layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread has allocated, less those it has freed.
pub fn live_bytes() -> isize {
    LIVE.with(Cell::get)
}

/// Number of allocations that this thread has made.
pub fn allocations() -> u64 {
    MADE.with(Cell::get)
}
