//! Writes the tables of docs/configuration.md from the table of keys, and checks that they are what it says.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::FileKind;
use crate::schema::keys::{KeyRow, RestartRule, rows};

/// The line of the page below which everything is generated.
const MARK: &str = "<!-- keys -->\n";

/// A key as a row of the page.
#[derive(PartialEq)]
struct PageRow {
    key: String,
    default: String,
    meaning: String,
}

/// The keys of one table of a file.
#[derive(Default)]
struct PageSection {
    heading: String,
    /// Purpose of the section, if it is one.
    sentence: String,
    restart: bool,
    /// The sides that have each key, and the key.
    rows: Vec<(&'static str, PageRow)>,
}

/// Sections by their path; that of the file itself is empty.
type PageSections = BTreeMap<Vec<String>, PageSection>;

impl PageRow {
    fn of(row: &KeyRow, is_required: bool, restarts: bool) -> Self {
        let key = row.path.last().expect("a key has a name").clone();
        let mut meaning = text(&row.schema["description"]);
        if restarts {
            meaning.push_str(" Takes effect at a restart.");
        }
        Self { key, default: default(&row.schema, is_required), meaning }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ")
}

/// The default of a key, and its bounds.
fn default(schema: &Value, is_required: bool) -> String {
    let mut shown = match &schema["default"] {
        _ if is_required => "required".to_owned(),
        Value::Null => "–".to_owned(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        value => format!("`{value}`"),
    };
    let bound = |keys: [&str; 2]| {
        let found = keys.iter().map(|key| &schema[*key]).find(|value| !value.is_null())?;
        Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
    };
    match (bound(["minimum", "x-minimum"]), bound(["maximum", "x-maximum"])) {
        (Some(least), Some(most)) if most != u32::MAX.to_string() => {
            let _ = write!(shown, "; {least} to {most}");
        }
        (Some(least), _) => {
            let _ = write!(shown, "; from {least}");
        }
        _ => {}
    }
    shown
}

/// Adds the keys of a kind of file; those that another side has with the same row are joined with it.
fn add(sections: &mut PageSections, kind: FileKind, side: &'static str) {
    let all = rows(kind);
    let is_section = |path: &[String]| {
        all.iter().any(|row| row.path.len() > path.len() && row.path.starts_with(path))
    };
    for row in &all {
        let restart = row.restart == RestartRule::Restart;
        if is_section(&row.path) {
            let section = sections.entry(row.path.clone()).or_default();
            let brackets = if row.schema["type"] == "array" { ["[[", "]]"] } else { ["[", "]"] };
            section.heading = format!("`{}{}{}`", brackets[0], row.path.join("."), brackets[1]);
            section.sentence = text(&row.schema["description"]);
            section.restart |= restart;
            continue;
        }
        let around = &row.path[..row.path.len() - 1];
        let section = sections.entry(around.to_vec()).or_default();
        let row = PageRow::of(row, row.is_required, restart && !section.restart);
        match section.rows.iter_mut().find(|(_, other)| *other == row) {
            Some((sides, _)) => *sides = "both",
            None => section.rows.push((side, row)),
        }
    }
}

fn write(page: &mut String, section: &PageSection, prefix: &str, has_sides: bool) {
    let heading = match section.heading.as_str() {
        "" if prefix.is_empty() => "The file itself",
        "" => "the file itself",
        heading => heading,
    };
    let _ = writeln!(page, "\n## {prefix}{heading}\n");
    if !section.sentence.is_empty() {
        let restart = if section.restart { " Changes take effect at a restart." } else { "" };
        let _ = writeln!(page, "{}{restart}\n", section.sentence);
    }
    let [title, line] = if has_sides { ["| side ", "|---"] } else { ["", ""] };
    let _ = writeln!(page, "| key {title}| default; bounds | meaning |\n|---{line}|---|---|");
    let mut rows: Vec<_> = section.rows.iter().collect();
    rows.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    for (side, PageRow { key, default, meaning }) in rows {
        let side = if has_sides { format!("{side} | ") } else { String::new() };
        let _ = writeln!(page, "| `{key}` | {side}{default} | {meaning} |");
    }
}

/// Returns the generated part of the page.
fn tables() -> String {
    let mut page = String::new();
    let mut pair = PageSections::new();
    add(&mut pair, FileKind::Terminal, "terminal");
    add(&mut pair, FileKind::Hub, "hub");
    for section in pair.values() {
        write(&mut page, section, "", true);
    }
    let mut solo = PageSections::new();
    add(&mut solo, FileKind::Solo, "solo");
    for (path, section) in &solo {
        // The others are those of a pair.
        if path.is_empty() || !pair.contains_key(path) {
            write(&mut page, section, "Solo: ", false);
        }
    }
    page
}

/// `SKYHOP_DOCS=write cargo test -p skyhop-config --lib reference_page` rewrites the tables.
#[test]
fn the_page_has_all_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(&path).unwrap();
    let (intro, written) = page.split_once(MARK).expect("the page has the mark");
    let made = tables();
    if std::env::var("SKYHOP_DOCS").is_ok_and(|wish| wish == "write") {
        fs::write(path, format!("{intro}{MARK}{made}")).unwrap();
        return;
    }
    assert!(written == made, "the keys have changed: run this with SKYHOP_DOCS=write");
}
