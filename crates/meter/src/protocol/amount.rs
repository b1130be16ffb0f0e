//! The amount of data in a flow.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::ByteCount;

/// The amount of data in a flow: a number of bytes, or whatever fits in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowAmount {
    /// This many bytes of payload.
    #[serde(rename = "bytes", with = "crate::json::bytes")]
    Bytes(ByteCount),
    /// Sends for this long after its first byte. Data still in flight then arrives and counts.
    #[serde(rename = "seconds", with = "crate::json::seconds")]
    Time(Duration),
}

impl FlowAmount {
    /// The number of bytes, if known in advance.
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
        let time = FlowAmount::Time(Duration::from_millis(1500));
        for (amount, text) in
            [(FlowAmount::Bytes(ByteCount::new(7)), r#"{"bytes":7}"#), (time, r#"{"seconds":1.5}"#)]
        {
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
            assert_eq!(serde_json::from_str::<FlowAmount>(text).unwrap(), amount);
        }
    }
}
