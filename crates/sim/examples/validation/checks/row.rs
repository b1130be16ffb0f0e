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
    pub(crate) verdict: Verdict,
}

/// Whether our result matches the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Reproduced,
    /// Outside the tolerance, but within two of the source's standard deviations.
    Within,
    /// With the reason, if known.
    Differs(Option<String>),
}

impl Row {
    /// A value that must be met within the relative `tolerance`.
    pub(crate) fn near(
        claim: impl Into<String>,
        source: impl Into<String>,
        unit: &'static str,
        (expected, ours): (f64, f64),
        tolerance: f64,
    ) -> Self {
        let verdict = if (ours / expected - 1.0).abs() <= tolerance {
            Verdict::Reproduced
        } else {
            Verdict::Differs(None)
        };
        Self { claim: claim.into(), source: source.into(), unit, expected, ours, verdict }
    }

    /// Adds the source's standard deviation.
    pub(crate) fn with_deviation(mut self, deviation: f64) -> Self {
        let is_within = (self.ours - self.expected).abs() <= 2.0 * deviation;
        if is_within && self.verdict != Verdict::Reproduced {
            self.verdict = Verdict::Within;
        }
        self
    }

    /// Adds the reason for a difference, if there is one.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        if let Verdict::Differs(reason) = &mut self.verdict {
            *reason = Some(why.into());
        }
        self
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.ours / self.expected
    }

    /// The row in Markdown.
    pub(crate) fn line(&self) -> String {
        let verdict = match &self.verdict {
            Verdict::Reproduced => "reproduced".to_owned(),
            Verdict::Within => "within two deviations".to_owned(),
            Verdict::Differs(why) => format!("differs: {}", why.as_deref().unwrap_or("?")),
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
