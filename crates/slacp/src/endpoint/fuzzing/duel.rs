//! An adversary and an endpoint on a link without delay, for fuzzers.

use core::time::Duration;

use units::{BitRate, Instant, Machine};

use super::adversary::{Adversary, is_own, own_address};
use super::checked::{CheckedEndpoint, MemoryBound};
use super::owner::Owner;
use super::{Choices, config};
use crate::{Config, Endpoint, KeyPair, Rate};

/// Time between two steps, long enough for a few probes, keepalives and idle times before a
/// fuzzer's bytes are used up.
const STEP: Duration = Duration::from_millis(20);
/// One step in this many is a jump of the clock, as when a machine was suspended.
const JUMP: u64 = 200;
/// Maximum number of steps per input.
const STEPS: usize = 2_000;

/// Target: an adversary that acts by the bytes. If the first byte is odd, it attacks a terminal,
/// otherwise a hub; the next two bits are the number of links. The second byte is the seed of the
/// owner.
pub fn adversary(bytes: &[u8]) {
    let [side, seed, bytes @ ..] = bytes else { return };
    let mut owner_choices = Choices::seeded((*seed).into());
    let mut owner = Owner::new(&mut owner_choices);
    let (hub, links) = (side % 2 == 0, usize::from(side / 2 % 4));
    let (mut endpoint, mut adversary) = opponents(hub, links, Choices::bytes(bytes));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut buf = Vec::with_capacity(2_000);
    for _ in 0..STEPS {
        if adversary.is_spent() {
            break;
        }
        now += if owner_choices.one_in(JUMP) { Duration::from_secs(100) } else { STEP };
        adversary.handle_timeout(now);
        while let Some((from, mut datagram)) = adversary.transmit() {
            endpoint.receive(now, from, &mut datagram);
        }
        if endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            endpoint.wake(now);
        }
        while let Some((session, event)) = endpoint.poll_event() {
            owner.handle_event(&mut endpoint, session, &event, &mut owner_choices);
        }
        endpoint.with(|endpoint| while endpoint.poll_packet().is_some() {});
        owner.act(now, &mut endpoint, &[], &mut owner_choices);
        while let Some(to) = endpoint.transmit(now, &mut buf) {
            if is_own(to) {
                adversary.receive(now, to, &mut buf);
            }
        }
    }
}

fn opponents(hub: bool, links: usize, choices: Choices) -> (CheckedEndpoint, Adversary) {
    let key = |seed| KeyPair::from_private([seed; 32]);
    let hub_key = key(1);
    let bound = MemoryBound { base: usize::MAX / 2, session: 0, honest: 0 };
    let links = vec![Rate::Fixed(BitRate::from_mbit(10)); links];
    let config = || Config { links: links.clone(), ..config() };
    if hub {
        let keys: Vec<KeyPair> = (2..5).map(key).collect();
        let allow = keys.iter().map(KeyPair::public).collect();
        let adversary = Adversary::terminals(keys, hub_key.public(), choices);
        let make = || Endpoint::hub(config(), hub_key, allow, [3; 32]);
        return (CheckedEndpoint::new(|| 0, bound, make), adversary);
    }
    let (addresses, public) = (vec![own_address(0)], hub_key.public());
    let make = || Endpoint::terminal(config(), key(2), public, addresses, [3; 32]);
    (CheckedEndpoint::new(|| 0, bound, make), Adversary::hub(hub_key, choices))
}
