//! Metrics of a run for comparisons.

use serde::Serialize;
use units::{BitRate, ByteCount};

use super::run_report::MeterReport;
use crate::bulk::BulkReport;
use crate::page::PageReport;
use crate::protocol::amount::FlowAmount;
use crate::protocol::direction::Directions;
use crate::rr::RrReport;
use crate::udp::{UdpFlow, UdpReport};
use stats::mean;

/// A metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "metric", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunMetric {
    /// Bits per second, over all flows.
    GoodputBitsPerSecond,
    /// Seconds until everything was done.
    CompletionSeconds,
    /// Jain's fairness index of the flows.
    JainIndex,
    /// Segments retransmitted by the senders' kernels.
    RetransmittedSegments,
    /// Fraction of the sent datagrams that were lost, over both directions.
    LossRatio,
    /// Mean jitter of the directions, in seconds.
    JitterSeconds,
    /// Mean time of a page's objects, in seconds.
    MeanObjectSeconds,
    /// Median response time of the run, in seconds.
    MedianResponseSeconds,
    /// 99th percentile of the response times of the run, in seconds.
    P99ResponseSeconds,
}

/// The direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImprovementDirection {
    Higher,
    Lower,
    /// No improvement factor makes sense.
    Neither,
}

impl RunMetric {
    pub(crate) fn better(self) -> ImprovementDirection {
        match self {
            Self::GoodputBitsPerSecond => ImprovementDirection::Higher,
            Self::JainIndex | Self::RetransmittedSegments | Self::LossRatio => {
                ImprovementDirection::Neither
            }
            _ => ImprovementDirection::Lower,
        }
    }
}

impl MeterReport {
    /// Describes the traffic. Runs with the same description can be compared.
    pub(crate) fn workload(&self) -> String {
        match self {
            Self::Bulk(report) => bulk_workload(report),
            Self::Rr(report) => format!(
                "{} requests of {} with replies of {} over {} connections",
                report.asked(),
                ByteCount::new(report.request_bytes),
                ByteCount::new(report.reply_bytes),
                report.connections.len(),
            ),
            Self::Page(report) => page_workload(report),
            Self::Udp(report) => udp_workload(report),
        }
    }

    /// The metrics of this run, in display order.
    pub(crate) fn metrics(&self) -> Vec<(RunMetric, f64)> {
        match self {
            Self::Bulk(report) => bulk_metrics(report),
            Self::Rr(report) => rr_metrics(report),
            Self::Page(report) => page_metrics(report),
            Self::Udp(report) => udp_metrics(report),
        }
    }
}

fn bulk_workload(report: &BulkReport) -> String {
    let amount = match report.amount {
        FlowAmount::Bytes(bytes) => bytes.to_string(),
        FlowAmount::Time(time) => format!("{} s", time.as_secs_f64()),
    };
    let way = match report.directions {
        Directions::Download => "downloads",
        Directions::Upload => "uploads",
        Directions::Both => "downloads and uploads at once",
    };
    format!("{} {way} of {amount} each", report.flows.len())
}

fn bulk_metrics(report: &BulkReport) -> Vec<(RunMetric, f64)> {
    let mut metrics = Vec::new();
    if let Some(goodput) = report.goodput {
        metrics.push((RunMetric::GoodputBitsPerSecond, goodput.bits_per_second() as f64));
    }
    metrics.push((RunMetric::CompletionSeconds, report.total.as_secs_f64()));
    // The index of a single flow is always 1.
    if let (Some(jain), 2..) = (report.jain_index, report.flows.len()) {
        metrics.push((RunMetric::JainIndex, jain));
    }
    let sums = report.sums.iter().filter_map(|sum| sum.retransmitted_segments);
    let retransmitted = sums.map(|segments| segments as f64).reduce(|sum, segments| sum + segments);
    metrics.extend(retransmitted.map(|sum| (RunMetric::RetransmittedSegments, sum)));
    metrics
}

fn udp_workload(report: &UdpReport) -> String {
    format!(
        "datagrams of {} B at {} for {} s, {:?}",
        report.datagram_bytes,
        BitRate::from_bits_per_second(report.rate_bits_per_second),
        report.time.as_secs_f64(),
        report.directions,
    )
}

fn udp_metrics(report: &UdpReport) -> Vec<(RunMetric, f64)> {
    let sum =
        |of: fn(&UdpFlow) -> u64| report.flows.iter().map(|flow| of(flow) as f64).sum::<f64>();
    let sent = sum(|flow| flow.sent);
    let lost = sum(|flow| flow.lost);
    let jitter = report.flows.iter().filter_map(|flow| flow.counts.jitter);
    let jitter: Vec<f64> = jitter.map(|jitter| jitter.as_secs_f64()).collect();
    let mut metrics = Vec::new();
    // A loss ratio of nothing is unknown, not zero.
    if sent > 0.0 {
        metrics.push((RunMetric::LossRatio, lost / sent));
    }
    metrics.extend(mean(&jitter).map(|jitter| (RunMetric::JitterSeconds, jitter)));
    metrics
}

/// The HTTP version and connections are not included, because they are what is compared.
fn page_workload(report: &PageReport) -> String {
    let sizes = report.objects.iter().map(|object| ByteCount::new(object.bytes).to_string());
    format!("a page of {}", sizes.collect::<Vec<String>>().join(", "))
}

fn page_metrics(report: &PageReport) -> Vec<(RunMetric, f64)> {
    let mut metrics = vec![(RunMetric::CompletionSeconds, report.total.as_secs_f64())];
    if let Some(times) = report.object_seconds {
        metrics.push((RunMetric::MeanObjectSeconds, times.mean));
    }
    metrics
}

fn rr_metrics(report: &RrReport) -> Vec<(RunMetric, f64)> {
    let mut metrics = Vec::new();
    if let Some(times) = report.response_seconds {
        metrics.push((RunMetric::MedianResponseSeconds, times.median));
        metrics.push((RunMetric::P99ResponseSeconds, times.p99));
    }
    metrics.push((RunMetric::CompletionSeconds, report.total.as_secs_f64()));
    metrics
}
