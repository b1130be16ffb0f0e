//! Settings of DAMA as written by users.

use core::fmt;
use core::str::FromStr;

use units::ByteCount;

use super::config::{CapacityPolicy, FreeCapacity, MacLimit, SharingRule};
use crate::SettingError;
use crate::text::SettingKind;

const POLICY: SettingKind = SettingKind { what: "policy", expected: "classic or rtt-aware" };
const SHARING: SettingKind = SettingKind { what: "way to share", expected: "proportional or fair" };
const FREE: SettingKind = SettingKind {
    what: "use of free capacity",
    expected: "none, all [chunk=N] or asking [chunk=N]",
};
const MAC: SettingKind =
    SettingKind { what: "MAC buffer", expected: "\"600 cells\" or \"64 kB\", above 0" };

impl FromStr for CapacityPolicy {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        POLICY.read(text, |text| match text {
            "classic" => Some(Self::Classic),
            "rtt-aware" => Some(Self::RttAware),
            _ => None,
        })
    }
}

impl fmt::Display for CapacityPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classic => "classic",
            Self::RttAware => "rtt-aware",
        })
    }
}

impl FromStr for SharingRule {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        SHARING.read(text, |text| match text {
            "proportional" => Some(Self::Proportional),
            "fair" => Some(Self::Fair),
            _ => None,
        })
    }
}

impl fmt::Display for SharingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proportional => "proportional",
            Self::Fair => "fair",
        })
    }
}

impl FromStr for FreeCapacity {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        FREE.read(text, |text| {
            let mut words = text.split_whitespace();
            let who = words.next()?;
            let chunk = match words.next() {
                Some(word) => {
                    word.strip_prefix("chunk=")?.parse().ok().filter(|chunk| *chunk > 0)?
                }
                None => 1,
            };
            if words.next().is_some() {
                return None;
            }
            match who {
                // `none` takes no chunk, which would have no effect.
                "none" if text == "none" => Some(Self::None),
                "all" => Some(Self::All { chunk }),
                "asking" => Some(Self::Asking { chunk }),
                _ => None,
            }
        })
    }
}

impl fmt::Display for FreeCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All { chunk } => write!(f, "all chunk={chunk}"),
            Self::Asking { chunk } => write!(f, "asking chunk={chunk}"),
        }
    }
}

impl FromStr for MacLimit {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        MAC.read(text, |text| match text.strip_suffix("cells") {
            Some(cells) => cells.trim().parse().ok().filter(|cells| *cells > 0).map(Self::Cells),
            None => {
                let bytes: ByteCount = text.parse().ok()?;
                (bytes > ByteCount::ZERO).then_some(Self::Bytes(bytes))
            }
        })
    }
}

impl fmt::Display for MacLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells(cells) => write!(f, "{cells} cells"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for policy in [CapacityPolicy::Classic, CapacityPolicy::RttAware] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for sharing in [SharingRule::Proportional, SharingRule::Fair] {
            assert_eq!(sharing.to_string().parse(), Ok(sharing));
        }
        let free = [FreeCapacity::None, FreeCapacity::All { chunk: 3 }];
        for free in free.into_iter().chain([FreeCapacity::Asking { chunk: 1 }]) {
            assert_eq!(free.to_string().parse(), Ok(free));
        }
        for limit in [MacLimit::Cells(600), MacLimit::Bytes(ByteCount::new(14_400))] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        assert_eq!("all".parse(), Ok(FreeCapacity::All { chunk: 1 }));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in ["", "none chunk=1", "all chunk=0", "all 3", "all chunk=1 chunk=2", "some"] {
            assert!(text.parse::<FreeCapacity>().is_err(), "{text}");
        }
        for text in ["", "0 cells", "-1 cells", "0 B", "cells"] {
            assert!(text.parse::<MacLimit>().is_err(), "{text}");
        }
        let error = "clasic".parse::<CapacityPolicy>().unwrap_err().to_string();
        assert!(error.contains("classic or rtt-aware"), "{error}");
    }
}
