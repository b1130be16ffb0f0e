//! The web page of a scenario.

use report::HtmlPage;
use scenario::Documents;

use super::{ReproductionEntry, conditions, losses, plot};
use crate::verdict::{self, ValueBeside};

/// Returns a self-contained web page about one entry. `command` is shown as the way to make it
/// again.
pub fn page(entry: &ReproductionEntry<'_>, documents: &Documents, command: &str) -> String {
    let published = entry.published;
    let document = documents.find(&published.document);
    let title = document.map_or(&published.document, |document| &document.title);
    let mut page = HtmlPage::new(&format!("{} – skyhop study", entry.name), &published.title);
    page.paragraph(title);
    page.summary([verdict::summary(&entry.comparison.score())]);
    figures(&mut page, entry);
    let tables = [
        ("Values", verdict::values(&entry.comparison, false)),
        ("Statements", verdict::statements(&entry.comparison)),
        ("Inputs", conditions(published)),
        ("Lost", losses(published)),
    ];
    for (heading, table) in tables.iter().filter(|(_, table)| !table.is_empty()) {
        page.heading(heading);
        page.table(table);
    }
    if !published.assumption.is_empty() {
        page.heading("Assumptions");
    }
    for assumption in &published.assumption {
        page.paragraph(&format!(
            "{}: {} ({})",
            assumption.about, assumption.taken, assumption.because
        ));
    }
    let seeds = [("seeds", entry.seeds.to_string())];
    page.terms(&seeds, "run again", command);
    page.into_html()
}

/// Adds a picture of each output that has one.
fn figures(page: &mut HtmlPage, entry: &ReproductionEntry<'_>) {
    for output in &entry.published.output {
        let own =
            entry.comparison.values.iter().filter(|value| core::ptr::eq(value.output, output));
        let own: Vec<&ValueBeside<'_>> = own.collect();
        if let Some(picture) = plot::picture(output, &own) {
            let caption = format!(
                "Diamonds are published, dots ours ({}), with the interval at 95 % confidence. Tolerance {:.0} %: {}.",
                entry.runs(),
                output.tolerance * 100.0,
                output.tolerance_because,
            );
            page.figure(
                &format!("{}: {} of {}", output.place, output.metric, output.of),
                &picture,
                &caption,
            );
        }
    }
}
