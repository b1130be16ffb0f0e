//! Bar charts of times.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::picture::{DrawArea, DrawResult, SvgPicture};
use super::theme::{INK, SCALE, SOFT, SeriesColour, TEXT, text, text_width, title};

/// Width of the picture, and heights of a group's title, of a row, of its bar and below a group, in
/// pixels.
const WIDTH: u32 = 560;
const TITLE_LINE: u32 = 32;
const ROW: u32 = 25;
const BAR: u32 = 15;
const BELOW: u32 = 10;
/// Distance between bars and texts in pixels.
const GAP: u32 = 8;
/// Least and greatest value of a chart without times.
const LEAST: f64 = 0.1;

/// A group of bars with a title.
#[derive(Debug, Clone)]
pub struct BarGroup {
    /// Title in a line above the group.
    pub title: String,
    /// The bars, from top to bottom.
    pub bars: Vec<TimeBar>,
}

/// A time as a bar.
#[derive(Debug, Clone)]
pub struct TimeBar {
    /// Name to the left of the bar.
    pub name: String,
    /// Colour of the bar on a light background.
    pub colour: SeriesColour,
    /// The time in seconds; `None` shows "failed".
    pub seconds: Option<f64>,
    /// True if the time is exact. Otherwise it is a lower bound, and the bar is pale and dashed.
    pub is_finished: bool,
}

impl TimeBar {
    fn value(&self) -> String {
        match self.seconds {
            None => "failed".to_owned(),
            Some(seconds) if self.is_finished => format!("{seconds:.1} s"),
            Some(seconds) => format!("> {seconds:.1} s"),
        }
    }
}

/// Draws all groups below each other on one scale; `label` is for screen readers.
pub fn bars(label: &str, groups: &[BarGroup]) -> SvgPicture {
    let rows = groups.iter().map(|group| group.bars.len() as u32).sum::<u32>();
    let height = rows * ROW + groups.len() as u32 * (TITLE_LINE + BELOW);
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let widest =
        |text: fn(&TimeBar) -> String| bars().map(|bar| text_width(&text(bar))).max().unwrap_or(0);
    let left = widest(|bar| bar.name.clone()) + 3 * GAP;
    let scale = BarScale {
        left,
        width: WIDTH.saturating_sub(left + widest(TimeBar::value) + 2 * GAP),
        longest: bars().filter_map(|bar| bar.seconds).fold(LEAST, f64::max),
    };
    SvgPicture::draw(WIDTH, height.max(1), label, |area| {
        let mut y = 0;
        for group in groups {
            let place = (units(GAP), units(y + TITLE_LINE / 2));
            area.draw(&Text::new(group.title.clone(), place, title(HPos::Left)))?;
            y += TITLE_LINE;
            for bar in &group.bars {
                scale.draw(area, y, bar)?;
                y += ROW;
            }
            y += BELOW;
        }
        Ok(())
    })
}

/// The scale of all bars: left end and width in pixels, and the longest time in seconds.
struct BarScale {
    left: u32,
    width: u32,
    longest: f64,
}

impl BarScale {
    fn draw(&self, area: &DrawArea<'_>, top: u32, bar: &TimeBar) -> DrawResult {
        let middle = top + ROW / 2;
        let name = (units(self.left - GAP), units(middle));
        area.draw(&Text::new(bar.name.clone(), name, text(TEXT, INK, HPos::Right)))?;
        let mut end = units(self.left);
        if let Some(seconds) = bar.seconds {
            let share = (seconds / self.longest).clamp(0.0, 1.0);
            // At least a pixel, so that a short time stays visible.
            end += (share * f64::from(self.width * SCALE)).max(f64::from(SCALE)) as i32;
            let top = units(middle - BAR / 2);
            let bottom = units(middle + BAR.div_ceil(2));
            outline(area, [(units(self.left), top), (end, bottom)], bar)?;
        }
        let colour = if bar.seconds.is_some() { INK } else { SOFT };
        let value = (end + units(GAP), units(middle));
        area.draw(&Text::new(bar.value(), value, text(TEXT, colour, HPos::Left)))
    }
}

fn outline(area: &DrawArea<'_>, corners: [(i32, i32); 2], bar: &TimeBar) -> DrawResult {
    let colour = bar.colour.rgb();
    if bar.is_finished {
        return area.draw(&Rectangle::new(corners, colour.filled()));
    }
    // A lower bound only: pale and dashed.
    area.draw(&Rectangle::new(corners, colour.mix(0.2).filled()))?;
    let [(left, top), (right, bottom)] = corners;
    let around = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
    let style = colour.stroke_width(3 * SCALE / 2);
    area.draw(&DashedPathElement::new(around, 5 * SCALE, 4 * SCALE, style))
}

/// Converts pixels to units of the drawing library.
fn units(pixels: u32) -> i32 {
    (pixels * SCALE) as i32
}
