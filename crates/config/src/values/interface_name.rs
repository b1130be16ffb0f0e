//! Names of network interfaces, which several sections have.

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};

/// Longest name of a network interface, in bytes: IFNAMSIZ without the terminating zero.
pub(crate) const LONGEST_INTERFACE_NAME: usize = 15;

/// Checks the name of a network interface.
pub(crate) fn interface(place: &KeyContext<'_>, key: &str, name: &str) -> Result<(), FileError> {
    let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.is_ascii();
    place.check(good, key, quoted(name), "the name of an interface, 1 to 15 characters")
}
