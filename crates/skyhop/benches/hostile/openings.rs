//! A terminal opens and resets streams as fast as its link lets it: the hub connects for each.

use std::net::SocketAddr;

use slacp::ResetReason;

use super::peer::Peer;
use super::scene::{Attack, Case};
use crate::gateways::Keys;
use crate::inside::addresses;

pub(crate) const CASE: Case = Case { name: "openings", keys: "", hub: "", terminal: "", attack };

/// Nobody listens there.
const PORT: u16 = 7101;
/// Streams per turn.
const STREAMS: usize = 200;

fn attack(keys: &Keys, attack: &Attack) {
    let (mut peer, to): (_, SocketAddr) = (Peer::connect(keys), addresses(PORT)[0]);
    let session = peer.session();
    loop {
        let streams: Vec<_> = (0..STREAMS).map_while(|_| peer.open(to, false)).collect();
        let mut goes_on = attack.sent(peer.turn());
        for stream in streams {
            // It may have been refused already.
            let _ = peer.endpoint.reset(session, stream, ResetReason::Reset);
        }
        goes_on &= attack.sent(peer.turn());
        while peer.endpoint.poll_event().is_some() {}
        if !goes_on {
            return;
        }
    }
}
