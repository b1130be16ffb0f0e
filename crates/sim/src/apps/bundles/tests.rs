use super::*;
use crate::testkit::{at, link, row, tcp};

/// The time that a file of `bytes` takes in bundles of `bundle`, over links of 10 Mbit/s with these
/// one-way delays in milliseconds.
fn time(delays: &[u64], sizes: [u64; 2], window: u32) -> Duration {
    let mut world = World::new(1);
    let links: Vec<_> = delays.iter().map(|delay| link(10, *delay, 0.0)).collect();
    let (nodes, _) = row(&mut world, &links);
    let hop = |ends: &[_]| Arc::new(ConnectionPath::direct(ends[0], ends[1], tcp()));
    let hops = nodes.windows(2).map(hop).collect();
    let app = world.add_app(Box::new(BundleTransfer::new(hops, sizes, window, at(1))));
    assert!(world.run_until_done(at(600)));
    let tally = world.app_stats(app).clone();
    assert_eq!((tally.work_units.len(), tally.failures), (1, 0));
    assert_eq!((tally.work_units[0].begin, tally.work_units[0].bytes), (at(1), sizes[0]));
    world.run_until(at(700));
    assert_eq!(world.sockets(), 0);
    tally.work_units[0].time()
}

/// A file's bundles of 5 kB, of which two are in the first window of a connection.
const SMALL: [u64; 2] = [50_000, 5_000];

/// Round trips of 500 ms: the handshake, contact headers and parameters, then one for each bundle but
/// the last, and half of one for that.
#[test]
fn without_a_window_each_bundle_waits_for_the_acknowledgement_of_the_one_before() {
    let trips = Duration::from_millis(500 * (3 + 9) + 250);
    let on_the_link = Duration::from_secs_f64(51_500.0 * 8.0 / 10e6);
    let took = time(&[250], SMALL, 1);
    assert!((trips + on_the_link..trips + on_the_link * 11 / 10).contains(&took), "{took:?}");
    // Two at a time: five round trips less.
    let two = time(&[250], SMALL, 2);
    let saved = took.saturating_sub(two).as_millis();
    assert!((2450..2550).contains(&saved), "{saved}");
}

/// With a window as large as the file it is a transfer of TCP, which starts slowly.
#[test]
fn a_large_window_leaves_it_to_tcp() {
    let all = time(&[250], SMALL, 10);
    let one = time(&[250], [50_000, 50_000], 1);
    assert!(all.abs_diff(one) < Duration::from_millis(20), "{all:?} {one:?}");
}

/// The hub has the bundle when the long link's session is up, and not before the whole of it has
/// come: 3.5 round trips of 500 ms.
#[test]
fn a_node_hands_on_what_it_has_whole() {
    let took = time(&[10, 250], [10_000, 10_000], 1).as_millis();
    assert!((1750..1770).contains(&took), "{took}");
    // The other way round it comes late, and then crosses a session that is up.
    let took = time(&[250, 10], [10_000, 10_000], 1).as_millis();
    assert!((1760..1790).contains(&took), "{took}");
}

/// Neither an empty part nor a segment more or less changes what is delivered.
#[test]
fn files_of_any_size_arrive_whole() {
    for bytes in [1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 7] {
        for bundle in [bytes, 1000.min(bytes), SEGMENT] {
            time(&[1, 2, 3], [bytes, bundle], 5);
        }
    }
}

fn sent(chain: &mut NodeChain) -> Vec<(usize, BundleId)> {
    core::iter::from_fn(|| chain.next_to_send()).map(|(at, id, _)| (at, id)).collect()
}

#[test]
fn a_bundle_is_sent_until_the_next_node_has_it_and_is_delivered_once() {
    let mut chain = NodeChain::new(3, [5000, 1000], 2);
    chain.submit_file();
    assert_eq!(sent(&mut chain), []);
    chain.set_link(0, true);
    let first = sent(&mut chain);
    assert_eq!(first.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 0]);
    let [one, two] = [first[0].1, first[1].1];
    chain.handle_crossed(0, one);
    // Its acknowledgement is lost, and so is the other bundle.
    chain.set_link(0, false);
    [one, two].iter().for_each(|id| chain.returned(at(9), 0, id));
    chain.set_link(0, true);
    assert_eq!(sent(&mut chain), first);
    chain.set_link(1, true);
    assert_eq!(sent(&mut chain), [(1, one)]);
    for id in [one, two] {
        chain.handle_crossed(0, id);
        chain.acknowledged(0, &id);
        sent(&mut chain);
        chain.handle_crossed(1, id);
        chain.acknowledged(1, &id);
    }
    chain.handle_crossed(1, one);
    assert_eq!((chain.left, chain.known.len()), (3, 3));
    assert_eq!(chain.agents.iter().map(|it| it.stats().waiting).sum::<usize>(), 3);
}
