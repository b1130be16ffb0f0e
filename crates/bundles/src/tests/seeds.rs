//! Every bundle arrives exactly once, whatever happens between.

use core::time::Duration;

use super::pair::{World, limits};
use crate::AgentLimits;

const SEEDS: u64 = 60;
const DAY: Duration = Duration::from_secs(86_400);

/// Bundles of both sides, which must all arrive.
fn give(world: &mut World, bundles: u64, largest: u64) -> [Vec<Vec<u8>>; 2] {
    let mut given = [Vec::new(), Vec::new()];
    for number in 0..bundles {
        let side = (number % 2) as usize;
        let size = world.below(largest) as usize;
        given[side].push(world.give(side, number, size));
    }
    given
}

fn assert_arrived(world: &World, given: [Vec<Vec<u8>>; 2], what: &str) {
    for (side, mut sent) in given.into_iter().enumerate() {
        let mut arrived = world.inbox(1 - side).to_vec();
        arrived.sort();
        sent.sort();
        let counts = (arrived.len(), sent.len());
        assert!(arrived == sent, "{what}: (arrived, sent) by {side}: {counts:?}");
    }
}

/// The link is up for a minute in each ten, and both nodes are killed at any moment.
fn minute_in_ten(seed: u64, bundles: u64) -> World {
    let mut world = World::new(seed, limits());
    let given = give(&mut world, bundles, 60_000);
    let ten = Duration::from_secs(600);
    for number in 0..144 {
        world.schedule_link(number * ten, true);
        world.schedule_link(number * ten + Duration::from_secs(60), false);
    }
    for _ in 0..40 {
        // Mostly while there is something to lose.
        let offset = world.below(12) * 600_000 + world.below(70_000);
        let side = world.below(2) as usize;
        world.schedule_kill(Duration::from_millis(offset), side);
    }
    assert!(world.run(DAY), "seed {seed}: bundles are left after a day");
    assert_arrived(&world, given, &format!("seed {seed}"));
    world
}

#[test]
fn a_thousand_bundles_cross_in_a_minute_of_each_ten_and_arrive_once() {
    let world = minute_in_ten(1, 1000);
    assert!(world.kills >= 10, "{} kills", world.kills);
}

#[test]
fn bundles_arrive_once_whenever_either_side_is_killed() {
    (0..SEEDS).for_each(|seed| drop(minute_in_ten(seed, 80)));
}

#[test]
fn a_store_that_is_small_or_broken_for_a_while_loses_nothing() {
    for seed in 0..SEEDS {
        let bytes = units::ByteCount::new(300_000);
        let mut world = World::new(seed, AgentLimits { bytes, bundles: 12, ..limits() });
        let given = give(&mut world, 60, 60_000);
        world.schedule_link(Duration::ZERO, true);
        for _ in 0..6 {
            let (side, after) = (world.below(2) as usize, world.below(100_000));
            world.schedule_kill(Duration::from_millis(after), side);
        }
        let mut begins = Duration::ZERO;
        for step in 0..8 {
            world.break_disk(step % 2, step % 3 != 0);
            begins += Duration::from_millis(world.below(20_000));
            world.run(begins);
        }
        (0..2).for_each(|side| world.break_disk(side, false));
        assert!(world.run(DAY), "seed {seed}: bundles are left after a day");
        assert_arrived(&world, given, &format!("seed {seed}"));
    }
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let course = |seed| {
        let world = minute_in_ten(seed, 60);
        (world.kills, [0, 1].map(|side| world.inbox(side).to_vec()))
    };
    assert_eq!(course(7), course(7));
}
