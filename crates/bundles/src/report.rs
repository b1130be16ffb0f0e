//! Bundle status reports (RFC 9171 §6.1.1).

use core::time::Duration;

use hardy_bpv7::bundle::{FragmentInfo, Id};
use hardy_bpv7::creation_timestamp::CreationTimestamp;
use hardy_bpv7::dtn_time::DtnTime;
use hardy_bpv7::status_report::{
    AdministrativeRecord, BundleStatusReport, ReasonCode, StatusAssertion,
};

use super::endpoint::{BundleEndpoint, BundleNodeId};
use super::format::{BundleId, BundlePurpose, BundleSummary, DTN_EPOCH, NewBundle};
use super::report_request::ReportedEvent;

/// A status report received from another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    /// Identity of the bundle that it is about.
    pub id: BundleId,
    /// Source of that bundle.
    pub source: String,
    /// Names of the reported events: those of [`ReportedEvent`], or `deleted` for deletion with another reason.
    pub happenings: Vec<&'static str>,
}

/// Builds the bundle by which `node` reports an event of another bundle; `now` is in milliseconds since 1970.
/// [`None`] if that report was not requested. Reports never request reports.
///
/// # Panics
/// Never: what is invalid cannot be expressed.
pub fn report(
    about: &BundleSummary,
    what: ReportedEvent,
    node: &BundleNodeId,
    now: u64,
    sequence: u64,
) -> Option<Vec<u8>> {
    let request = about.reports.as_ref().filter(|request| request.asks(what))?;
    // A clock that was not set lies before the epoch, and 0 would mean an unknown time (RFC 9171 §4.2.7).
    let clock = now.checked_sub(DTN_EPOCH).filter(|since| *since > 0);
    let time = clock.filter(|_| request.time).map(|since| DtnTime::new(since).into());
    let said = |event| (event == what).then_some(StatusAssertion(time));
    let record = AdministrativeRecord::BundleStatusReport(BundleStatusReport {
        bundle_id: identity(about),
        received: said(ReportedEvent::Received),
        forwarded: said(ReportedEvent::Forwarded),
        delivered: said(ReportedEvent::Delivered),
        deleted: said(ReportedEvent::Expired),
        reason: match what {
            ReportedEvent::Expired => ReasonCode::LifetimeExpired,
            _ => ReasonCode::NoAdditionalInformation,
        },
    });
    let bundle = NewBundle {
        source: &node.admin_endpoint(),
        destination: &request.to,
        created: now,
        sequence,
        lifetime: about.lifetime.max(Duration::from_secs(60)),
        file_name: None,
        purpose: BundlePurpose::Administration,
        payload: &hardy_cbor::encode::emit(&record).0,
    };
    Some(bundle.encode())
}

fn identity(about: &BundleSummary) -> Id {
    let created = about.created.map(|time| DtnTime::new(time.saturating_sub(DTN_EPOCH)));
    Id {
        source: about.source.eid().clone(),
        timestamp: CreationTimestamp::from_parts(created, about.sequence),
        // A report contains the payload's length in this field (§6.1.1).
        fragment_info: about.fragment.map(|fragment| FragmentInfo {
            offset: fragment.offset,
            total_adu_length: about.payload.len() as u64,
        }),
    }
}

/// Parses the payload of an administrative bundle; [`None`] if it is not a status report.
pub fn read_report(payload: &[u8]) -> Option<StatusReport> {
    let (record, length) =
        hardy_cbor::decode::parse::<(AdministrativeRecord, usize)>(payload).ok()?;
    let AdministrativeRecord::BundleStatusReport(report) = record;
    let expired = report.reason == ReasonCode::LifetimeExpired;
    let happenings = [
        (&report.received, "received"),
        (&report.forwarded, "forwarded"),
        (&report.delivered, "delivered"),
        (&report.deleted, if expired { "expired" } else { "deleted" }),
    ];
    let happenings =
        happenings.into_iter().filter(|(asserted, _)| asserted.is_some()).map(|(_, what)| what);
    let source = BundleEndpoint::try_from(report.bundle_id.source.clone()).ok()?;
    let part =
        report.bundle_id.fragment_info.as_ref().map_or(0, |fragment| fragment.total_adu_length);
    (length == payload.len()).then(|| StatusReport {
        id: BundleId::of(&report.bundle_id, part),
        source: source.to_string(),
        happenings: happenings.collect(),
    })
}
