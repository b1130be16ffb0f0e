//! The values of a range: numbers, or quantities with a unit.

use units::split_quantity;

use super::MOST;
use super::raw::{RawNumber, RawRange, Scale};
use config::FileError;
use config::file::place::{KeyContext, quoted};
use config::file::tcp_options::OptionValue;

/// A number, with the unit if it was written as a text.
struct WrittenQuantity<'a> {
    number: f64,
    unit: Option<&'a str>,
    whole: bool,
}

/// Returns the values from the first to the last. Between whole numbers without a unit there are only
/// whole numbers, because keys like `count` accept no others.
///
/// # Errors
/// If a text is not a number, units differ, or there are no values or more than [`MOST`].
pub(super) fn values(
    place: &KeyContext<'_>,
    range: &RawRange,
) -> Result<Vec<OptionValue>, FileError> {
    let from = WrittenQuantity::read(place, "from", &range.from)?;
    let to = WrittenQuantity::read(place, "to", &range.to)?;
    to.check_unit(place, "to", &range.to, &from)?;
    place.check(from.number < to.number, "to", &range.to, "more than from")?;
    let (numbers, whole) = match (&range.step, range.count) {
        (Some(step), None) => {
            let read = WrittenQuantity::read(place, "step", step)?;
            read.check_unit(place, "step", step, &from)?;
            let linear = range.scale == Scale::Linear;
            // A step is a difference, and a log scale has equal ratios.
            place.check(linear, "scale", quoted("log"), "count instead of step with it")?;
            (steps(place, [from.number, to.number], &read, step)?, from.whole && read.whole)
        }
        (None, Some(count)) => (spread(place, &from, &to, range, count)?, from.whole && to.whole),
        (Some(_), Some(count)) => {
            return Err(place.wrong_value("count", count, "either step or count, not both"));
        }
        (None, None) => return Err(place.missing_key("count", "either step or count")),
    };
    Ok(numbers.into_iter().map(|number| setting(number, from.unit, whole)).collect())
}

fn steps(
    place: &KeyContext<'_>,
    [from, to]: [f64; 2],
    step: &WrittenQuantity<'_>,
    written: &RawNumber,
) -> Result<Vec<f64>, FileError> {
    place.check(step.number > 0.0, "step", written, "above 0")?;
    // A step that divides the range up to rounding reaches its end.
    let last = ((to - from) / step.number * (1.0 + 1e-12) + 1e-9).floor();
    let expected = format!("a step with at most {MOST} values");
    // Counted first: a tiny step makes more values than fit in memory.
    place.check(last < MOST as f64, "step", written, expected)?;
    // Rounded, or 0.1 and two steps of 0.1 would be 0.30000000000000004.
    Ok((0..=last as u32).map(|number| round(from + f64::from(number) * step.number, 12)).collect())
}

fn spread(
    place: &KeyContext<'_>,
    from: &WrittenQuantity<'_>,
    to: &WrittenQuantity<'_>,
    range: &RawRange,
    count: u32,
) -> Result<Vec<f64>, FileError> {
    let good = (2..=MOST as u32).contains(&count);
    place.check(good, "count", count, format!("2 to {MOST}"))?;
    let log = range.scale == Scale::Log;
    place.check(!log || from.number > 0.0, "from", &range.from, "above 0 on a log scale")?;
    let first = from.number;
    let last = to.number;
    let value = |number: u32| {
        let part = f64::from(number) / f64::from(count - 1);
        match number {
            // The ends are exact, whatever the rounding in between.
            0 => first,
            _ if number == count - 1 => last,
            _ if log => round(first * (last / first).powf(part), 4),
            _ => round(first + (last - first) * part, 12),
        }
    };
    Ok((0..count).map(value).collect())
}

fn setting(number: f64, unit: Option<&str>, whole: bool) -> OptionValue {
    match unit {
        // A number written as a text stays a text, because its key may accept nothing else.
        Some("") => OptionValue::Text(format!("{number}")),
        Some(unit) => OptionValue::Text(format!("{number} {unit}")),
        None if whole => OptionValue::Whole(number.round() as i64),
        None => OptionValue::Number(number),
    }
}

/// Rounds a number to this many significant decimal digits.
fn round(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

impl<'a> WrittenQuantity<'a> {
    fn read(place: &KeyContext<'_>, key: &str, raw: &'a RawNumber) -> Result<Self, FileError> {
        let read = match raw {
            RawNumber::Whole(number) => Some((*number as f64, None)),
            RawNumber::Number(number) => Some((*number, None)),
            RawNumber::Text(text) => {
                split_quantity(text).map(|(number, unit)| (number, Some(unit)))
            }
        };
        // Whole numbers up to this size are exact in an `f64`.
        let finite = read.filter(|(number, _)| number.abs() <= 1e15);
        let whole = matches!(raw, RawNumber::Whole(_));
        finite.map(|(number, unit)| Self { number, unit, whole }).ok_or_else(|| {
            place.wrong_value(key, raw, "a number up to 1e15, or a text of a number and a unit")
        })
    }

    fn check_unit(
        &self,
        place: &KeyContext<'_>,
        key: &str,
        written: &RawNumber,
        first: &Self,
    ) -> Result<(), FileError> {
        let expected = match first.unit {
            Some(unit) => format!("the unit of from, {unit:?}"),
            None => "a number without a unit, like from".to_owned(),
        };
        place.check(self.unit == first.unit, key, written, expected)
    }
}
