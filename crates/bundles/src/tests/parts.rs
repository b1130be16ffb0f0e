//! Bundles in parts: made, kept within bounds, and joined.

use core::time::Duration;

use proptest::prelude::*;
use units::{Instant, Machine};

use super::pair::limits;
use crate::parts::part_of;
use crate::{
    Agent, AgentConfig, BundleId, BundleNodeId, BundleOrigin, BundlePurpose, BundleRefusal,
    BundleSummary, FileName, FragmentJoiner, MOST_PARTS, NeighbourConfig, NewBundle, OfferDecision,
    PartsError, PeerId, forwarded, parts, read,
};

const NOW: u64 = 1_795_600_000_000;
const SHIP: BundleOrigin = BundleOrigin::Peer(PeerId(0));

fn made(payload: &[u8], purpose: BundlePurpose) -> Vec<u8> {
    let node: BundleNodeId = "ipn:2.0".parse().unwrap();
    let name = FileName::new("a.txt");
    let bundle = NewBundle {
        source: &node.service("7").unwrap(),
        destination: &"ipn:1.1".parse().unwrap(),
        created: NOW,
        sequence: 5,
        lifetime: Duration::from_secs(60),
        file_name: name.as_ref(),
        purpose,
        payload,
    };
    bundle.encode()
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3) as u8).collect()
}

fn agent() -> Agent {
    let neighbour = NeighbourConfig {
        node: "ipn:2.0".parse().unwrap(),
        behind: vec!["ipn:3.0".parse().unwrap()],
        everything: false,
    };
    let (node, peers, limits) = ("ipn:1.0".parse().unwrap(), vec![neighbour], limits());
    Agent::new(AgentConfig { node, peers, limits, reports: false }, vec![], vec![])
}

fn offer(agent: &mut Agent, it: &BundleSummary) -> Result<bool, BundleRefusal> {
    let OfferDecision::Take(ticket) = agent.begin(SHIP, Some(it.id), it.length)? else {
        return Ok(false);
    };
    let OfferDecision::Take(record) = agent.offer(ticket, NOW, it)? else { return Ok(false) };
    agent.stored(ticket, record);
    Ok(true)
}

/// The part of a payload of `total` bytes from `offset` on, as another node may send it.
fn part(offset: usize, length: usize, total: usize) -> (BundleSummary, Vec<u8>) {
    let whole = made(&payload(total), BundlePurpose::Data);
    let data = &payload(total)[offset..offset + length];
    let bytes = part_of(&whole, (offset as u64, total as u64), data).unwrap();
    (read(&bytes).unwrap().0, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn parts_become_the_whole_again(length in 0usize..5000, largest in 200u64..3000) {
        let whole = made(&payload(length), BundlePurpose::Data);
        let (summary, _) = read(&whole).unwrap();
        let made = parts(&whole, largest).unwrap();
        let mut joiner = FragmentJoiner::default();
        for (id, bytes) in &made {
            prop_assert!(bytes.len() as u64 <= largest, "{} bytes", bytes.len());
            let (part, other) = read(bytes).unwrap();
            prop_assert_eq!((part.id, part.whole, other), (*id, summary.id, None));
            // Each crosses another node, and may be cut again there.
            let node = "ipn:9.0".parse().unwrap();
            let onward = forwarded(bytes, &node, Duration::ZERO);
            for (_, bytes) in parts(&onward, 400).unwrap() {
                prop_assert_eq!(read(&bytes).unwrap().0.whole, summary.id);
                joiner.add(bytes).unwrap();
            }
        }
        if length == 0 {
            return Ok(());
        }
        let joined = joiner.finish().unwrap();
        let (again, other) = read(&joined).unwrap();
        prop_assert_eq!((again.id, again.fragment, other), (summary.id, None, None));
        prop_assert_eq!(&joined[again.payload], &whole[summary.payload]);
        prop_assert_eq!(again.file_name, summary.file_name);
    }
}

#[test]
fn records_and_crumbs_are_not_sent_in_parts() {
    let record = made(&payload(5000), BundlePurpose::Administration);
    assert_eq!(parts(&record, 1000), Err(PartsError::Forbidden));
    let data = made(&payload(5000), BundlePurpose::Data);
    assert_eq!(parts(&data, 10), Err(PartsError::TooMany));
    let around = data.len() as u64 - 5000 + 48;
    assert_eq!(parts(&data, around + 4), Err(PartsError::TooMany));
    assert_eq!(parts(&data, around + 5).unwrap().len(), 1000);
    assert_eq!(parts(b"none", 1000), Err(PartsError::Malformed));
    assert_eq!(FragmentJoiner::default().finish(), Err(PartsError::Malformed));
}

#[test]
fn parts_are_joined_in_any_order_and_overlapping() {
    let mut agent = agent();
    let mut disk = std::collections::BTreeMap::new();
    for (offset, length) in [(700, 300), (0, 400), (350, 100), (300, 350), (300, 450)] {
        let (summary, bytes) = part(offset, length, 1000);
        assert_eq!(agent.poll_join(), None, "a part is missing");
        assert_eq!(offer(&mut agent, &summary), Ok(true), "{offset}");
        disk.insert(summary.id, bytes);
    }
    assert!(!agent.has_arrived(Some("1")), "a part is not delivered");
    // What is here by other parts is acknowledged, and not kept.
    assert_eq!(offer(&mut agent, &part(10, 900, 1000).0), Ok(false));
    let join = agent.poll_join().unwrap();
    assert_eq!(agent.poll_join(), None, "one at a time");
    let mut joiner = FragmentJoiner::default();
    join.parts.iter().for_each(|id| joiner.add(disk[id].clone()).unwrap());
    let whole = joiner.finish().unwrap();
    let (summary, _) = read(&whole).unwrap();
    assert_eq!(&whole[summary.payload.clone()], payload(1000));
    // The disk fails first, and the whole comes in another way meanwhile.
    agent.not_joined(Instant::ZERO, &join);
    assert_eq!(agent.poll_join(), None);
    let (at, _) = agent.poll_timeout().unwrap();
    agent.handle_timeout(at);
    let join = agent.poll_join().unwrap();
    let busy = agent.begin(SHIP, Some(summary.id), summary.length).unwrap();
    let OfferDecision::Take(ticket) = busy else { panic!("{busy:?}") };
    assert_eq!(agent.offer(ticket, NOW, &summary), Err(BundleRefusal::Busy));
    let record = agent.offer_joined(&join, NOW, &summary).unwrap();
    agent.joined(&join, record);
    let left = std::iter::from_fn(|| agent.poll_remove()).map(|(record, _)| record.id);
    let left: Vec<_> = left.collect();
    assert_eq!(left.len(), 5, "the parts leave");
    left.iter().for_each(|id| agent.removed(id));
    assert_eq!(agent.take_arrived(Some("1")).unwrap().id, summary.id);
    assert_eq!(offer(&mut agent, &part(0, 1000, 1000).0), Ok(false), "it was here");
    let stats = agent.stats();
    assert_eq!((stats.waiting, stats.joined, stats.delivered), (1, 1, 0));
}

#[test]
fn parts_whose_whole_is_here_leave_after_a_restart() {
    let (whole, _) = read(&made(&payload(1000), BundlePurpose::Data)).unwrap();
    let mut before = agent();
    for it in [&part(0, 500, 1000).0, &part(500, 500, 1000).0] {
        assert_eq!(offer(&mut before, it), Ok(true));
    }
    let join = before.poll_join().unwrap();
    let mut records: Vec<_> = before.list().map(|(record, _)| record.clone()).collect();
    records.push(before.offer_joined(&join, NOW, &whole).unwrap());
    let mut after = Agent::new(before.config().clone(), records, vec![]);
    assert_eq!(after.poll_join(), None);
    let left: Vec<_> = std::iter::from_fn(|| after.poll_remove()).map(|(it, _)| it.id).collect();
    assert!(left.len() == 2 && !left.contains(&whole.id));
    assert!(after.has_arrived(Some("1")));
}

#[test]
fn hostile_parts_are_bounded() {
    let mut agent = agent();
    // Beyond the end, of nothing, of too large a whole; and with another length, they are of another.
    let (good, _) = part(0, 10, 1000);
    for (offset, length, total, why) in [
        (995, 10, 1000, BundleRefusal::Malformed),
        (u64::MAX, 10, 1000, BundleRefusal::Malformed),
        (0, 0, 1000, BundleRefusal::Malformed),
        (0, 10, limits().largest.get() + 1, BundleRefusal::TooLarge),
    ] {
        let fragment = Some(crate::FragmentPosition { offset, total });
        let it = BundleSummary { fragment, payload: 0..length, ..good.clone() };
        assert_eq!(offer(&mut agent, &it), Err(why));
    }
    // So are those for others.
    let (_, bytes) = part(0, 600, 1000);
    for (offset, is_malformed) in [(995, false), (u64::MAX - 100, true)] {
        let onward = part_of(&bytes, (offset, u64::MAX), &payload(600)).unwrap();
        let summary = read(&onward).unwrap().0;
        let it = BundleSummary { destination: "ipn:9.7".parse().unwrap(), ..summary };
        assert_eq!(
            offer(&mut agent, &it) == Err(BundleRefusal::Malformed),
            is_malformed,
            "{offset}"
        );
        assert_eq!(parts(&onward, 300) == Err(PartsError::Malformed), is_malformed, "{offset}");
    }
    // Those that never complete are of no more than their number, and expire.
    let mut taken = 0;
    for number in 0..2 * MOST_PARTS {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let fragment = Some(crate::FragmentPosition { offset: 2 * number as u64, total: 9000 });
        let it =
            BundleSummary { id: BundleId(id), fragment, payload: 0..1, length: 1, ..good.clone() };
        match offer(&mut agent, &it) {
            Ok(true) => taken += 1,
            other => assert_eq!(other, Err(BundleRefusal::TooLarge)),
        }
    }
    assert_eq!((taken, agent.poll_join()), (MOST_PARTS, None));
    agent.expire(NOW + 60_000);
    while let Some((record, _)) = agent.poll_remove() {
        agent.removed(&record.id);
    }
    assert_eq!(agent.stats().waiting, 0);
}
