//! An axis: its title, its range and the text at its ticks.

use std::ops::Range;

/// Margin beyond the data, as a fraction of their extent.
const MARGIN: f64 = 0.04;
/// Minimum extent of an axis.
const LEAST: f64 = 1e-6;

/// An axis of a graph. Its range is that of the data unless one is given.
#[derive(Debug, Clone)]
pub struct Axis {
    title: String,
    from_zero: bool,
    range: Option<Range<f64>>,
    pub(super) is_logarithmic: bool,
    in_bytes: bool,
    /// Names at 1, 2, …; there are no ticks elsewhere.
    categories: Vec<String>,
}

impl Axis {
    /// Creates an axis that spans the data. The title names quantity and unit: `time (s)`.
    pub fn new(title: impl Into<String>) -> Self {
        let from_zero = false;
        let range = None;
        let is_logarithmic = false;
        let in_bytes = false;
        let categories = Vec::new();
        Self { title: title.into(), from_zero, range, is_logarithmic, in_bytes, categories }
    }

    /// Shows these names at 1, 2, … instead of numbers.
    #[must_use]
    pub fn categories(self, names: Vec<String>) -> Self {
        let range = Some(0.5..names.len() as f64 + 0.5);
        Self { range, categories: names, ..self }
    }

    /// Lets the axis begin at 0.
    #[must_use]
    pub fn from_zero(self) -> Self {
        Self { from_zero: true, ..self }
    }

    /// Sets both ends. Values outside are not drawn.
    #[must_use]
    pub fn range(self, range: Range<f64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// Makes the axis logarithmic. A graph has two logarithmic axes or none.
    #[must_use]
    pub fn logarithmic(self) -> Self {
        Self { is_logarithmic: true, ..self }
    }

    /// Shows bytes in a unit that fits, which is added to the title.
    #[must_use]
    pub fn in_bytes(self) -> Self {
        Self { in_bytes: true, ..self }
    }

    /// Returns both ends, for data with these values.
    pub(super) fn ends(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        if let Some(Range { start, end }) = self.range {
            return start..end.max(start + LEAST);
        }
        let values = values.filter(|value| value.is_finite());
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        match low <= high {
            false if self.is_logarithmic => 0.1..1.0,
            false => 0.0..1.0,
            true if self.is_logarithmic => {
                // Zero and negative values have no logarithm.
                let low = low.max(LEAST);
                low * 0.9..high.max(low) * 1.1
            }
            true if self.from_zero => 0.0..(high * (1.0 + MARGIN)).max(LEAST),
            true => {
                let margin = ((high - low) * MARGIN).max(LEAST);
                // An axis that extends below 0 would suggest negative values.
                let start = if low >= 0.0 { (low - margin).max(0.0) } else { low - margin };
                start..high + margin
            }
        }
    }

    /// Returns the title, with the unit if it shows bytes.
    pub(super) fn title(&self, range: &Range<f64>) -> String {
        match self.in_bytes {
            true => format!("{} ({})", self.title, unit(range.end).1),
            false => self.title.clone(),
        }
    }

    /// Returns the text at a tick: `0.25`, `17`, `1,200,000`.
    pub(super) fn tick(&self, value: f64, range: &Range<f64>) -> String {
        if !self.categories.is_empty() {
            return self.category(value).to_owned();
        }
        let scale = if self.in_bytes { unit(range.end).0 } else { 1.0 };
        // Ticks are at least a hundredth of the axis apart; anything smaller is rounding error. On a
        // logarithmic axis they are as far apart as they are large.
        let apart = if self.is_logarithmic { value } else { (range.end - range.start) / 100.0 };
        let digits = -(apart / scale).abs().max(1e-12).log10().floor();
        grouped(value / scale, digits.clamp(0.0, 12.0) as usize)
    }
}

impl Axis {
    /// Returns the name at a tick; empty between two categories.
    fn category(&self, value: f64) -> &str {
        let is_at = |(place, _): &(usize, &String)| ((place + 1) as f64 - value).abs() < 1e-6;
        self.categories.iter().enumerate().find(is_at).map_or("", |(_, name)| name)
    }
}

/// Returns the size and the name of the unit for axes up to `high` bytes.
fn unit(high: f64) -> (f64, &'static str) {
    // A unit serves from twice its size: below that, most ticks would be fractions.
    match high {
        2e9.. => (1e9, "GB"),
        2e6.. => (1e6, "MB"),
        2e3.. => (1e3, "kB"),
        _ => (1.0, "B"),
    }
}

/// Formats with at most `digits` decimals, and commas between thousands.
fn grouped(value: f64, digits: usize) -> String {
    let short = format!("{value:.digits$}");
    let short = match short.contains('.') {
        true => short.trim_end_matches('0').trim_end_matches('.'),
        false => &short,
    };
    // A small negative value is rounded to -0.
    let short = if short == "-0" { "0" } else { short };
    let whole = short.find('.').unwrap_or(short.len());
    let mut text = String::new();
    for (place, digit) in short.char_indices() {
        let follows = text.ends_with(|before: char| before.is_ascii_digit());
        if follows && place < whole && (whole - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_have_their_names_and_nothing_is_between_them() {
        let axis = Axis::new("case").categories(vec!["reno".to_owned(), "cubic".to_owned()]);
        let range = axis.ends(std::iter::empty());
        assert_eq!(range, 0.5..2.5);
        let ticks = [0.5, 1.0, 1.5, 2.0].map(|value| axis.tick(value, &range));
        assert_eq!(ticks, ["", "reno", "", "cubic"]);
    }

    #[test]
    fn ticks_are_short_and_grouped() {
        let axis = Axis::new("");
        let of = |values: &[f64], end: f64| -> Vec<String> {
            values.iter().map(|value| axis.tick(*value, &(0.0..end))).collect()
        };
        assert_eq!(of(&[0.0, 0.1 + 0.2, -1e-17], 1.0), ["0", "0.3", "0"]);
        assert_eq!(
            of(&[17.0, 999.5, 1000.0, 1_200_000.0], 50.0),
            ["17", "999.5", "1,000", "1,200,000"]
        );
        assert_eq!(of(&[0.0002, 0.0015], 0.002), ["0.0002", "0.0015"]);
        assert_eq!(of(&[120.0, 1e9], 1e9), ["120", "1,000,000,000"]);
        let logarithmic = Axis::new("").logarithmic();
        let ticks = [1e-4, 0.05, 1.0, 1e4].map(|value| logarithmic.tick(value, &(1e-4..1e4)));
        assert_eq!(ticks, ["0.0001", "0.05", "1", "10,000"]);
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        let axis = Axis::new("outstanding").in_bytes();
        let shown = |value: f64, end: f64| (axis.tick(value, &(0.0..end)), axis.title(&(0.0..end)));
        assert_eq!(shown(1500.0, 1999.0), ("1,500".to_owned(), "outstanding (B)".to_owned()));
        assert_eq!(shown(1_500_000.0, 2e6), ("1.5".to_owned(), "outstanding (MB)".to_owned()));
    }

    #[test]
    fn the_range_is_that_of_the_data_unless_given() {
        let near = |range: Range<f64>, low: f64, high: f64| {
            assert!(
                (range.start - low).abs() < 1e-9 && (range.end - high).abs() < 1e-9,
                "{range:?}"
            );
        };
        let data = || [2.0, f64::NAN, 4.0].into_iter();
        near(Axis::new("").ends(data()), 1.92, 4.08);
        near(Axis::new("").ends([0.0, 10.0].into_iter()), 0.0, 10.4);
        near(Axis::new("").ends([-1.0, 1.0].into_iter()), -1.08, 1.08);
        near(Axis::new("").from_zero().ends(data()), 0.0, 4.16);
        near(Axis::new("").logarithmic().ends(data()), 1.8, 4.4);
        near(Axis::new("").range(1.0..3.0).ends(data()), 1.0, 3.0);
        for axis in [Axis::new(""), Axis::new("").logarithmic(), Axis::new("").from_zero()] {
            for data in [vec![], vec![0.0], vec![5.0, 5.0], vec![f64::INFINITY]] {
                let range = axis.ends(data.into_iter());
                assert!(range.start < range.end, "{range:?}");
            }
        }
    }
}
