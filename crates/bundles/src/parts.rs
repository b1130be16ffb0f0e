//! Fragmentation of bundles that are too large for the next node, and reassembly (RFC 9171 §5.8 and §5.9).

use hardy_bpv7::block::Type;
use hardy_bpv7::bpsec::no_keys;
use hardy_bpv7::bundle::{Bundle, FragmentInfo, RewrittenBundle};
use hardy_bpv7::editor::{Chunk, Editor};
use thiserror::Error;

use super::format::{BundleId, FragmentPosition, PAYLOAD};

/// Most fragments of a bundle that are made or kept: each is a file, and is remembered.
pub const MOST_PARTS: usize = 1000;
/// Bytes that the fields of a fragment and longer block headers may add to a bundle.
const HEADS: usize = 48;

/// Why a bundle is not fragmented, or fragments are not joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PartsError {
    /// Its source forbids it, or has signed or encrypted it (RFC 9172 §3.3).
    #[error("it must not be fragmented")]
    Forbidden,
    /// There would be more than [`MOST_PARTS`].
    #[error("it would need more than {MOST_PARTS} fragments")]
    TooMany,
    /// The bytes are not a bundle, or not fragments of one.
    #[error("malformed")]
    Malformed,
}

fn parse(bytes: &[u8]) -> Result<Bundle, PartsError> {
    match RewrittenBundle::parse(bytes, no_keys) {
        Ok(RewrittenBundle::Valid { bundle, .. }) => Ok(bundle),
        _ => Err(PartsError::Malformed),
    }
}

/// Splits a bundle into fragments of at most `largest` bytes each, with their identities. All of them carry
/// every block except the payload, so none of these depends on a single fragment.
///
/// # Errors
/// [`PartsError`] if the bundle must not, or cannot, be fragmented so.
pub fn parts(bytes: &[u8], largest: u64) -> Result<Vec<(BundleId, Vec<u8>)>, PartsError> {
    let bundle = parse(bytes)?;
    let secured = |kind: &Type| matches!(kind, Type::BlockIntegrity | Type::BlockSecurity);
    let is_secured = bundle.blocks.values().any(|block| secured(&block.block_type));
    if bundle.flags.do_not_fragment || is_secured {
        return Err(PartsError::Forbidden);
    }
    let block = bundle.blocks.get(&PAYLOAD).ok_or(PartsError::Malformed)?;
    let payload = bytes.get(block.payload_range()).ok_or(PartsError::Malformed)?;
    let around = bytes.len() - payload.len() + HEADS;
    let piece = usize::try_from(largest).unwrap_or(usize::MAX).saturating_sub(around);
    if piece == 0 || payload.len().div_ceil(piece) > MOST_PARTS {
        return Err(PartsError::TooMany);
    }
    let of = bundle.id.fragment_info.clone();
    let (start, total) = of
        .map_or((0, payload.len() as u64), |fragment| (fragment.offset, fragment.total_adu_length));
    let pieces = payload.chunks(piece).enumerate();
    let made = pieces.map(|(place, data)| {
        let offset = start.checked_add((place * piece) as u64).ok_or(PartsError::Malformed)?;
        let info = FragmentInfo { offset, total_adu_length: total };
        let mut id = bundle.id.clone();
        id.fragment_info = Some(info.clone());
        Ok((BundleId::of(&id, data.len() as u64), rewritten(&bundle, bytes, Some(info), data)?))
    });
    made.collect()
}

/// The bundle with another payload, as a fragment or as a whole.
fn rewritten(
    bundle: &Bundle,
    bytes: &[u8],
    part: Option<FragmentInfo>,
    payload: &[u8],
) -> Result<Vec<u8>, PartsError> {
    let malformed = |_| PartsError::Malformed;
    let editor = Editor::new(bundle, bytes).with_fragment_info(part).map_err(malformed)?;
    let block = editor.update_block(PAYLOAD).map_err(malformed)?.with_data(payload.into());
    let chunks = block.rebuild().rebuild().map_err(|_| PartsError::Malformed)?;
    Ok(Chunk::flatten(chunks, bytes).into_vec())
}

/// Builds any fragment of a bundle, with any contents.
#[cfg(test)]
pub(super) fn part_of(
    whole: &[u8],
    (offset, total_adu_length): (u64, u64),
    data: &[u8],
) -> Result<Vec<u8>, PartsError> {
    rewritten(&parse(whole)?, whole, Some(FragmentInfo { offset, total_adu_length }), data)
}

/// Joins fragments that are added in the order of their offsets. Where they overlap, the earlier one
/// counts. Memory holds the payload and one fragment at a time.
#[derive(Debug, Default)]
pub struct FragmentJoiner {
    /// The first fragment, whose other blocks become those of the whole.
    first: Option<Vec<u8>>,
    payload: Vec<u8>,
    total: u64,
}

impl FragmentJoiner {
    /// Adds a fragment.
    ///
    /// # Errors
    /// [`PartsError::Malformed`] if it is not a fragment, or leaves a gap.
    pub fn add(&mut self, bytes: Vec<u8>) -> Result<(), PartsError> {
        let bundle = parse(&bytes)?;
        let info = bundle.id.fragment_info.as_ref().ok_or(PartsError::Malformed)?;
        let block = bundle.blocks.get(&PAYLOAD).ok_or(PartsError::Malformed)?;
        let data = bytes.get(block.payload_range()).ok_or(PartsError::Malformed)?;
        let known = (self.payload.len() as u64).checked_sub(info.offset);
        let known = known.and_then(|known| usize::try_from(known).ok());
        self.payload
            .extend_from_slice(data.get(known.ok_or(PartsError::Malformed)?..).unwrap_or(&[]));
        self.total = info.total_adu_length;
        self.first.get_or_insert(bytes);
        Ok(())
    }

    /// Encodes the whole bundle.
    ///
    /// # Errors
    /// [`PartsError::Malformed`] if fragments are missing at the end.
    pub fn finish(self) -> Result<Vec<u8>, PartsError> {
        let first = self.first.ok_or(PartsError::Malformed)?;
        if self.payload.len() as u64 != self.total {
            return Err(PartsError::Malformed);
        }
        rewritten(&parse(&first)?, &first, None, &self.payload)
    }
}

/// Selects the fragments of a whole that add bytes to those before. `parts` has the position and length of
/// each, in the order of positions. [`None`] if they leave a gap.
pub(super) fn needed<T>(
    total: u64,
    parts: impl Iterator<Item = (FragmentPosition, u64, T)>,
) -> Option<Vec<T>> {
    let mut until = 0;
    let mut needed = Vec::new();
    for (place, length, part) in parts {
        if place.offset > until {
            return None;
        }
        let end = place.end(length);
        if end > until {
            until = end;
            needed.push(part);
        }
    }
    (until == total).then_some(needed)
}
