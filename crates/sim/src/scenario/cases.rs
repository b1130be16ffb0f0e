//! Several scenarios in one file: each case changes single keys.

use serde::Deserialize;
use toml::{Table, Value};

use super::error::{Place, ScenarioError};

/// Maximum number of cases in a file.
const MOST: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    #[serde(default)]
    set: Table,
}

/// Splits a file into its cases: their names, and the resulting scenario of each. Without cases, a
/// single one without a name.
pub(super) fn split(place: &Place, mut file: Table) -> Result<Vec<(String, Table)>, ScenarioError> {
    let Some(cases) = file.remove("case") else { return Ok(vec![(String::new(), file)]) };
    let Value::Array(cases) = cases else {
        return Err(place.wrong("case", "a single value", "a list of tables: [[case]]"));
    };
    place.check((1..=MOST).contains(&cases.len()), "case", cases.len(), "1 to 1000 of them")?;
    let mut result: Vec<(String, Table)> = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        let place = place.within(&format!("case.{number}"));
        let error = |error: toml::de::Error| {
            place.wrong("set", "a table", error.message().replace('\n', " "))
        };
        let Raw { name, set } = Raw::deserialize(case).map_err(error)?;
        place.check(!name.is_empty(), "name", "\"\"", "a name")?;
        let is_new = result.iter().all(|(other, _)| *other != name);
        place.check(is_new, "name", format!("{name:?}"), "a name that no earlier case has")?;
        let mut table = Value::Table(file.clone());
        for (path, value) in set {
            put(&mut table, &path, value)
                .map_err(|expected| place.wrong("set", format!("{path:?}"), expected))?;
        }
        if let Value::Table(table) = table {
            result.push((name, table));
        }
    }
    Ok(result)
}

/// Sets the value at `path`, such as `flow.0.bytes`. Missing tables are created, but list elements
/// must exist. The error says what would be accepted.
fn put(mut target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut before = String::new();
    for key in path.split('.') {
        target = match target {
            Value::Table(table) => table.entry(key).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
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
