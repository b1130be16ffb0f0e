//! A claim, what it expects, and what came out.

/// Claims of one kind.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// How it is measured.
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

/// Whether we are where the source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Reproduced,
    /// Not as near as that, but within two standard deviations of theirs.
    Within,
    /// With the reason, if there is one.
    Differs(Option<String>),
}

impl Row {
    /// A value that is to be met within `tolerance`, a share of it.
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

    /// A mean whose source has such a standard deviation.
    pub(crate) fn with_deviation(mut self, deviation: f64) -> Self {
        let is_within = (self.ours - self.expected).abs() <= 2.0 * deviation;
        if is_within && self.verdict != Verdict::Reproduced {
            self.verdict = Verdict::Within;
        }
        self
    }

    /// Says why it differs, if it does.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        if let Verdict::Differs(reason) = &mut self.verdict {
            *reason = Some(why.into());
        }
        self
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.ours / self.expected
    }

    /// The line in Markdown.
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

/// Three digits.
fn number(value: f64) -> String {
    let digits = 2 - (value.abs().max(1e-9).log10().floor() as i32).clamp(-4, 2);
    format!("{value:.*}", digits as usize)
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Plot {
    /// The file's name, without its ending.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// What the axes show.
    pub(crate) axes: [&'static str; 2],
    /// Both axes are logarithmic.
    pub(crate) logarithmic: bool,
    pub(crate) series: Vec<Series>,
}

/// A line or points of a graph.
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
