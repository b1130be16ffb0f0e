//! The store of bundles on the disk.
//!
//! ```text
//! lock                 locked while a gateway uses the directory
//! held/IDENTITY        a complete bundle behind a header
//! partial/DIGEST, NAME the bytes received so far of incomplete bundles
//! named/IDENTITY       a mark: the bundle's file has its name in the inbox, or is about to
//! known                bundles that are gone, one a line
//! ```
//!
//! A bundle enters `held` by a rename, after its bytes are on the disk; it leaves after `known` has
//! it. So a power cut at any moment leaves it either here, once, or known. All operations block,
//! and run in a thread of their own ([`StoreHandle`]).

mod disk;
mod handle;
mod header;
mod inbox;
mod known;
#[cfg(test)]
mod tests;

pub(super) use disk::{BundleStore, PartialId, StoreError};
pub(super) use handle::StoreHandle;
