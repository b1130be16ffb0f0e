//! Somebody with the honest terminal's key asks the hub for its session, again and again, from elsewhere. A
//! session of the thief's would end the download.

use std::time::{Duration, Instant};

use super::peer::Peer;
use super::scene::{Attack, Case};
use crate::gateways::Keys;

pub(crate) const CASE: Case = Case { name: "thief", keys: "", hub: "", terminal: "", attack };

/// How long each try lasts. The victim once lost its session within 0.1 s.
const TRY: Duration = Duration::from_millis(500);

fn attack(keys: &Keys, attack: &Attack) {
    loop {
        let (mut thief, begin) = (Peer::begin(keys, 1), Instant::now());
        while begin.elapsed() < TRY {
            if !attack.sent(thief.turn()) {
                return;
            }
        }
    }
}
