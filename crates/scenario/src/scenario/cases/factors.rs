//! Combinations of the levels of factors: all of them (a full factorial design), except that factors
//! may vary together and the file may exclude combinations.

use std::collections::BTreeMap;

use super::MOST;
use super::levels::Factor;
use super::raw::RawLevels;
use config::FileError;
use config::file::place::{KeyContext, quoted};

/// The level of each factor, by number.
pub(super) type LevelCombination = Vec<usize>;

/// Returns the combinations in order; the last factor changes fastest.
///
/// # Errors
/// If there are more than [`MOST`] before exclusion or none after it, or if `exclude` names factors
/// or levels that do not exist.
pub(super) fn combine(
    place: &KeyContext<'_>,
    factors: &[Factor],
    exclude: &[BTreeMap<String, RawLevels>],
) -> Result<Vec<LevelCombination>, FileError> {
    let mut axes = axes(factors);
    // Counted before any combination is built, because there may be too many for memory.
    let count = axes.values().try_fold(1, |all: usize, count| all.checked_mul(*count));
    let few = count.is_some_and(|count| (1..=MOST).contains(&count));
    // The product has overflowed.
    let found = count.map_or_else(|| "too many".to_owned(), |count| count.to_string());
    let expected = format!("1 to {MOST}");
    place.check(few, "factor", format!("{found} combinations"), expected)?;
    // Number of consecutive combinations with the same level.
    let mut run = count.unwrap_or(1);
    for axis in axes.values_mut() {
        run /= *axis;
        *axis = run;
    }
    let level = |number: usize, factor: &Factor, combination: usize| {
        // Each independent factor is a digit of the combination's number.
        combination / axes[&axis_of(factors, number)] % factor.levels.len()
    };
    let all = (0..count.unwrap_or(0)).map(|combination| {
        let levels = factors.iter().enumerate();
        levels.map(|(number, factor)| level(number, factor, combination)).collect()
    });
    without(place, factors, exclude, all.collect())
}

/// Returns the number of levels of each independent factor, by the factor's index.
fn axes(factors: &[Factor]) -> BTreeMap<usize, usize> {
    let alone = factors.iter().enumerate().filter(|(_, factor)| factor.with.is_none());
    alone.map(|(number, factor)| (number, factor.levels.len())).collect()
}

/// Returns the independent factor that decides the level of this one.
fn axis_of(factors: &[Factor], mut number: usize) -> usize {
    // Ends, because a factor varies only with an earlier one.
    while let Some(with) = factors[number].with {
        number = with;
    }
    number
}

/// Removes the excluded combinations from `all`.
fn without(
    place: &KeyContext<'_>,
    factors: &[Factor],
    exclude: &[BTreeMap<String, RawLevels>],
    mut all: Vec<LevelCombination>,
) -> Result<Vec<LevelCombination>, FileError> {
    for (number, raw) in exclude.iter().enumerate() {
        let place = place.within(format!("exclude.{number}"));
        let excluded = excluded(&place, factors, raw)?;
        let matches = |combination: &LevelCombination| {
            excluded.iter().all(|(factor, levels)| levels.contains(&combination[*factor]))
        };
        // An exclusion that matches nothing is most likely a mistake.
        let before = all.len();
        all.retain(|combination| !matches(combination));
        let key = raw.keys().next_back().map_or("", String::as_str);
        let expected = "factors with levels that a combination has";
        place.check(all.len() < before, key, "matches no combination", expected)?;
    }
    let left = "some combinations that are not excluded";
    place.check(!all.is_empty(), "exclude", "all combinations", left).map(|()| all)
}

/// Returns the factors and levels of an exclusion, by index.
fn excluded(
    place: &KeyContext<'_>,
    factors: &[Factor],
    raw: &BTreeMap<String, RawLevels>,
) -> Result<Vec<(usize, Vec<usize>)>, FileError> {
    let one = |(name, levels): (&String, &RawLevels)| {
        let number = factors.iter().position(|factor| factor.name == *name).ok_or_else(|| {
            let names: Vec<_> = factors.iter().map(|factor| quoted(&factor.name)).collect();
            place.wrong_value(name, "…", format!("a factor of this file: {}", names.join(", ")))
        })?;
        let names = match levels {
            RawLevels::One(name) => std::slice::from_ref(name),
            RawLevels::Several(names) => names,
        };
        let known = &factors[number].levels;
        let level = |wanted: &String| {
            known.iter().position(|level| level.name == *wanted).ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|level| quoted(&level.name)).collect();
                place.wrong_value(name, quoted(wanted), format!("one of {}", names.join(", ")))
            })
        };
        Ok((number, names.iter().map(level).collect::<Result<_, FileError>>()?))
    };
    raw.iter().map(one).collect()
}
