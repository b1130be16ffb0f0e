//! The keys of gateways in their files.

use core::fmt::Display;
use std::path::Path;

use pep::keys::KEY_FORM;
use slacp::{KeyPair, PublicKey};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::values::PublicKeyText;
use crate::values::source::KeySource;

/// Reads the private key from the one of two sources that is configured.
pub(crate) fn identity<E: Display>(
    place: &KeyContext<'_>,
    inline: Option<String>,
    file: Option<String>,
    read: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<KeyPair, FileError> {
    const FILE: &str = "private_key_file";
    let (key, source) = match (inline, file) {
        (Some(_), Some(file)) => {
            let expected = "only one of `private_key` and `private_key_file`";
            return Err(place.wrong_value(FILE, quoted(file), expected));
        }
        (None, None) => return Err(place.missing_key(FILE, "a file written by `skyhop keygen`")),
        (Some(text), None) => ("private_key", KeySource::Inline(text)),
        (None, Some(file)) => (FILE, KeySource::File(place.folder().locate(Path::new(&file)))),
    };
    read(source).map_err(|error| place.unreadable(key, error))
}

pub(crate) fn public_key(
    place: &KeyContext<'_>,
    name: &str,
    key: Option<Text<PublicKeyText>>,
) -> Result<PublicKey, FileError> {
    key.map(|key| key.0.0).ok_or_else(|| place.missing_key(name, KEY_FORM))
}
