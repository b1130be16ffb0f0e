//! A public key as text on a stream of its own, which ends after it. Terminals enrol with this message, and
//! hubs announce their next key by it.

use std::future::poll_fn;

use slacp::{PublicKey, ReadOutcome, ResetReason};

use crate::config::keys::parse_public_key;
use crate::hop::SessionStream;

/// Maximum length of a message in bytes.
const LONGEST: usize = 64;

/// A message of which a part has arrived.
#[derive(Debug, Default)]
pub(crate) struct KeyMessage(Vec<u8>);

impl KeyMessage {
    /// Appends received bytes.
    ///
    /// # Errors
    /// If the message is too long.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), ResetReason> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(ResetReason::Prohibited);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Parses the key, once the stream has ended.
    ///
    /// # Errors
    /// If the message is not a public key.
    pub(crate) fn key(&self) -> Result<PublicKey, ResetReason> {
        let text = str::from_utf8(&self.0).map_err(|_| ResetReason::Prohibited)?;
        parse_public_key(text).map_err(|_| ResetReason::Prohibited)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a message until its stream ends.
///
/// # Errors
/// If the message is too long, or its stream is reset.
pub(crate) async fn read(stream: &SessionStream) -> Result<KeyMessage, ResetReason> {
    let mut message = KeyMessage::default();
    let mut buffer = [0; LONGEST];
    loop {
        match poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
            ReadOutcome::Data(count) => message.push(&buffer[..count])?,
            // Never returned by `poll_read`.
            ReadOutcome::Blocked => {}
            ReadOutcome::End => return Ok(message),
        }
    }
}
