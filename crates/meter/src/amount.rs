//! How much a flow sends.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::ByteCount;

/// How much a flow sends: so many bytes, or as many as it can in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// So many bytes of payload.
    #[serde(rename = "bytes", with = "crate::json::bytes")]
    Bytes(ByteCount),
    /// From its first byte on, the flow sends for so long. What is in flight
    /// then still arrives and counts.
    #[serde(rename = "seconds", with = "crate::json::seconds")]
    Time(Duration),
}

impl Amount {
    /// The number of bytes, where it is known beforehand.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.get()),
            Self::Time(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_which() {
        let time = Amount::Time(Duration::from_millis(1500));
        for (amount, text) in
            [(Amount::Bytes(ByteCount::new(7)), r#"{"bytes":7}"#), (time, r#"{"seconds":1.5}"#)]
        {
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
            assert_eq!(serde_json::from_str::<Amount>(text).unwrap(), amount);
        }
    }
}
