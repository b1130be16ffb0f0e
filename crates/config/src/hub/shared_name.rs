//! Names by which terminals share something: a forward link, a cache.

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};

/// Checks the name of a forward link.
pub(crate) fn carrier(
    place: &KeyContext<'_>,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    name_of(place, "carrier", "the name of a forward link, like \"ku-1\"", name)
}

/// Checks that a name which terminals share is not blank.
pub(crate) fn name_of(
    place: &KeyContext<'_>,
    key: &str,
    expected: &'static str,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    let named = name.as_ref().is_none_or(|name| !name.trim().is_empty());
    let written = quoted(name.as_deref().unwrap_or_default());
    place.check(named, key, written, expected)?;
    Ok(name)
}
