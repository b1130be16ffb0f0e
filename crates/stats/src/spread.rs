use core::fmt;

use crate::SampleSummary;

/// Median, minimum and maximum of a figure over several runs, in the unit of the samples.
///
/// Displayed right-aligned as `median (min–max)`, or as the median alone if all are equal, with the
/// format's precision; two decimals by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleSpread {
    /// The median ([`crate::median`]).
    pub median: f64,
    /// Smallest of the samples.
    pub min: f64,
    /// Largest of the samples.
    pub max: f64,
}

impl SampleSpread {
    /// Returns the spread of all samples; `None` without samples.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples: Vec<f64> = samples.into_iter().collect();
        let SampleSummary { median, min, max, .. } = SampleSummary::of(&samples)?;
        Some(Self { median, min, max })
    }
}

impl fmt::Display for SampleSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let width = f.width().unwrap_or(0);
        let [median, min, max] =
            [self.median, self.min, self.max].map(|figure| format!("{figure:.digits$}"));
        let text = if min == max { median } else { format!("{median} ({min}–{max})") };
        write!(f, "{text:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_some_runs() {
        let spread = SampleSpread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(spread, SampleSpread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(SampleSpread::of([]), None);
    }

    #[test]
    fn is_shown_with_the_precision_and_width_asked_for() {
        let spread = SampleSpread { median: 2.0, min: 1.04, max: 3.0 };
        assert_eq!(format!("{spread}"), "2.00 (1.04–3.00)");
        assert_eq!(format!("{spread:>16.1}"), "   2.0 (1.0–3.0)");
        assert_eq!(SampleSpread { min: 1.96, max: 2.04, ..spread }.to_string(), "2.00 (1.96–2.04)");
        assert_eq!(format!("{:5.1}", SampleSpread { min: 1.96, max: 2.04, ..spread }), "  2.0");
    }
}
