//! A session over several links.

use core::time::Duration;
use std::collections::BTreeMap;

use slacp::{ClassConfig, Config, Event, KeyPair, Rate};
use units::{BitRate, ByteCount, Instant};

use crate::hop::{HUB, Host, Plan, TERMINAL};
use crate::links::{Kind, Net};

const MB: u64 = 1_000_000;
const GEO: usize = 0;
const LEO: usize = 1;
/// What a lost link may cost: a round trip of the slower link and 100 ms.
const LONGEST_STALL: Duration = Duration::from_millis(700);

/// Durations of a download over GEO and LEO, or others, in seconds: to the last byte, and to the first.
fn download(kinds: &[Kind], bytes: u64) -> [f64; 2] {
    let mut net = Net::connected(kinds, &[Plan::new(100, bytes)], 1);
    let start = net.now;
    net.open_all();
    net.run_until(240.0, Net::is_over);
    let flow = net.flow();
    assert_eq!(flow.received, bytes);
    let [first, last] =
        [flow.first_byte, flow.last_byte].map(|time: Option<Instant>| time.unwrap());
    [last, first].map(|time| time.saturating_since(start).as_secs_f64())
}

#[test]
fn a_download_uses_both_links_and_begins_on_the_quicker_one() {
    let [time, first] = download(&[Kind::geo(), Kind::leo()], 40 * MB);
    let goodput = 40.0 * 8.0 / time;
    assert!(goodput > 0.9 * 70.0, "{goodput} Mbit/s");
    assert!(first < 0.060, "{first} s");
}

#[test]
fn two_links_are_never_slower_than_the_better_one() {
    let lossy = |per, kind| Kind { per, ..kind };
    let measured = |kind| Kind { known: false, ..kind };
    for pair in [
        [Kind::geo(), Kind::leo()],
        [lossy(0.05, Kind::geo()), Kind::new(1, 1, 20)],
        [lossy(0.01, Kind::geo()), lossy(0.05, Kind::leo())],
        [measured(Kind::geo()), measured(Kind::leo())],
    ] {
        for bytes in [20_000, 4 * MB] {
            let [both, _] = download(&pair, bytes);
            let alone = pair.map(|kind| download(&[kind], bytes)[0]);
            let best = alone[GEO].min(alone[LEO]);
            // A link that joins is not measured with padding before it is used.
            let most = if pair[LEO].known { 1.01 } else { 1.05 };
            assert!(both <= most * best, "{bytes} bytes: {both}, not {alone:?} over {pair:?}");
        }
    }
}

/// Cuts a link in the middle of a download; returns the longest stall.
fn stall(link: usize) -> Duration {
    let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 20 * MB)], 2);
    net.open_all();
    net.run_until(60.0, |net| net.received() > 8 * MB);
    net.restart_clock();
    net.cut(link, Duration::from_secs(1000));
    net.run_until(60.0, Net::is_over);
    let no_end = |host: &Host| {
        host.log.iter().all(|(_, event)| !matches!(event, Event::Down(_) | Event::Unreachable))
    };
    assert!(net.hosts.iter().all(no_end), "the session lives on");
    assert_eq!(net.flow().received, 20 * MB);
    net.stall
}

#[test]
fn a_lost_link_costs_no_connection_and_a_round_trip_at_most() {
    for link in [GEO, LEO] {
        let stall = stall(link);
        assert!(stall <= LONGEST_STALL, "link {link}: {stall:?}");
    }
}

#[test]
fn a_link_that_comes_back_is_used_again() {
    let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 60 * MB)], 3);
    net.open_all();
    net.run_until(60.0, |net| net.received() > 5 * MB);
    net.cut(GEO, Duration::from_secs(4));
    net.run_for(Duration::from_secs(7));
    let (before, began) = (net.link_stats(HUB), net.now);
    net.run_for(Duration::from_secs(2));
    for (link, before) in net.link_stats(HUB).iter().zip(before) {
        let seconds = net.now.saturating_since(began).as_secs_f64();
        let rate = (link.bytes_sent - before.bytes_sent) as f64 * 8.0 / 1e6 / seconds;
        let most = link.rate.bits_per_second() as f64 / 1e6;
        assert!(link.works && rate > 0.9 * most, "{link:?}: {rate} Mbit/s");
    }
    net.run_until(60.0, Net::is_over);
}

#[test]
fn a_session_survives_the_loss_of_all_links() {
    let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 20 * MB)], 4);
    net.open_all();
    net.run_until(60.0, |net| net.received() > 5 * MB);
    net.cut(GEO, Duration::from_secs(30));
    net.cut(LEO, Duration::from_secs(30));
    net.run_for(Duration::from_secs(30));
    let events: Vec<&Event> = net.hosts[HUB].log.iter().map(|(_, event)| event).collect();
    assert!(matches!(events[..], [Event::Up { .. }, Event::Unreachable]), "{events:?}");
    let again = net.now;
    net.run_until(60.0, Net::is_over);
    let seconds = net.now.saturating_since(again).as_secs_f64();
    assert!(seconds < 6.0, "{seconds} s");
    assert_eq!(net.hosts[TERMINAL].lost_flows, 0);
}

/// What is in flight on a link that stays away must not wait for it.
#[test]
fn the_first_link_that_comes_back_carries_what_the_other_has_lost() {
    let unlike = [Kind::geo(), Kind::leo()];
    // Of two like links, the second carries what the first has lost, until it counts as lost too.
    let alike = [Kind::leo(); 2];
    for (kinds, lost) in [(unlike, 0), (unlike, 1), (alike, 0), (alike, 1)] {
        let mut net = Net::connected(&kinds, &[Plan::new(100, 20 * MB)], 15);
        net.open_all();
        net.run_until(60.0, |net| net.received() > 5 * MB);
        net.cut(lost, Duration::from_secs(1000));
        net.cut(1 - lost, Duration::from_secs(10));
        net.run_for(Duration::from_secs(10));
        net.run_until(20.0, Net::is_over);
        assert_eq!((net.received(), net.hosts[TERMINAL].lost_flows), (20 * MB, 0));
    }
}

/// Mistake: the link counts as in an outage before it was ever doubted, and keeps what is in flight on it.
#[test]
fn a_link_that_is_lost_while_both_sides_are_starved_costs_no_more_than_that_time() {
    for link in [GEO, LEO] {
        let plan = Plan::new(100, 20 * MB);
        let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[plan], 16);
        net.open_all();
        net.run_until(60.0, |net| net.received() > 8 * MB);
        net.restart_clock();
        net.cut(link, Duration::from_secs(1000));
        let starved = Duration::from_millis(2500);
        net.freeze(starved);
        net.run_until(30.0, Net::is_over);
        // What arrived during the pause is handled first; only then the link is doubted, and the peer asked.
        let most = starved + LONGEST_STALL + Duration::from_millis(200);
        assert!(net.stall <= most, "link {link}: {:?}", net.stall);
    }
}

#[test]
fn a_link_that_reorders_delivers_everything() {
    let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 10 * MB)], 5);
    net.open_all();
    let mut times = 0;
    while !net.is_over() {
        times += 1;
        // A shorter delay overtakes what is on its way.
        net.set_delay(LEO, Duration::from_millis(10 + 40 * (times % 3)));
        net.set_delay(GEO, Duration::from_millis(240 + 60 * (times % 2)));
        net.run_for(Duration::from_millis(37));
        assert!(times < 400, "it comes to an end");
    }
    assert_eq!(net.flow().received, 10 * MB);
}

#[test]
fn a_class_bound_to_a_link_stays_there_while_it_works() {
    let bind = |_, config: &mut Config| {
        let bound = ClassConfig { link: Some(GEO as u8), ..ClassConfig::default() };
        config.set_default_class(bound).unwrap();
    };
    let kinds = [Kind::geo(), Kind::leo()];
    let mut net = Net::new(&kinds, &[Plan::new(100, 5 * MB), Plan::new(100, 5 * MB)], 6, bind);
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
    net.open(0);
    net.run_until(60.0, Net::is_over);
    let sent = |net: &Net| net.link_stats(HUB)[LEO].bytes_sent;
    assert!(sent(&net) < 100_000, "{}", sent(&net));
    net.cut(GEO, Duration::from_secs(1000));
    net.open(1);
    net.run_until(60.0, Net::is_over);
    assert!(sent(&net) > 5 * MB, "{}", sent(&net));
}

#[test]
fn a_session_is_set_up_over_the_link_that_works() {
    let kinds = [Kind::geo(), Kind::leo()];
    let mut net = Net::new(&kinds, &[Plan::new(100, MB)], 7, |_, _| {});
    net.cut(GEO, Duration::from_secs(20));
    net.run_until(15.0, |net| net.hosts.iter().all(|host| host.session.is_some()));
    net.open_all();
    net.run_until(5.0, Net::is_over);
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
}

#[test]
fn a_side_with_one_link_uses_one() {
    for lone in [TERMINAL, HUB] {
        let only = |me, config: &mut Config| {
            if me == lone {
                config.links.clear();
            }
        };
        let kinds = [Kind::geo(), Kind::leo()];
        let mut net = Net::new(&kinds, &[Plan::new(100, MB)], 8, only);
        net.run_until(30.0, |net| net.hosts.iter().all(|host| host.session.is_some()));
        net.open_all();
        net.run_until(30.0, Net::is_over);
        net.run_for(Duration::from_secs(10));
        assert_eq!([TERMINAL, HUB].map(|side| net.link_stats(side).len()), [1, 1]);
    }
}

#[test]
fn a_replayed_join_changes_nothing() {
    let mut net = Net::new(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 20 * MB)], 9, |_, _| {});
    net.heard = Some(Vec::new());
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
    let initiations = net.heard.take().unwrap();
    net.open_all();
    for _ in 0..50 {
        initiations.iter().for_each(|datagram| net.inject(datagram.clone()));
        net.run_for(Duration::from_millis(100));
    }
    let links = net.link_stats(HUB);
    assert!(links.len() == 2 && links.iter().all(|link| link.works), "{links:?}");
    net.run_until(60.0, Net::is_over);
    assert_eq!(net.hosts[HUB].log.len(), 1, "{:?}", net.hosts[HUB].log);
}

#[test]
fn a_terminal_with_more_links_than_the_hub_knows_gets_no_more() {
    let kinds = [Kind::geo(), Kind::leo(), Kind::leo(), Kind::leo()];
    let two = |me, config: &mut Config| {
        if me == HUB {
            config.links.truncate(2);
        }
    };
    let mut net = Net::new(&kinds, &[Plan::new(100, MB)], 10, two);
    net.run_until(60.0, |net| net.link_stats(HUB).len() == 2);
    net.run_for(Duration::from_secs(60));
    assert_eq!([TERMINAL, HUB].map(|side| net.link_stats(side).len()), [2, 2]);
}

#[test]
fn memory_stays_bounded_while_nothing_is_read_and_a_link_is_lost() {
    let memory = 2 * MB;
    let small = |_, config: &mut Config| config.memory = ByteCount::new(memory);
    let plan = Plan { stalls_after: Some(MB), ..Plan::new(100, 50 * MB) };
    let mut net = Net::new(&[Kind::geo(), Kind::leo()], &vec![plan; 4], 11, small);
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
    net.open_all();
    let limit = 5 * memory + 4 * 1000 + 2 * 3 * MB + 70 * MB / 8 * 15 / 100;
    for step in 0..40 {
        net.run_for(Duration::from_millis(200));
        if step == 10 {
            net.cut(GEO, Duration::from_secs(1000));
        }
        for host in &net.hosts {
            let held = host.endpoint.stats(host.session.unwrap()).unwrap().held.get();
            assert!(held <= limit, "{held} of {limit} bytes");
        }
    }
    assert_eq!(net.received(), 4 * MB);
}

#[test]
fn a_link_that_proves_nothing_is_added_again_in_its_own_place() {
    let kinds = [Kind::geo(), Kind::leo()];
    let mut net = Net::new(&kinds, &[Plan::new(100, 10 * MB)], 12, |_, _| {});
    // The hub knows the link, and the terminal has had no acknowledgement over it.
    net.run_until(60.0, |net| net.link_stats(HUB).len() == 2);
    net.cut(LEO, Duration::from_secs(35));
    net.open_all();
    net.run_until(20.0, Net::is_over);
    let both = |net: &Net| {
        [TERMINAL, HUB].iter().all(|side| {
            let links = net.link_stats(*side);
            links.len() == 2 && links.iter().all(|link| link.works)
        })
    };
    assert!(!both(&net));
    net.run_until(60.0, both);
    net.run_for(Duration::from_secs(60));
    assert!(both(&net), "{:?}", net.link_stats(HUB));
}

/// The rates of the hub's packets on each link over the next seconds, in Mbit/s.
fn rates(net: &mut Net, seconds: u64) -> [f64; 2] {
    let before = net.link_stats(HUB);
    net.run_for(Duration::from_secs(seconds));
    let after = net.link_stats(HUB);
    [GEO, LEO].map(|link| {
        (after[link].bytes_sent - before[link].bytes_sent) as f64 * 8e-6 / seconds as f64
    })
}

#[test]
fn a_terminal_s_own_rate_on_a_link_is_kept() {
    let kinds = [Kind::geo(), Kind::leo()];
    let mut net = Net::new(&kinds, &[Plan::new(100, 100 * MB)], 13, |_, _| {});
    let own = BTreeMap::from([(LEO as u8, Rate::Fixed(BitRate::from_mbit(5)))]);
    let key = KeyPair::from_private([1; 32]).public();
    net.hosts[HUB].endpoint.set_link_rates(BTreeMap::from([(key, own)]));
    net.run_until(60.0, |net| net.link_stats(HUB).iter().filter(|link| link.works).count() == 2);
    net.open_all();
    net.run_for(Duration::from_secs(3));
    let [geo, leo] = rates(&mut net, 4);
    assert!((4.5..=5.05).contains(&leo) && (45.0..=50.5).contains(&geo), "{geo} {leo} Mbit/s");
}

#[test]
fn a_portion_of_the_rate_is_one_of_each_link_s() {
    let mut net = Net::connected(&[Kind::geo(), Kind::leo()], &[Plan::new(100, 100 * MB)], 14);
    net.open_all();
    net.run_for(Duration::from_secs(3));
    let now = net.now;
    net.hosts[HUB].endpoint.set_portion(now, 0.5);
    net.run_for(Duration::from_secs(1));
    let [geo, leo] = rates(&mut net, 4);
    assert!((22.5..=25.3).contains(&geo) && (8.5..=10.1).contains(&leo), "{geo} {leo} Mbit/s");
}
