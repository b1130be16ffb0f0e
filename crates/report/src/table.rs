//! Tables of text, as plain text, Markdown and HTML.

use std::fmt;

use crate::escape::escape;

/// Gap between the columns of plain text.
const GAP: &str = "  ";

/// The alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnAlign {
    Left,
    Right,
}

/// A column: its name, alignment and minimum width in characters.
#[derive(Debug, Clone)]
pub struct TableColumn {
    /// The lines of the name.
    name: Vec<String>,
    align: ColumnAlign,
    least: usize,
}

impl TableColumn {
    /// Creates a column of text. The name may have several lines, or be empty.
    pub fn left(name: &str) -> Self {
        Self::new(name, ColumnAlign::Left)
    }

    /// Creates a column of numbers, aligned at the right.
    pub fn right(name: &str) -> Self {
        Self::new(name, ColumnAlign::Right)
    }

    /// Makes the column at least this many characters wide, so that consecutive tables line up.
    #[must_use]
    pub fn at_least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    fn new(name: &str, align: ColumnAlign) -> Self {
        Self { name: name.split('\n').map(str::to_owned).collect(), align, least: 0 }
    }

    /// Returns a line of the name; empty if the name has fewer lines.
    fn line(&self, index: usize) -> &str {
        self.name.get(index).map_or("", String::as_str)
    }
}

/// A table of text. [`fmt::Display`] renders it as plain text, without trailing spaces.
#[derive(Debug, Clone)]
pub struct TextTable {
    title: Option<String>,
    columns: Vec<TableColumn>,
    indent: usize,
    rows: Vec<TableRow>,
}

#[derive(Debug, Clone)]
enum TableRow {
    /// One text per column.
    Cells(Vec<String>),
    /// Text across all columns.
    Note(String),
}

impl TextTable {
    /// Creates an empty table. It has no head if all columns are without a name.
    pub fn new(columns: impl IntoIterator<Item = TableColumn>) -> Self {
        let columns = columns.into_iter().collect();
        Self { title: None, columns, indent: 0, rows: Vec::new() }
    }

    /// Sets the line above the head. Plain text does not indent it.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Indents the lines of plain text by this many spaces.
    #[must_use]
    pub fn indent(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Adds a row; missing cells are empty.
    ///
    /// # Panics
    /// If there are more cells than columns.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert!(cells.len() <= self.columns.len(), "a column for each cell: {cells:?}");
        cells.resize(self.columns.len(), String::new());
        self.rows.push(TableRow::Cells(cells));
    }

    /// Adds a line of text across all columns.
    pub fn note(&mut self, text: impl Into<String>) {
        self.rows.push(TableRow::Note(text.into()));
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table in Markdown. A `|` in a cell is escaped, and a line break becomes a space.
    pub fn markdown(&self) -> String {
        let escaped = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
        let line = |cells: Vec<String>| {
            format!("| {} |\n", cells.iter().map(escaped).collect::<Vec<_>>().join(" | "))
        };
        let names = self.columns.iter().map(|column| column.name.join(" "));
        let mut text = self.title.as_ref().map_or_else(String::new, |title| format!("{title}\n\n"));
        // Written even if all names are empty: a Markdown table needs a header row.
        text += &line(names.collect());
        let rules = self.columns.iter().map(|column| match column.align {
            ColumnAlign::Left => "---|",
            ColumnAlign::Right => "--:|",
        });
        text += &format!("|{}\n", rules.collect::<String>());
        for row in &self.rows {
            text += &match row {
                TableRow::Cells(cells) => line(cells.clone()),
                // Markdown has no cells across columns; missing cells are empty.
                TableRow::Note(note) => line(vec![note.clone()]),
            };
        }
        text
    }

    /// Returns the table as an HTML element.
    pub(crate) fn html(&self) -> String {
        let mut text = "<table>\n".to_owned();
        if let Some(title) = &self.title {
            text += &format!("<caption>{}</caption>\n", escape(title));
        }
        for line in 0..self.head_lines() {
            let names = self.columns.iter().map(|column| column.line(line));
            text += &self.html_row("th", names);
        }
        for row in &self.rows {
            text += &match row {
                TableRow::Cells(cells) => self.html_row("td", cells.iter().map(String::as_str)),
                TableRow::Note(note) => {
                    format!(
                        "<tr><td colspan=\"{}\">{}</td></tr>\n",
                        self.columns.len(),
                        escape(note)
                    )
                }
            };
        }
        text + "</table>\n"
    }

    fn html_row<'a>(&self, tag: &str, cells: impl Iterator<Item = &'a str>) -> String {
        let cell = |(column, cell): (&TableColumn, &str)| {
            let class = if column.align == ColumnAlign::Right { " class=\"number\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escape(cell))
        };
        format!("<tr>{}</tr>\n", self.columns.iter().zip(cells).map(cell).collect::<String>())
    }

    /// Returns the number of lines of the head; 0 if no column has a name.
    fn head_lines(&self) -> usize {
        let named =
            self.columns.iter().any(|column| column.name.iter().any(|line| !line.is_empty()));
        let lines = self.columns.iter().map(|column| column.name.len()).max();
        if named { lines.unwrap_or(0) } else { 0 }
    }

    /// Returns the width of each column in characters.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.least).collect();
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            // Characters, not bytes: names and cells contain – and ×.
            let names = column.name.iter().map(|line| line.chars().count());
            *width = names.fold(*width, usize::max);
        }
        for row in &self.rows {
            // A note spans all columns, and must not widen one of them.
            let TableRow::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    fn plain(&self, widths: &[usize]) -> String {
        let mut text = String::new();
        let mut push = |line: &str| {
            text += line.trim_end();
            text.push('\n');
        };
        if let Some(title) = &self.title {
            push(title);
        }
        for line in 0..self.head_lines() {
            push(&self.line(self.columns.iter().map(|column| column.line(line)), widths));
        }
        for row in &self.rows {
            match row {
                TableRow::Cells(cells) => {
                    push(&self.line(cells.iter().map(String::as_str), widths));
                }
                TableRow::Note(note) => {
                    push(&format!("{:indent$}{note}", "", indent = self.indent));
                }
            }
        }
        text
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let cell = |((column, &width), cell): ((&TableColumn, &usize), &str)| match column.align {
            ColumnAlign::Left => format!("{cell:<width$}"),
            ColumnAlign::Right => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = self.columns.iter().zip(widths).zip(cells).map(cell).collect();
        format!("{:indent$}{}", "", cells.join(GAP), indent = self.indent)
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain(&self.widths()))
    }
}

/// Renders tables as plain text with columns of the same widths, a blank line after each.
pub fn aligned(tables: &[TextTable]) -> String {
    let mut widths = Vec::new();
    for table in tables {
        let own = table.widths();
        // Tables may have different numbers of columns.
        widths.resize(widths.len().max(own.len()), 0);
        for (width, own) in widths.iter_mut().zip(own) {
            *width = own.max(*width);
        }
    }
    tables.iter().map(|table| table.plain(&widths) + "\n").collect()
}

#[cfg(test)]
mod tests;
