//! A claim, its expectation and the result.

/// Claims of one kind.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// How they are measured.
    pub(crate) text: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) plots: Vec<Plot>,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) claim: String,
    /// The RFC's section, the paper's equation or table.
    pub(crate) source: String,
    pub(crate) unit: &'static str,
    pub(crate) expected: f64,
    pub(crate) ours: f64,
    /// The most by which a reproduced value may be off, relative to the expected one.
    tolerance: f64,
    pub(crate) verdict: Verdict,
}

/// Whether our result is what the row states that it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Reproduced,
    /// Outside the tolerance, but within two standard errors of the source's mean, of which one is this.
    Within(f64),
    /// It differs by the stated ratio, for this reason.
    Differs {
        ratio: f64,
        why: String,
    },
    /// It is not what is stated: a finding.
    Unstated,
}

/// How far a ratio may be from the stated one, relative to it.
const SLACK: f64 = 0.05;

impl Row {
    /// A value that must be met within the relative `tolerance`.
    pub(crate) fn near(
        claim: impl Into<String>,
        source: impl Into<String>,
        unit: &'static str,
        (expected, ours): (f64, f64),
        tolerance: f64,
    ) -> Self {
        let is_near = (ours / expected - 1.0).abs() <= tolerance;
        let verdict = if is_near { Verdict::Reproduced } else { Verdict::Unstated };
        let (claim, source) = (claim.into(), source.into());
        Self { claim, source, unit, expected, ours, tolerance, verdict }
    }

    /// Adds the standard error of the source's mean.
    pub(crate) fn with_error(mut self, error: f64) -> Self {
        let is_within = (self.ours - self.expected).abs() <= 2.0 * error;
        if is_within && self.verdict != Verdict::Reproduced {
            self.verdict = Verdict::Within(error);
        }
        self
    }

    /// States that ours is `ratio` times the expected value, and why.
    pub(crate) fn differs(mut self, ratio: f64, why: impl Into<String>) -> Self {
        let is_stated = (self.ratio() / ratio - 1.0).abs() <= SLACK;
        self.verdict = match self.verdict {
            Verdict::Unstated if is_stated => Verdict::Differs { ratio, why: why.into() },
            _ => Verdict::Unstated,
        };
        self
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.ours / self.expected
    }

    /// The row in Markdown.
    pub(crate) fn line(&self) -> String {
        let percent = |share: f64| (share * 100.0).round();
        let verdict = match &self.verdict {
            Verdict::Reproduced => format!("reproduced (± {} %)", percent(self.tolerance)),
            Verdict::Within(error) => {
                format!("within two standard errors of the mean (2 × {error:.2} {})", self.unit)
            }
            Verdict::Differs { ratio, why } => {
                format!("differs ({ratio} ± {} %): {why}", percent(SLACK))
            }
            Verdict::Unstated => "not as stated".to_owned(),
        };
        format!(
            "| {} | {} | {} {unit} | {} {unit} | {:.2} | {verdict} |",
            self.claim,
            self.source,
            number(self.expected),
            number(self.ours),
            self.ratio(),
            unit = self.unit,
        )
    }
}

/// Formats with three significant digits.
fn number(value: f64) -> String {
    let digits = 2 - (value.abs().max(1e-9).log10().floor() as i32).clamp(-4, 2);
    format!("{value:.*}", digits as usize)
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Plot {
    /// File name without extension.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// The axis labels.
    pub(crate) axes: [&'static str; 2],
    /// Whether both axes are logarithmic.
    pub(crate) logarithmic: bool,
    pub(crate) series: Vec<Series>,
}

/// A line or a set of points.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) joined: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Series {
    pub(crate) fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), joined: true, points }
    }

    pub(crate) fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), joined: false, points }
    }
}
