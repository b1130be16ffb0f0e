//! Finished drawings as SVG.

use plotters::prelude::*;

use super::theme::{GROUND, SCALE, dark_css, hexadecimal};
use crate::escape::escape;

/// A finished drawing as SVG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SvgPicture {
    /// Width and height in pixels.
    size: (u32, u32),
    /// Text for screen readers.
    label: String,
    /// The elements inside the `svg` element.
    body: String,
}

/// The drawing area of a picture or of a part of it.
pub(super) type DrawArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
/// The result of drawing. Writing to memory cannot fail, so an error is a bug in this crate.
pub(super) type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl SvgPicture {
    /// Draws a picture of this size in pixels.
    pub(super) fn draw(
        width: u32,
        height: u32,
        label: &str,
        fill: impl FnOnce(&DrawArea<'_>) -> DrawResult,
    ) -> Self {
        let mut text = String::new();
        let scaled = (width * SCALE, height * SCALE);
        let area = SVGBackend::with_string(&mut text, scaled).into_drawing_area();
        fill(&area).and_then(|()| area.present()).expect("drawing into memory works");
        drop(area);
        // The `svg` element is taken off, because `with` writes one of its own.
        let body = text.split_once(">\n").map_or("", |(_, body)| body);
        let body = body.trim_end().trim_end_matches("</svg>").to_owned();
        Self { size: (width, height), label: label.to_owned(), body }
    }

    /// Returns the SVG element for a page with the style sheet of [`crate::HtmlPage`].
    pub fn inline(&self) -> String {
        // In HTML an SVG element needs no namespace, and the page has the style sheet already.
        self.with("", "")
    }

    /// Returns a complete SVG file, whose background follows the reader's preference for light or dark.
    pub fn file(&self) -> String {
        let (width, height) = self.size;
        let ground = hexadecimal(GROUND);
        let attributes =
            format!(" xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\"");
        // The background is an element, so that the style sheet can replace its colour.
        let head = format!(
            "<style>\n{}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"{ground}\"/>\n",
            dark_css()
        );
        self.with(&attributes, &head)
    }

    fn with(&self, attributes: &str, head: &str) -> String {
        let width = self.size.0 * SCALE;
        let height = self.size.1 * SCALE;
        let label = escape(&self.label);
        let body = &self.body;
        format!(
            "<svg{attributes} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n\
             {head}{body}</svg>\n"
        )
    }
}
