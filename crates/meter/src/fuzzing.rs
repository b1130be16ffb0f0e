//! Entry point of the fuzzer: the beginning of a connection to the server, and datagrams to it.

use std::time::Duration;

use crate::http::RequestHead;
use crate::protocol::payload::{Payload, PayloadSide};
use crate::protocol::request::{MeterRequest, REQUEST_LEN, RequestedWork};
use crate::protocol::udp_plan::HEAD_LEN;
use crate::udp::receiver::{UdpReceiver, fill};

/// Maximum number of planned datagrams, of which the receiver is handed some.
const PLANNED: u64 = 1 << 16;

/// Decodes a request, of HTTP or of the meter's protocol; the datagrams of a UDP measurement may
/// follow it.
///
/// # Panics
/// On a bug in this crate.
pub fn request(bytes: &[u8]) {
    if let Some(head) = str::from_utf8(bytes).ok().and_then(|text| RequestHead::decode(text).ok()) {
        let again = RequestHead::decode(&head.encode("1.1", "host"));
        assert_eq!(again, Ok(head));
    }
    let Some((wire, datagrams)) = bytes.split_first_chunk::<REQUEST_LEN>() else { return };
    let Ok(request) = MeterRequest::decode(wire) else { return };
    assert_eq!(request.encode(), *wire, "only what is encoded like this is a request");
    let RequestedWork::Udp(plan) = request.work else { return };
    let payload = Payload::new(request.key, PayloadSide::Client);
    let length = usize::from(plan.length);
    let planned = plan.datagrams().min(PLANNED);
    let mut receiver = UdpReceiver::new(payload, length, planned);
    let mut handed = 0;
    let mut datagram = vec![0; length];
    for (at, piece) in (0..).zip(datagrams.chunks(HEAD_LEN)) {
        receiver.handle(Duration::from_secs(at), piece);
        let [mut number, mut sent] = [[0; 8]; 2];
        let half = piece.len() / 2;
        number[8 - half.min(8)..].copy_from_slice(&piece[..half.min(8)]);
        sent[8 - half.min(8)..].copy_from_slice(&piece[half..][..half.min(8)]);
        let sent = Duration::from_nanos(u64::from_be_bytes(sent));
        fill(payload, u64::from_be_bytes(number), sent, &mut datagram);
        receiver.handle(Duration::from_secs(at), &datagram);
        handed += 2;
    }
    let counts = receiver.counts();
    assert!(counts.received + counts.duplicates + counts.corrupt <= handed);
    assert!(counts.received <= planned && counts.reordered <= counts.received);
}
