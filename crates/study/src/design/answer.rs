//! The ranking of enhancements by their runs.

use report::{HtmlPage, TableColumn, TextTable, dash, four_digits};
use serde_json::json;
use sim::median_of_runs;
use stats::{ConfidenceInterval, median, median_interval};
use units::format_duration;

use super::{DesignQuestion, DesignTask, ENHANCEMENTS, EnhancementKind, FLOW};
use crate::runs::ScenarioRun;

/// Greatest bit error rate of Rec. ITU-R S.1711-1, recommends 3.
const GREATEST_BER: f64 = 1e-7;
/// Greatest window without the window scale option, in bytes (RFC 7323 §2.2).
const UNSCALED: u64 = 65_535;

/// An enhancement and its results.
#[derive(Debug, Clone)]
pub struct RankedEnhancement {
    /// Name of the enhancement.
    pub name: &'static str,
    /// For each task the median over the seeds (downloads in Mbit/s, the others in seconds), and its interval
    /// at 95 % confidence, which needs six seeds. `None` if the task was not finished in any run.
    pub results: [Option<(f64, Option<ConfidenceInterval>)>; 3],
    /// Ratio of its times to the best of each task, as a geometric mean; infinite if a task was not
    /// finished.
    pub slower: f64,
}

/// All enhancements, the best first.
#[derive(Debug, Clone)]
pub struct DesignAnswer {
    question: DesignQuestion,
    findings: Vec<RankedEnhancement>,
}

impl DesignAnswer {
    /// Evaluates the runs of [`DesignQuestion::files`], in the same order of files.
    pub fn new(question: &DesignQuestion, runs: &[ScenarioRun<'_>]) -> Self {
        let results = |name: &str| {
            let of_task = |(file, task): (usize, DesignTask)| {
                let own = runs.iter().filter(|run| run.file == file && run.case.name == name);
                let values: Vec<f64> = own.map(|run| value(question, task, run)).collect();
                // Unfinished runs may make an end of the interval infinite.
                let is_known = |interval: &ConfidenceInterval| {
                    interval.low.is_finite() && interval.high.is_finite()
                };
                let interval = || median_interval(&values, 0.95).filter(is_known);
                // An unfinished download has 0 Mbit/s: its bits over an infinite time.
                let is_finished = |value: &f64| value.is_finite() && *value > 0.0;
                median(&values).filter(is_finished).map(|median| (median, interval()))
            };
            [0, 1, 2].map(|file| of_task((file, DesignTask::ALL[file])))
        };
        let mut findings: Vec<RankedEnhancement> = ENHANCEMENTS
            .iter()
            .map(|(name, ..)| RankedEnhancement {
                name,
                results: results(name),
                slower: f64::INFINITY,
            })
            .collect();
        let best = [0, 1, 2].map(|at| {
            let times = findings
                .iter()
                .filter_map(|finding| time(DesignTask::ALL[at], finding.results[at]));
            times.fold(f64::INFINITY, f64::min)
        });
        for finding in &mut findings {
            let ratio =
                |at: usize| Some(time(DesignTask::ALL[at], finding.results[at])? / best[at]);
            // One unfinished task leaves an enhancement without a rank.
            let ratios: Option<Vec<f64>> = (0..3).map(ratio).collect();
            if let Some(ratios) = ratios {
                // The geometric mean, in which each task counts equally whatever its unit.
                finding.slower = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / 3.0;
                finding.slower = finding.slower.exp();
            }
        }
        // Enhancements without a rank are infinitely slower, and come last.
        findings.sort_by(|a, b| a.slower.total_cmp(&b.slower));
        Self { question: question.clone(), findings }
    }

    /// Returns the enhancements, the best first.
    pub fn findings(&self) -> &[RankedEnhancement] {
        &self.findings
    }

    /// Returns a table of the ranked enhancements.
    pub fn table(&self) -> TextTable {
        let mut table = TextTable::new([
            TableColumn::left("enhancement"),
            TableColumn::right("download\nMbit/s"),
            TableColumn::right("95 %\n"),
            TableColumn::right("of the\nlink"),
            TableColumn::right("page\ns"),
            TableColumn::right("95 %\n"),
            TableColumn::right("request\ns"),
            TableColumn::right("95 %\n"),
            TableColumn::right("times slower\nthan the best"),
        ]);
        let rate = self.question.rate.bits_per_second() as f64 / 1e6;
        for RankedEnhancement { name, results, slower } in &self.findings {
            let value = |at: usize| dash(results[at].map(|(value, _)| four_digits(value)));
            let interval = |at: usize| {
                let ends = |interval: ConfidenceInterval| {
                    format!("{}–{}", four_digits(interval.low), four_digits(interval.high))
                };
                dash(results[at].and_then(|(_, interval)| interval).map(ends))
            };
            let share = results[0].map(|(goodput, _)| format!("{:.0} %", 100.0 * goodput / rate));
            let slower = slower.is_finite().then(|| format!("{slower:.2}"));
            table.row([
                (*name).to_owned(),
                value(0),
                interval(0),
                dash(share),
                value(1),
                interval(1),
                value(2),
                interval(2),
                dash(slower),
            ]);
        }
        table
    }

    /// Returns the ranking and the notes as JSON. Downloads are in Mbit/s, pages and requests in
    /// seconds; tasks that were not finished are `null`.
    pub fn json(&self) -> String {
        let result = |(value, interval): (f64, Option<ConfidenceInterval>)| {
            let interval = interval.map(|interval| [interval.low, interval.high]);
            json!({ "median": value, "interval_95": interval })
        };
        let finding = |ranked: &RankedEnhancement| {
            let [download, page, request] = ranked.results.map(|measured| measured.map(result));
            json!({
                "enhancement": ranked.name,
                "download_mbit_s": download,
                "page_s": page,
                "request_s": request,
                "slower_than_best": ranked.slower.is_finite().then_some(ranked.slower),
            })
        };
        let ranking: Vec<_> = self.findings.iter().map(finding).collect();
        format!("{:#}\n", json!({ "ranking": ranking, "notes": self.notes() }))
    }

    /// Returns a self-contained page to hand on. `command` is shown as the way to make it again.
    pub fn page(&self, command: &str) -> String {
        let mut page =
            HtmlPage::new("skyhop study design", "Which enhancement of TCP does this link want?");
        page.paragraph(&format!("{}.", self.best()));
        page.heading("Enhancements, the best first");
        page.table(&self.table());
        page.heading("This link");
        page.summary(self.notes());
        let seeds = [("seeds", self.question.seeds.to_string())];
        page.terms(&seeds, "run again", command);
        page.into_html()
    }

    fn best(&self) -> String {
        let finished = self.findings.first().filter(|finding| finding.slower.is_finite());
        match finished {
            Some(best) => format!("{} is the best in the simulator", best.name),
            None => "none finished every task in the simulator".to_owned(),
        }
    }

    /// Returns the least ratio to the best times that an enhancement of a kind reaches.
    fn least_of(&self, wanted: EnhancementKind) -> f64 {
        let is_wanted = |finding: &&RankedEnhancement| {
            ENHANCEMENTS.iter().any(|(name, kind, _)| *name == finding.name && *kind == wanted)
        };
        let all = self.findings.iter().filter(is_wanted).map(|finding| finding.slower);
        all.fold(f64::INFINITY, f64::min)
    }

    /// Returns what follows from the link alone, and the recommendations of ITU-R S.1711-1, a line
    /// each.
    pub fn notes(&self) -> Vec<String> {
        let DesignQuestion { rtt, errors, .. } = &self.question;
        let product = self.question.bandwidth_delay_product();
        // 14 is the largest scale (RFC 7323 §2.3).
        let shift = (0..14).find(|shift| UNSCALED << shift >= product).unwrap_or(14);
        let best = self.best();
        let [split, whole] =
            [EnhancementKind::Split, EnhancementKind::EndToEnd].map(|kind| self.least_of(kind));
        let ber = errors.bits();
        let lost = 100.0 * errors.packets();
        let meets = if ber <= GREATEST_BER { "meets" } else { "does not meet" };
        let helps = if split < whole { "is faster" } else { "is not faster" };
        vec![
            format!(
                "Bandwidth-delay product: {product} bytes at {} of round-trip time.",
                format_duration(*rtt)
            ),
            format!(
                "Window of a connection that has the link to itself: {product} bytes or more, a window scale of {shift}.",
            ),
            format!(
                "Buffer before the forward link: {product} bytes for bursts of hosts, which a pair that paces does not send."
            ),
            format!("Errors: {ber:.1e} per bit lose {lost:.3} % of the packets of 1500 bytes."),
            format!("Recommends 2 (choose by simulation or measurement): {best}."),
            format!("Recommends 3 (a bit error rate below 1e-7): the link {meets} it."),
            format!(
                "Recommends 4.1 (splitting where the topology permits it): the best split {helps} here than the best \
                 of hosts alone ({split:.2} and {whole:.2} times slower than the best)."
            ),
            format!(
                "Recommends 4.2 (window scale): {}.",
                if shift == 0 { "not needed" } else { "needed" }
            ),
        ]
    }
}

/// Returns the result of a run: downloads in Mbit/s of all terminals until the last has finished,
/// other tasks in seconds. A task that was not finished took an infinite time.
fn value(question: &DesignQuestion, task: DesignTask, run: &ScenarioRun<'_>) -> f64 {
    let metric = |name| median_of_runs(&[run.metrics], FLOW, name);
    let is_whole = metric("done").is_some_and(|done| question.is_whole(task, done));
    let seconds = metric(task.metric()).filter(|_| is_whole).unwrap_or(f64::INFINITY);
    let bits = 8.0 * question.each_download() * f64::from(question.terminals);
    if task == DesignTask::Download { bits / seconds / 1e6 } else { seconds }
}

/// Converts a result to a time: for a rate, that of a fixed volume.
fn time(task: DesignTask, result: Option<(f64, Option<ConfidenceInterval>)>) -> Option<f64> {
    let (value, _) = result?;
    Some(if task == DesignTask::Download { 1.0 / value } else { value })
}
