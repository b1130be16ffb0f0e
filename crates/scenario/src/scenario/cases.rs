//! Several scenarios in one file: each combination of the factors' levels, then each case. A case
//! and a level change single keys.

mod factors;
mod levels;
mod range;
pub(super) mod raw;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::raw::Setting;
use super::study;
use crate::FileError;
use crate::document::Document;
use crate::place::{Place, quoted};
use levels::Factor;
use raw::{RawCase, RawFactor, RawLevels};

/// Maximum number of cases in a file (docs/decisions.md).
const MOST: usize = 10_000;

/// The level that a case has of a factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The factor's name.
    pub factor: String,
    /// The level's name: its part of the case's name, which may be empty.
    pub name: String,
    /// The value of the factor's keys as in the file, without quotes; `None` if levels have keys of
    /// their own.
    pub value: Option<String>,
}

/// The part of a file that says what its cases are.
#[derive(Deserialize)]
struct Cases {
    factor: Option<Vec<RawFactor>>,
    #[serde(default)]
    exclude: Vec<BTreeMap<String, RawLevels>>,
    case: Option<Vec<RawCase>>,
}

/// The cases of a file.
pub(super) struct Design {
    factors: Vec<Factor>,
    changes: Vec<Change>,
}

/// A case: its name, and what it changes.
struct Change {
    name: Option<String>,
    /// The level of each factor, by number; empty for a case besides the combinations.
    levels: Vec<usize>,
    sets: Vec<Set>,
}

/// New values of keys.
enum Set {
    /// Those of the table `set` in the table at this path.
    Table(String),
    /// The key that is written at `key` gets a value of a factor.
    Value { key: String, at: String, value: Literal },
}

/// A value made from a factor's.
enum Literal {
    Text(String),
    Switch(bool),
    /// A number in TOML.
    Number(String),
}

impl Design {
    /// Reads what the cases are. Without cases and factors, there is a single one without a name.
    ///
    /// # Errors
    /// More than [`MOST`] of them; names that are missing or occur twice; what is wrong with a
    /// factor.
    pub(super) fn read(document: &Document<'_>) -> Result<Self, FileError> {
        let Cases { factor, exclude, case } = document.read()?;
        let place = Place::file(document);
        let mut factors = Vec::new();
        for (number, raw) in factor.iter().flatten().enumerate() {
            let factor = Factor::read(&place, number, raw, &factors)?;
            factors.push(factor);
        }
        place.check(exclude.is_empty() || factor.is_some(), "exclude", "…", "factors with it")?;
        let mut changes = match factor {
            Some(_) => combinations(&factors, factors::combine(&place, &factors, &exclude)?),
            None => Vec::new(),
        };
        if let Some(cases) = &case {
            let count = format!("{} of them", cases.len());
            let good = (1..=MOST).contains(&cases.len());
            place.check(good, "case", count, format!("1 to {MOST}"))?;
            changes.extend((0..).zip(cases).map(|(number, case)| own(number, case)));
        }
        check_names(&place, &changes)?;
        if factor.is_none() && case.is_none() {
            changes.push(Change { name: None, levels: Vec::new(), sets: Vec::new() });
        }
        Ok(Self { factors, changes })
    }

    /// Calls `read` with the document of each case, one after the other, and its levels.
    pub(super) fn each<'a, T>(
        &'a self,
        document: &Document<'a>,
        mut read: impl FnMut(Document<'a>, Vec<Level>) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        let mut base = document.clone();
        if let DeValue::Table(file) = base.root.get_mut() {
            for key in study::KEYS {
                file.remove(key);
            }
        }
        let case = |change| read(apply(document, &base, change)?, self.levels(change));
        self.changes.iter().map(case).collect()
    }

    fn levels(&self, change: &Change) -> Vec<Level> {
        let level = |(factor, number): (&Factor, &usize)| {
            let level = &factor.levels[*number];
            let value = level.value.as_ref().map(Setting::to_string);
            Level { factor: factor.name.clone(), name: level.name.clone(), value }
        };
        self.factors.iter().zip(&change.levels).map(level).collect()
    }
}

/// A combination is named after its levels; one without a name is left out.
fn combinations(factors: &[Factor], all: Vec<factors::Combination>) -> Vec<Change> {
    let change = |combination: factors::Combination| {
        let (mut names, mut sets) = (Vec::new(), Vec::new());
        for (factor, level) in factors.iter().zip(&combination) {
            let level = &factor.levels[*level];
            names.extend((!level.name.is_empty()).then_some(&level.name[..]));
            match &level.value {
                None => sets.push(Set::Table(level.at.clone())),
                Some(value) => sets.extend(factor.keys.iter().map(|key| Set::Value {
                    key: key.clone(),
                    at: level.at.clone(),
                    value: Literal::of(value),
                })),
            }
        }
        Change { name: Some(names.join(", ")), levels: combination, sets }
    };
    all.into_iter().map(change).collect()
}

/// A case besides the combinations.
fn own(number: usize, case: &RawCase) -> Change {
    let sets = vec![Set::Table(format!("case.{number}"))];
    Change { name: Some(case.name.clone()), levels: Vec::new(), sets }
}

/// Each case needs a name of its own.
fn check_names(place: &Place<'_>, changes: &[Change]) -> Result<(), FileError> {
    let count = format!("{} with the combinations of all factors", changes.len());
    place.check(changes.len() <= MOST, "case", count, format!("at most {MOST}"))?;
    let mut names = BTreeSet::new();
    for Change { name, sets, .. } in changes {
        let name = name.as_deref().unwrap_or_default();
        let (table, key) = match sets.last() {
            Some(Set::Table(table)) => (&table[..], "name"),
            Some(Set::Value { at, .. }) => at.rsplit_once('.').unwrap_or((at, "")),
            None => ("case", "name"),
        };
        let place = place.within(table);
        place.check(!name.is_empty(), key, "\"\"", "a name")?;
        let expected = "a name that no earlier case has";
        place.check(names.insert(name), key, quoted(name), expected)?;
    }
    Ok(())
}

/// The file `base` with the changes that are written in `document`.
fn apply<'a>(
    document: &Document<'a>,
    base: &Document<'a>,
    change: &'a Change,
) -> Result<Document<'a>, FileError> {
    let mut changed = Document { case: change.name.clone(), ..base.clone() };
    for set in &change.sets {
        match set {
            Set::Table(table) => {
                let place = Place::file(document).within(table);
                let set = document.value(&format!("{table}.set")).and_then(DeValue::as_table);
                for (path, value) in set.into_iter().flatten() {
                    let wrong = |expected| place.wrong("set", quoted(path.get_ref()), expected);
                    put(&mut changed.root, path, value.clone()).map_err(wrong)?;
                }
            }
            Set::Value { key, at, value } => {
                let path = document.value(key).and_then(DeValue::as_str).unwrap_or_default();
                let (of_key, of_value) = (document.start(key), document.start(at));
                let written = Spanned::new(of_key..of_key, path.to_owned().into());
                let value = Spanned::new(of_value..of_value, value.value());
                let wrong = |expected| Place::file(document).wrong(key, quoted(path), expected);
                put(&mut changed.root, &written, value).map_err(wrong)?;
            }
        }
    }
    Ok(changed)
}

impl Literal {
    fn of(value: &Setting) -> Self {
        match value {
            Setting::Text(text) => Self::Text(text.clone()),
            Setting::Switch(on) => Self::Switch(*on),
            Setting::Whole(number) => Self::Number(number.to_string()),
            Setting::Number(number) => Self::Number(format!("{number:?}").to_lowercase()),
        }
    }

    fn value(&self) -> DeValue<'_> {
        match self {
            Self::Text(text) => DeValue::String(text.as_str().into()),
            Self::Switch(on) => DeValue::Boolean(*on),
            // Numbers print as TOML; should one not, its text is refused where it is used.
            Self::Number(text) => DeValue::parse(text)
                .map_or_else(|_| DeValue::String(text.as_str().into()), Spanned::into_inner),
        }
    }
}

/// Sets the value at `path`, such as `flow.0.bytes`. Missing tables are created, but list elements
/// must exist. The error says what would be accepted.
fn put<'a>(
    mut target: &mut Spanned<DeValue<'a>>,
    path: &Spanned<DeString<'a>>,
    value: Spanned<DeValue<'a>>,
) -> Result<(), String> {
    let first = path.get_ref().split('.').next().unwrap_or_default();
    if study::KEYS.contains(&first) {
        return Err(format!("a key that cases may differ in, and {first} holds for all of them"));
    }
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
