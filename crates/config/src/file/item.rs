//! Values that are a name or a number, such as code points.

use core::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A code point, port or protocol: a name or a number.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a text in quotes")]
#[schemars(inline)]
pub enum Item {
    /// A number.
    Number(i64),
    /// A name.
    Text(String),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Named code points (RFC 2474, 2597, 3246, 5865, 8622) other than CS and AF.
const CODE_POINTS: [(&str, u8); 3] = [("EF", 46), ("VA", 44), ("LE", 1)];

/// Description of accepted code points.
pub const DSCP_FORM: &str = "a code point, like \"EF\", \"AF41\", \"CS1\" or 0 to 63";

/// Parses a code point (DSCP); `None` if it is not one.
pub fn code_point(item: &Item) -> Option<u8> {
    let name = match item {
        Item::Number(number) => return up_to(*number, 63),
        Item::Text(name) => name,
    };
    let known = CODE_POINTS.iter().find(|(known, _)| known == name);
    known.map(|(_, point)| *point).or_else(|| match *name.as_bytes() {
        // Class selectors are the upper three bits (RFC 2474 §4.2.2).
        [b'C', b'S', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        // Three bits of class, two of drop precedence, and a zero (RFC 2597 §6).
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Some((class - b'0') << 3 | (drop - b'0') << 1)
        }
        _ => None,
    })
}

/// Returns `number` if it is 0 to `most`.
pub fn up_to(number: i64, most: u8) -> Option<u8> {
    u8::try_from(number).ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl From<i64> for Item {
        fn from(number: i64) -> Self {
            Self::Number(number)
        }
    }

    impl From<&str> for Item {
        fn from(text: &str) -> Self {
            Self::Text(text.to_owned())
        }
    }

    #[test]
    fn code_points_have_names_and_numbers() {
        for (name, point) in [("EF", 46), ("CS0", 0), ("CS7", 56), ("AF11", 10), ("AF43", 38)] {
            assert_eq!(code_point(&name.into()), Some(point), "{name}");
        }
        assert_eq!(code_point(&63.into()), Some(63));
        for bad in ["CS8", "AF10", "AF53", "ef", "EFx", ""] {
            assert_eq!(code_point(&bad.into()), None, "{bad}");
        }
        assert_eq!(code_point(&64.into()), None);
        assert_eq!(code_point(&(-1).into()), None);
    }
}
