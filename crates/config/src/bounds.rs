//! Checks of values that several sections have.

use core::ops::RangeInclusive;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};

/// Longest name of a network interface, in bytes: IFNAMSIZ without the terminating zero.
pub(crate) const LONGEST_INTERFACE_NAME: usize = 15;

/// Checks that an optional number is within `range`; `unit` is empty or a plural with a space before
/// it.
pub(crate) fn number(
    place: &KeyContext<'_>,
    key: &str,
    value: Option<i64>,
    range: RangeInclusive<i64>,
    unit: &str,
) -> Result<Option<i64>, FileError> {
    let good = value.is_none_or(|value| range.contains(&value));
    let expected = format!("{} to {}{unit}", range.start(), range.end());
    place.check(good, key, value.unwrap_or_default(), expected).map(|()| value)
}

/// Checks the name of a network interface.
pub(crate) fn interface(place: &KeyContext<'_>, key: &str, name: &str) -> Result<(), FileError> {
    let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.is_ascii();
    place.check(good, key, quoted(name), "the name of an interface, 1 to 15 characters")
}
