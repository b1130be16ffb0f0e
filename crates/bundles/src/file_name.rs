//! Names of files that remote senders choose.

use core::fmt;

/// The name of a file within a directory, which does not lead elsewhere, is not hidden, and is safe to
/// print on a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(String);

impl FileName {
    /// Longest name, in bytes: a file system permits 255, and a number may be appended.
    pub const LONGEST: usize = 200;

    /// Checks a name: 1 to 200 bytes that do not begin with a dot, without slashes, backslashes, control
    /// characters and invisible characters.
    pub fn new(name: &str) -> Option<Self> {
        let good = (1..=Self::LONGEST).contains(&name.len())
            && !name.starts_with('.')
            && !name.chars().any(|letter| {
                letter == '/' || letter == '\\' || letter.is_control() || is_format(letter)
            });
        good.then(|| Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name for the `n`th file called so: `report.txt`, then `report-2.txt`.
    pub fn numbered(&self, n: u32) -> String {
        match (n, self.0.rsplit_once('.')) {
            (0 | 1, _) => self.0.clone(),
            (_, Some((stem, extension))) => format!("{stem}-{n}.{extension}"),
            (_, None) => format!("{}-{n}", self.0),
        }
    }
}

/// Returns `true` for invisible characters that change the direction of text or break lines.
fn is_format(it: char) -> bool {
    matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_directory() {
        for good in ["a", "report.txt", "Ünïcode 1", "a..b", "-rf", &"a".repeat(200)] {
            assert_eq!(FileName::new(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(201);
        for bad in [
            "",
            ".",
            "..",
            ".ssh",
            "a/b",
            "/a",
            "..\\a",
            "a\0",
            "a\n",
            "\u{1b}[2J",
            "a\u{202e}b",
            &long,
        ] {
            assert_eq!(FileName::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_name_in_use_gets_a_number() {
        let numbered = |name: &str, n| FileName::new(name).unwrap().numbered(n);
        assert_eq!(numbered("a.tar.gz", 1), "a.tar.gz");
        assert_eq!(numbered("a.tar.gz", 2), "a.tar-2.gz");
        assert_eq!(numbered("a", 30), "a-30");
    }
}
