//! A terminal sends a compressed stream of empty frames: ten bytes each, for which the hub needs a context.

use std::thread;

use super::peer::Peer;
use super::scene::{Attack, Case};
use crate::gateways::Keys;
use crate::inside::{addresses, listen};

pub(crate) const CASE: Case =
    Case { name: "empty frames", keys: "", hub: "", terminal: "", attack };

const PORT: u16 = 7100;
/// A segment of a compressed stream (`docs/slacp.md`): a frame of zstd (RFC 8878) with one empty block.
const SEGMENT: [u8; 10] = [1, 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];

fn attack(keys: &Keys, attack: &Attack) {
    let listener = listen(PORT);
    thread::spawn(move || listener.accept().map(|_| thread::park()));
    let mut peer = Peer::connect(keys);
    let stream = peer.open(addresses(PORT)[0], true).expect("a stream");
    let (session, bytes) = (peer.session(), SEGMENT.repeat(1000));
    assert!(peer.endpoint.is_compressed(session, stream), "the hub decompresses nothing");
    let mut at = 0;
    loop {
        while let Ok(count @ 1..) = peer.endpoint.write(session, stream, &bytes[at..]) {
            at = (at + count) % bytes.len();
        }
        if !attack.sent(peer.turn()) {
            return;
        }
    }
}
