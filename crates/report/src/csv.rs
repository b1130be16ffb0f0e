//! Comma-separated values (RFC 4180), with lines that end in LF.

/// A CSV text: a line of names, then a line per row.
#[derive(Debug, Clone)]
pub struct CsvText {
    columns: usize,
    text: String,
}

impl CsvText {
    /// Creates a text that begins with the names of its columns.
    pub fn new(names: &[&str]) -> Self {
        let mut csv = Self::continued(names.len());
        csv.row(names.iter().map(|name| Some((*name).to_owned())));
        csv
    }

    /// Creates further rows of a text whose column names were printed before.
    pub fn continued(columns: usize) -> Self {
        Self { columns, text: String::new() }
    }

    /// Adds a row; an unknown value is an empty field.
    ///
    /// # Panics
    /// If there are not as many fields as columns.
    pub fn row(&mut self, fields: impl IntoIterator<Item = Option<String>>) {
        let fields: Vec<String> = fields
            .into_iter()
            .map(|field| field.as_deref().map(quoted).unwrap_or_default())
            .collect();
        assert_eq!(fields.len(), self.columns, "a field for each column");
        self.text += &fields.join(",");
        self.text.push('\n');
    }

    /// Returns the text with all rows.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Quotes a field that needs it (RFC 4180, section 2).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_rows_and_unknown_values() {
        let mut csv = CsvText::new(&["run", "client", "seconds"]);
        csv.row([Some("1".to_owned()), None, Some("0.5".to_owned())]);
        csv.row([Some("2".to_owned()), Some("a, \"b\"\n".to_owned()), None]);
        assert_eq!(csv.into_text(), "run,client,seconds\n1,,0.5\n2,\"a, \"\"b\"\"\n\",\n");
    }

    #[test]
    fn a_continued_text_has_no_names() {
        let mut csv = CsvText::continued(1);
        csv.row([Some("x".to_owned())]);
        assert_eq!(csv.into_text(), "x\n");
    }

    #[test]
    #[should_panic(expected = "a field for each column")]
    fn a_field_too_many_is_a_bug() {
        CsvText::continued(1).row([None, None]);
    }
}
