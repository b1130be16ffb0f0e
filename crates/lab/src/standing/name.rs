//! Names of persistent labs, which are file names.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// Maximum length in bytes, to keep socket paths short.
const LONGEST: usize = 32;

/// The name of a persistent lab, restricted to safe file names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabName(String);

/// A text that is not a valid lab name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a valid lab name: expected 1 to {LONGEST} letters, digits, '-', '_' or '.', \
     beginning with a letter or digit, and not ending in .sock"
)]
#[non_exhaustive]
pub struct LabNameError {
    /// The text that is no valid name.
    pub text: String,
}

impl LabName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LabName {
    type Err = LabNameError;

    fn from_str(text: &str) -> Result<Self, LabNameError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // Control sockets of gateways may be in the same directory.
        let good = text.len() <= LONGEST
            && !text.ends_with(".sock")
            && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
            && text.bytes().all(plain);
        if !good {
            return Err(LabNameError { text: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_file_names() {
        for good in ["geo", "geo-ka", "a", "7", "My_lab.2", &"x".repeat(32)] {
            assert_eq!(good.parse::<LabName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            ".lock",
            "hub.sock",
            "-x",
            "a/b",
            "a b",
            "ä",
            "a\n",
            "a\0",
            &"x".repeat(33),
        ] {
            let error = bad.parse::<LabName>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && !error.contains('\n'), "{error}");
        }
    }
}
