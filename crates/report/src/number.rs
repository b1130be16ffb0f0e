//! Numbers in table cells.

use std::fmt::Display;

/// Formats a number with four significant digits; whole numbers in full.
pub fn four_digits(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e12 {
        return format!("{value}");
    }
    // Zero was returned above. Infinity and NaN survive the cast, and print as words.
    let digits = 3 - (value.abs().log10().floor() as i32).clamp(-6, 3);
    format!("{value:.*}", digits.max(0) as usize)
}

/// Formats a value; `-` if it is unknown.
pub fn dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_and_no_more() {
        let shown =
            [0.0, 60.0, 136_870_752.0, 18.2494, 0.093_081, 1234.56, -0.5, 1e-9].map(four_digits);
        let expected =
            ["0", "60", "136870752", "18.25", "0.09308", "1235", "-0.5000", "0.000000001"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn unknown_values_are_dashes() {
        assert_eq!([dash(Some(0)), dash(None::<f64>)], ["0", "-"]);
    }
}
