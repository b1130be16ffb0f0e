//! Line charts.

use super::svg::{Anchor, Drawing, WIDTH};

const HEIGHT: f64 = 210.0;
const LEFT: f64 = 42.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// Height of a legend line.
const ENTRY: f64 = 18.0;

/// A line chart whose axes start at 0.
pub(super) struct Chart<'a> {
    pub(super) label: &'a str,
    /// Axis titles, with units.
    pub(super) x_title: &'a str,
    pub(super) y_title: &'a str,
    /// Minimum end of the axes.
    pub(super) x_end: f64,
    pub(super) y_end: f64,
    pub(super) lines: Vec<Line>,
}

/// One line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) class: String,
    /// Points in the axes' units.
    pub(super) points: Vec<(f64, f64)>,
}

impl Chart<'_> {
    pub(super) fn draw(&self) -> Drawing {
        let legend = self.lines.len() as f64 * ENTRY;
        let mut drawing = Drawing::new(HEIGHT + legend, self.label);
        let (x_ticks, y_ticks) = (ticks(self.x_end), ticks(self.y_end));
        let place = |(x, y): (f64, f64)| {
            let share = |value: f64, ticks: &[f64]| value / ticks[ticks.len() - 1];
            let across = LEFT + share(x, &x_ticks) * (RIGHT - LEFT);
            (across, BOTTOM - share(y, &y_ticks) * (BOTTOM - TOP))
        };
        for &tick in &x_ticks {
            let (x, _) = place((tick, 0.0));
            drawing.line(&[(x, TOP), (x, BOTTOM)], "grid");
            drawing.text((x, BOTTOM + 14.0), Anchor::Middle, "tick", &number(tick));
        }
        for &tick in &y_ticks {
            let (_, y) = place((0.0, tick));
            drawing.line(&[(LEFT, y), (RIGHT, y)], "grid");
            drawing.text((LEFT - 5.0, y + 4.0), Anchor::End, "tick", &number(tick));
        }
        drawing.text((LEFT, TOP - 8.0), Anchor::Start, "tick", self.y_title);
        drawing.text((RIGHT, BOTTOM + 28.0), Anchor::End, "tick", self.x_title);
        for line in &self.lines {
            let points: Vec<_> = line.points.iter().copied().map(place).collect();
            drawing.line(&points, &format!("line {}", line.class));
        }
        self.legend(&mut drawing);
        drawing
    }

    fn legend(&self, drawing: &mut Drawing) {
        for (index, line) in self.lines.iter().enumerate() {
            let y = HEIGHT + 4.0 + index as f64 * ENTRY;
            drawing.line(&[(LEFT, y), (LEFT + 24.0, y)], &format!("line {}", line.class));
            drawing.text((LEFT + 32.0, y + 4.0), Anchor::Start, "name", &line.name);
        }
    }
}

/// Round tick values from 0 to at least `end`: 3 to 7 of them, in steps of 1, 2 or 5 times a power
/// of ten.
fn ticks(end: f64) -> Vec<f64> {
    let end = if end > 0.0 && end.is_finite() { end } else { 1.0 };
    let power = 10f64.powf(end.log10().floor() - 1.0);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| end / step <= 6.0).unwrap_or(steps[4]);
    (0..=(end / step - 1e-9).ceil() as u32).map(|index| f64::from(index) * step).collect()
}

fn number(value: f64) -> String {
    // Multiples of a power of ten are not exact.
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(20.0), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(ticks(12.3), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(ticks(100.0).len(), 6);
        assert_eq!(ticks(0.0), ticks(1.0));
        for end in [0.003, 0.7, 1.0, 2.9, 59.0, 61.0, 999.0, 3e7] {
            let ticks = ticks(end);
            assert!((3..=8).contains(&ticks.len()), "{end}: {ticks:?}");
            assert!(ticks[ticks.len() - 1] >= end * 0.999 && ticks[ticks.len() - 2] < end);
        }
    }

    #[test]
    fn a_point_is_where_its_numbers_say() {
        let line =
            Line { name: "a".into(), class: "c0".into(), points: vec![(0.0, 0.0), (10.0, 20.0)] };
        let chart = Chart {
            label: "l",
            x_title: "s",
            y_title: "MB",
            x_end: 10.0,
            y_end: 20.0,
            lines: vec![line],
        };
        let drawn = chart.draw().inline();
        assert!(drawn.contains("points=\"42,176 380,22\" class=\"line c0\""), "{drawn}");
    }
}
