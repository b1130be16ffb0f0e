use super::*;

const LINK: f64 = 50e6;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A member that always has something to send, and has used its share for 50 ms.
fn busy(known: Known) -> Report {
    let (bits, most) = (1e6, f64::INFINITY);
    let (queue, late) = (0.0, 0.0);
    let (guaranteed, doubted) = (0.0, false);
    Report { known, bits, backlogged: true, idle: false, most, guaranteed, doubted, queue, late }
}

/// An aggregate of members that know the link's rate, and send.
fn aggregate(weights: &[u32]) -> Aggregate {
    aggregate_of(&weights.iter().map(|weight| weighted(*weight)).collect::<Vec<_>>())
}

fn weighted(weight: u32) -> SessionShare {
    SessionShare { weight, ..SessionShare::default() }
}

fn aggregate_of(shares: &[SessionShare]) -> Aggregate {
    let mut all = Aggregate::default();
    for (n, share) in (0..).zip(shares) {
        all.add(SessionId(n), *share);
        assert_eq!(all.wake(at(0), SessionId(n)), None, "nothing is known yet");
    }
    let reports = vec![busy(Known::Own(LINK)); shares.len()];
    compare(&mut all, 100, &reports);
    all
}

fn compare(all: &mut Aggregate, ms: u64, reports: &[Report]) -> Vec<Grant> {
    assert!(all.is_due(at(ms)));
    let grants = all.compare(at(ms), &SharedLink::default(), reports);
    grants.into_iter().map(|(_, grant)| grant).collect()
}

fn share(grant: Grant) -> f64 {
    match grant {
        Grant::Share { rate, share } => rate * share,
        Grant::Apart { most } => most,
        Grant::Asleep => 0.0,
    }
}

#[test]
fn the_link_is_divided_by_weight() {
    let mut all = aggregate(&[1, 3, 1]);
    let grants = compare(&mut all, 150, &[busy(Known::Link(LINK)); 3]);
    let shares: Vec<f64> = grants.into_iter().map(share).collect();
    assert_eq!(shares, [10e6, 30e6, 10e6]);
}

#[test]
fn guarantees_come_before_weights() {
    let guaranteed =
        |mbit| SessionShare { guaranteed: Some(BitRate::from_mbit(mbit)), ..weighted(1) };
    let mut all = aggregate_of(&[guaranteed(20), weighted(1), weighted(2)]);
    let mut reports = [busy(Known::Link(LINK)); 3];
    let shares =
        |grants: Vec<Grant>| grants.into_iter().map(share).map(f64::round).collect::<Vec<_>>();
    assert_eq!(shares(compare(&mut all, 150, &reports)), [27.5e6, 7.5e6, 15e6]);
    // A class in use of the second one has a guarantee, too.
    reports[1].guaranteed = 10e6;
    assert_eq!(shares(compare(&mut all, 200, &reports)), [25e6, 15e6, 10e6]);
    // One that wakes beside two busy ones has its guarantee at once.
    all.add(SessionId(3), guaranteed(15));
    let Some(Grant::Share { rate, share }) = all.wake(at(210), SessionId(3)) else { panic!() };
    assert_eq!((rate, (rate * share).round()), (LINK, 15e6 + 15e6 / 5.0));
}

#[test]
fn who_sends_less_leaves_the_rest_to_the_others() {
    let mut all = aggregate(&[1; 3]);
    let little = Report { bits: 0.1e6, backlogged: false, ..busy(Known::Link(LINK)) };
    let mut last = Vec::new();
    for n in 0..40 {
        let reports = [little, busy(Known::Link(LINK)), busy(Known::Link(LINK))];
        last = compare(&mut all, 150 + 50 * n, &reports);
    }
    // 2 Mbit/s and some headroom.
    assert!((share(last[1]) - (LINK - 1.25 * 2e6) / 2.0).abs() < 1e4, "{last:?}");
    assert_eq!(share(last[0]), share(last[1]), "what it may use at once");
}

#[test]
fn an_idle_member_sleeps_and_wakes_with_its_share() {
    let mut all = aggregate(&[1, 1]);
    let idle = Report { bits: 0.0, backlogged: false, idle: true, ..busy(Known::Link(LINK)) };
    let grants = compare(&mut all, 150, &[idle, busy(Known::Link(LINK))]);
    assert_eq!(grants, [Grant::Asleep, Grant::Share { rate: LINK, share: 1.0 }]);
    assert_eq!(all.active(), [SessionId(1)]);
    let woken = all.wake(at(5000), SessionId(0));
    assert_eq!(woken, Some(Grant::Share { rate: LINK, share: 0.5 }));
    assert_eq!(all.wake(at(5000), SessionId(0)), None);
    let grants = compare(&mut all, 5000, &[busy(Known::Link(LINK)); 2]);
    assert!(grants.iter().all(|grant| share(*grant) == LINK / 2.0), "{grants:?}");
}

#[test]
fn nobody_is_visited_while_nobody_sends() {
    let mut all = aggregate(&[1]);
    let idle = Report { bits: 0.0, backlogged: false, idle: true, ..busy(Known::Link(LINK)) };
    assert_eq!(compare(&mut all, 150, &[idle]), [Grant::Asleep]);
    assert!(!all.is_due(at(1_000_000)));
}

#[test]
fn the_rate_is_known_for_a_minute_after_its_use() {
    let mut all = aggregate(&[1]);
    all.add(SessionId(7), weighted(3));
    assert_eq!(all.join(at(1000), SessionId(7)), Some(Grant::Share { rate: LINK, share: 0.75 }));
    assert_eq!(all.rate(at(61_000)), None);
}

#[test]
fn a_member_counts_by_its_share() {
    let mut all = aggregate(&[1, 3]);
    let reports = [busy(Known::Link(0.9 * LINK)), busy(Known::Link(LINK))];
    compare(&mut all, 150, &reports);
    let wanted = LINK * 0.9_f64.powf(0.25);
    assert!((all.rate(at(150)).unwrap() / wanted - 1.0).abs() < 1e-9);
}

#[test]
fn what_a_train_finds_is_news_for_all() {
    let mut all = aggregate(&[1; 4]);
    let mut reports = [busy(Known::Link(LINK)); 4];
    reports[2].known = Known::Link(1.3 * LINK);
    compare(&mut all, 150, &reports);
    assert!((all.rate(at(150)).unwrap() / (1.3 * LINK) - 1.0).abs() < 1e-9);
}

#[test]
fn one_who_pulls_down_what_others_pull_up_is_set_apart() {
    let mut all = aggregate(&[1; 2]);
    let mut grants = Vec::new();
    for n in 0..20 {
        let rate = all.rate(at(0)).unwrap();
        let reports = [busy(Known::Link(0.9 * rate)), busy(Known::Link(1.09 * rate))];
        grants = compare(&mut all, 150 + 50 * n, &reports);
        if matches!(grants[0], Grant::Apart { .. }) {
            break;
        }
    }
    assert!(matches!(grants[0], Grant::Apart { .. }), "{grants:?}");
    assert!(matches!(grants[1], Grant::Share { .. }), "{grants:?}");
    assert!((all.rate(at(0)).unwrap() / LINK - 1.0).abs() < 0.1);
}

#[test]
fn a_fall_that_one_sees_first_is_no_dispute() {
    let mut all = aggregate(&[1; 2]);
    for n in 0..20 {
        let rate = all.rate(at(0)).unwrap();
        let near = (rate * 0.5).max(0.1 * LINK);
        let reports = [busy(Known::Link(near)), busy(Known::Link(rate))];
        let grants = compare(&mut all, 150 + 50 * n, &reports);
        assert!(matches!(grants[0], Grant::Share { .. }), "{grants:?}");
    }
    assert!(all.rate(at(0)).unwrap() < 0.11 * LINK);
}

#[test]
fn a_doubted_member_measures_for_itself() {
    let mut all = aggregate(&[1; 2]);
    let doubted = Report { doubted: true, ..busy(Known::Link(0.1 * LINK)) };
    let grants = compare(&mut all, 150, &[doubted, busy(Known::Link(LINK))]);
    assert_eq!(grants[0], Grant::Apart { most: LINK / 2.0 });
    assert_eq!(all.rate(at(150)), Some(LINK));
}

/// One sees a queue of 100 ms and lowers the rate. The other raises it, and says that it sees none.
#[test]
fn of_two_the_one_that_hides_the_queue_is_set_apart() {
    // The late acknowledgements of the second one betray it; without them the first has a slower path.
    for (late, apart) in [(0.1, 1), (0.0, 0)] {
        let mut all = aggregate(&[1; 2]);
        let mut last = Vec::new();
        for n in 0..20 {
            let rate = all.rate(at(150 + 50 * n)).unwrap();
            let sees = Report { queue: 0.1, late: 0.1, ..busy(Known::Link(0.97 * rate)) };
            let hides = Report { queue: 0.0, late, ..busy(Known::Link(1.03 * rate)) };
            last = compare(&mut all, 150 + 50 * n, &[sees, hides]);
        }
        let is_apart = |grant: &Grant| matches!(grant, Grant::Apart { .. });
        let who: Vec<usize> = (0..2).filter(|n| is_apart(&last[*n])).collect();
        assert_eq!(who, [apart], "{late} s late");
    }
}
