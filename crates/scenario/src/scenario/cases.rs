//! Several scenarios in one file: each combination of the factors' levels, then each case. Cases and
//! levels change single keys of the file.

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

use super::study;
use config::FileError;
use config::file::document::TomlDocument;
use config::file::place::{KeyContext, quoted};
use config::file::tcp_options::OptionValue;
use levels::Factor;
use raw::{RawCase, RawFactor, RawLevels};

/// Maximum number of cases in a file.
const MOST: usize = 10_000;

/// The level that a case has of a factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactorLevel {
    /// The factor's name.
    pub factor: String,
    /// The level's name, which becomes a part of the case's name; may be empty.
    pub name: String,
    /// The value of the factor's keys as in the file, without quotes; `None` if each level sets keys of
    /// its own.
    pub value: Option<String>,
}

/// The part of a file that defines its cases.
#[derive(Deserialize)]
struct RawCases {
    factor: Option<Vec<RawFactor>>,
    #[serde(default)]
    exclude: Vec<BTreeMap<String, RawLevels>>,
    case: Option<Vec<RawCase>>,
}

/// The cases of a file, as changes to it.
pub(super) struct CaseDesign {
    factors: Vec<Factor>,
    changes: Vec<CaseChange>,
}

/// A case: its name, and the keys that it changes.
struct CaseChange {
    name: Option<String>,
    /// The level of each factor, by number; empty for a case besides the combinations.
    levels: Vec<usize>,
    sets: Vec<CaseKeyChange>,
}

/// New values for keys of the file.
enum CaseKeyChange {
    /// The values of the table `set` inside the table at this path.
    Table(String),
    /// A value of a factor, for the key whose name is written at `key`.
    Value { key: String, at: String, value: TomlLiteral },
}

/// A value of a factor, to be converted to TOML.
enum TomlLiteral {
    Text(String),
    Switch(bool),
    /// The text of a number in TOML.
    Number(String),
}

impl CaseDesign {
    /// Reads the definitions of the cases. Without cases and factors, there is a single case without a
    /// name.
    ///
    /// # Errors
    /// If there are more than [`MOST`] cases, names are missing or occur twice, or a factor is wrong.
    pub(super) fn read(document: &TomlDocument<'_>) -> Result<Self, FileError> {
        // Unknown keys pass here: they are refused when the first case is read.
        let RawCases { factor, exclude, case } = document.read()?;
        let place = KeyContext::file(document);
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
            // After the check of names, because the only case needs no name.
            changes.push(CaseChange { name: None, levels: Vec::new(), sets: Vec::new() });
        }
        Ok(Self { factors, changes })
    }

    /// Calls `read` with the document and the levels of each case in turn.
    pub(super) fn each<'a, T>(
        &'a self,
        document: &TomlDocument<'a>,
        mut read: impl FnMut(TomlDocument<'a>, Vec<FactorLevel>) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        let mut base = document.clone();
        if let DeValue::Table(file) = base.root.get_mut() {
            // They hold for the whole file and are read by `Study`.
            for key in study::KEYS {
                file.remove(key);
            }
        }
        let case = |change| read(apply(document, &base, change)?, self.levels(change));
        self.changes.iter().map(case).collect()
    }

    fn levels(&self, change: &CaseChange) -> Vec<FactorLevel> {
        let level = |(factor, number): (&Factor, &usize)| {
            let level = &factor.levels[*number];
            let value = level.value.as_ref().map(OptionValue::to_string);
            FactorLevel { factor: factor.name.clone(), name: level.name.clone(), value }
        };
        self.factors.iter().zip(&change.levels).map(level).collect()
    }
}

/// Names each combination after its levels, and collects their values. Levels without a name are left
/// out of the name.
fn combinations(factors: &[Factor], all: Vec<factors::LevelCombination>) -> Vec<CaseChange> {
    let change = |combination: factors::LevelCombination| {
        let mut names = Vec::new();
        let mut sets = Vec::new();
        for (factor, level) in factors.iter().zip(&combination) {
            let level = &factor.levels[*level];
            names.extend((!level.name.is_empty()).then_some(&level.name[..]));
            match &level.value {
                None => sets.push(CaseKeyChange::Table(level.at.clone())),
                Some(value) => sets.extend(factor.keys.iter().map(|key| CaseKeyChange::Value {
                    key: key.clone(),
                    at: level.at.clone(),
                    value: TomlLiteral::of(value),
                })),
            }
        }
        CaseChange { name: Some(names.join(", ")), levels: combination, sets }
    };
    all.into_iter().map(change).collect()
}

/// Returns the change of a single case.
fn own(number: usize, case: &RawCase) -> CaseChange {
    let sets = vec![CaseKeyChange::Table(format!("case.{number}"))];
    CaseChange { name: Some(case.name.clone()), levels: Vec::new(), sets }
}

/// Checks that each case has a unique name.
fn check_names(place: &KeyContext<'_>, changes: &[CaseChange]) -> Result<(), FileError> {
    let count = format!("{} with the combinations of all factors", changes.len());
    // Combinations and cases were counted separately so far.
    place.check(changes.len() <= MOST, "case", count, format!("at most {MOST}"))?;
    let mut names = BTreeSet::new();
    for CaseChange { name, sets, .. } in changes {
        let name = name.as_deref().unwrap_or_default();
        // The error points at the level or case that gave the name.
        let (table, key) = match sets.last() {
            Some(CaseKeyChange::Table(table)) => (&table[..], "name"),
            Some(CaseKeyChange::Value { at, .. }) => at.rsplit_once('.').unwrap_or((at, "")),
            None => ("case", "name"),
        };
        let place = place.within(table);
        place.check(!name.is_empty(), key, "\"\"", "a name")?;
        let expected = "a name that no earlier case has";
        place.check(names.insert(name), key, quoted(name), expected)?;
    }
    Ok(())
}

/// Returns the file `base` with the changes that are written in `document`.
fn apply<'a>(
    document: &TomlDocument<'a>,
    base: &TomlDocument<'a>,
    change: &'a CaseChange,
) -> Result<TomlDocument<'a>, FileError> {
    let mut changed = TomlDocument { case: change.name.clone(), ..base.clone() };
    for set in &change.sets {
        match set {
            CaseKeyChange::Table(table) => {
                let place = KeyContext::file(document).within(table);
                // From the whole document: `base` has lost its cases and factors.
                let set = document.value(&format!("{table}.set")).and_then(DeValue::as_table);
                for (path, value) in set.into_iter().flatten() {
                    let wrong =
                        |expected| place.wrong_value("set", quoted(path.get_ref()), expected);
                    put(&mut changed.root, path, value.clone()).map_err(wrong)?;
                }
            }
            CaseKeyChange::Value { key, at, value } => {
                let path = document.value(key).and_then(DeValue::as_str).unwrap_or_default();
                let of_key = document.start(key);
                let of_value = document.start(at);
                // The positions of key and level, so that an error in the case points there.
                let written = Spanned::new(of_key..of_key, path.to_owned().into());
                let value = Spanned::new(of_value..of_value, value.value());
                let wrong =
                    |expected| KeyContext::file(document).wrong_value(key, quoted(path), expected);
                put(&mut changed.root, &written, value).map_err(wrong)?;
            }
        }
    }
    Ok(changed)
}

impl TomlLiteral {
    fn of(value: &OptionValue) -> Self {
        match value {
            OptionValue::Text(text) => Self::Text(text.clone()),
            OptionValue::Switch(on) => Self::Switch(*on),
            OptionValue::Whole(number) => Self::Number(number.to_string()),
            // `Debug` keeps the point by which TOML knows a float; TOML writes `nan` in lower case.
            OptionValue::Number(number) => Self::Number(format!("{number:?}").to_lowercase()),
        }
    }

    fn value(&self) -> DeValue<'_> {
        match self {
            Self::Text(text) => DeValue::String(text.as_str().into()),
            Self::Switch(on) => DeValue::Boolean(*on),
            // Numbers print as TOML. If one did not, its text would be refused where it is used.
            Self::Number(text) => DeValue::parse(text)
                .map_or_else(|_| DeValue::String(text.as_str().into()), Spanned::into_inner),
        }
    }
}

/// Sets the value at `path`, such as `flow.0.bytes`. Missing tables are created, but list elements
/// must exist.
///
/// # Errors
/// A description of accepted paths.
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
                // A case may add a section that the file lacks; errors in it point at the path.
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
