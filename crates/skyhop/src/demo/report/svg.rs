//! Drawings as SVG text. Colours come from CSS classes, so that the enclosing page (or
//! [`Drawing::standalone`]) chooses between light and dark.

use std::fmt::{Display, Write as _};

/// Width of all drawings in user units: about a phone's width in pixels, so that text stays
/// readable there.
pub(super) const WIDTH: f64 = 400.0;

/// A drawing to append elements to.
pub(super) struct Drawing {
    height: f64,
    /// Text for screen readers.
    label: String,
    body: String,
}

/// Which end of a text its coordinates refer to.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub(super) fn new(height: f64, label: &str) -> Self {
        Self { height, label: label.to_owned(), body: String::new() }
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (N(x), N(y), escape(text));
        let text = format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        );
        self.push(&text);
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let [x, y, width, height] = [x, y, width, height].map(N);
        self.push(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" class=\"{class}\"/>"
        ));
    }

    /// Adds a polyline.
    pub(super) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let mut places = String::new();
        for &(x, y) in points {
            let _ = write!(places, "{},{} ", N(x), N(y));
        }
        self.push(&format!("<polyline points=\"{}\" class=\"{class}\"/>", places.trim_end()));
    }

    /// SVG for a page that defines the classes.
    pub(super) fn inline(&self) -> String {
        self.with("", "")
    }

    /// A standalone SVG file that defines the classes.
    pub(super) fn standalone(&self, style: &str) -> String {
        let style = format!("<style>\n{style}</style>\n");
        self.with(" xmlns=\"http://www.w3.org/2000/svg\"", &style)
    }

    fn with(&self, attributes: &str, style: &str) -> String {
        let (height, label) = (N(self.height), escape(&self.label));
        format!(
            "<svg{attributes} viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">\n{style}{}</svg>\n",
            self.body
        )
    }

    fn push(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }
}

/// Formats a number with the precision that a drawing needs.
struct N(f64);

impl Display for N {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", (self.0 * 10.0).round() / 10.0)
    }
}

/// Escapes text for SVG and HTML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut drawing = Drawing::new(10.0, "a \"b\"");
        drawing.text((1.04, 2.0), Anchor::End, "c", "<script> & co");
        let expected = "\
<svg viewBox=\"0 0 400 10\" role=\"img\" aria-label=\"a &quot;b&quot;\">
<text x=\"1\" y=\"2\" text-anchor=\"end\" class=\"c\">&lt;script&gt; &amp; co</text>
</svg>
";
        assert_eq!(drawing.inline(), expected);
    }
}
