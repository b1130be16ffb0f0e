//! Fuzz targets: peers that send arbitrary bytes.

use core::time::Duration;

use pep::fuzzing::bounded;
use units::{Instant, Machine};

use super::tcpcl::{ConnectionRole, SessionConfig, SessionEvent, TcpclConnection};
use super::transfer::{ReceivedPiece, TransferReception, TransferReplies};
use super::{
    BundleNodeId, BundleSummary, FragmentJoiner, ReportedEvent, forwarded, parts, read,
    read_report, report,
};

/// Largest bundle that is accepted, in bytes.
const LARGEST: u64 = 100_000;

/// Parses a bundle of another node. The kept form must parse again, and stay the same bundle when
/// forwarded.
fn parse(bytes: &[u8]) {
    let Ok((summary, other)) = read(bytes) else { return };
    let kept = other.as_deref().unwrap_or(bytes);
    let (again, more) = read(kept).expect("what is kept is a bundle");
    assert_eq!((&again, more), (&summary, None), "canonical once, canonical for ever");
    assert!(summary.payload.end <= kept.len());
    let node: BundleNodeId = "ipn:5.0".parse().expect("a node");
    let _ = read_report(&kept[summary.payload.clone()]);
    if let Some(said) = report(&summary, ReportedEvent::Delivered, &node, 1 << 40, 1) {
        let (about, _) = read(&said).expect("what is made is a bundle");
        let said = read_report(&said[about.payload]).expect("and a report");
        assert_eq!(said.id, summary.id);
    }
    cut_and_join(kept, &summary);
    let onward = forwarded(kept, &node, Duration::from_secs(7));
    // Its hop limit may be exhausted by now.
    if let Ok((later, _)) = read(&onward) {
        assert_eq!(later.id, summary.id);
        assert_eq!(onward[later.payload], kept[summary.payload], "the payload is as it was");
    }
}

/// Splits a bundle into fragments and joins them; the result must be the same bundle.
fn cut_and_join(bytes: &[u8], whole: &BundleSummary) {
    let largest = bytes.len() as u64 - whole.payload.len() as u64 + 60;
    let Ok(cut) = parts(bytes, largest) else { return };
    let mut joiner = FragmentJoiner::default();
    for (id, part) in cut {
        let (summary, _) = read(&part).expect("a part is a bundle");
        assert_eq!((summary.id, summary.whole), (id, whole.whole));
        assert!(part.len() as u64 <= largest);
        if whole.fragment.is_none() {
            joiner.add(part).expect("it follows the one before");
        }
    }
    if let Ok(joined) = joiner.finish() {
        let (again, _) = read(&joined).expect("the whole is a bundle");
        assert_eq!((again.id, again.fragment), (whole.id, None));
        assert_eq!(joined[again.payload], bytes[whole.payload.clone()], "the payload is as it was");
    }
}

/// Bytes of a peer on a stream of the hop, as opener and as acceptor.
fn transfer(bytes: &[u8], size: usize) -> Vec<u8> {
    let (mut reception, mut replies, mut got) =
        (TransferReception::default(), TransferReplies::default(), Vec::new());
    for piece in bytes.chunks(size) {
        let mut input = piece;
        loop {
            match reception.handle(&mut input) {
                Ok(Some(ReceivedPiece::Data(data))) => got.extend_from_slice(data),
                Ok(Some(ReceivedPiece::Announced(_))) => {}
                Ok(None) => break,
                Err(_) => return got,
            }
        }
        let mut input = piece;
        while let Ok(Some(_)) = replies.handle(&mut input) {}
    }
    got
}

/// Bytes of a peer on a TCP connection; returns the events. With `sends`, the events depend on the size of
/// the pieces.
fn converse(bytes: &[u8], size: usize, role: ConnectionRole, sends: bool) -> Vec<SessionEvent> {
    let node = "ipn:1.0".parse().expect("a node");
    // Which bytes precede TLS depends on the pieces.
    let tls = sends && bytes.len() % 2 == 1;
    let config = SessionConfig { node, largest: LARGEST, tls };
    let mut session = TcpclConnection::new(Instant::ZERO, role, config);
    let mut events: Vec<SessionEvent> = Vec::new();
    for piece in bytes.chunks(size) {
        session.handle_bytes(Instant::ZERO, piece);
        while let Some(event) = session.poll_event() {
            match event {
                SessionEvent::Peer(_) => {
                    session.accept(Instant::ZERO);
                    if sends && session.can_send() && session.send(5) {
                        session.send_part(Instant::ZERO, b"five!");
                    }
                }
                SessionEvent::BundleComplete => session.stored(Instant::ZERO),
                SessionEvent::Tls => session.handle_tls_established(Instant::ZERO),
                _ => {}
            }
            match (events.last_mut(), event) {
                (Some(SessionEvent::Data(before)), SessionEvent::Data(data)) => before.extend(data),
                (_, event) => events.push(event),
            }
        }
        assert!(session.input_held() <= size + (9 << 10), "more waits than a message");
        assert!(session.take_output().len() <= 64 * bytes.len() + 4096, "it says too much");
    }
    let until = session.poll_timeout().map(|(until, _)| until);
    until.into_iter().for_each(|until| session.handle_timeout(until));
    events
}

/// Bytes of other nodes. The first byte selects a bundle, a stream of the hop, or a TCP connection that
/// this node has opened or accepted; the second selects the size of the pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn bundles(bytes: &[u8]) {
    let Some(([place, pieces], said)) = bytes.split_first_chunk() else { return };
    let (whole, piece) = (said.len().max(1), usize::from(*pieces) + 1);
    let role = match place % 4 {
        0 => return parse(said),
        1 => {
            let once = transfer(said, whole);
            let in_pieces = transfer(said, piece);
            assert!(once.starts_with(&in_pieces) || in_pieces.starts_with(&once));
            return;
        }
        2 => ConnectionRole::Active,
        _ => ConnectionRole::Passive,
    };
    bounded(said, (0, 12), || {
        converse(said, piece, role, true);
        let once = converse(said, whole, role, false);
        let in_pieces = converse(said, piece, role, false);
        assert_eq!(once, in_pieces, "pieces make no difference");
    });
}
