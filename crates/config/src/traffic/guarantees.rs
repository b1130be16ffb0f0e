//! Guaranteed rates of classes and terminals, against their maximum rates and the rate of the side.

use core::fmt::Display;

use units::BitRate;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};

/// Checks that a guarantee does not exceed the maximum of the same class or terminal.
pub(crate) fn within(
    place: &KeyContext<'_>,
    guaranteed: Option<BitRate>,
    maximum: Option<BitRate>,
) -> Result<(), FileError> {
    let Some((guaranteed, maximum)) = guaranteed.zip(maximum) else { return Ok(()) };
    let expected = format!("at most its maximum, {maximum}");
    place.check(guaranteed <= maximum, "guaranteed", quoted(guaranteed), expected)
}

/// Checks that a configured rate carries all guarantees of `sections` together, in order. Reported or
/// measured rates are known only at run time; guarantees that exceed them are then scaled.
pub(crate) fn carried(
    place: &KeyContext<'_>,
    rate: &slacp::Rate,
    sections: &str,
    guarantees: impl IntoIterator<Item = (impl Display, Option<BitRate>)>,
) -> Result<(), FileError> {
    let mut taken = 0;
    for (index, (name, guaranteed)) in guarantees.into_iter().enumerate() {
        let place = place.within(sections).within(index);
        if let Some(guaranteed) = guaranteed {
            taken = fits(&place, rate, taken, name, guaranteed)?;
        }
    }
    Ok(())
}

/// Checks that a configured rate carries one more guarantee, besides earlier ones of `taken` bit/s.
/// Returns the new sum.
pub(crate) fn fits(
    place: &KeyContext<'_>,
    rate: &slacp::Rate,
    taken: u64,
    name: impl Display,
    guaranteed: BitRate,
) -> Result<u64, FileError> {
    if let slacp::Rate::Fixed(rate) = rate {
        let rest = BitRate::from_bits_per_second(rate.bits_per_second().saturating_sub(taken));
        let expected = format!(
            "at most {rest} for {name}: the guarantees before it leave no more of the rate, {rate}"
        );
        place.check(guaranteed <= rest, "guaranteed", quoted(guaranteed), expected)?;
    }
    Ok(taken + guaranteed.bits_per_second())
}
