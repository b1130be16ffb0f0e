//! Estimates how long cells take, to start the longest first and to show the time left.

use core::time::Duration;
use std::collections::BTreeMap;

use scenario::{FlowSize, FlowTraffic, ReplySizes, ScenarioCase};

use super::{BackEndName, Cell, CellTiming};

/// Mean times that earlier cells took, by case.
#[derive(Debug, Default)]
pub(super) struct CostEstimates {
    /// Sum of seconds and number of runs, by scenario, case and back end.
    known: BTreeMap<(String, String, BackEndName), (f64, f64)>,
}

impl CostEstimates {
    pub(super) fn new(timings: Vec<CellTiming>) -> Self {
        let mut known = BTreeMap::new();
        for CellTiming { scenario, case, on, wall_s, .. } in timings {
            let (sum, count) = known.entry((scenario, case, on)).or_insert((0.0, 0.0));
            *sum += wall_s;
            *count += 1.0;
        }
        Self { known }
    }

    /// Returns the number of seconds that a cell is expected to take: the mean of earlier ones of
    /// its case, or an estimate from the case.
    pub(super) fn of(&self, cell: &Cell, case: &ScenarioCase) -> f64 {
        // Without program and content: a changed case takes about as long as before.
        let key = (cell.scenario.clone(), cell.case.clone(), cell.on);
        match (self.known.get(&key), cell.on) {
            (Some((sum, count)), _) => sum / count,
            (None, BackEndName::Sim) => packets(case) * SECONDS_PER_PACKET,
            // Real time: a case ends early only if all of its traffic is done.
            (None, BackEndName::Lab) => case.time.as_secs_f64(),
        }
    }
}

/// Time to simulate a packet end to end, with its acknowledgement.
const SECONDS_PER_PACKET: f64 = 1e-6;

/// Estimates the packets that cross the hop: what the flows send, at most what the links carry.
fn packets(case: &ScenarioCase) -> f64 {
    let time = case.time.as_secs_f64();
    let bits = |link: &scenario::LinkSpec| link.rate.greatest().bits_per_second() as f64;
    let hubs = case.network.platforms.len() as f64;
    // Each platform has links of its own.
    let rate = (bits(&case.hop.forward) + bits(&case.hop.ret)) * hubs;
    let most = rate * time / 8.0;
    let flows = case.flows.iter();
    let sent: f64 = flows.map(|flow| f64::from(flow.count) * sent(&flow.traffic, time, rate)).sum();
    // A flow cannot send more than the hop carries, however much it has.
    sent.min(most) / f64::from(case.hop.mtu)
}

/// Estimates the bytes that an application sends and receives within `time` seconds over links of
/// `rate` bit/s.
fn sent(traffic: &FlowTraffic, time: f64, rate: f64) -> f64 {
    let within = |given: &Option<Duration>| given.map_or(time, |given| given.as_secs_f64());
    match traffic {
        FlowTraffic::Bulk { amount: FlowSize::Bytes(bytes), .. } => bytes.get() as f64,
        FlowTraffic::Bulk { amount: FlowSize::Time(time), .. } => time.as_secs_f64() * rate / 8.0,
        FlowTraffic::Request { request, reply, repeat, .. } => {
            (request.saturating_add(*reply)) as f64 * *repeat as f64
        }
        FlowTraffic::Ftp { bytes, repeat, .. } | FlowTraffic::Mail { bytes, repeat, .. } => {
            *bytes as f64 * *repeat as f64
        }
        FlowTraffic::Bundles { bytes, .. } => *bytes as f64,
        FlowTraffic::Page { request, objects, repeat, .. } => {
            let bytes: f64 = objects.iter().map(|object| (request + object) as f64).sum();
            bytes * *repeat as f64
        }
        FlowTraffic::Users { every, request, sizes, time } => {
            let size = match *sizes {
                ReplySizes::Fixed(size) => size as f64,
                // Without the truncation: an estimate.
                ReplySizes::Pareto { least, most, alpha } if alpha > 1.0 => {
                    (least as f64 * alpha / (alpha - 1.0)).min(most as f64)
                }
                // With an alpha of 1 or less, the mean without truncation is infinite.
                ReplySizes::Pareto { most, .. } => most as f64,
            };
            within(time) / every.as_secs_f64().max(1e-9) * (*request as f64 + size)
        }
        FlowTraffic::Udp { rate, time, .. } => within(time) * rate.bits_per_second() as f64 / 8.0,
    }
}

#[cfg(test)]
mod tests {
    use scenario::Scenario;

    use super::*;

    fn case(bytes: &str) -> ScenarioCase {
        let text = format!(
            "description = \"x\"\ntime = \"100 s\"\n[hop.forward]\nrate = \"8 Mbit/s\"\n\
             delay = \"1 ms\"\nqueue = \"1 BDP\"\n[[flow]]\nname = \"f\"\nkind = \"bulk\"\n\
             bytes = \"{bytes}\"\n"
        );
        Scenario::parse("x", &text).unwrap().cases.remove(0)
    }

    #[test]
    fn a_case_costs_what_it_sends_and_at_most_what_fits() {
        assert!((packets(&case("15 MB")) - 10_000.0).abs() < 1e-6);
        // 100 s of 2 x 8 Mbit/s.
        assert!((packets(&case("15 GB")) - 200e6 / 1500.0).abs() < 1e-6);
    }

    #[test]
    fn earlier_runs_of_the_case_say_more() {
        let cell = |on| Cell { scenario: "s".into(), case: "c".into(), seed: 3, on };
        let timing = |wall_s| CellTiming {
            scenario: "s".into(),
            case: "c".into(),
            on: BackEndName::Sim,
            wall_s,
            cpu_s: 0.0,
        };
        let costs = CostEstimates::new(vec![timing(2.0), timing(4.0)]);
        let case = case("15 MB");
        assert_eq!(costs.of(&cell(BackEndName::Sim), &case), 3.0);
        assert_eq!(costs.of(&cell(BackEndName::Lab), &case), 100.0);
        let unknown = CostEstimates::default().of(&cell(BackEndName::Sim), &case);
        assert!((unknown - 0.01).abs() < 1e-9, "{unknown}");
    }
}
