//! The router buffer of ITU-R S.1711-1.

use scenario::{Published, Scenario};
use sim::SimulationRun;

use super::{Effort, Row, Section};

const SCENARIO: &str = include_str!("../../../../../scenarios/itu-buffer.toml");
const PUBLISHED: &str = include_str!("../../../../../scenarios/itu-buffer.published.toml");
/// The scenario's window, and the size of its segments, in bytes.
const WINDOW: &str = "9114820 B";
const MSS: u64 = 1430;
const SOURCE: &str = "Rec. ITU-R S.1711-1, Annex 2";

pub(super) fn section(_: Effort) -> Section {
    let published = Published::parse("itu-buffer.published.toml", PUBLISHED).expect("published");
    let ours = peak(SCENARIO);
    let mut rows = Vec::new();
    let source = format!("{SOURCE}, 4.3.1");
    for output in published.output.iter().filter(|output| output.metric == "peak-queue-packets") {
        let claim = format!("window of 6374 packets: peak queue, {}", output.place);
        let row = Row::near(claim, &source, "packets", (output.points[0].value, ours), 0.02);
        rows.push(match output.place.as_str() {
            "4.3.1, formula" => row.differs(
                0.71,
                "the formula counts the last doubling of slow start in full; from 1 segment the \
                 window grows to 4096 and then to the limit of 6374, and the excess is 6374 − 4096 \
                 = 2278",
            ),
            _ => row,
        });
    }
    for segments in [1024, 4096] {
        let text = SCENARIO.replace(WINDOW, &format!("{} B", segments * MSS));
        let claim = format!("window of {segments} packets, a power of two: peak queue");
        let source = format!("half the window ({})", SOURCE);
        let expected = segments as f64 / 2.0;
        rows.push(Row::near(claim, source, "packets", (expected, peak(&text)), 0.02));
    }
    Section {
        title: "The router's buffer",
        text:
            "Slow start from 500 into 135 Mbit/s at an RTT of 540 ms (`scenarios/itu-buffer.toml`)."
                .to_owned(),
        rows,
        plots: Vec::new(),
    }
}

fn peak(text: &str) -> f64 {
    let scenario = Scenario::parse("itu-buffer.toml", text).expect("the scenario");
    let case = scenario.cases.iter().find(|case| case.name == "enough").expect("the case");
    let mut run = SimulationRun::new(case, 1);
    run.finish();
    let metrics = run.metrics();
    let peak = metrics.iter().find(|it| it.of == "forward" && it.name == "peak-queue-packets");
    peak.expect("a peak").value
}
