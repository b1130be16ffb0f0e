//! Results of a comparison, as a table and as JSON.

use core::fmt;

use lab::TestObject;
use report::{TableColumn, TextTable};
use serde::Serialize;
use stats::{Bootstrap, ConfidenceInterval, SampleSpread, mean};

/// The results of the whole comparison.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct SenderResults {
    object_bytes: u64,
    first_seed: u64,
    runs: u32,
    rows: Vec<ControllerRow>,
}

/// The results of one controller.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ControllerRow {
    /// Name of the congestion control, with its options.
    pub controller: String,
    /// Goodput of the kernel in Mbit/s, per seed.
    #[serde(rename = "kernel_mbit_per_second")]
    pub kernel: Vec<f64>,
    /// The same of our endpoint.
    #[serde(rename = "skyhop_mbit_per_second")]
    pub skyhop: Vec<f64>,
    /// Our mean goodput over the kernel's.
    ratio_of_means: f64,
    /// 95 % bootstrap interval of the ratio, with the runs of a seed drawn together. `None` for a
    /// single run.
    ratio_ci95: Option<ConfidenceInterval>,
}

impl ControllerRow {
    pub(super) fn new(controller: String) -> Self {
        Self {
            controller,
            kernel: Vec::new(),
            skyhop: Vec::new(),
            ratio_of_means: f64::NAN,
            ratio_ci95: None,
        }
    }

    fn compare(&mut self, seed: u64) {
        if let (Some(kernel), Some(skyhop)) = (mean(&self.kernel), mean(&self.skyhop)) {
            self.ratio_of_means = skyhop / kernel;
        }
        // Seeded, so that the same runs always give the same interval.
        let found = Bootstrap::new(seed).paired_ratio(&self.skyhop, &self.kernel);
        self.ratio_ci95 = found.map(|intervals| intervals.ci95);
    }
}

impl SenderResults {
    pub(super) fn new(
        object: TestObject,
        first_seed: u64,
        runs: u32,
        mut rows: Vec<ControllerRow>,
    ) -> Self {
        for row in &mut rows {
            row.compare(first_seed);
        }
        Self { object_bytes: object.size().get(), first_seed, runs, rows }
    }
}

/// A Markdown table: means, medians, and the range of the runs.
impl fmt::Display for SenderResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            ["Mbit/s, mean; median (least–most)", "kernel", "skyhop", "skyhop/kernel, 95 %"];
        let mut table = TextTable::new(names.map(TableColumn::left));
        for row in &self.rows {
            let mut ratio = format!("{:.2}", row.ratio_of_means);
            if let Some(ConfidenceInterval { low, high }) = row.ratio_ci95 {
                ratio += &format!(" ({low:.2}–{high:.2})");
            }
            let name = format!("`{}`", row.controller);
            table.row([name, cell(&row.kernel), cell(&row.skyhop), ratio]);
        }
        f.write_str(&table.markdown())
    }
}

/// Formats mean, median and range of the samples.
fn cell(samples: &[f64]) -> String {
    let Some(SampleSpread { min, median, max }) = SampleSpread::of(samples.iter().copied()) else {
        return String::new();
    };
    let mean = mean(samples).unwrap_or(f64::NAN);
    format!("{mean:.2}; {median:.2} ({min:.2}–{max:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_seed_belong_together() {
        // Seeds differ by a factor of four, senders by a tenth.
        let row = ControllerRow {
            kernel: vec![5.0, 10.0, 20.0],
            skyhop: vec![4.5, 9.0, 18.0],
            ..ControllerRow::new("reno".to_owned())
        };
        let object = TestObject::named("1MB").unwrap();
        let comparison = SenderResults::new(object, 1, 3, vec![row]);
        let text = comparison.to_string();
        let line =
            "| `reno` | 11.67; 10.00 (5.00–20.00) | 10.50; 9.00 (4.50–18.00) | 0.90 (0.90–0.90) |";
        assert!(text.contains(line), "{text}");
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["object_bytes"], 1_000_000);
        assert_eq!(json["rows"][0]["kernel_mbit_per_second"][2], 20.0);
    }

    #[test]
    fn one_run_has_no_interval() {
        let row = ControllerRow {
            kernel: vec![5.0],
            skyhop: vec![5.0],
            ..ControllerRow::new("cubic".to_owned())
        };
        let object = TestObject::named("1MB").unwrap();
        let text = SenderResults::new(object, 1, 1, vec![row]).to_string();
        assert!(text.ends_with("| 1.00 |\n"), "{text}");
    }
}
