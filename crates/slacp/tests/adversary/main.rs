//! A peer with a valid key that plays everything the grammar allows, and more,
//! in virtual time: it costs an endpoint no more than is set aside for it, and
//! others nothing that an honest peer would not.
//!
//! `SLACP_SEEDS=first..end` chooses the seeds: a failing one can be replayed
//! alone.

#[path = "../kit/carrier.rs"]
mod carrier;
#[path = "../kit/counting.rs"]
mod counting;
#[path = "../kit/hop.rs"]
mod hop;
mod hostile;
mod optimists;

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use hostile::{Case, Other, Outcome, SECONDS, describe, mirror, net, run, run_alone};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use slacp::Rate;

/// What an honest session beside another gets at least, in shares of what it
/// gets beside an honest one that sends as much.
const SHARE: f64 = 0.9;
/// Where packets are lost, runs of three seconds differ by so much more.
const LUCK: f64 = 0.95;

fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(range) = std::env::var("SLACP_SEEDS") else { return usual };
    let (first, end) = range.split_once("..").expect("SLACP_SEEDS is first..end");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Runs every seed, on all processors. `run` returns the share of the memory bound that was used.
/// Prints how to replay each seed that fails.
fn each(seeds: Range<u64>, run: impl Fn(u64) -> f64 + Sync) {
    let all: Vec<u64> = seeds.clone().collect();
    let attempt = |&seed: &u64| (seed, catch_unwind(AssertUnwindSafe(|| run(seed))));
    let outcomes: Vec<_> = all.par_iter().with_max_len(1).map(attempt).collect();
    let held = |(seed, outcome): &(u64, Result<f64, _>)| Some((*outcome.as_ref().ok()?, *seed));
    let most = outcomes.iter().filter_map(held).max_by(|a, b| a.0.total_cmp(&b.0));
    let (most, by) = most.unwrap_or_default();
    println!("{seeds:?}: at most {:.0} % of the bound held, by seed {by}", most * 100.0);
    let failures =
        outcomes.iter().filter_map(|(seed, outcome)| Some((seed, outcome.as_ref().err()?)));
    for (seed, why) in failures.clone() {
        let formatted = why.downcast_ref::<String>().map(String::as_str);
        let text = formatted.or_else(|| why.downcast_ref().copied()).unwrap_or_default();
        println!("SLACP_SEEDS={seed}..{}: {text}", seed + 1);
    }
    let failed = failures.count();
    assert!(failed == 0, "{failed} seeds of {seeds:?} fail");
}

/// Losses make runs differ: the least of as many tells what is usual.
const LOSSY_RUNS: u64 = 16;

/// What the honest terminal gets at least alone, and beside an honest one, on a
/// link that is clean or not, and that of a crowd or not.
fn usual(lossy: bool, crowd: bool) -> &'static [Outcome; 2] {
    static USUAL: [[OnceLock<[Outcome; 2]>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];
    let case = Case::plain(lossy, crowd);
    let least = |other: Other| {
        let runs = if lossy { LOSSY_RUNS } else { 1 };
        let outcome = |seed| run(&mut net(seed, &case, other), &case);
        let outcomes: Vec<Outcome> = (0..runs).map(outcome).collect();
        Outcome {
            down: outcomes.iter().map(|it| it.down).min().unwrap(),
            up: outcomes.iter().map(|it| it.up).min().unwrap(),
            exchanges: outcomes.iter().map(|it| it.exchanges).min().unwrap(),
            slowest: outcomes.iter().map(|it| it.slowest).fold(0.0, f64::max),
            most: outcomes.iter().map(|it| it.most).fold(0.0, f64::max),
            elsewhere: outcomes.iter().map(|it| it.elsewhere).fold(0.0, f64::max),
            in_time: true,
            others: 0,
        }
    };
    let both = || [least(Other::Nobody), least(Other::Honest)];
    USUAL[usize::from(crowd)][usize::from(lossy)].get_or_init(both)
}

#[test]
fn a_hub_and_its_other_terminals_stand_any_hostile_terminal() {
    for lossy in [false, true] {
        println!("alone and beside an honest terminal: {:?}", usual(lossy, false));
    }
    each(seeds(0..150), |seed| {
        let case = Case::of(seed);
        against_terminals(seed, &case).most
    });
}

fn against_terminals(seed: u64, case: &Case) -> Outcome {
    let mut net = net(seed, case, Other::Adversary);
    let outcome = run(&mut net, case);
    if case.is_fair() {
        check_share(case, &outcome, &describe(&net));
    }
    outcome
}

/// More of a crowd's sessions than this must be up together. The others have just broken the
/// protocol, and come back.
const TOGETHER: usize = 900;

#[test]
fn a_hub_stands_a_thousand_hostile_sessions() {
    each(seeds(0..3), |seed| {
        let outcome = against_terminals(seed, &Case::crowd(seed));
        assert!(outcome.others > TOGETHER, "{} were up together", outcome.others);
        outcome.most
    });
}

/// A full packet, in bits, and how many the reply of an exchange takes.
const PACKET: f64 = 1500.0 * 8.0;
const REPLY: f64 = 5.0;

fn check_share(case: &Case, got: &Outcome, who: &str) {
    let [alone, beside] = usual(case.lossy, case.crowd);
    // A handshake may be lost, and lost again; by a link that loses nothing it is not.
    assert!(got.in_time || case.lossy, "the honest session came late: {got:?} {case:?} {who}");
    if !got.in_time {
        return;
    }
    let share = if case.lossy { SHARE * LUCK } else { SHARE };
    // Each other session may have what an honest one would, and no more.
    let others = got.others.max(1) as f64;
    let left = (1.0 - got.elsewhere).max(1.0 / (1.0 + others));
    let want = alone.down as f64 * left * share;
    // What clients leave unread holds up the same terminal's downloads, but no exchange.
    let held_up = case.stalled > 0;
    assert!(held_up || got.down as f64 >= want, "{got:?}, {want} are due, {case:?} {who}");
    assert!(got.up as f64 >= beside.up as f64 * share, "{got:?} after {beside:?}, {case:?} {who}");
    let packet_time = PACKET / case.forward.bits_per_second() as f64;
    let time = SECONDS / beside.exchanges as f64 + (others - 1.0) * REPLY * packet_time;
    // Nor do they hold up an exchange for longer than they had the link.
    let undisturbed = beside.exchanges as f64 * (1.0 - got.elsewhere);
    let exchanges = (SECONDS / time).max(undisturbed) * share;
    assert!(
        got.exchanges as f64 >= exchanges.floor(),
        "{got:?} where {exchanges} were due, {case:?} {who}"
    );
}

#[test]
fn a_terminal_stands_any_hostile_hub() {
    each(seeds(0..100), |seed| {
        let mut case = Case::of(seed);
        if case.rate == case.forward.into() && seed % 2 == 0 {
            case.rate = Rate::auto();
        }
        run_alone(&mut mirror(seed, &case))
    });
}
