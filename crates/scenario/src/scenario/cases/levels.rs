//! The levels of a factor, from `levels`, `values` or `range`.

use std::collections::BTreeSet;

use super::raw::RawFactor;
use super::{MOST, range};
use config::FileError;
use config::file::place::{KeyContext, quoted};
use config::file::tcp_options::OptionValue;

/// A factor with its levels.
pub(super) struct Factor {
    pub(super) name: String,
    /// Paths of the names of the keys that get its values: `factor.0.key`, `factor.0.keys.1`.
    pub(super) keys: Vec<String>,
    pub(super) levels: Vec<LevelSpec>,
    /// Index of the factor that it varies with.
    pub(super) with: Option<usize>,
}

/// A level of a factor.
pub(super) struct LevelSpec {
    /// Part of the names of cases; may be empty.
    pub(super) name: String,
    /// Path of the level in the file: `factor.0.levels.1`, `factor.0.values.1`, `factor.0.range`.
    pub(super) at: String,
    /// The value for the factor's keys; `None` if the level has a table `set`.
    pub(super) value: Option<OptionValue>,
}

impl Factor {
    /// Reads the factor with index `number`; `earlier` are those before it.
    pub(super) fn read(
        place: &KeyContext<'_>,
        number: usize,
        raw: &RawFactor,
        earlier: &[Self],
    ) -> Result<Self, FileError> {
        let path = format!("factor.{number}");
        let place = place.within(&path);
        let name = quoted(&raw.name);
        place.check(!raw.name.is_empty(), "name", &name, "a name")?;
        let is_new = earlier.iter().all(|factor| factor.name != raw.name);
        place.check(is_new, "name", &name, "a name that no earlier factor has")?;
        let levels = levels(&place, &path, raw)?;
        let keys = keys(&place, &path, raw)?;
        let with = raw.with.as_ref().map(|with| partner(&place, with, &levels, earlier));
        let factor = Self { name: raw.name.clone(), keys, levels, with: with.transpose()? };
        factor.check_names(&place).map(|()| factor)
    }

    /// Checks that the levels have unique names, unless the factor varies with another, whose level names
    /// distinguish the cases.
    fn check_names(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let mut names = BTreeSet::new();
        for (number, level) in self.levels.iter().enumerate() {
            let is_new = names.insert(&level.name) || self.with.is_some();
            let expected = "a name that no earlier level of this factor has";
            let name = quoted(&level.name);
            match &level.value {
                None => place
                    .within(format!("levels.{number}"))
                    .check(is_new, "name", name, expected)?,
                Some(_) => place.check(is_new, "values", name, expected)?,
            }
        }
        Ok(())
    }
}

/// Reads the levels from exactly one of `levels`, `values` and `range`.
fn levels(
    place: &KeyContext<'_>,
    path: &str,
    raw: &RawFactor,
) -> Result<Vec<LevelSpec>, FileError> {
    let given = [
        ("levels", raw.levels.as_ref().map(|_| "…".to_owned())),
        ("values", raw.values.as_ref().map(|_| "…".to_owned())),
        ("range", raw.range.as_ref().map(|_| "…".to_owned())),
    ];
    place.one_of(given)?;
    let (count, key) = match (&raw.levels, &raw.values) {
        (Some(levels), _) => (levels.len(), "levels"),
        (_, Some(values)) => (values.len(), "values"),
        // A range counts its values where it computes them.
        _ => (1, "range"),
    };
    let good = (1..=MOST).contains(&count);
    place.check(good, key, format!("{count} of them"), format!("1 to {MOST}"))?;
    if let Some(levels) = &raw.levels {
        let level = |(number, level): (usize, &super::raw::RawLevel)| LevelSpec {
            name: level.name.clone(),
            at: format!("{path}.levels.{number}"),
            value: None,
        };
        return Ok(levels.iter().enumerate().map(level).collect());
    }
    let label = LevelLabel::read(place, raw)?;
    let level =
        |value: OptionValue, at| LevelSpec { name: label.of(&value), at, value: Some(value) };
    if let Some(values) = &raw.values {
        let at = |number| format!("{path}.values.{number}");
        return Ok((0..).zip(values).map(|(n, value)| level(value.clone(), at(n))).collect());
    }
    let Some(range) = &raw.range else {
        return Err(place.missing_key("levels", "levels, values or range"));
    };
    let values = range::values(&place.within("range"), range)?;
    Ok(values.into_iter().map(|value| level(value, format!("{path}.range"))).collect())
}

/// Returns the paths of the names of the keys that get the values.
fn keys(place: &KeyContext<'_>, path: &str, raw: &RawFactor) -> Result<Vec<String>, FileError> {
    place.one_of([
        ("key", raw.key.as_ref().map(quoted)),
        ("keys", raw.keys.as_ref().map(|keys| format!("a list of {}", keys.len()))),
    ])?;
    // Levels name their keys themselves.
    let has_levels = raw.levels.is_some();
    let given = raw.key.is_some() || raw.keys.as_ref().is_some_and(|keys| !keys.is_empty());
    if has_levels {
        let key = if raw.key.is_some() { "key" } else { "keys" };
        place.check(!given, key, "a value", "values or range with it, not levels")?;
        place.check(
            raw.label.is_none(),
            "label",
            "a text",
            "values or range with it, not levels",
        )?;
        return Ok(Vec::new());
    }
    if !given {
        return Err(place.missing_key("key", "the key that the values are for, or a list as keys"));
    }
    let several = raw.keys.iter().flatten().enumerate();
    let several = several.map(|(number, _)| format!("{path}.keys.{number}"));
    Ok(raw.key.iter().map(|_| format!("{path}.key")).chain(several).collect())
}

/// Returns the index of the earlier factor that a factor with these levels varies with.
fn partner(
    place: &KeyContext<'_>,
    with: &str,
    levels: &[LevelSpec],
    earlier: &[Factor],
) -> Result<usize, FileError> {
    // Only earlier factors, so that there are no cycles.
    let Some(number) = earlier.iter().position(|factor| factor.name == with) else {
        let names: Vec<_> = earlier.iter().map(|factor| quoted(&factor.name)).collect();
        let expected = match &names[..] {
            [] => "an earlier factor, and this is the first".to_owned(),
            names => format!("an earlier factor: {}", names.join(", ")),
        };
        return Err(place.wrong_value("with", quoted(with), expected));
    };
    let theirs = earlier[number].levels.len();
    let ours = levels.len();
    let value = format!("{with:?}, which has {theirs} levels and this factor {ours}");
    // They vary together, so each level needs a counterpart.
    place.check(theirs == ours, "with", value, "as many levels of both")?;
    Ok(number)
}

/// The pattern for names of levels with a value.
enum LevelLabel<'a> {
    /// A text as it is; other values preceded by this name of the factor.
    Factor(&'a str),
    /// A text with `{}` for the value: `buffer {}`.
    Pattern(&'a str),
}

impl<'a> LevelLabel<'a> {
    fn read(place: &KeyContext<'_>, raw: &'a RawFactor) -> Result<Self, FileError> {
        let Some(label) = raw.label.as_deref() else { return Ok(Self::Factor(&raw.name)) };
        // Without values all levels have one name, unless a partner's levels tell the cases apart.
        let good = label.contains("{}") || (label.is_empty() && raw.with.is_some());
        let expected = "a text with {} for the value; \"\" in a factor that varies with another";
        place.check(good, "label", quoted(label), expected).map(|()| Self::Pattern(label))
    }

    fn of(&self, value: &OptionValue) -> String {
        match (self, value) {
            (Self::Pattern(label), _) => label.replace("{}", &value.to_string()),
            (Self::Factor(_), OptionValue::Text(text)) => text.clone(),
            (Self::Factor(name), _) => format!("{name} {value}"),
        }
    }
}
