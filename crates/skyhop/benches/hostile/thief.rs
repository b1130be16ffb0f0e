//! A second machine with the honest terminal's key asks the hub for a session again and again. If it got
//! one, the download would end.

use std::time::{Duration, Instant};

use super::peer::Peer;
use super::scene::{Attack, Case};
use crate::gateways::Keys;

pub(crate) const CASE: Case = Case { name: "thief", keys: "", hub: "", terminal: "", attack };

/// Duration of each try. The victim once lost its session within 0.1 s.
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
