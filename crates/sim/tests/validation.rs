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
            assert_ne!(row.verdict, Verdict::Differs(None), "{}", row.line());
            assert!(page.lines().any(|line| line == row.line()), "not in the page: {}", row.line());
        }
        for plot in section.plots {
            assert!(page.contains(&format!("(validation/{}.svg)", plot.name)), "{}", plot.name);
        }
    }
}

#[test]
fn every_row_of_the_page_is_reproduced_or_explained() {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| claim"));
    let verdicts: Vec<_> = rows.filter_map(|line| line.split(" | ").last()).collect();
    assert!(verdicts.len() > 60, "{} rows", verdicts.len());
    for verdict in verdicts {
        let explained = verdict.strip_prefix("differs: ").is_some_and(|why| why.len() > 20);
        assert!(
            ["reproduced |", "within two deviations |"].contains(&verdict) || explained,
            "{verdict}"
        );
    }
}
