//! The header before a bundle in its file.

use bundles::{BundleId, BundleRecord, FragmentPosition, FragmentRecord};
use serde::{Deserialize, Serialize};

/// Length of the header, in bytes: a block of most file systems.
pub(super) const HEADER: usize = 4096;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleHeader {
    skyhop_bundle: u32,
    id: String,
    source: String,
    destination: String,
    arrived_ms: u64,
    expires_ms: u64,
    length: u64,
    /// For a part: identity and length of the whole, offset in it, and the part's payload length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<(String, u64, u64, u64)>,
}

/// Encodes the header of a bundle's file.
pub(super) fn write(record: &BundleRecord) -> [u8; HEADER] {
    let header = BundleHeader {
        skyhop_bundle: VERSION,
        id: record.id.to_string(),
        source: record.source.to_string(),
        destination: record.destination.to_string(),
        arrived_ms: record.arrived,
        expires_ms: record.expires,
        length: record.length,
        part: record.part.map(|FragmentRecord { whole, place, length }| {
            (whole.to_string(), place.total, place.offset, length)
        }),
    };
    let text = serde_json::to_vec(&header).expect("it is plain data");
    let mut bytes = [b' '; HEADER];
    // Endpoints have at most 255 bytes each, which JSON at most doubles.
    bytes[..text.len()].copy_from_slice(&text);
    bytes[HEADER - 1] = b'\n';
    bytes
}

/// Decodes a header; [`None`] if it is damaged or of another version.
pub(super) fn read(bytes: &[u8; HEADER]) -> Option<BundleRecord> {
    let header: BundleHeader = serde_json::from_slice(bytes).ok()?;
    (header.skyhop_bundle == VERSION).then_some(())?;
    let part = match header.part {
        Some((whole, total, offset, length)) => {
            let whole = BundleId::from_hex(&whole)?;
            let place = FragmentPosition { offset, total };
            Some(FragmentRecord { whole, place, length })
        }
        None => None,
    };
    Some(BundleRecord {
        id: BundleId::from_hex(&header.id)?,
        source: header.source.parse().ok()?,
        destination: header.destination.parse().ok()?,
        arrived: header.arrived_ms,
        expires: header.expires_ms,
        length: header.length,
        part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let long = format!("dtn://{}/x", "~".repeat(240));
        let place = FragmentPosition { offset: u64::MAX, total: u64::MAX };
        let record = BundleRecord {
            id: BundleId([0xa7; 16]),
            source: "ipn:2.7".parse().unwrap(),
            destination: long.parse().unwrap(),
            arrived: u64::MAX,
            expires: u64::MAX,
            length: u64::MAX,
            part: Some(FragmentRecord { whole: BundleId([0xb8; 16]), place, length: u64::MAX }),
        };
        let bytes = write(&record);
        assert_eq!(read(&bytes), Some(record));
        assert_eq!(bytes[HEADER - 1], b'\n');
        assert_eq!(read(&[0; HEADER]), None);
        let mut other = bytes;
        let version = bytes.windows(2).position(|pair| pair == b":1").unwrap();
        other[version + 1] = b'2';
        assert_eq!(read(&other), None);
    }
}
