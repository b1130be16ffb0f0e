//! What an agent takes, refuses, keeps and forgets.

use core::time::Duration;

use units::{ByteCount, Instant, Machine};

use super::pair::limits;
use crate::{
    Agent, AgentConfig, AgentWake, BundleId, Decision, Endpoint, Fate, Fragment, Happening, Limits,
    Neighbour, Origin, PeerId, Record, Refusal, ReportRequest, Returned, Summary, Whereabouts,
    read, read_report,
};

const NOW: u64 = 1_795_600_000_000;
const SHIP: PeerId = PeerId(0);
const SHORE: PeerId = PeerId(1);

/// The node `ipn:1.0` between a ship, with a boat behind it, and everything else.
fn agent(limits: Limits) -> Agent {
    let neighbour = |node: &str, behind: &[&str], everything| Neighbour {
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

fn bundle(number: u8, source: &str, destination: &str) -> Summary {
    Summary {
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

fn offer(agent: &mut Agent, from: Origin, it: &Summary) -> Result<Decision<Record>, Refusal> {
    let Decision::Take(ticket) = agent.begin(from, Some(it.id), it.length)? else {
        return Ok(Decision::Have);
    };
    let decided = agent.offer(ticket, NOW, it)?;
    if let Decision::Take(record) = &decided {
        agent.stored(ticket, record.clone());
    }
    Ok(decided)
}

fn take(agent: &mut Agent, from: Origin, it: &Summary) {
    assert!(matches!(offer(agent, from, it), Ok(Decision::Take(_))));
}

#[test]
fn bundles_are_taken_from_those_who_may_hand_them_over() {
    for (from, source, destination, expected) in [
        (Origin::Here, "ipn:1.7", "ipn:2.1", Ok(())),
        (Origin::Here, "ipn:9.7", "ipn:2.1", Err(Refusal::Source)),
        (Origin::Peer(SHIP), "ipn:2.7", "ipn:1.1", Ok(())),
        (Origin::Peer(SHIP), "dtn://boat/a", "ipn:77.1", Ok(())),
        (Origin::Peer(SHIP), "ipn:3.7", "ipn:1.1", Err(Refusal::Source)),
        (Origin::Peer(SHIP), "ipn:1.7", "ipn:1.1", Err(Refusal::Source)),
        (Origin::Peer(SHORE), "ipn:77.7", "dtn://boat/a", Ok(())),
        (Origin::Peer(SHORE), "ipn:2.7", "ipn:1.1", Err(Refusal::Source)),
        (Origin::Peer(SHORE), "ipn:1.7", "ipn:2.1", Err(Refusal::Source)),
        // Back where it comes from.
        (Origin::Peer(SHIP), "ipn:2.7", "dtn://boat/a", Err(Refusal::NoRoute)),
        (Origin::Peer(SHORE), "ipn:77.7", "ipn:78.7", Err(Refusal::NoRoute)),
        (Origin::Peer(SHIP), "ipn:2.7", "ipn:1.0", Err(Refusal::Endpoint)),
        (Origin::Peer(PeerId(9)), "ipn:2.7", "ipn:1.1", Err(Refusal::Source)),
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
    part.fragment = Some(Fragment { offset: 0, total: 2000 });
    for (it, why) in [
        (large, Refusal::TooLarge),
        (long, Refusal::Lifetime),
        (old, Refusal::Expired),
        (new, Refusal::Future),
        (part, Refusal::Malformed),
    ] {
        let mut agent = agent(limits());
        assert_eq!(offer(&mut agent, Origin::Peer(SHIP), &it), Err(why));
        assert_eq!((agent.stats().refused, agent.stats().waiting), (1, 0));
    }
}

#[test]
fn the_store_and_the_memory_are_bounded() {
    let one = |number| bundle(number, "ipn:2.7", "ipn:1.1");
    let bounds = [
        (Limits { bytes: ByteCount::new(2_700), ..limits() }, Refusal::Full),
        (Limits { bundles: 2, ..limits() }, Refusal::Full),
        // Three quarters for one place.
        (Limits { bytes: ByteCount::new(3_500), ..limits() }, Refusal::Full),
        (Limits { remembered: 2, ..limits() }, Refusal::Memory),
    ];
    for (limits, why) in bounds {
        let mut agent = agent(limits);
        (0..2).for_each(|number| take(&mut agent, Origin::Peer(SHIP), &one(number)));
        assert_eq!(offer(&mut agent, Origin::Peer(SHIP), &one(3)), Err(why));
        assert!(why.is_passing());
    }
    // One node reserves a quarter at most, or one bundle.
    let mut narrow = agent(Limits { bytes: ByteCount::new(8_000), ..limits() });
    let mut announce = |from, number, length| {
        narrow.begin(Origin::Peer(from), Some(one(number).id), length).map(drop)
    };
    assert_eq!(announce(SHIP, 1, 2_500), Ok(()));
    assert_eq!(announce(SHIP, 2, 10), Err(Refusal::Busy));
    assert_eq!(announce(SHORE, 3, 2_000), Ok(()));
    // What is coming in counts, from one node at most twice its window.
    let mut agent = agent(Limits { window: 2, ..limits() });
    let tickets: Vec<_> =
        (0..4).map(|number| agent.begin(Origin::Peer(SHIP), Some(one(number).id), 10)).collect();
    assert!(tickets.iter().all(|it| matches!(it, Ok(Decision::Take(_)))));
    assert_eq!(agent.begin(Origin::Peer(SHIP), Some(one(9).id), 10), Err(Refusal::Busy));
    assert!(agent.begin(Origin::Peer(SHORE), Some(one(9).id), 10).is_ok());
    let Ok(Decision::Take(first)) = tickets[0] else { panic!() };
    agent.abandon(first);
    assert!(agent.begin(Origin::Peer(SHIP), Some(one(5).id), 10).is_ok());
}

#[test]
fn a_duplicate_is_known_while_it_is_here_and_for_its_lifetime() {
    let mut agent = agent(limits());
    let it = bundle(1, "ipn:2.7", "ipn:1.1");
    take(&mut agent, Origin::Peer(SHIP), &it);
    assert_eq!(offer(&mut agent, Origin::Peer(SHIP), &it), Ok(Decision::Have));
    assert_eq!(agent.whereabouts(&it.id), Some(Whereabouts::Arrived));
    assert!(agent.next_arrived(Some("2")).is_none());
    assert_eq!(agent.next_arrived(Some("1")).unwrap().id, it.id);
    assert!(agent.next_arrived(Some("1")).is_none(), "somebody is taking it");
    agent.not_taken(&it.id).unwrap();
    assert_eq!(agent.next_arrived(Some("1")).unwrap().id, it.id);
    agent.taken(&it.id).unwrap();
    assert!(agent.taken(&it.id).is_err());
    let (record, fate) = agent.poll_remove().unwrap();
    assert_eq!((record.id, fate), (it.id, Fate::Delivered));
    assert_eq!(agent.remembered().count(), 1, "the disk may have noted it already");
    agent.not_removed(Instant::ZERO, &it.id);
    assert_eq!((agent.poll_remove(), agent.remembered().count()), (None, 1));
    let (again, wake) = agent.poll_timeout().unwrap();
    assert_eq!(wake, AgentWake::Bundle);
    agent.handle_timeout(again);
    assert_eq!(agent.poll_remove().unwrap().1, Fate::Delivered);
    agent.removed(&it.id);
    assert_eq!(offer(&mut agent, Origin::Peer(SHIP), &it), Ok(Decision::Have));
    assert_eq!(agent.whereabouts(&it.id), Some(Whereabouts::Gone(Fate::Delivered)));
    agent.expire(NOW + 59_999);
    assert_eq!(agent.stats().remembered, 1);
    agent.expire(NOW + 60_000);
    assert_eq!((agent.stats().remembered, agent.whereabouts(&it.id)), (0, None));
}

#[test]
fn the_window_slides_by_number_and_by_bytes() {
    let mut agent = agent(Limits { window: 3, window_bytes: ByteCount::new(2_500), ..limits() });
    for number in 0..5 {
        take(&mut agent, Origin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    assert_eq!(agent.poll_send(), None, "the ship is not there");
    agent.set_peer(SHIP, true);
    let sent = |agent: &mut Agent| agent.poll_send().map(|(to, record)| (to, record.id.0[0]));
    assert_eq!(sent(&mut agent), Some((SHIP, 0)));
    assert_eq!(sent(&mut agent), Some((SHIP, 1)));
    assert_eq!(sent(&mut agent), None, "2,500 bytes");
    agent.acknowledged(&BundleId([1; 16]));
    assert_eq!(sent(&mut agent), Some((SHIP, 2)), "in the order of arrival");
    agent.returned(Instant::ZERO, &BundleId([0; 16]), Returned::Lost);
    assert_eq!(sent(&mut agent), None, "a pause");
    let (again, wake) = agent.poll_timeout().unwrap();
    assert_eq!((again, wake), (Instant::ZERO + Duration::from_secs(1), AgentWake::Peer));
    agent.handle_timeout(again);
    assert_eq!(sent(&mut agent), Some((SHIP, 0)));
    agent.returned(again, &BundleId([0; 16]), Returned::Unwanted);
    assert_eq!(sent(&mut agent), Some((SHIP, 3)), "others do not wait for it");
}

#[test]
fn a_bundle_without_room_over_there_goes_behind_the_others() {
    let mut agent = agent(limits());
    for number in 0..2 {
        take(&mut agent, Origin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    agent.set_peer(SHIP, true);
    let sent = |agent: &mut Agent| agent.poll_send().map(|(_, record)| record.id.0[0]);
    let refuse = |agent: &mut Agent, now, number| {
        agent.returned(now, &BundleId([number; 16]), Returned::NoRoom);
        let (again, wake) = agent.poll_timeout().unwrap();
        assert_eq!(wake, AgentWake::Peer);
        agent.handle_timeout(again);
        again
    };
    assert_eq!((sent(&mut agent), sent(&mut agent)), (Some(0), Some(1)));
    // Nothing else waits: the same is tried again after the pause.
    let now = refuse(&mut agent, Instant::ZERO, 0);
    assert_eq!(sent(&mut agent), Some(0));
    agent.returned(now, &BundleId([1; 16]), Returned::Lost);
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
        take(&mut agent, Origin::Here, &bundle(number, "ipn:1.7", "ipn:2.1"));
    }
    let (_, first) = agent.poll_send().unwrap();
    agent.expire(NOW + 60_000);
    assert_eq!(agent.poll_remove().unwrap().1, Fate::Expired);
    assert_eq!(agent.poll_remove(), None, "the other is being sent");
    agent.acknowledged(&first.id);
    assert_eq!(agent.poll_remove().unwrap().1, Fate::Forwarded);
    assert_eq!((agent.stats().expired, agent.stats().forwarded), (1, 1));
}

#[test]
fn after_a_restart_a_bundle_whose_end_is_noted_is_only_removed() {
    let record = |number, to: &str| Record {
        id: BundleId([number; 16]),
        source: "ipn:2.7".parse().unwrap(),
        destination: to.parse::<Endpoint>().unwrap(),
        arrived: NOW + u64::from(number),
        expires: NOW + 60_000,
        length: 10,
        part: None,
    };
    let config = agent(limits()).config().clone();
    let records = vec![record(2, "ipn:1.1"), record(1, "ipn:1.1"), record(3, "ipn:2.1")];
    let known = vec![(BundleId([1; 16]), Fate::Delivered, NOW + 60_000)];
    let mut agent = Agent::new(config, records, known);
    assert_eq!(agent.next_arrived(Some("1")).unwrap().id.0[0], 2);
    assert_eq!(agent.next_arrived(Some("1")), None);
    assert_eq!(agent.poll_remove().unwrap().1, Fate::Delivered);
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
    let about = Summary { reports: Some(request), ..bundle(1, "ipn:2.7", "ipn:1.1") };
    let at = (Instant::from_nanos(1), NOW);
    let mut agent = agent(limits());
    assert_eq!(agent.report(at, &about, Happening::Received, 1), None, "not asked for");
    for (what, word) in [(Happening::Delivered, "delivered"), (Happening::Expired, "expired")] {
        let bytes = agent.report(at, &about, what, 1).unwrap();
        let (summary, _) = read(&bytes).unwrap();
        assert!(summary.is_administrative && summary.reports.is_none(), "no reports of reports");
        assert_eq!(summary.source.to_string(), "ipn:1.0");
        assert_eq!(summary.destination.to_string(), "ipn:2.0");
        let report = read_report(&bytes[summary.payload.clone()]).unwrap();
        assert_eq!((report.source.as_str(), &report.happenings[..]), ("ipn:2.7", &[word][..]));
        take(
            &mut agent,
            Origin::Here,
            &Summary { id: BundleId([word.len() as u8; 16]), ..summary },
        );
    }
    let sent = (0..1000)
        .filter(|number| agent.report(at, &about, Happening::Delivered, *number).is_some());
    assert_eq!(sent.count(), 98, "a hundred at once");
    let off = AgentConfig { reports: false, ..agent.config().clone() };
    let mut silent = Agent::new(off, vec![], vec![]);
    let later = (Instant::from_nanos(u64::MAX), NOW);
    assert_eq!(silent.report(later, &about, Happening::Delivered, 1), None, "not allowed");
    assert_eq!(agent.stats().reports, 100);
}

#[test]
fn records_are_for_nodes_and_data_for_services() {
    for (to, is_administrative, expected) in [
        ("ipn:1.0", true, Ok(())),
        ("ipn:1.0", false, Err(Refusal::Endpoint)),
        ("ipn:1.1", true, Err(Refusal::Endpoint)),
    ] {
        let it = Summary { is_administrative, ..bundle(1, "ipn:2.7", to) };
        let mut agent = agent(limits());
        assert_eq!(offer(&mut agent, Origin::Peer(SHIP), &it).map(drop), expected, "{to}");
        assert_eq!(agent.next_arrived(None).is_some(), expected.is_ok());
    }
}
