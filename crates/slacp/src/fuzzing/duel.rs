//! An adversary and an endpoint on a wire without delay, for fuzzers.

use core::time::Duration;

use units::{Instant, Machine};

use super::adversary::{Adversary, is_own, own_address};
use super::owner::Owner;
use super::watched::{Bound, Watched};
use super::{Dice, config};
use crate::{Endpoint, KeyPair};

/// Time passes in such steps: a few probes, keepalives and idle times happen
/// before a fuzzer's bytes are used up.
const STEP: Duration = Duration::from_millis(20);
/// One input in so many makes a jump: the machine was suspended.
const JUMP: u64 = 200;
/// No input lasts longer.
const STEPS: usize = 2_000;

/// An adversary does what the bytes say: against a terminal if the first one is
/// odd, else against a hub; the second one is the seed of the owner.
pub fn adversary(bytes: &[u8]) {
    let [side, seed, bytes @ ..] = bytes else { return };
    let mut owner_dice = Dice::seeded((*seed).into());
    let mut owner = Owner::new(&mut owner_dice);
    let (mut watched, mut adversary) = opponents(side % 2 == 0, Dice::bytes(bytes));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut buf = Vec::with_capacity(2_000);
    for _ in 0..STEPS {
        if adversary.is_spent() {
            break;
        }
        now += if owner_dice.one_in(JUMP) { Duration::from_secs(100) } else { STEP };
        adversary.handle_timeout(now);
        while let Some((from, mut datagram)) = adversary.transmit() {
            watched.receive(now, from, &mut datagram);
        }
        if watched.poll_timeout().is_some_and(|(at, _)| at <= now) {
            watched.wake(now);
        }
        while let Some((session, event)) = watched.poll_event() {
            owner.handle_event(&mut watched, session, &event, &mut owner_dice);
        }
        watched.with(|endpoint| while endpoint.poll_packet().is_some() {});
        owner.act(now, &mut watched, &[], &mut owner_dice);
        while let Some(to) = watched.transmit(now, &mut buf) {
            if is_own(to) {
                adversary.receive(now, to, &mut buf);
            }
        }
    }
}

fn opponents(hub: bool, dice: Dice) -> (Watched, Adversary) {
    let key = |seed| KeyPair::from_private([seed; 32]);
    let hub_key = key(1);
    let bound = Bound { base: usize::MAX / 2, session: 0, honest: 0 };
    if hub {
        let keys: Vec<KeyPair> = (2..5).map(key).collect();
        let allow = keys.iter().map(KeyPair::public).collect();
        let adversary = Adversary::terminals(keys, hub_key.public(), dice);
        let make = || Endpoint::hub(config(), hub_key, allow, [3; 32]);
        return (Watched::new(|| 0, bound, make), adversary);
    }
    let (addresses, public) = (vec![own_address(0)], hub_key.public());
    let make = || Endpoint::terminal(config(), key(2), public, addresses, [3; 32]);
    (Watched::new(|| 0, bound, make), Adversary::hub(hub_key, dice))
}
