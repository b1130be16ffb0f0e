//! Transfer of a bundle on a stream of the hop (`docs/slacp.md`, Bundles).
//!
//! ```text
//! opener                                            acceptor
//! version, flags, identity, digest, length ──────►
//!                                          ◄────── FROM offset   only if asked: what it has is kept
//! the bundle from there on, end           ──────►
//!                                          ◄────── STORED, or REFUSED with a reason; end
//! ```
//!
//! The opener asks for the offset if it has tried before. The digest identifies the bytes: bytes received
//! earlier under the same identity but with another digest are not used.

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::agent::BundleRefusal;
use super::format::BundleId;

const VERSION: u8 = 1;
/// Flag: the opener waits for the offset.
const ASKS: u8 = 1;
const HEADER: usize = 2 + 16 + 32 + 8;

const FROM: u8 = 0;
const STORED: u8 = 1;
const REFUSED: u8 = 2;

/// SHA-256 of a bundle's bytes.
pub type BundleDigest = [u8; 32];

/// Computes the digest of a bundle.
pub fn digest(bundle: &[u8]) -> BundleDigest {
    Sha256::digest(bundle).into()
}

/// First message of the opener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferAnnouncement {
    /// Identity of the bundle.
    pub id: BundleId,
    /// SHA-256 of all of its bytes.
    pub digest: BundleDigest,
    /// Number of its bytes, which follow the announcement.
    pub length: u64,
    /// `true` if the acceptor has to reply with the offset first.
    pub asks: bool,
}

impl TransferAnnouncement {
    /// Encodes the announcement, with which the stream begins.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, if self.asks { ASKS } else { 0 }];
        bytes.extend(self.id.0);
        bytes.extend(self.digest);
        bytes.extend(self.length.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8; HEADER]) -> Result<Self, TransferError> {
        let start = &bytes[..2];
        let rest = &bytes[2..];
        if start[0] != VERSION {
            return Err(TransferError::Version(start[0]));
        }
        let length = std::array::from_fn(|place| rest[48 + place]);
        Ok(Self {
            id: BundleId(std::array::from_fn(|place| rest[place])),
            digest: std::array::from_fn(|place| rest[16 + place]),
            length: u64::from_be_bytes(length),
            asks: start[1] & ASKS != 0,
        })
    }
}

/// Reply of the acceptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferReply {
    /// Send from this offset on.
    From(u64),
    /// The bundle is on disk.
    Stored,
    /// The bundle is refused with this code; codes below 64 are temporary ([`TransferReply::is_passing`]).
    Refused(u8),
}

impl TransferReply {
    /// Encodes the reply.
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::From(offset) => [&[FROM], &offset.to_be_bytes()[..]].concat(),
            Self::Stored => vec![STORED],
            Self::Refused(code) => vec![REFUSED, code],
        }
    }

    /// The reply for a refusal.
    pub fn refusal(why: BundleRefusal) -> Self {
        Self::Refused(code(why))
    }

    /// Returns `true` for the code of a temporary refusal: the same bundle may be accepted later.
    pub fn is_passing(code: u8) -> bool {
        code < 64
    }
}

fn code(why: BundleRefusal) -> u8 {
    match why {
        BundleRefusal::Full => 1,
        BundleRefusal::Disk => 2,
        BundleRefusal::Busy => 3,
        BundleRefusal::Memory => 4,
        BundleRefusal::Damaged => 5,
        BundleRefusal::TooLarge => 64,
        BundleRefusal::Lifetime => 65,
        BundleRefusal::Expired => 66,
        BundleRefusal::Future => 67,
        BundleRefusal::NoRoute => 68,
        BundleRefusal::Source => 69,
        BundleRefusal::Endpoint => 70,
        BundleRefusal::Malformed => 71,
    }
}

/// Explains the code of a refusal, as far as this version knows it.
pub fn explain(code: u8) -> String {
    const ALL: [BundleRefusal; 13] = [
        BundleRefusal::Full,
        BundleRefusal::Disk,
        BundleRefusal::Busy,
        BundleRefusal::Memory,
        BundleRefusal::Damaged,
        BundleRefusal::TooLarge,
        BundleRefusal::Lifetime,
        BundleRefusal::Expired,
        BundleRefusal::Future,
        BundleRefusal::NoRoute,
        BundleRefusal::Source,
        BundleRefusal::Endpoint,
        BundleRefusal::Malformed,
    ];
    let known = ALL.into_iter().find(|reason| self::code(*reason) == code);
    known.map_or_else(|| format!("reason {code}"), |reason| reason.to_string())
}

/// The bytes do not follow the protocol of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The announcement is of another version.
    #[error("a transfer of version {0}: this side has 1")]
    Version(u8),
    /// More bytes than announced.
    #[error("more bytes than were announced")]
    TooLong,
    /// Fewer bytes than announced.
    #[error("the transfer ends early")]
    Early,
    /// A reply of an unknown kind.
    #[error("a reply of an unknown kind, {0}")]
    Reply(u8),
}

/// Result of [`TransferReception::handle`].
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedPiece<'a> {
    /// The announcement. The owner replies, and calls [`TransferReception::start`] unless it ends the transfer.
    Announced(TransferAnnouncement),
    /// The next bytes of the bundle.
    Data(&'a [u8]),
}

/// Acceptor's side of a transfer: pieces of any size in, an announcement and data out.
#[derive(Debug, Default)]
pub struct TransferReception {
    header: Vec<u8>,
    announced: Option<TransferAnnouncement>,
    left: u64,
}

impl TransferReception {
    /// Handles bytes from the front of `input`. [`None`] when they are used up.
    ///
    /// # Errors
    /// [`TransferError`] if the opener violates the protocol.
    pub fn handle<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ReceivedPiece<'a>>, TransferError> {
        if self.announced.is_some() {
            // A stream carries one bundle, so everything behind the header is its data.
            let data = std::mem::take(input);
            self.left = self.left.checked_sub(data.len() as u64).ok_or(TransferError::TooLong)?;
            return Ok((!data.is_empty()).then_some(ReceivedPiece::Data(data)));
        }
        let wanted = (HEADER - self.header.len()).min(input.len());
        let (taken, rest) = input.split_at(wanted);
        self.header.extend_from_slice(taken);
        *input = rest;
        let Ok(header) = <&[u8; HEADER]>::try_from(&self.header[..]) else { return Ok(None) };
        let announced = TransferAnnouncement::read(header)?;
        (self.announced, self.left) = (Some(announced), announced.length);
        Ok(Some(ReceivedPiece::Announced(announced)))
    }

    /// Sets the offset from which the opener sends: the one in the reply if it asked, otherwise 0.
    pub fn start(&mut self, offset: u64) {
        self.left = self.left.saturating_sub(offset);
    }

    /// Handles the end of the opener's data.
    ///
    /// # Errors
    /// [`TransferError::Early`] if bytes are missing.
    pub fn end(&self) -> Result<(), TransferError> {
        if self.is_whole() { Ok(()) } else { Err(TransferError::Early) }
    }

    /// Returns `true` if all announced bytes have arrived.
    pub fn is_whole(&self) -> bool {
        self.announced.is_some() && self.left == 0
    }
}

/// Opener's side of a transfer: parses replies that arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct TransferReplies {
    partial: Vec<u8>,
}

impl TransferReplies {
    /// Handles bytes from the front of `input`. [`None`] when they are used up.
    ///
    /// # Errors
    /// [`TransferError::Reply`] if the kind of reply is unknown.
    pub fn handle(&mut self, input: &mut &[u8]) -> Result<Option<TransferReply>, TransferError> {
        while let Some((first, rest)) = input.split_first() {
            // The first byte tells how long a reply is.
            self.partial.push(*first);
            *input = rest;
            let reply = match self.partial[..] {
                [FROM, ref offset @ ..] => match <[u8; 8]>::try_from(offset) {
                    Ok(offset) => TransferReply::From(u64::from_be_bytes(offset)),
                    Err(_) => continue,
                },
                [STORED] => TransferReply::Stored,
                [REFUSED, code] => TransferReply::Refused(code),
                [REFUSED] => continue,
                _ => return Err(TransferError::Reply(self.partial[0])),
            };
            self.partial.clear();
            return Ok(Some(reply));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn announcement(length: u64, asks: bool) -> TransferAnnouncement {
        TransferAnnouncement { id: BundleId([7; 16]), digest: [9; 32], length, asks }
    }

    proptest! {
        #[test]
        fn a_transfer_arrives_in_pieces_of_any_size(
            data in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..80, offset in 0usize..200,
        ) {
            let offset = offset.min(data.len());
            let said = announcement(data.len() as u64, offset > 0);
            let bytes = [&said.encode()[..], &data[offset..]].concat();
            let (mut reception, mut got) = (TransferReception::default(), data[..offset].to_vec());
            for mut piece in bytes.chunks(size) {
                while let Some(received) = reception.handle(&mut piece).unwrap() {
                    match received {
                        ReceivedPiece::Announced(announced) => {
                            prop_assert_eq!(announced, said);
                            reception.start(offset as u64);
                        }
                        ReceivedPiece::Data(data) => got.extend_from_slice(data),
                    }
                }
            }
            prop_assert_eq!(reception.end(), Ok(()));
            prop_assert_eq!(got, data);
        }

        #[test]
        fn replies_arrive_in_pieces_of_any_size(size in 1usize..20, offset: u64, code: u8) {
            let all = [TransferReply::From(offset), TransferReply::Refused(code), TransferReply::Stored];
            let bytes: Vec<u8> = all.iter().flat_map(|it| it.encode()).collect();
            let (mut replies, mut got) = (TransferReplies::default(), Vec::new());
            for mut piece in bytes.chunks(size) {
                while let Some(reply) = replies.handle(&mut piece).unwrap() {
                    got.push(reply);
                }
            }
            prop_assert_eq!(got, all);
        }
    }

    #[test]
    fn a_transfer_that_is_none_is_refused() {
        let mut reception = TransferReception::default();
        let mut bytes = announcement(3, false).encode();
        bytes[0] = 9;
        assert_eq!(reception.handle(&mut &bytes[..]), Err(TransferError::Version(9)));
        let mut reception = TransferReception::default();
        assert_eq!(reception.end(), Err(TransferError::Early));
        let bytes = announcement(3, false).encode();
        assert!(reception.handle(&mut &bytes[..]).unwrap().is_some());
        assert_eq!(reception.end(), Err(TransferError::Early));
        assert_eq!(reception.handle(&mut &b"four"[..]), Err(TransferError::TooLong));
        assert_eq!(TransferReplies::default().handle(&mut &[3][..]), Err(TransferError::Reply(3)));
    }

    #[test]
    fn passing_refusals_are_told_from_lasting_ones() {
        for why in [
            BundleRefusal::Full,
            BundleRefusal::Damaged,
            BundleRefusal::NoRoute,
            BundleRefusal::Malformed,
        ] {
            let TransferReply::Refused(code) = TransferReply::refusal(why) else { panic!("{why}") };
            assert_eq!(TransferReply::is_passing(code), why.is_passing(), "{why}");
            assert_eq!(explain(code), why.to_string());
        }
        assert_eq!(explain(200), "reason 200");
    }
}
