//! Memory and disk stay within their bounds whatever is done, and the store is one with its files.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::*;

/// The files, as the wishes of the store leave them.
#[derive(Default)]
struct Disk(BTreeMap<EntryId, u64>);

impl Disk {
    fn follow(&mut self, store: &mut ResponseStore<u64>) {
        while let Some(output) = store.poll_output() {
            match output {
                FileOutput::Write(id, Some(length)) => assert_eq!(self.0.insert(id, length), None),
                FileOutput::Write(id, None) => assert!(self.0.contains_key(&id), "{id:?}"),
                FileOutput::Remove(id) => assert!(self.0.remove(&id).is_some(), "{id:?}"),
            }
        }
    }
}

fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    random.next_u64() % bound
}

fn step(random: &mut ChaCha8Rng, store: &mut ResponseStore<u64>, disk: &mut Disk) {
    let place = key(&format!("/{}", below(random, 30)));
    let asked = get(&format!("X: {}", below(random, 3)));
    let owner = client(below(random, 5) as u8);
    match below(random, 10) {
        0..=4 => {
            let length = below(random, 9000);
            let stored =
                StoredResponse::new(&asked, &response(200, "Vary: X"), at(0), at(below(random, 9)));
            store.insert(place, &asked, stored, length, length, owner);
        }
        5 | 6 => {
            if let Some(id) = store.select(&place, &asked) {
                let (_, body, length) = store.get(id).unwrap();
                match body {
                    Some(body) => assert_eq!(*body, length),
                    None => {
                        assert_eq!(disk.0.get(&id), Some(&length), "the body is nowhere");
                        store.handle_loaded_body(id, length);
                    }
                }
            }
        }
        7 => store.invalidate(&place),
        8 => {
            if let Some(id) = store.select(&place, &asked) {
                let value = "y".repeat(below(random, 3000) as usize);
                store.update(id, |stored| {
                    stored.confirm(&response(304, &format!("Z: {value}z")), at(1), at(2));
                });
            }
        }
        // The disk has lost a file.
        _ => {
            if let Some(id) = store.select(&place, &asked)
                && disk.0.contains_key(&id)
            {
                store.handle_lost_files(id);
                disk.0.remove(&id);
            }
        }
    }
}

fn run(seed: u64, limits: StoreLimits) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut store, mut disk) = (ResponseStore::new(limits), Disk::default());
    for _ in 0..400 {
        step(&mut random, &mut store, &mut disk);
        disk.follow(&mut store);
        assert!(store.memory() <= limits.memory.get(), "seed {seed}: {}", store.memory());
        assert!(store.disk() <= limits.disk.get(), "seed {seed}: {}", store.disk());
        assert!(disk.0.values().sum::<u64>() <= limits.disk.get(), "seed {seed}");
    }
    for number in 0..30 {
        store.invalidate(&key(&format!("/{number}")));
    }
    disk.follow(&mut store);
    assert_eq!(
        (store.memory(), store.disk(), store.len(), disk.0.len()),
        (0, 0, 0, 0),
        "seed {seed}"
    );
}

#[test]
fn whatever_is_done_memory_and_disk_stay_within_their_bounds() {
    for seed in 0..300 {
        let mut random = ChaCha8Rng::seed_from_u64(!seed);
        let limits = StoreLimits {
            memory: ByteCount::new(1000 + below(&mut random, 60_000)),
            disk: ByteCount::new(below(&mut random, 2) * below(&mut random, 100_000)),
            object: ByteCount::new(8000),
        };
        run(seed, limits);
    }
}

fn stored() -> StoredResponse {
    StoredResponse::new(&get(""), &response(200, ""), at(0), at(0))
}

#[test]
fn a_client_that_fills_the_store_displaces_its_own() {
    let mut store = ResponseStore::new(config(100_000, 0).limits);
    assert!(store.insert(key("/mine"), &get(""), stored(), 1, 1000, client(1)));
    for number in 0..500 {
        assert!(store.insert(key(&format!("/{number}")), &get(""), stored(), 1, 3000, client(2)));
    }
    assert!(store.select(&key("/mine"), &get("")).is_some());
    assert!(store.select(&key("/499"), &get("")).is_some());
    assert!(store.select(&key("/0"), &get("")).is_none());
}

#[test]
fn a_client_that_fills_the_store_with_empty_answers_displaces_its_own() {
    for disk in [0, 10_000_000] {
        let mut store = ResponseStore::new(config(100_000, disk).limits);
        assert!(store.insert(key("/mine"), &get(""), stored(), 1, 1000, client(1)));
        for number in 0..2000 {
            store.insert(key(&format!("/{number}")), &get(""), stored(), 0, 0, client(2));
        }
        let mine = store.select(&key("/mine"), &get("")).expect("it stays");
        assert_eq!(store.get(mine).unwrap().1, Some(&1), "in memory, too");
        assert!(store.select(&key("/1999"), &get("")).is_some());
        assert!(store.select(&key("/0"), &get("")).is_none());
    }
}

#[test]
fn an_empty_answer_takes_a_block_of_the_disk() {
    let mut store = ResponseStore::new(config(1_000_000, 100_000).limits);
    assert!(store.insert(key("/mine"), &get(""), stored(), 1, 10_000, client(1)));
    for number in 0..100 {
        store.insert(key(&format!("/{number}")), &get(""), stored(), 0, 0, client(2));
    }
    let on_disk = |output| match output {
        FileOutput::Write(..) => 1,
        FileOutput::Remove(_) => -1,
    };
    let left: i32 = std::iter::from_fn(|| store.poll_output()).map(on_disk).sum();
    assert!(left <= 100_000 / 4096, "{left}");
    assert!(store.disk() <= 100_000 && store.select(&key("/mine"), &get("")).is_some());
}

#[test]
fn what_is_on_disk_needs_no_memory_and_comes_back_after_a_restart() {
    let limits = config(20_000, 1_000_000).limits;
    let mut store = ResponseStore::new(limits);
    for number in 0..20 {
        assert!(store.insert(
            key(&format!("/{number}")),
            &get(""),
            stored(),
            number,
            3000,
            client(1)
        ));
    }
    assert_eq!(store.len(), 20);
    let id = store.select(&key("/0"), &get("")).unwrap();
    assert_eq!(store.get(id).unwrap().1, None, "its body is on disk only");
    let mut again: ResponseStore<u64> = ResponseStore::new(limits);
    assert!(again.restore(id, key("/0"), stored(), 3000, client(1)));
    assert!(!again.restore(id, key("/0"), stored(), 3000, client(1)), "twice");
    assert_eq!(again.select(&key("/0"), &get("")), Some(id));
    assert!(again.insert(key("/new"), &get(""), stored(), 1, 10, client(1)));
    assert!(again.select(&key("/new"), &get("")).unwrap() > id, "a name of its own");
}

#[test]
fn what_is_too_long_is_not_stored_and_replaces_what_was() {
    let mut store = ResponseStore::new(config(10_000, 0).limits);
    assert!(store.insert(key("/"), &get(""), stored(), 1, 5000, client(1)));
    assert!(!store.insert(key("/"), &get(""), stored(), 1, 5001, client(1)));
    assert!(store.is_empty());
}
