//! Values of keys whose bounds and defaults are said where the key is declared. They are checked while the file is
//! read, so that an error names line, key, value and bounds; the JSON schema and the reference page have them, too.
//!
//! ```text
//! #[serde(default)]
//! window: Number<1, 256, 16>,
//! ```

use core::time::Duration;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{ByteCount, format_duration};

use crate::file::text::{Text, Time};

/// A whole number from `MIN` to `MAX`, by default `USUAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number<const MIN: u32, const MAX: u32, const USUAL: u32 = MIN>(u32);

impl<const MIN: u32, const MAX: u32, const USUAL: u32> Number<MIN, MAX, USUAL> {
    /// Returns `number`, if it is within the bounds.
    pub fn new(number: u32) -> Option<Self> {
        (MIN..=MAX).contains(&number).then_some(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the number as a count of things in memory.
    pub fn count(self) -> usize {
        self.0 as usize
    }
}

impl<const MIN: u32, const MAX: u32, const USUAL: u32> Default for Number<MIN, MAX, USUAL> {
    fn default() -> Self {
        const { assert!(MIN <= USUAL && USUAL <= MAX, "the default is within the bounds") };
        Self(USUAL)
    }
}

impl<'de, const MIN: u32, const MAX: u32, const USUAL: u32> Deserialize<'de>
    for Number<MIN, MAX, USUAL>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let within = u32::try_from(number).ok().and_then(Self::new);
        within.ok_or_else(|| match MAX {
            u32::MAX if number < MIN.into() => D::Error::custom(format!("expected at least {MIN}")),
            _ => D::Error::custom(format!("expected {MIN} to {MAX}")),
        })
    }
}

impl<const MIN: u32, const MAX: u32, const USUAL: u32> Serialize for Number<MIN, MAX, USUAL> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<const MIN: u32, const MAX: u32, const USUAL: u32> JsonSchema for Number<MIN, MAX, USUAL> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A time from `MIN` to `MAX` milliseconds, by default `USUAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval<const MIN: u64, const MAX: u64, const USUAL: u64 = MIN>(Duration);

/// One second, in the unit of an [`Interval`]'s bounds.
pub(crate) const SECOND: u64 = 1_000;
/// One minute, in the unit of an [`Interval`]'s bounds.
pub(crate) const MINUTE: u64 = 60 * SECOND;
/// One hour, in the unit of an [`Interval`]'s bounds.
pub(crate) const HOUR: u64 = 60 * MINUTE;

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Interval<MIN, MAX, USUAL> {
    /// Returns the time.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Default for Interval<MIN, MAX, USUAL> {
    fn default() -> Self {
        const { assert!(MIN <= USUAL && USUAL <= MAX, "the default is within the bounds") };
        Self(Duration::from_millis(USUAL))
    }
}

impl<'de, const MIN: u64, const MAX: u64, const USUAL: u64> Deserialize<'de>
    for Interval<MIN, MAX, USUAL>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(Time(time)) = Text::<Time>::deserialize(deserializer)?;
        let [least, most] = [MIN, MAX].map(Duration::from_millis);
        if (least..=most).contains(&time) {
            return Ok(Self(time));
        }
        Err(D::Error::custom(format!("expected {} to {}", written(least), written(most))))
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Serialize for Interval<MIN, MAX, USUAL> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&written(self.0))
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> JsonSchema for Interval<MIN, MAX, USUAL> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let [least, most] = [MIN, MAX].map(|millis| written(Duration::from_millis(millis)));
        json_schema!({ "type": "string", "x-minimum": least, "x-maximum": most })
    }
}

/// Writes a time in the largest unit that divides it, as users write it.
fn written(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        _ if time.subsec_nanos() != 0 || seconds == 0 => format_duration(time),
        _ if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// An amount of at least `MIN` and at most `MAX` bytes, by default `USUAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size<const MIN: u64, const MAX: u64 = { u64::MAX }, const USUAL: u64 = MIN>(ByteCount);

/// An amount of memory or of a cache: less would be a typing error.
pub(crate) type Memory<const USUAL: u64 = 64_000> = Size<64_000, { u64::MAX }, USUAL>;

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Size<MIN, MAX, USUAL> {
    /// Returns the amount.
    pub fn get(self) -> ByteCount {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Default for Size<MIN, MAX, USUAL> {
    fn default() -> Self {
        const { assert!(MIN <= USUAL && USUAL <= MAX, "the default is within the bounds") };
        Self(ByteCount::new(USUAL))
    }
}

impl<'de, const MIN: u64, const MAX: u64, const USUAL: u64> Deserialize<'de>
    for Size<MIN, MAX, USUAL>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(size) = Text::<ByteCount>::deserialize(deserializer)?;
        let [least, most] = [MIN, MAX].map(ByteCount::new);
        match (least..=most).contains(&size) {
            true => Ok(Self(size)),
            false if MAX == u64::MAX => Err(D::Error::custom(format!("expected at least {least}"))),
            false => Err(D::Error::custom(format!("expected {least} to {most}"))),
        }
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> Serialize for Size<MIN, MAX, USUAL> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<const MIN: u64, const MAX: u64, const USUAL: u64> JsonSchema for Size<MIN, MAX, USUAL> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema =
            json_schema!({ "type": "string", "x-minimum": ByteCount::new(MIN).to_string() });
        if MAX < u64::MAX {
            schema.insert("x-maximum".to_owned(), ByteCount::new(MAX).to_string().into());
        }
        schema
    }
}

/// A switch that is in the position `USUAL` by default. One that is off needs no type of its own: that is `bool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Switch<const USUAL: bool>(bool);

impl<const USUAL: bool> Switch<USUAL> {
    /// Returns true if it is on.
    pub fn get(self) -> bool {
        self.0
    }
}

impl<const USUAL: bool> Default for Switch<USUAL> {
    fn default() -> Self {
        Self(USUAL)
    }
}
