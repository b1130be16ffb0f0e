//! Plain text tables with aligned columns.

/// Gap between columns.
const GAP: &str = "  ";

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Row {
    /// Text across all columns.
    Title(String),
    /// The first cell is left-aligned, the others right-aligned; the remark follows the last
    /// column.
    Cells {
        /// One text per column; missing ones are empty.
        cells: Vec<String>,
        /// Text after the columns; may be empty.
        remark: String,
    },
    /// An empty line.
    Blank,
}

impl Row {
    /// A row of cells without a remark.
    pub(crate) fn cells(cells: &[&str]) -> Self {
        let cells = cells.iter().map(|&cell| cell.to_owned()).collect();
        Self::Cells { cells, remark: String::new() }
    }
}

/// Renders the rows, one line each, without trailing spaces.
pub(crate) fn render(rows: &[Row]) -> String {
    let widths = widths(rows);
    let lines = rows.iter().map(|row| match row {
        Row::Title(title) => title.clone(),
        Row::Cells { cells, remark } => line(cells, remark, &widths),
        Row::Blank => String::new(),
    });
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Width of each column in characters.
fn widths(rows: &[Row]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        let Row::Cells { cells, .. } = row else { continue };
        widths.resize(widths.len().max(cells.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn line(cells: &[String], remark: &str, widths: &[usize]) -> String {
    let mut line = String::new();
    for (index, &width) in widths.iter().enumerate() {
        let cell = cells.get(index).map_or("", String::as_str);
        if index == 0 {
            line += &format!("{cell:<width$}");
        } else {
            line += &format!("{GAP}{cell:>width$}");
        }
    }
    line + GAP + remark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_titles_are_not() {
        let rows = [
            Row::Title("Download of 20 MB, which is a long title".to_owned()),
            Row::cells(&["", "time s", "gain"]),
            Row::Cells {
                cells: vec!["plain CUBIC".to_owned(), "> 20.00".to_owned()],
                remark: "unfinished".to_owned(),
            },
            Row::cells(&["skyhop", "4.40", "2.9 ×"]),
            Row::Blank,
            Row::cells(&["x"]),
        ];
        let expected = "\
Download of 20 MB, which is a long title
              time s   gain
plain CUBIC  > 20.00         unfinished
skyhop          4.40  2.9 ×

x
";
        assert_eq!(render(&rows), expected);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(render(&[]), "");
    }
}
