//! Values that are written in the same way in a file and on the command line.

use core::fmt::{self, Display};
use core::marker::PhantomData;
use core::ops::Deref;
use core::str::FromStr;
use core::time::Duration;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{ParseError, format_duration, parse_duration};

/// A value that is written as text and parsed with [`FromStr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<T>(pub T);

/// A list of values that are each written as text and parsed as `W`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextList<T, W = T>(Vec<T>, PhantomData<W>);

/// A value of `name=value` words, which may also be written as a table: `{ name = "value" }`.
#[derive(Debug, Clone, Copy)]
pub struct Words<T>(pub T);

/// A duration as a value of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T, W> From<Vec<T>> for TextList<T, W> {
    fn from(values: Vec<T>) -> Self {
        Self(values, PhantomData)
    }
}

impl<T, W> Default for TextList<T, W> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T, W> Deref for TextList<T, W> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

/// A form that cannot be shown has no default in the schema.
impl<T: Display, W: Display> Serialize for TextList<T, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Text))
    }
}

impl<T: Display> Serialize for Words<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData)).map(Self)
    }
}

impl<'de, T, W: FromStr<Err: Display> + Into<T>> Deserialize<'de> for TextList<T, W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<Text<W>>::deserialize(deserializer)?;
        Ok(texts.into_iter().map(|text| text.0.into()).collect::<Vec<_>>().into())
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Words<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor(PhantomData)).map(Self)
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

struct WordsVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: Display>> Visitor<'de> for WordsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes, or a table of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut words = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            // Values such as "10 ms" must not contain the space that separates words.
            let value: String = value.split_whitespace().collect();
            words.push(format!("{name}={value}"));
        }
        self.visit_str(&words.join(" "))
    }
}

impl<T> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl<T, W> JsonSchema for TextList<T, W> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TextList".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Text<W>>::json_schema(generator)
    }
}

impl<T> JsonSchema for Words<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Words".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "object"],
            "additionalProperties": { "type": "string" },
        })
    }
}

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse_duration(text).map(Self)
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}
