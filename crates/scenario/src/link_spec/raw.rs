//! A link as written in a file, or as changed on the command line.

// Options in brackets look like links, and the schema shows the text as it is.
#![allow(rustdoc::broken_intra_doc_links)]

use core::num::NonZeroU64;

use link::{
    Delay, DisciplineChoice, Encapsulation, ErrorModel, GilbertElliott, Jitter, LossModel, Outage,
    Policer, QueueSize, Rate,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{BitRate, ErrorRate, Probability};

use super::acm::RawAcm;
use super::{LinkSpec, OrNone, RateSpec};
use crate::trace::Source;
use config::file::text::{Text, Time, Words};

/// One direction of a link.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(rename = "Link")]
pub(crate) struct RawLink {
    /// Rate after encapsulation; above 0, at most 1000 Gbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["50 Mbit/s"]))]
    pub(crate) rate: Option<Text<BitRate>>,
    /// Instead of `rate`: a trace of rates, or one in mahimahi's format; a path or its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["fade.rate", ["0s 50 Mbit/s", "60s 20 Mbit/s", "loop 90s"]]))]
    pub(crate) rate_trace: Option<Source>,
    /// Encapsulation of packets: none, fixed SIZE, code K/N, aal5 [llc], mpe [packed],
    /// ule [npa] [packed], gse [3|6].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["none", "fixed 18 B", "aal5 llc", "mpe packed", "ule", "gse"]))]
    pub(crate) encapsulation: Option<Text<Encapsulation>>,
    /// One-way delay; at most 60 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["300 ms"]))]
    pub(crate) delay: Option<Text<Time>>,
    /// Instead of `delay`: a trace of delays; a path or its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["pass.delay", ["0s 20 ms", "15s 35 ms", "loop 30s"]]))]
    pub(crate) delay_trace: Option<Source>,
    /// Extra delay of each packet, from 0 to this; `reordering` lets packets overtake each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["5 ms", "5 ms reordering"]))]
    pub(crate) jitter: Option<Text<Jitter>>,
    /// Drops packets that exceed a rate before they reach the queue; a burst of `burst` passes at once. `none`
    /// removes the policer of a preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["30 Mbit/s burst 15 kB", "none"]))]
    pub(crate) policer: Option<Text<OrNone<Policer>>>,
    /// Size of the queue. A BDP is the greatest rate that packets of the MTU get × the greatest
    /// round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["1 BDP", "100 packets", "64 kB"]))]
    pub(crate) queue: Option<Text<QueueSize>>,
    /// Queue discipline: drop-tail, drop-head, red [min=5] [max=15] [max-p=0.1] [weight=0.002],
    /// codel [target=30ms] [interval=600ms].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["drop-tail", "red", "codel"]))]
    pub(crate) discipline: Option<Text<DisciplineChoice>>,
    /// RED or CoDel mark ECN-capable packets instead of dropping them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ecn: Option<bool>,
    /// Probability that a packet is lost. One loss model at most: `per`, `ber`, `burst`,
    /// `gilbert-elliott`, `loss-period`, `loss-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["1 %", "0.01"]))]
    pub(crate) per: Option<Text<ErrorRate>>,
    /// Probability of a bit error; a packet with an error is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["1e-6"]))]
    pub(crate) ber: Option<Text<ErrorRate>>,
    /// Error bursts: none, low, medium, high, huge, or the least and greatest durations of good
    /// and bad times.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["medium", "good=10s..30s bad=60ms"]))]
    pub(crate) burst: Option<Words<ErrorModel>>,
    /// A two-state Markov chain that moves with each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["good-to-bad=1% bad-to-good=20% loss-good=0 loss-bad=1"]))]
    pub(crate) gilbert_elliott: Option<Words<GilbertElliott>>,
    /// Every packet with a number divisible by this is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss_period: Option<NonZeroU64>,
    /// A trace of packet error rates; a path or its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["rain.loss", ["0s 0", "60s 1 %"]]))]
    pub(crate) loss_trace: Option<Source>,
    /// Times at which everything is lost, counted from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = [["60s+10s", "15s+30ms every 15s"]]))]
    pub(crate) outages: Option<Vec<Text<Outage>>>,
    /// Instead of `rate`: a carrier that adapts its MODCOD to rain. Packets that it cannot carry are
    /// lost, in addition to other losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acm: Option<RawAcm>,
}

impl From<&LinkSpec> for RawLink {
    fn from(link: &LinkSpec) -> Self {
        let mut raw = Self {
            encapsulation: Some(Text(link.encapsulation)),
            jitter: Some(Text(link.jitter)),
            policer: link.policer.map(|policer| Text(OrNone(Some(policer)))),
            queue: Some(Text(link.queue)),
            discipline: Some(Text(link.discipline)),
            ecn: Some(link.ecn),
            outages: Some(link.outages.iter().copied().map(Text).collect()),
            ..Self::default()
        };
        match &link.rate {
            RateSpec::Acm(acm) => raw.acm = Some((&**acm).into()),
            RateSpec::Given(Rate::Constant(rate)) => raw.rate = Some(Text(*rate)),
            RateSpec::Given(Rate::Trace(trace)) => raw.rate_trace = Some(Source::lines_of(trace)),
            RateSpec::Given(Rate::Opportunities(all)) => {
                let lines = all.to_string().lines().map(str::to_owned).collect();
                raw.rate_trace = Some(Source::Lines(lines));
            }
            // A new kind of rate in `link` has to be added here.
            other => unreachable!("no text for {other:?}"),
        }
        match &link.delay {
            Delay::Constant(delay) => raw.delay = Some(Text(Time(*delay))),
            Delay::Trace(trace) => raw.delay_trace = Some(Source::lines_of(trace)),
            other => unreachable!("no text for {other:?}"),
        }
        match &link.loss {
            // All keys are written, even if nothing is lost.
            LossModel::None => raw.per = Some(Text(ErrorRate(Probability::ZERO))),
            LossModel::Per(per) => raw.per = Some(Text(ErrorRate(*per))),
            LossModel::Ber(ber) => raw.ber = Some(Text(ErrorRate(*ber))),
            LossModel::Burst(burst) => raw.burst = Some(Words((*burst).into())),
            LossModel::Periodic(period) => raw.loss_period = Some(*period),
            LossModel::GilbertElliott(model) => raw.gilbert_elliott = Some(Words(*model)),
            LossModel::Trace(trace) => raw.loss_trace = Some(Source::lines_of(trace)),
            other => unreachable!("no text for {other:?}"),
        }
        raw
    }
}
