//! Encoding of bundles (RFC 9171 §4): parsing, creation, and changes when forwarding.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use hardy_bpv7::block::{Flags as BlockFlags, Type};
use hardy_bpv7::bpsec::no_keys;
use hardy_bpv7::builder::Builder;
use hardy_bpv7::bundle::{Bundle, Flags, Id, RewrittenBundle};
use hardy_bpv7::bundle_age::BundleAge;
use hardy_bpv7::creation_timestamp::CreationTimestamp;
use hardy_bpv7::dtn_time::DtnTime;
use hardy_bpv7::editor::{Chunk, Editor};
use hardy_bpv7::hop_info::HopInfo;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::endpoint::{BundleEndpoint, BundleNodeId, EndpointError};
use super::file_name::FileName;
use super::report_request::ReportRequest;

/// Start of DTN time, 2000-01-01 (RFC 9171 §4.2.6), in milliseconds since 1970.
pub(super) const DTN_EPOCH: u64 = 946_684_800_000;
/// Block type of the name of the file that a bundle carries, from the range for private use (RFC 9171
/// §9.1). Other nodes ignore the block and get the contents of the file.
const FILE_NAME: Type = Type::Unrecognised(192);
/// Hop limit of bundles that this node creates, against loops.
const HOP_LIMIT: u64 = 32;
/// The block number of every payload (RFC 9171 §4.1).
pub(super) const PAYLOAD: u64 = 1;

/// Identity of a bundle: the first half of the SHA-256 of its source, creation time and sequence number,
/// and for a fragment also its offset and length (RFC 9171 §4.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleId(pub [u8; 16]);

impl BundleId {
    /// Computes the identity; `length` is the length of a fragment's payload.
    pub(super) fn of(id: &Id, length: u64) -> Self {
        let (created, sequence) = id.timestamp.clone().into_parts();
        let mut hash = Sha256::new();
        let mut put = |number: u64| hash.update(number.to_be_bytes());
        put(created.map_or(0, |time| time.millisecs()));
        put(sequence);
        let fragment = id.fragment_info.as_ref();
        put(fragment.map_or(0, |fragment| fragment.offset));
        // An empty fragment must differ from the whole.
        put(fragment.map_or(0, |_| length.saturating_add(1)));
        hash.update(id.source.to_string());
        let whole: [u8; 32] = hash.finalize().into();
        Self(std::array::from_fn(|place| whole[place]))
    }

    /// Parses the form that [`fmt::Display`] writes.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let digits: [u8; 32] = digits?.try_into().ok()?;
        Some(Self(std::array::from_fn(|place| digits[2 * place] << 4 | digits[2 * place + 1])))
    }
}

impl fmt::Display for BundleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Position of a fragment in the payload of the whole bundle (RFC 9171 §4.3.1), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FragmentPosition {
    /// Offset of the fragment's first byte.
    pub offset: u64,
    /// Length of the whole's payload.
    pub total: u64,
}

impl FragmentPosition {
    /// End of a fragment of this length. Remote values may overflow; no payload ends that far.
    pub(super) fn end(&self, length: u64) -> u64 {
        self.offset.saturating_add(length)
    }
}

/// Description of a bundle, from its primary and extension blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleSummary {
    /// Its identity.
    pub id: BundleId,
    /// The endpoint that created it.
    pub source: BundleEndpoint,
    /// The endpoint that it is addressed to.
    pub destination: BundleEndpoint,
    /// Creation time, in milliseconds since 1970; [`None`] if its source has no clock.
    pub created: Option<u64>,
    /// Lifetime, counted from the creation.
    pub lifetime: Duration,
    /// Time since the creation, for a source without a clock.
    pub age: Option<Duration>,
    /// Name of the file that it carries.
    pub file_name: Option<FileName>,
    /// Byte range of the payload in the encoded bundle.
    pub payload: Range<usize>,
    /// Sequence number, which distinguishes bundles of the same source and creation time.
    pub sequence: u64,
    /// Position in a larger bundle, if it is a fragment.
    pub fragment: Option<FragmentPosition>,
    /// Identity of the whole; its own if it is not a fragment.
    pub whole: BundleId,
    /// `true` if it carries an administrative record (RFC 9171 §6).
    pub is_administrative: bool,
    /// The status reports that it requests.
    pub reports: Option<ReportRequest>,
    /// Length of the encoded bundle, in bytes.
    pub length: u64,
}

impl BundleSummary {
    /// Expiry in milliseconds since 1970, for a bundle that arrived at `arrived`.
    pub fn expires(&self, arrived: u64) -> u64 {
        let born = self
            .created
            .unwrap_or_else(|| arrived.saturating_sub(millis(self.age.unwrap_or_default())));
        born.saturating_add(millis(self.lifetime))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Why bytes are not accepted as a bundle.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnreadableBundle {
    /// Not a bundle, or a malformed one.
    #[error("not a bundle: {0}")]
    Malformed(String),
    /// Source or destination have an unsupported form. A bundle without a source has no identity, so
    /// duplicates could not be recognised.
    #[error("its source or destination has a form that is not supported")]
    Endpoint,
    /// Its hop limit is exhausted (RFC 9171 §4.4.3).
    #[error("its hop limit is exhausted")]
    Hops,
}

impl From<EndpointError> for UnreadableBundle {
    fn from(_: EndpointError) -> Self {
        Self::Endpoint
    }
}

/// Parses a bundle. The second result is the form to keep, if it differs: canonical, and without blocks
/// that must be removed by nodes that do not support them (RFC 9171 §5.6).
///
/// # Errors
/// [`UnreadableBundle`] if the bundle is not accepted.
pub fn read(bytes: &[u8]) -> Result<(BundleSummary, Option<Vec<u8>>), UnreadableBundle> {
    match RewrittenBundle::parse(bytes, no_keys).map_err(malformed)? {
        RewrittenBundle::Valid { bundle, .. } => Ok((summary(&bundle, bytes)?, None)),
        RewrittenBundle::Rewritten { new_data, .. } => {
            let kept = Chunk::flatten(new_data, bytes).into_vec();
            // Parsed again, because ranges and length must refer to the kept form.
            match RewrittenBundle::parse(&kept, no_keys).map_err(malformed)? {
                RewrittenBundle::Valid { bundle, .. } => {
                    let summary = summary(&bundle, &kept)?;
                    Ok((summary, Some(kept)))
                }
                _ => Err(UnreadableBundle::Malformed("it has no canonical form".to_owned())),
            }
        }
        RewrittenBundle::Invalid { error, .. } => Err(malformed(error)),
    }
}

fn malformed(error: impl fmt::Display) -> UnreadableBundle {
    UnreadableBundle::Malformed(error.to_string())
}

fn summary(bundle: &Bundle, bytes: &[u8]) -> Result<BundleSummary, UnreadableBundle> {
    if bundle.hop_count.as_ref().is_some_and(|hops| hops.count >= hops.limit) {
        return Err(UnreadableBundle::Hops);
    }
    let block = bundle.blocks.get(&PAYLOAD);
    let payload = block.map(|block| block.payload_range()).filter(|range| range.end <= bytes.len());
    let payload =
        payload.ok_or_else(|| UnreadableBundle::Malformed("it has no payload".to_owned()))?;
    let created = bundle.id.timestamp.creation_time();
    Ok(BundleSummary {
        id: BundleId::of(&bundle.id, payload.len() as u64),
        source: bundle.id.source.clone().try_into()?,
        destination: bundle.destination.clone().try_into()?,
        created: created.map(|time| time.millisecs().saturating_add(DTN_EPOCH)),
        lifetime: bundle.lifetime,
        age: bundle.age,
        file_name: file_name(bundle, bytes),
        payload,
        sequence: bundle.id.timestamp.clone().into_parts().1,
        fragment: bundle.id.fragment_info.as_ref().map(|fragment| FragmentPosition {
            offset: fragment.offset,
            total: fragment.total_adu_length,
        }),
        whole: BundleId::of(&Id { fragment_info: None, ..bundle.id.clone() }, 0),
        is_administrative: bundle.flags.is_admin_record,
        reports: reports(bundle),
        length: bytes.len() as u64,
    })
}

/// The status reports that a bundle requests. Requests of administrative bundles are ignored, against loops
/// (RFC 9171 §4.2.3).
fn reports(bundle: &Bundle) -> Option<ReportRequest> {
    let flags = &bundle.flags;
    let request = ReportRequest {
        to: bundle.report_to.clone().try_into().ok()?,
        received: flags.receipt_report_requested,
        forwarded: flags.forward_report_requested,
        delivered: flags.delivery_report_requested,
        deleted: flags.delete_report_requested,
        time: flags.report_status_time,
    };
    let asks = request.received || request.forwarded || request.delivered || request.deleted;
    (asks && !flags.is_admin_record).then_some(request)
}

/// The file name in our block; of several blocks, that with the lowest number.
fn file_name(bundle: &Bundle, bytes: &[u8]) -> Option<FileName> {
    let named = bundle.blocks.iter().filter(|(_, block)| block.block_type == FILE_NAME);
    let (_, block) = named.min_by_key(|(number, _)| **number)?;
    FileName::new(core::str::from_utf8(block.payload(bytes)?).ok()?)
}

/// Purpose of a new bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundlePurpose {
    /// Data that a program has submitted.
    Data,
    /// Data of a program; the source's node requests reports of its delivery or deletion.
    Reported,
    /// An administrative record (RFC 9171 §6).
    Administration,
}

/// Contents of a bundle to create.
#[derive(Debug, Clone)]
pub struct NewBundle<'a> {
    /// The endpoint that creates it.
    pub source: &'a BundleEndpoint,
    /// The endpoint that it is addressed to.
    pub destination: &'a BundleEndpoint,
    /// Creation time, in milliseconds since 1970. Before 2000 the clock was never set: the bundle then
    /// carries its age instead.
    pub created: u64,
    /// Sequence number, which distinguishes bundles of the same source and creation time.
    pub sequence: u64,
    /// Lifetime, counted from the creation.
    pub lifetime: Duration,
    /// Name of the file that it carries.
    pub file_name: Option<&'a FileName>,
    /// Its purpose, which decides its flags.
    pub purpose: BundlePurpose,
    /// The payload, without the bundle's blocks.
    pub payload: &'a [u8],
}

impl NewBundle<'_> {
    /// Encodes the bundle.
    ///
    /// # Panics
    /// Never: what is invalid cannot be expressed.
    pub fn encode(&self) -> Vec<u8> {
        let clocked = self.created.checked_sub(DTN_EPOCH).filter(|since| *since > 0);
        let reported = self.purpose == BundlePurpose::Reported;
        let flags = Flags {
            // Nodes refuse fragments of administrative records (`check_part`).
            do_not_fragment: self.purpose == BundlePurpose::Administration,
            is_admin_record: self.purpose == BundlePurpose::Administration,
            delivery_report_requested: reported,
            delete_report_requested: reported,
            report_status_time: reported,
            ..Flags::default()
        };
        let mut builder = Builder::new(self.source.eid().clone(), self.destination.eid().clone())
            .with_flags(flags)
            .with_report_to(self.source.node().eid())
            .with_lifetime(self.lifetime);
        let mut add = |kind: Type, data: Vec<u8>| {
            let block = std::mem::replace(&mut builder, placeholder()).add_extension_block(kind);
            builder = block.expect("it is not the primary one").build(data.into());
        };
        // Not `with_hop_count`, whose flag for failure reports is forbidden in administrative records
        // (§4.2.4).
        add(Type::HopCount, hardy_cbor::encode::emit(&HopInfo { limit: HOP_LIMIT, count: 0 }).0);
        if clocked.is_none() {
            add(Type::BundleAge, hardy_cbor::encode::emit(&BundleAge::from(0)).0);
        }
        if let Some(name) = self.file_name {
            add(FILE_NAME, name.as_str().as_bytes().to_vec());
        }
        let time = CreationTimestamp::from_parts(clocked.map(DtnTime::new), self.sequence);
        let built = builder.with_payload(self.payload.into()).build(time);
        built.expect("every part is valid").1.into_vec()
    }
}

/// Placeholder for a builder that is moved out for a moment.
fn placeholder<'a>() -> Builder<'a> {
    Builder::new(Default::default(), Default::default())
}

/// Rewrites a bundle for forwarding by `node` after it has waited here: that node becomes the previous one,
/// the hop count and the age increase (RFC 9171 §5.4).
///
/// Blocks that the source has signed or encrypted cannot be changed; the bundle is then forwarded
/// unchanged.
pub fn forwarded(bytes: &[u8], node: &BundleNodeId, waited: Duration) -> Vec<u8> {
    let Ok(RewrittenBundle::Valid { bundle, .. }) = RewrittenBundle::parse(bytes, no_keys) else {
        return bytes.to_vec();
    };
    let mut changes = vec![(Type::PreviousNode, hardy_cbor::encode::emit(&node.eid()).0)];
    if let Some(hops) = &bundle.hop_count {
        let more = HopInfo { limit: hops.limit, count: hops.count.saturating_add(1) };
        changes.push((Type::HopCount, hardy_cbor::encode::emit(&more).0));
    }
    if let Some(age) = bundle.age {
        let older = BundleAge::from(age.saturating_add(waited));
        changes.push((Type::BundleAge, hardy_cbor::encode::emit(&older).0));
    }
    let mut editor = Editor::new(&bundle, bytes);
    for (kind, data) in changes {
        editor = match editor.insert_block(kind) {
            Ok(block) => {
                let flags = BlockFlags::default();
                block.with_flags(flags).with_data(data.into()).rebuild()
            }
            Err((unchanged, _)) => unchanged,
        };
    }
    match editor.rebuild() {
        Ok(chunks) => Chunk::flatten(chunks, bytes).into_vec(),
        Err(_) => bytes.to_vec(),
    }
}
