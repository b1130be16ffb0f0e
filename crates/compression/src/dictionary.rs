//! What both sides know of small messages before the first: mostly how often letters and matches
//! occur in text. zstd cannot send such statistics with a block of 200 bytes, and its fixed ones fit
//! badly.

use std::sync::LazyLock;

use zstd_safe::{CDict, DDict};

/// Made by `tools/compression-dictionary.py`. Part of the protocol, which a change would break.
pub(super) const DICTIONARY: &[u8; 2048] = include_bytes!("dictionary");

/// zstd's first level that weighs the dictionary's statistics against those of a block
/// (`ZSTD_lazy2`; docs/decisions.md has the measurement).
const LEVEL: i32 = 6;

/// For compressors.
pub(super) static OF_ENCODERS: LazyLock<CDict<'static>> =
    LazyLock::new(|| CDict::create(DICTIONARY, LEVEL));

/// For decompressors.
pub(super) static OF_DECODERS: LazyLock<DDict<'static>> =
    LazyLock::new(|| DDict::create(DICTIONARY));
