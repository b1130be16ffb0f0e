//! Bar chart of the time each way took for each task.

use super::svg::{Anchor, Drawing, WIDTH};

const NAME: f64 = 128.0;
const END: f64 = WIDTH - 66.0;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const TITLE: f64 = 26.0;
const GAP: f64 = 8.0;

/// The bars of one task.
pub(super) struct Group {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

/// One way's bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) class: String,
    /// Length in seconds; `None` if there is no time to show.
    pub(super) seconds: Option<f64>,
    pub(super) finished: bool,
}

/// Draws all groups below each other on one scale.
pub(super) fn draw(label: &str, groups: &[Group]) -> Drawing {
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let heads = groups.len() as f64 * (TITLE + GAP);
    let mut drawing = Drawing::new(rows as f64 * ROW + heads, label);
    let bars = groups.iter().flat_map(|group| &group.bars);
    let longest = bars.filter_map(|bar| bar.seconds).fold(0.1, f64::max);
    let mut y = 0.0;
    for group in groups {
        drawing.text((0.0, y + 17.0), Anchor::Start, "title", &group.title);
        y += TITLE;
        for bar in &group.bars {
            draw_bar(&mut drawing, y, bar, longest);
            y += ROW;
        }
        y += GAP;
    }
    drawing
}

fn draw_bar(drawing: &mut Drawing, y: f64, bar: &Bar, longest: f64) {
    let base = y + BAR - 1.0;
    drawing.text((NAME - 8.0, base), Anchor::End, "name", &bar.name);
    let Some(seconds) = bar.seconds else {
        drawing.text((NAME, base), Anchor::Start, "name", "failed");
        return;
    };
    let width = (END - NAME) * seconds / longest;
    let open = if bar.finished { "" } else { " open" };
    drawing.rect((NAME, y), (width.max(1.0), BAR), &format!("bar {}{open}", bar.class));
    let more = if bar.finished { "" } else { "> " };
    let time = format!("{more}{seconds:.1} s");
    drawing.text((NAME + width + 5.0, base), Anchor::Start, "name", &time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_times() {
        let bar =
            |seconds, finished| Bar { name: "x".into(), class: "c1".into(), seconds, finished };
        let bars = vec![bar(Some(20.0), false), bar(Some(5.0), true), bar(None, true)];
        let drawn = draw("times", &[Group { title: "T".into(), bars }]).inline();
        assert!(
            drawn.contains("width=\"206\" height=\"12\" rx=\"2\" class=\"bar c1 open\""),
            "{drawn}"
        );
        assert!(
            drawn.contains("width=\"51.5\" height=\"12\" rx=\"2\" class=\"bar c1\""),
            "{drawn}"
        );
        assert!(drawn.contains("&gt; 20.0 s") && drawn.contains(">5.0 s<"), "{drawn}");
        assert!(drawn.contains(">failed<"), "{drawn}");
    }
}
