//! Entry points for fuzzing: parsers of foreign bytes from sockets and streams.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bundles::{BundleEndpoint, BundleId, BundleNodeId, BundlePurpose, FileName, NewBundle};
use config::PermittedTerminals;
use control::protocol::{
    BundleOffer, BundleRequest, ControlAnswer, ControlRequest, from_base64, read, write,
};
use pep::fuzzing::bounded;
use pep::rates::handover::{ProcessNeed, RateDivision};
use slacp::{KeyPair, PublicKey, ResetReason};
use tokio::io::{AsyncRead, ReadBuf};
use units::Instant;

use crate::config::keys::{format_public_key, parse_public_key};
use crate::hop::tcp::datagrams;
use crate::operate::accounts::TerminalAccounts;
use crate::services::enrolment::etcd::answer::read_whole_and_watched;
use crate::services::enrolment::token::JoinToken;
use crate::services::key_message::KeyMessage;
use crate::services::rotation::check_file;

/// Parses a public key from others. The first byte selects its form: on a stream (the second byte is the
/// size of the pieces), in a token, in a terminal's file of hub keys, or in a permit with the invitation of
/// the private key that is all ones.
///
/// # Panics
/// On a bug in this crate.
pub fn keys(bytes: &[u8]) {
    let Some(([kind, piece], said)) = bytes.split_first_chunk() else { return };
    match (kind % 4, str::from_utf8(said)) {
        (0, _) => {
            let whole = key_message(said, said.len().max(1));
            assert_eq!(whole, key_message(said, usize::from(*piece) + 1), "pieces change nothing");
            let again = whole.map(|key| parse_public_key(&format_public_key(&key)).ok());
            assert_eq!(again, whole.map(Some));
        }
        (1, Ok(text)) => {
            let Ok(token) = text.parse::<JoinToken>() else { return };
            let again: JoinToken = token.to_string().parse().expect("it is a token");
            assert_eq!((again.name, again.hubs), (token.name, token.hubs));
        }
        (2, _) => check_file(said),
        (_, Ok(text)) => enrol(text),
        _ => {}
    }
}

fn key_message(bytes: &[u8], piece: usize) -> Result<PublicKey, ResetReason> {
    let mut message = KeyMessage::default();
    bytes.chunks(piece).try_for_each(|piece| message.push(piece))?;
    message.key()
}

fn enrol(permit: &str) {
    let [invitation, key] = [1, 2].map(|seed| KeyPair::from_private([seed; 32]).public());
    let enrol =
        |text: &str| PermittedTerminals::enrol(Path::new("permit.toml"), text, &invitation, &key);
    if let Ok(enrolled) = enrol(permit) {
        assert_eq!(enrol(&enrolled).ok().as_ref(), Some(&enrolled), "an invitation is used once");
    }
}

/// Reads datagrams that a terminal sends over TCP. The first byte is the size of the pieces that arrive.
///
/// # Panics
/// On a bug in this crate.
pub fn tcp_frames(bytes: &[u8]) {
    let Some((piece, said)) = bytes.split_first() else { return };
    // A datagram that is cut off has its memory allocated once.
    bounded(said, (2 << 14, 2), || {
        let whole = at_once(datagrams(PiecewiseReader(said, said.len().max(1))));
        let in_pieces = at_once(datagrams(PiecewiseReader(said, usize::from(*piece) + 1)));
        assert_eq!(whole, in_pieces, "pieces make no difference");
        assert!(whole.iter().map(|datagram| 2 + datagram.len()).sum::<usize>() <= said.len());
    });
}

/// Reads the answer of a member of etcd, once as all permits and once as a watch. The first byte is the size
/// of the pieces that arrive.
///
/// # Panics
/// On a bug in this crate.
pub fn etcd(bytes: &[u8]) {
    let Some((piece, said)) = bytes.split_first() else { return };
    // In each of the two ways, a byte is searched, stored and moved at most once.
    bounded(said, (0, 6), || read_whole_and_watched(said, usize::from(*piece) + 1));
}

/// A reader that returns its bytes in pieces of this size and is always ready.
struct PiecewiseReader<'a>(&'a [u8], usize);

impl AsyncRead for PiecewiseReader<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.1.min(self.0.len()).min(buffer.remaining());
        let (piece, rest) = self.0.split_at(count);
        buffer.put_slice(piece);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

/// Returns the result of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("it waits for nothing"),
    }
}

/// Parses a line of the control socket, as a request and as an answer.
///
/// # Panics
/// On a bug in this crate.
pub fn control(line: &[u8]) {
    if let Ok(answer) = read::<ControlAnswer>(line) {
        read::<ControlAnswer>(&write(&answer)).expect("it reads back");
    }
    let Ok(request) = read::<ControlRequest>(line) else { return };
    read::<ControlRequest>(&write(&request)).expect("it reads back");
    match request {
        ControlRequest::Portion { portion, used, connections } => {
            let former = ProcessNeed { portion, used, connections };
            let portion = RateDivision::default().handle(former, 0.5, 1);
            assert!((0.0..=1.0).contains(&portion), "{portion}");
        }
        ControlRequest::Carried(rows) => {
            let mut accounts = TerminalAccounts::open(Instant::ZERO, None);
            // Twice, so that the sums of large counts are checked for overflow.
            let _ = (accounts.add(rows.clone()), accounts.add(rows));
            accounts.status();
        }
        ControlRequest::Bundle(request) => bundle(request),
        _ => {}
    }
}

fn bundle(request: BundleRequest) {
    match request {
        BundleRequest::Offer(offer) => drop(encoded(&offer)),
        BundleRequest::Data { base64, .. } => drop(from_base64(&base64)),
        BundleRequest::State { id }
        | BundleRequest::Read { id, .. }
        | BundleRequest::Taken { id, .. } => drop(BundleId::from_hex(&id)),
        _ => {}
    }
}

/// Encodes the bundle that a program offers, with an empty payload.
fn encoded(offer: &BundleOffer) -> Option<Vec<u8>> {
    let node: BundleNodeId = "ipn:1.0".parse().ok()?;
    let name = match offer.name.as_deref() {
        Some(name) => Some(FileName::new(name)?),
        None => None,
    };
    let (created, sequence) = offer.made.unwrap_or_default();
    let bundle = NewBundle {
        source: &node.service("1").ok()?,
        destination: &offer.destination.parse::<BundleEndpoint>().ok()?,
        created,
        sequence,
        lifetime: Duration::from_secs(offer.lifetime_s),
        file_name: name.as_ref(),
        purpose: if offer.report { BundlePurpose::Reported } else { BundlePurpose::Data },
        payload: &[],
    };
    let bytes = bundle.encode();
    bundles::read(&bytes).expect("what is made here is valid");
    Some(bytes)
}
