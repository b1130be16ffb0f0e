//! The seeds of a lab's links.

use std::collections::BTreeSet;

use super::*;

/// All links that any lab can have.
fn all_links() -> impl Iterator<Item = LinkName> {
    let returns = Site::first(Site::MOST).map(LinkName::Return);
    [LinkName::Forward, LinkName::TerrestrialForward, LinkName::TerrestrialReturn]
        .into_iter()
        .chain(returns)
}

#[test]
fn no_two_links_lose_the_same_packets() {
    for seed in [0, 1, u64::MAX] {
        let seeds: BTreeSet<u64> = all_links().map(|name| seed_of(name, seed)).collect();
        assert_eq!(seeds.len(), all_links().count(), "seed {seed}");
    }
}

#[test]
fn neighbouring_seeds_have_no_link_in_common() {
    let of = |seed| all_links().map(move |name| seed_of(name, seed));
    let seeds: BTreeSet<u64> = (0..10).flat_map(of).collect();
    assert_eq!(seeds.len(), 10 * all_links().count());
}

#[test]
fn the_hop_s_seeds_are_those_that_reports_were_made_with() {
    // A change would alter the result of every published `--seed`.
    let hop = [LinkName::Forward, LinkName::Return(Site::FIRST)];
    assert_eq!(hop.map(|name| seed_of(name, 21)), [42, 43]);
}
