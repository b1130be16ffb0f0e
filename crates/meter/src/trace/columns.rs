//! Reduces marks to as many elements as a picture can show, by merging marks of the same column.

use std::collections::BTreeMap;

/// Merges bars `(time, start, end)` of the same column that are less than a `row` apart.
pub(super) fn columns(marks: &[(f64, f64, f64)], column: f64, row: f64) -> Vec<(f64, f64, f64)> {
    let mut of_column: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for &(time, start, end) in marks {
        of_column.entry(index(time, column)).or_default().push((start, end));
    }
    let mut bars = Vec::new();
    for (at, mut parts) in of_column {
        parts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let time = (at as f64 + 0.5) * column;
        let mut parts = parts.into_iter();
        let Some(mut last) = parts.next() else { continue };
        for (start, end) in parts {
            if start <= last.1 + row {
                last.1 = last.1.max(end);
            } else {
                bars.push((time, last.0, last.1));
                last = (start, end);
            }
        }
        bars.push((time, last.0, last.1));
    }
    bars
}

/// Lines of a step function: of each column the first, lowest, highest and last value. There is no
/// line where it is above `high`.
pub(super) fn steps(marks: &[(f64, f64, f64)], column: f64, high: f64) -> Vec<Vec<(f64, f64)>> {
    let mut lines = vec![Vec::new()];
    let mut last: Option<f64> = None;
    for part in marks.chunk_by(|a, b| index(a.0, column) == index(b.0, column)) {
        let (first, end) = (part[0], part[part.len() - 1]);
        let low = part.iter().map(|mark| mark.1).fold(f64::INFINITY, f64::min);
        let top = part.iter().map(|mark| mark.2).fold(0.0, f64::max);
        let held = last.map(|value| (first.0, value));
        let points = held.into_iter().chain([
            (first.0, first.1),
            (first.0, low),
            (first.0, top),
            (end.0, end.2),
        ]);
        for (time, value) in points {
            if value > high {
                lines.push(Vec::new());
            } else if let Some(line) = lines.last_mut() {
                line.push((time, value));
                line.dedup();
            }
        }
        last = Some(end.2);
    }
    lines.retain(|line| line.len() > 1);
    lines
}

fn index(time: f64, column: f64) -> u64 {
    (time / column) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_column_are_joined_where_they_touch() {
        let marks = [(0.1, 0.0, 10.0), (0.2, 10.0, 20.0), (0.3, 50.0, 60.0), (1.2, 60.0, 70.0)];
        let expected = [(0.5, 0.0, 20.0), (0.5, 50.0, 60.0), (1.5, 60.0, 70.0)];
        assert_eq!(columns(&marks, 1.0, 1.0), expected);
    }

    #[test]
    fn a_level_holds_and_is_cut_where_it_leaves_the_picture() {
        let marks = [(0.0, 5.0, 5.0), (2.0, 7.0, 7.0), (4.0, 99.0, 99.0), (6.0, 8.0, 8.0)];
        let expected = [vec![(0.0, 5.0), (2.0, 5.0), (2.0, 7.0), (4.0, 7.0)]];
        assert_eq!(steps(&marks, 1.0, 10.0), expected);
    }

    #[test]
    fn extremes_within_a_column_are_kept() {
        let marks: Vec<_> = (0..1000)
            .map(|it| (f64::from(it) / 1e3, f64::from(it % 10), f64::from(it % 10)))
            .collect();
        let lines = steps(&marks, 1.0, 10.0);
        assert_eq!(lines, [vec![(0.0, 0.0), (0.0, 9.0), (0.999, 9.0)]]);
    }
}
