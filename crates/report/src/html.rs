//! A self-contained web page, without external resources or scripts.

use crate::escape::escape;
use crate::graph::{SvgPicture, dark_css};
use crate::table::TextTable;

const STYLE: &str = include_str!("page.css");

/// A web page under construction. All texts are escaped.
#[derive(Debug, Clone)]
pub struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    /// Creates a page with this title (of the window) and heading.
    pub fn new(title: &str, heading: &str) -> Self {
        let mut page = Self { title: escape(title), body: String::new() };
        page.push("h1", heading);
        page
    }

    /// Adds a second-level heading.
    pub fn heading(&mut self, text: &str) {
        self.push("h2", text);
    }

    /// Adds a paragraph of text.
    pub fn paragraph(&mut self, text: &str) {
        self.push("p", text);
    }

    /// Adds a paragraph in small print.
    pub fn remark(&mut self, text: &str) {
        self.body += &format!("<p class=\"soft\">{}</p>\n", escape(text));
    }

    /// Adds a highlighted paragraph, with its first words in bold.
    pub fn notice(&mut self, bold: &str, text: &str) {
        let bold = escape(bold);
        let text = escape(text);
        self.body += &format!("<p class=\"notice\"><strong>{bold}</strong> {text}</p>\n");
    }

    /// Adds a list in large print.
    pub fn summary<S: AsRef<str>>(&mut self, items: impl IntoIterator<Item = S>) {
        let items = items.into_iter().map(|item| format!("<li>{}</li>\n", escape(item.as_ref())));
        self.body += &format!("<ul class=\"lede\">\n{}</ul>\n", items.collect::<String>());
    }

    /// Adds a picture with a heading above and an explanation below.
    pub fn figure(&mut self, heading: &str, picture: &SvgPicture, caption: &str) {
        self.heading(heading);
        let picture = picture.inline();
        let caption = escape(caption);
        self.body += &format!("<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n");
    }

    /// Adds a table, which scrolls where the page is narrow.
    pub fn table(&mut self, table: &TextTable) {
        self.body += &format!("<div class=\"scroll\">{}</div>\n", table.html());
    }

    /// Adds a list of terms with their values, and one more with a command.
    pub fn terms(&mut self, terms: &[(&str, String)], name: &str, command: &str) {
        let term = |(name, value): &(&str, String)| {
            format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
        };
        let terms: String = terms.iter().map(term).collect();
        let name = escape(name);
        let command = escape(command);
        let command = format!("<dt>{name}</dt><dd><code>{command}</code></dd>\n");
        self.body += &format!("<dl>\n{terms}{command}</dl>\n");
    }

    /// Returns the complete HTML file.
    pub fn into_html(self) -> String {
        let Self { title, body } = self;
        let dark = dark_css();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}{dark}</style>\n</head>\n\
             <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )
    }

    fn push(&mut self, tag: &str, text: &str) {
        self.body += &format!("<{tag}>{}</{tag}>\n", escape(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TableColumn;

    #[test]
    fn everything_is_escaped_and_closed() {
        let mut page = HtmlPage::new("<t>", "<h>");
        page.paragraph("<p>");
        page.remark("<r>");
        page.notice("<b>", "<n>");
        page.summary(["<li>"]);
        let mut table = TextTable::new([TableColumn::left("<th>")]);
        table.row(["<td>"]);
        page.table(&table);
        page.terms(&[("<dt>", "<dd>".to_owned())], "<repeat>", "x 'y' \"z\"");
        let html = page.into_html();
        let body = html.split_once("<main>").unwrap().1;
        for text in ["h", "p", "r", "b", "n", "li", "th", "td", "dt", "dd", "repeat"] {
            assert!(body.contains(&format!("&lt;{text}&gt;")), "{text}: {html}");
        }
        assert!(html.contains("<title>&lt;t&gt;</title>"));
        assert!(html.contains("<code>x 'y' &quot;z&quot;</code>"));
        for tag in ["h1", "p", "ul", "li", "table", "tr", "dl", "dt", "dd", "main", "style"] {
            let count = |text: &str| html.matches(text).count();
            let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
            assert!(opened > 0 && opened == count(&format!("</{tag}>")), "{tag}: {html}");
        }
    }
}
