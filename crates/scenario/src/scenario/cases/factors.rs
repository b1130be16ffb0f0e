//! All combinations of the levels of factors (a full factorial design).

use std::collections::BTreeSet;

use super::{Change, MOST};
use crate::FileError;
use crate::place::{Place, quoted};
use crate::scenario::raw::RawFactor;

/// The combinations in order: the last factor changes from one to the next. A combination is named
/// after its levels; a level without a name, of which a factor may have one, is left out.
pub(super) fn combine(place: &Place<'_>, factors: &[RawFactor]) -> Result<Vec<Change>, FileError> {
    let count =
        factors.iter().try_fold(1, |all: usize, factor| all.checked_mul(factor.levels.len()));
    let few = count.is_some_and(|count| (1..=MOST).contains(&count));
    let found = count.map_or("too many".to_owned(), |count| count.to_string());
    place.check(few, "factor", format!("{found} combinations"), "1 to 1000")?;
    let mut all = vec![Change { name: String::new(), tables: Vec::new() }];
    let mut names = BTreeSet::new();
    for (number, factor) in factors.iter().enumerate() {
        let place = place.within(format!("factor.{number}"));
        let name = quoted(&factor.name);
        place.check(!factor.name.is_empty(), "name", &name, "a name")?;
        let expected = "a name that no earlier factor has";
        place.check(names.insert(&factor.name), "name", &name, expected)?;
        check_levels(&place, factor)?;
        all = all.iter().flat_map(|change| with_levels(change, number, factor)).collect();
    }
    Ok(all)
}

fn check_levels(place: &Place<'_>, factor: &RawFactor) -> Result<(), FileError> {
    let mut names = BTreeSet::new();
    for (number, level) in factor.levels.iter().enumerate() {
        let is_new = names.insert(&level.name);
        let expected = "a name that no earlier level of this factor has";
        place.within(format!("levels.{number}")).check(
            is_new,
            "name",
            quoted(&level.name),
            expected,
        )?;
    }
    Ok(())
}

/// A combination of the levels of earlier factors with each level of this one.
fn with_levels(change: &Change, number: usize, factor: &RawFactor) -> impl Iterator<Item = Change> {
    factor.levels.iter().enumerate().map(move |(level, it)| {
        let names = [&change.name[..], &it.name];
        let name = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        let mut tables = change.tables.clone();
        tables.push(format!("factor.{number}.levels.{level}"));
        Change { name, tables }
    })
}
