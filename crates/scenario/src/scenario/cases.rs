//! Several scenarios in one file: each combination of the factors' levels, then each case. A case
//! and a level change single keys.

mod factors;

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::raw::{RawCase, RawFactor};
use crate::FileError;
use crate::document::Document;
use crate::place::{Place, quoted};

/// Maximum number of cases in a file.
const MOST: usize = 1000;

/// The part of a file that says what its cases are.
#[derive(Deserialize)]
struct Cases {
    factor: Option<Vec<RawFactor>>,
    case: Option<Vec<RawCase>>,
}

/// A case: its name, and the tables `case.0` or `factor.0.levels.0` whose `set` it applies.
struct Change {
    name: String,
    tables: Vec<String>,
}

/// Splits a file into its cases. Without cases and factors, a single one without a name.
///
/// # Errors
/// More than [`MOST`] of them; names that are missing or occur twice; keys that do not exist.
pub(super) fn split(document: Document<'_>) -> Result<Vec<Document<'_>>, FileError> {
    let Cases { factor, case } = document.read()?;
    if factor.is_none() && case.is_none() {
        return Ok(vec![document]);
    }
    let place = Place::file(&document);
    let mut changes =
        factor.map_or(Ok(Vec::new()), |factors| factors::combine(&place, &factors))?;
    if let Some(cases) = case {
        let count = cases.len();
        place.check(
            (1..=MOST).contains(&count),
            "case",
            format!("{count} of them"),
            "1 to 1000",
        )?;
        changes.extend((0..).zip(cases).map(|(number, case)| {
            let tables = vec![format!("case.{number}")];
            Change { name: case.name, tables }
        }));
    }
    check_names(&place, &changes)?;
    let mut base = document.clone();
    if let DeValue::Table(file) = base.root.get_mut() {
        file.remove("factor");
        file.remove("case");
    }
    changes.into_iter().map(|change| apply(&document, &base, change)).collect()
}

/// Each case needs a name of its own.
fn check_names(place: &Place<'_>, changes: &[Change]) -> Result<(), FileError> {
    let count = format!("{} with the combinations of all factors", changes.len());
    place.check(changes.len() <= MOST, "case", count, "at most 1000")?;
    let mut names = BTreeSet::new();
    for Change { name, tables } in changes {
        let place = place.within(tables.last().map_or("case", String::as_str));
        place.check(!name.is_empty(), "name", "\"\"", "a name")?;
        let expected = "a name that no earlier case has";
        place.check(names.insert(name), "name", quoted(name), expected)?;
    }
    Ok(())
}

/// The file `base` with the changes that are written in `document`.
fn apply<'a>(
    document: &Document<'a>,
    base: &Document<'a>,
    change: Change,
) -> Result<Document<'a>, FileError> {
    let mut changed = Document { case: Some(change.name), ..base.clone() };
    for table in change.tables {
        let place = Place::file(document).within(&table);
        let set = document.value(&format!("{table}.set")).and_then(DeValue::as_table);
        for (path, value) in set.into_iter().flatten() {
            let wrong = |expected| place.wrong("set", quoted(path.get_ref()), expected);
            put(&mut changed.root, path, value.clone()).map_err(wrong)?;
        }
    }
    Ok(changed)
}

/// Sets the value at `path`, such as `flow.0.bytes`. Missing tables are created, but list elements
/// must exist. The error says what would be accepted.
fn put<'a>(
    mut target: &mut Spanned<DeValue<'a>>,
    path: &Spanned<DeString<'a>>,
    value: Spanned<DeValue<'a>>,
) -> Result<(), String> {
    let mut before = String::new();
    for key in path.get_ref().split('.') {
        target = match target.get_mut() {
            DeValue::Table(table) => {
                let own = Spanned::new(path.span(), key.to_owned().into());
                let empty = || Spanned::new(path.span(), DeValue::Table(DeTable::new()));
                table.entry(own).or_insert_with(empty)
            }
            DeValue::Array(list) => {
                let last = list.len().saturating_sub(1);
                let place = key.parse::<usize>().ok();
                let element = place.and_then(|place| list.get_mut(place));
                element.ok_or_else(|| format!("a number from 0 to {last} after {before:?}"))?
            }
            _ => return Err(format!("nothing after {before:?}, which is a single value")),
        };
        before = if before.is_empty() { key.to_owned() } else { format!("{before}.{key}") };
    }
    *target = value;
    Ok(())
}
