//! Dictionary that both sides have for small messages: mostly the frequencies of letters and matches in
//! text. zstd cannot transmit such statistics with a block of 200 bytes, and its built-in ones fit badly.

use std::sync::LazyLock;

use zstd_safe::{CDict, DDict};

/// Made by `tools/compression-dictionary.py`. It is part of the protocol: a change would break
/// compatibility.
pub(super) const DICTIONARY: &[u8; 2048] = include_bytes!("dictionary");

/// zstd's lowest level that weighs the dictionary's statistics against those of a block (`ZSTD_lazy2`;
/// docs/decisions.md has the measurement).
const LEVEL: i32 = 6;

/// Dictionary prepared for encoders.
pub(super) static OF_ENCODERS: LazyLock<CDict<'static>> =
    LazyLock::new(|| CDict::create(DICTIONARY, LEVEL));

/// Dictionary prepared for decoders.
pub(super) static OF_DECODERS: LazyLock<DDict<'static>> =
    LazyLock::new(|| DDict::create(DICTIONARY));
