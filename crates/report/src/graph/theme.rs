//! Colours, fonts and distances of all pictures, for light and dark backgrounds.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of text in pixels.
pub(super) const TEXT: u32 = 15;
/// Size of titles in pixels.
pub(super) const TITLE: u32 = 18;
/// Units of the drawing library per pixel. It positions everything at whole numbers, so one unit per
/// pixel would be too coarse.
pub(super) const SCALE: u32 = 4;

const FAMILY: &str = "system-ui, sans-serif";
/// The library divides the size of a font by this when it writes SVG.
const FONT_FACTOR: f64 = 1.24;
/// Mean width of a character, as a fraction of the font's size.
const CHARACTER: f64 = 0.56;

pub(super) const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
pub(super) const SOFT: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(super) const GRID: RGBColor = RGBColor(0xd9, 0xde, 0xe3);
pub(super) const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// The colour of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesColour {
    /// The main series: skyhop, data sent.
    Blue,
    /// A series for comparison, or data out of order.
    Orange,
    /// A series for comparison, or acknowledged data.
    Green,
    /// A series for comparison, or selectively acknowledged data.
    Purple,
    /// Lost and retransmitted data.
    Red,
    /// Data delivered to the application.
    Sky,
    /// A limit, such as a window.
    Grey,
}

impl SeriesColour {
    /// The colours for series without a meaning of their own.
    const CYCLE: [Self; 6] =
        [Self::Blue, Self::Red, Self::Green, Self::Orange, Self::Purple, Self::Grey];

    /// Returns the colour of the series with this index, for series without a meaning of their own.
    pub fn cycle(index: usize) -> Self {
        Self::CYCLE[index % Self::CYCLE.len()]
    }

    /// Returns the colour on a light background.
    pub(super) fn rgb(self) -> RGBColor {
        match self {
            Self::Blue => RGBColor(0x0b, 0x6b, 0xcb),
            Self::Orange => RGBColor(0xe0, 0x76, 0x00),
            Self::Green => RGBColor(0x2b, 0x8a, 0x3e),
            Self::Purple => RGBColor(0x86, 0x2e, 0x9c),
            Self::Red => RGBColor(0xd0, 0x20, 0x30),
            Self::Sky => RGBColor(0x3b, 0xb0, 0xd6),
            Self::Grey => RGBColor(0x84, 0x8e, 0x98),
        }
    }

    /// Returns the colour on a dark background.
    fn dark(self) -> &'static str {
        match self {
            Self::Blue => "#5cb3ff",
            Self::Orange => "#ffb052",
            Self::Green => "#69db7c",
            Self::Purple => "#da9cf0",
            Self::Red => "#ff8088",
            Self::Sky => "#8be4ff",
            Self::Grey => "#7d8792",
        }
    }
}

/// Returns every colour of a picture with its replacement on a dark background.
fn palette() -> impl Iterator<Item = (RGBColor, &'static str)> {
    let plain = [(INK, "#e6e9ed"), (SOFT, "#9aa5b1"), (GRID, "#343b43"), (GROUND, "#14171b")];
    // Sky has a meaning of its own, so it is not in the cycle.
    let colours = SeriesColour::CYCLE.into_iter().chain([SeriesColour::Sky]);
    plain.into_iter().chain(colours.map(|colour| (colour.rgb(), colour.dark())))
}

/// Formats a colour as the drawing library writes it.
pub(super) fn hexadecimal(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Returns the style sheet that replaces the colours of pictures if the reader prefers a dark background.
pub(crate) fn dark_css() -> String {
    let rule = |(light, dark): (RGBColor, &str)| {
        let light = hexadecimal(light);
        format!(
            "svg [fill=\"{light}\"] {{ fill: {dark}; }} svg [stroke=\"{light}\"] {{ stroke: {dark}; }}\n"
        )
    };
    format!(
        "@media (prefers-color-scheme: dark) {{\n{}}}\n",
        palette().map(rule).collect::<String>()
    )
}

/// Returns a text style: `size` in pixels, aligned at the given side and centred vertically.
pub(super) fn text(size: u32, colour: RGBColor, side: HPos) -> TextStyle<'static> {
    let size = f64::from(size * SCALE) * FONT_FACTOR;
    (FAMILY, size).into_font().color(&colour).pos(Pos::new(side, VPos::Center))
}

/// Returns the style of titles: bold, aligned at the given side.
pub(super) fn title(side: HPos) -> TextStyle<'static> {
    let size = f64::from(TITLE * SCALE) * FONT_FACTOR;
    let font = (FAMILY, size).into_font().style(FontStyle::Bold);
    font.color(&INK).pos(Pos::new(side, VPos::Center))
}

/// Estimates the width of a text, in pixels.
pub(super) fn text_width(text: &str) -> u32 {
    (text.chars().count() as f64 * f64::from(TEXT) * CHARACTER).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_one_of_its_own_by_night() {
        let light: std::collections::BTreeSet<_> =
            palette().map(|(light, _)| hexadecimal(light)).collect();
        let dark: std::collections::BTreeSet<_> = palette().map(|(_, dark)| dark).collect();
        assert_eq!((light.len(), dark.len()), (11, 11));
        let css = dark_css();
        assert!(css.contains("svg [stroke=\"#0B6BCB\"] { stroke: #5cb3ff; }"), "{css}");
    }
}
