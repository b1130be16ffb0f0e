//! What an agent takes, refuses, keeps and forgets.

use core::time::Duration;

use units::{ByteCount, Instant, Machine};

use super::pair::limits;
use crate::{
    Agent, AgentConfig, AgentLimits, AgentWake, BundleEndpoint, BundleFate, BundleId, BundleOrigin,
    BundleRecord, BundleRefusal, BundleState, BundleSummary, FragmentPosition, NeighbourConfig,
    OfferDecision, PeerId, ReportRequest, ReportedEvent, ReturnReason, read, read_report,
};

const NOW: u64 = 1_795_600_000_000;
const SHIP: PeerId = PeerId(0);
const SHORE: PeerId = PeerId(1);

/// The node `ipn:1.0` between a ship, with a boat behind it, and everything else.
fn agent(limits: AgentLimits) -> Agent {
    let neighbour = |node: &str, behind: &[&str], everything| NeighbourConfig {
        node: node.parse().unwrap(),
        behind: behind.iter().map(|node| node.parse().unwrap()).collect(),
        everything,
    };
    let peers =
        vec![neighbour("ipn:2.0", &["dtn://boat/"], false), neighbour("ipn:3.0", &[], true)];
    Agent::new(
        AgentConfig { node: "ipn:1.0".parse().unwrap(), peers, limits, reports: true },
        vec![],
        vec![],
    )
}

fn bundle(number: u8, source: &str, destination: &str) -> BundleSummary {
    BundleSummary {
        id: BundleId([number; 16]),
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        created: Some(NOW),
        lifetime: Duration::from_secs(60),
        age: None,
        file_name: None,
        payload: 0..0,
        sequence: 5,
        fragment: None,
        whole: BundleId([number; 16]),
        is_administrative: false,
        reports: None,
        length: 1000,
    }
}

fn offer(
    agent: &mut Agent,
    from: BundleOrigin,
    it: &BundleSummary,
) -> Result<OfferDecision<BundleRecord>, BundleRefusal> {
    let OfferDecision::Take(ticket) = agent.begin(from, Some(it.id), it.length)? else {
        return Ok(OfferDecision::Duplicate);
    };
    let decided = agent.offer(ticket, NOW, it)?;
    if let OfferDecision::Take(record) = &decided {
        agent.stored(ticket, record.clone());
    }
    Ok(decided)
}

fn take(agent: &mut Agent, from: BundleOrigin, it: &BundleSummary) {
    assert!(matches!(offer(agent, from, it), Ok(OfferDecision::Take(_))));
}

#[test]
fn bundles_are_taken_from_those_who_may_hand_them_over() {
    for (from, source, destination, expected) in [
        (BundleOrigin::Here, "ipn:1.7", "ipn:2.1", Ok(())),
        (BundleOrigin::Here, "ipn:9.7", "ipn:2.1", Err(BundleRefusal::Source)),
        (BundleOrigin::Peer(SHIP), "ipn:2.7", "ipn:1.1", Ok(())),
        (BundleOrigin::Peer(SHIP), "dtn://boat/a", "ipn:77.1", Ok(())),
        (BundleOrigin::Peer(SHIP), "ipn:3.7", "ipn:1.1", Err(BundleRefusal::Source)),
        (BundleOrigin::Peer(SHIP), "ipn:1.7", "ipn:1.1", Err(BundleRefusal::Source)),
        (BundleOrigin::Peer(SHORE), "ipn:77.7", "dtn://boat/a", Ok(())),
        (BundleOrigin::Peer(SHORE), "ipn:2.7", "ipn:1.1", Err(BundleRefusal::Source)),
        (BundleOrigin::Peer(SHORE), "ipn:1.7", "ipn:2.1", Err(BundleRefusal::Source)),
        // Back where it comes from.
        (BundleOrigin::Peer(SHIP), "ipn:2.7", "dtn://boat/a", Err(BundleRefusal::NoRoute)),
        (BundleOrigin::Peer(SHORE), "ipn:77.7", "ipn:78.7", Err(BundleRefusal::NoRoute)),
        (BundleOrigin::Peer(SHIP), "ipn:2.7", "ipn:1.0", Err(BundleRefusal::Endpoint)),
        (BundleOrigin::Peer(PeerId(9)), "ipn:2.7", "ipn:1.1", Err(BundleRefusal::Source)),
    ] {
        let mut agent = agent(limits());
        let taken = offer(&mut agent, from, &bundle(1, source, destination));
        assert_eq!(taken.map(drop), expected, "{source} to {destination}");
    }
}

#[test]
fn a_bundle_that_is_too_much_is_refused_with_a_reason() {
    let (mut large, mut long, mut old, mut new, mut part) =
        std::array::from_fn::<_, 5, _>(|it| bundle(it as u8, "ipn:2.7", "ipn:1.1")).into();
    large.length = limits().largest.get() + 1;
    long.lifetime = limits().lifetime + Duration::from_secs(1);
    old.created = Some(NOW - 60_000);
    new.created = Some(NOW + 3_601_000);
    part.fragment = Some(FragmentPosition { offset: 0, total: 2000 });
    for (it, why) in [
        (large, BundleRefusal::TooLarge),
        (long, BundleRefusal::Lifetime),
        (old, BundleRefusal::Expired),
        (new, BundleRefusal::Future),
        (part, BundleRefusal::Malformed),
    ] {
        let mut agent = agent(limits());
        assert_eq!(offer(&mut agent, BundleOrigin::Peer(SHIP), &it), Err(why));
        assert_eq!((agent.stats().refused, agent.stats().waiting), (1, 0));
    }
}

#[test]
fn the_store_and_the_memory_are_bounded() {
    let one = |number| bundle(number, "ipn:2.7", "ipn:1.1");
    let bounds = [
        (AgentLimits { bytes: ByteCount::new(2_700), ..limits() }, BundleRefusal::Full),
        (AgentLimits { bundles: 2, ..limits() }, BundleRefusal::Full),
        // Three quarters for one place.
        (AgentLimits { bytes: ByteCount::new(3_500), ..limits() }, BundleRefusal::Full),
        (AgentLimits { remembered: 2, ..limits() }, BundleRefusal::Memory),
    ];
    for (limits, why) in bounds {
        let mut agent = agent(limits);
        (0..2).for_each(|number| take(&mut agent, BundleOrigin::Peer(SHIP), &one(number)));
        assert_eq!(offer(&mut agent, BundleOrigin::Peer(SHIP), &one(3)), Err(why));
        assert!(why.is_passing());
    }
    // One node reserves a quarter at most, or one bundle.
    let mut narrow = agent(AgentLimits { bytes: ByteCount::new(8_000), ..limits() });
    let mut announce = |from, number, length| {
        narrow.begin(BundleOrigin::Peer(from), Some(one(number).id), length).map(drop)
    };
    assert_eq!(announce(SHIP, 1, 2_500), Ok(()));
    assert_eq!(announce(SHIP, 2, 10), Err(BundleRefusal::Busy));
    assert_eq!(announce(SHORE, 3, 2_000), Ok(()));
    // What is coming in counts, from one node at most twice its window.
    let mut agent = agent(AgentLimits { window: 2, ..limits() });
    let tickets: Vec<_> = (0..4)
        .map(|number| agent.begin(BundleOrigin::Peer(SHIP), Some(one(number).id), 10))
        .collect();
    assert!(tickets.iter().all(|it| matches!(it, Ok(OfferDecision::Take(_)))));
    assert_eq!(
        agent.begin(BundleOrigin::Peer(SHIP), Some(one(9).id), 10),
        Err(BundleRefusal::Busy)
    );
    assert!(agent.begin(BundleOrigin::Peer(SHORE), Some(one(9).id), 10).is_ok());
    let Ok(OfferDecision::Take(first)) = tickets[0] else { panic!() };
    agent.abandon(first);
    assert!(agent.begin(BundleOrigin::Peer(SHIP), Some(one(5).id), 10).is_ok());
}

#[test]
fn a_duplicate_is_known_while_it_is_here_and_for_its_lifetime() {
    let mut agent = agent(limits());
    let it = bundle(1, "ipn:2.7", "ipn:1.1");
    take(&mut agent, BundleOrigin::Peer(SHIP), &it);
    assert_eq!(offer(&mut agent, BundleOrigin::Peer(SHIP), &it), Ok(OfferDecision::Duplicate));
    assert_eq!(agent.whereabouts(&it.id), Some(BundleState::Arrived));
    assert!(agent.take_arrived(Some("2")).is_none());
    assert_eq!(agent.take_arrived(Some("1")).unwrap().id, it.id);
    assert!(agent.take_arrived(Some("1")).is_none(), "somebody is taking it");
    agent.handle_not_delivered(&it.id).unwrap();
    assert_eq!(agent.take_arrived(Some("1")).unwrap().id, it.id);
    agent.handle_delivered(&it.id).unwrap();
    assert!(agent.handle_delivered(&it.id).is_err());
    let (record, fate) = agent.poll_remove().unwrap();
    assert_eq!((record.id, fate), (it.id, BundleFate::Delivered));
    assert_eq!(agent.remembered().count(), 1, "the disk may have noted it already");
    agent.not_removed(Instant::ZERO, &it.id);
    assert_eq!((agent.poll_remove(), agent.remembered().count()), (None, 1));
    let (again, wake) = agent.poll_timeout().unwrap();
    assert_eq!(wake, AgentWake::Bundle);
    agent.handle_timeout(again);
    assert_eq!(agent.poll_remove().unwrap().1, BundleFate::Delivered);
    agent.removed(&it.id);
    assert_eq!(offer(&mut agent, BundleOrigin::Peer(SHIP), &it), Ok(OfferDecision::Duplicate));
    assert_eq!(agent.whereabouts(&it.id), Some(BundleState::Gone(BundleFate::Delivered)));
    agent.expire(NOW + 59_999);
    assert_eq!(agent.stats().remembered, 1);
    agent.expire(NOW + 60_000);
    assert_eq!((agent.stats().remembered, agent.whereabouts(&it.id)), (0, None));
}

#[test]
fn the_window_slides_by_number_and_by_bytes() {
    let mut agent =
        agent(AgentLimits { window: 3, window_bytes: ByteCount::new(2_500), ..limits() });
    for number in 0..5 {
        take(&mut agent, BundleOrigin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    assert_eq!(agent.poll_send(), None, "the ship is not there");
    agent.set_peer(SHIP, true);
    let sent = |agent: &mut Agent| agent.poll_send().map(|(to, record)| (to, record.id.0[0]));
    assert_eq!(sent(&mut agent), Some((SHIP, 0)));
    assert_eq!(sent(&mut agent), Some((SHIP, 1)));
    assert_eq!(sent(&mut agent), None, "2,500 bytes");
    agent.acknowledged(&BundleId([1; 16]));
    assert_eq!(sent(&mut agent), Some((SHIP, 2)), "in the order of arrival");
    agent.returned(Instant::ZERO, &BundleId([0; 16]), ReturnReason::Lost);
    assert_eq!(sent(&mut agent), None, "a pause");
    let (again, wake) = agent.poll_timeout().unwrap();
    assert_eq!((again, wake), (Instant::ZERO + Duration::from_secs(1), AgentWake::Peer));
    agent.handle_timeout(again);
    assert_eq!(sent(&mut agent), Some((SHIP, 0)));
    agent.returned(again, &BundleId([0; 16]), ReturnReason::Unwanted);
    assert_eq!(sent(&mut agent), Some((SHIP, 3)), "others do not wait for it");
}

#[test]
fn a_bundle_without_room_over_there_goes_behind_the_others() {
    let mut agent = agent(limits());
    for number in 0..2 {
        take(&mut agent, BundleOrigin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    agent.set_peer(SHIP, true);
    let sent = |agent: &mut Agent| agent.poll_send().map(|(_, record)| record.id.0[0]);
    let refuse = |agent: &mut Agent, now, number| {
        agent.returned(now, &BundleId([number; 16]), ReturnReason::NoRoom);
        let (again, wake) = agent.poll_timeout().unwrap();
        assert_eq!(wake, AgentWake::Peer);
        agent.handle_timeout(again);
        again
    };
    assert_eq!((sent(&mut agent), sent(&mut agent)), (Some(0), Some(1)));
    // Nothing else waits: the same is tried again after the pause.
    let now = refuse(&mut agent, Instant::ZERO, 0);
    assert_eq!(sent(&mut agent), Some(0));
    agent.returned(now, &BundleId([1; 16]), ReturnReason::Lost);
    let now = refuse(&mut agent, now, 0);
    assert_eq!(sent(&mut agent), Some(1), "a bundle for which there may be room");
    agent.acknowledged(&BundleId([1; 16]));
    assert_eq!(sent(&mut agent), None);
    let (again, wake) = agent.poll_timeout().unwrap();
    assert!(again <= now + Duration::from_secs(60) && wake != AgentWake::Peer);
    agent.handle_timeout(again);
    assert_eq!(sent(&mut agent), Some(0));
}

#[test]
fn bundles_expire_unless_they_are_on_their_way() {
    let mut agent = agent(limits());
    agent.set_peer(SHIP, true);
    for number in 0..2 {
        take(&mut agent, BundleOrigin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    let (_, first) = agent.poll_send().unwrap();
    agent.expire(NOW + 60_000);
    assert_eq!(agent.poll_remove().unwrap().1, BundleFate::Expired);
    assert_eq!(agent.poll_remove(), None, "the other is being sent");
    agent.acknowledged(&first.id);
    assert_eq!(agent.poll_remove().unwrap().1, BundleFate::Forwarded);
    assert_eq!((agent.stats().expired, agent.stats().forwarded), (1, 1));
}

#[test]
fn after_a_restart_a_bundle_whose_end_is_noted_is_only_removed() {
    let record = |number, to: &str| BundleRecord {
        id: BundleId([number; 16]),
        source: "ipn:2.7".parse().unwrap(),
        destination: to.parse::<BundleEndpoint>().unwrap(),
        arrived: NOW + u64::from(number),
        expires: NOW + 60_000,
        length: 10,
        part: None,
    };
    let config = agent(limits()).config().clone();
    let records = vec![record(2, "ipn:1.1"), record(1, "ipn:1.1"), record(3, "ipn:2.1")];
    let known = vec![(BundleId([1; 16]), BundleFate::Delivered, NOW + 60_000)];
    let mut agent = Agent::new(config, records, known);
    assert_eq!(agent.take_arrived(Some("1")).unwrap().id.0[0], 2);
    assert_eq!(agent.take_arrived(Some("1")), None);
    assert_eq!(agent.poll_remove().unwrap().1, BundleFate::Delivered);
    agent.set_peer(SHIP, true);
    assert_eq!(agent.poll_send().unwrap().1.id.0[0], 3);
    assert_eq!((agent.list().count(), agent.stats().oldest), (3, Some(NOW + 1)));
}

#[test]
fn whoever_asks_for_reports_gets_them_within_bounds() {
    let request = ReportRequest {
        to: "ipn:2.0".parse().unwrap(),
        received: false,
        forwarded: false,
        delivered: true,
        deleted: true,
        time: true,
    };
    let about = BundleSummary { reports: Some(request), ..bundle(1, "ipn:2.7", "ipn:1.1") };
    let at = Instant::from_nanos(1);
    let mut agent = agent(limits());
    assert_eq!(agent.report(at, NOW, &about, ReportedEvent::Received, 1), None, "not asked for");
    for (what, word) in
        [(ReportedEvent::Delivered, "delivered"), (ReportedEvent::Expired, "expired")]
    {
        let bytes = agent.report(at, NOW, &about, what, 1).unwrap();
        let (summary, _) = read(&bytes).unwrap();
        assert!(summary.is_administrative && summary.reports.is_none(), "no reports of reports");
        assert_eq!(summary.source.to_string(), "ipn:1.0");
        assert_eq!(summary.destination.to_string(), "ipn:2.0");
        let report = read_report(&bytes[summary.payload.clone()]).unwrap();
        assert_eq!((report.source.as_str(), &report.happenings[..]), ("ipn:2.7", &[word][..]));
        take(
            &mut agent,
            BundleOrigin::Here,
            &BundleSummary { id: BundleId([word.len() as u8; 16]), ..summary },
        );
    }
    let sent = (0..1000).filter(|number| {
        agent.report(at, NOW, &about, ReportedEvent::Delivered, *number).is_some()
    });
    assert_eq!(sent.count(), 98, "a hundred at once");
    let off = AgentConfig { reports: false, ..agent.config().clone() };
    let mut silent = Agent::new(off, vec![], vec![]);
    let later = Instant::from_nanos(u64::MAX);
    assert_eq!(silent.report(later, NOW, &about, ReportedEvent::Delivered, 1), None, "not allowed");
    assert_eq!(agent.stats().reports, 100);
}

#[test]
fn records_are_for_nodes_and_data_for_services() {
    for (to, is_administrative, expected) in [
        ("ipn:1.0", true, Ok(())),
        ("ipn:1.0", false, Err(BundleRefusal::Endpoint)),
        ("ipn:1.1", true, Err(BundleRefusal::Endpoint)),
    ] {
        let it = BundleSummary { is_administrative, ..bundle(1, "ipn:2.7", to) };
        let mut agent = agent(limits());
        assert_eq!(offer(&mut agent, BundleOrigin::Peer(SHIP), &it).map(drop), expected, "{to}");
        assert_eq!(agent.take_arrived(None).is_some(), expected.is_ok());
    }
}
