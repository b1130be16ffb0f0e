//! `docs/validation.md` must be the output of `examples/validation`.

#![allow(missing_docs)]

#[allow(dead_code, reason = "graphs are drawn by the example only")]
#[path = "../examples/validation/checks/mod.rs"]
mod checks;

use checks::{Effort, Verdict};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/validation.md");
    std::fs::read_to_string(path).unwrap()
}

/// Runs are the same everywhere, so the rows must match to the last digit.
#[test]
fn the_quick_rows_stand_in_the_page() {
    let page = page();
    for section in checks::sections(Effort::Quick) {
        assert!(page.contains(&format!("\n## {}\n\n{}\n", section.title, section.text)));
        for row in section.rows {
            assert_ne!(row.verdict, Verdict::Unstated, "{}", row.line());
            assert!(page.lines().any(|line| line == row.line()), "not in the page: {}", row.line());
        }
        for plot in section.plots {
            assert!(page.contains(&format!("(validation/{}.svg)", plot.name)), "{}", plot.name);
        }
    }
}

/// A row of the page: expected and our value, and the verdict with its numbers.
fn cells(row: &str) -> (f64, f64, &str) {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let value = |cell: &str| cell.split(' ').next().unwrap().parse::<f64>().unwrap();
    let [_, _, expected, ours, _, verdict] = cells[..] else { panic!("{row}") };
    (value(expected), value(ours), verdict)
}

/// The numbers in the parentheses of a verdict.
fn stated(verdict: &str) -> Vec<f64> {
    let (inside, _) = verdict.split_once('(').unwrap().1.split_once(')').unwrap();
    inside.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// The slow rows, too, are what their verdicts state. Values stand with three digits in the page.
#[test]
fn every_row_of_the_page_is_within_the_tolerance_that_it_states() {
    let page = page();
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim"))
        .map(cells)
        .collect();
    assert!(rows.len() > 60, "{} rows", rows.len());
    for (expected, ours, verdict) in rows {
        let ratio = ours / expected;
        let (low, high) = match (verdict.split(' ').next(), &stated(verdict)[..]) {
            (Some("reproduced"), [percent]) => (1.0 - percent / 100.0, 1.0 + percent / 100.0),
            (Some("within"), [times, deviation]) => {
                let share = times * deviation / expected;
                (1.0 - share, 1.0 + share)
            }
            (Some("differs"), [stated, percent]) => {
                (stated * (1.0 - percent / 100.0), stated * (1.0 + percent / 100.0))
            }
            _ => panic!("{verdict}"),
        };
        assert!((low - 0.005..=high + 0.005).contains(&ratio), "{ratio} is not: {verdict}");
    }
}
