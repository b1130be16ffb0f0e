//! Several scenarios in one file: each case changes single keys.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::raw::RawCase;
use crate::FileError;
use crate::document::Document;
use crate::place::{Place, quoted};

/// Maximum number of cases in a file.
const MOST: usize = 1000;

/// The part of a file that says what its cases are.
#[derive(Deserialize)]
struct Cases {
    case: Option<Vec<RawCase>>,
}

/// Splits a file into its cases. Without cases, a single one without a name.
pub(super) fn split(document: Document<'_>) -> Result<Vec<Document<'_>>, FileError> {
    let Cases { case: Some(cases) } = document.read()? else { return Ok(vec![document]) };
    let place = Place::file(&document);
    let count = cases.len();
    place.check((1..=MOST).contains(&count), "case", format!("{count} of them"), "1 to 1000")?;
    for (number, case) in cases.iter().enumerate() {
        let place = place.within(format!("case.{number}"));
        place.check(!case.name.is_empty(), "name", "\"\"", "a name")?;
        let is_new = cases[..number].iter().all(|other| other.name != case.name);
        let expected = "a name that no earlier case has";
        place.check(is_new, "name", quoted(&case.name), expected)?;
    }
    let mut base = document.clone();
    let written = match base.root.get_mut() {
        DeValue::Table(file) => file.remove("case"),
        _ => None,
    };
    let written = written.iter().filter_map(|list| list.get_ref().as_array()).flatten();
    let mut all = Vec::with_capacity(count);
    for (number, (case, written)) in cases.into_iter().zip(written).enumerate() {
        let mut changed = Document { case: Some(case.name), ..base.clone() };
        for (path, value) in changes(written) {
            let place = place.within(format!("case.{number}"));
            let wrong = |expected| place.wrong("set", quoted(path.get_ref()), expected);
            put(&mut changed.root, path, value.clone()).map_err(wrong)?;
        }
        all.push(changed);
    }
    Ok(all)
}

type Entry<'d, 'a> = (&'d Spanned<DeString<'a>>, &'d Spanned<DeValue<'a>>);

/// The entries of the table `set`.
fn changes<'d, 'a>(case: &'d Spanned<DeValue<'a>>) -> impl Iterator<Item = Entry<'d, 'a>> {
    case.get_ref().get("set").and_then(|set| set.get_ref().as_table()).into_iter().flatten()
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
