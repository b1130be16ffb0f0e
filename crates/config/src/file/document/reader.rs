//! Deserializes Rust types from a document. Errors of serde are completed with the key, the line
//! and the value as written.

use core::fmt::Display;

use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeValue};

use super::TomlDocument;
use crate::file::FileError;

/// A deserializer of one value of a document.
#[derive(Clone)]
pub(super) struct ValueReader<'d> {
    document: &'d TomlDocument<'d>,
    value: &'d Spanned<DeValue<'d>>,
    /// Path of the value, such as `hop.forward.rate`; empty for the whole document.
    path: String,
    /// Keys of the document's top level, once they are known.
    top_level_keys: &'static [&'static str],
}

/// An error of deserialization.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFault {
    #[error("expected {0}")]
    Expected(String),
    #[error("{0}")]
    Unreadable(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("unknown key")]
    UnknownKey(&'static [&'static str]),
    /// An error that has its position.
    #[error(transparent)]
    Located(Box<FileError>),
}

impl<'d> ValueReader<'d> {
    pub(super) fn new(document: &'d TomlDocument<'d>) -> Self {
        Self { document, value: &document.root, path: String::new(), top_level_keys: &[] }
    }

    fn within(&self, key: &str, value: &'d Spanned<DeValue<'d>>) -> Self {
        Self {
            document: self.document,
            value,
            path: self.path_of(key),
            top_level_keys: self.top_level_keys,
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Adds the position of this value to `fault`, unless it has one.
    pub(super) fn locate(&self, fault: ReadFault) -> FileError {
        // An error about the whole document, such as a missing section, concerns no line.
        let start = (!self.path.is_empty()).then(|| self.value.span().start);
        let at = self.document.at_start(start);
        let key = self.path.clone();
        match fault {
            ReadFault::Located(error) => *error,
            ReadFault::Expected(expected) => {
                FileError::Value { at, key, value: shown(self.value.get_ref()), expected }
            }
            ReadFault::Missing(field) => {
                FileError::Missing { at, key: self.path_of(field), expected: String::new() }
            }
            fault => FileError::Unreadable { at, key, message: fault.to_string() },
        }
    }

    /// Adds the position of a key of this table to the fault of an unknown key.
    fn locate_key(&self, key: &Spanned<DeString<'_>>, fault: ReadFault) -> ReadFault {
        let ReadFault::UnknownKey(known) = fault else { return fault };
        let at = self.document.at_start(Some(key.span().start));
        let key = key.get_ref().clone().into_owned();
        let table = self.path.clone();
        // A common mistake: in TOML every key after a section's header belongs to that section.
        let is_of_file = !table.is_empty() && self.top_level_keys.contains(&key.as_str());
        let known = known.to_vec();
        ReadFault::Located(Box::new(FileError::UnknownKey { at, key, table, known, is_of_file }))
    }
}

impl<'d> Deserializer<'d> for ValueReader<'d> {
    type Error = ReadFault;

    fn deserialize_any<V: Visitor<'d>>(self, visitor: V) -> Result<V::Value, ReadFault> {
        match self.value.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Integer(number) => match integer(number) {
                Some(number) => visitor.visit_i64(number),
                None => Err(ReadFault::Expected("a smaller number".to_owned())),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(ReadFault::Expected("a number".to_owned())),
            },
            // A bare date of TOML is accepted like one in quotes.
            DeValue::Datetime(time) => visitor.visit_str(&time.to_string()),
            DeValue::Array(list) => {
                visitor.visit_seq(ListAccess { list: &self, rest: list.iter().enumerate() })
            }
            DeValue::Table(table) => {
                visitor.visit_map(TableAccess { table: &self, rest: table.iter(), value: None })
            }
        }
    }

    fn deserialize_struct<V: Visitor<'d>>(
        mut self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadFault> {
        // Only the outermost struct has the keys of the file itself.
        if self.path.is_empty() {
            self.top_level_keys = fields;
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'d>>(self, visitor: V) -> Result<V::Value, ReadFault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'d>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadFault> {
        visitor.visit_newtype_struct(self)
    }

    /// Deserializes an enum from a word.
    fn deserialize_enum<V: Visitor<'d>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadFault> {
        match self.value.get_ref() {
            DeValue::String(text) => visitor.visit_enum(text.as_ref().into_deserializer()),
            _ => Err(ReadFault::unknown_variant("", words)),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'d>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct ListAccess<'a, 'd, I> {
    list: &'a ValueReader<'d>,
    rest: I,
}

impl<'d, I: Iterator<Item = (usize, &'d Spanned<DeValue<'d>>)>> SeqAccess<'d>
    for ListAccess<'_, 'd, I>
{
    type Error = ReadFault;

    fn next_element_seed<T: DeserializeSeed<'d>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadFault> {
        let Some((at, value)) = self.rest.next() else { return Ok(None) };
        self.list.within(&at.to_string(), value).deserialize_with(seed).map(Some)
    }
}

struct TableAccess<'a, 'd, I> {
    table: &'a ValueReader<'d>,
    rest: I,
    /// The value of the key that was read last.
    value: Option<ValueReader<'d>>,
}

type TableEntry<'d> = (&'d Spanned<DeString<'d>>, &'d Spanned<DeValue<'d>>);

impl<'d, I: Iterator<Item = TableEntry<'d>>> MapAccess<'d> for TableAccess<'_, 'd, I> {
    type Error = ReadFault;

    fn next_key_seed<K: DeserializeSeed<'d>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadFault> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(self.table.within(key.get_ref(), value));
        let read = seed.deserialize(key.get_ref().as_ref().into_deserializer());
        read.map(Some).map_err(|fault| self.table.locate_key(key, fault))
    }

    fn next_value_seed<V: DeserializeSeed<'d>>(&mut self, seed: V) -> Result<V::Value, ReadFault> {
        let value = self.value.take();
        value.ok_or_else(|| ReadFault::custom("a value before its key"))?.deserialize_with(seed)
    }
}

impl<'d> ValueReader<'d> {
    /// Deserializes this value with `seed`, and adds its position to errors.
    fn deserialize_with<T: DeserializeSeed<'d>>(self, seed: T) -> Result<T::Value, ReadFault> {
        let place = self.clone();
        seed.deserialize(self).map_err(|fault| ReadFault::Located(Box::new(place.locate(fault))))
    }
}

impl Error for ReadFault {
    /// Treats a message that begins with "expected" as the description of an acceptable value.
    fn custom<T: Display>(message: T) -> Self {
        let message = message.to_string();
        match message.strip_prefix("expected ") {
            Some(expected) => Self::Expected(expected.to_owned()),
            None => Self::Unreadable(message),
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(plain(&expected.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(plain(&expected.to_string()))
    }

    fn unknown_variant(_: &str, words: &'static [&'static str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
        Self::Expected(format!("one of {}", words.join(", ")))
    }

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownKey(known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// Translates serde's description of an expected type into words without names of Rust types.
fn plain(expected: &str) -> String {
    match expected {
        "a nonzero u64" => "a whole number above 0".to_owned(),
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        _ if expected.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Returns a single value as written, and a description of a list or table.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(list) => format!("a list of {}", list.len()),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
