//! One file, several scenarios: cases that change single keys.

use serde::Deserialize;
use toml::{Table, Value};

use super::error::{Place, ScenarioError};

/// The most cases that a file has.
const MOST: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    #[serde(default)]
    set: Table,
}

/// Takes the cases out of a file: their names, and what each makes of the rest.
/// One without a name if there are none.
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
        place.check(is_new, "name", format!("{name:?}"), "another name than the cases before")?;
        let mut table = Value::Table(file.clone());
        for (path, value) in set {
            put(&mut table, &path, value)
                .ok_or_else(|| place.wrong("set", &path, "keys joined by dots"))?;
        }
        if let Value::Table(table) = table {
            result.push((name, table));
        }
    }
    Ok(result)
}

/// Puts `value` where `path` leads, such as `flow.0.bytes`. Tables on the way
/// are made, elements of lists must be there.
fn put(mut target: &mut Value, path: &str, value: Value) -> Option<()> {
    for key in path.split('.') {
        target = match target {
            Value::Table(table) => table.entry(key).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => list.get_mut(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    *target = value;
    Some(())
}
