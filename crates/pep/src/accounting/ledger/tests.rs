use proptest::prelude::*;
use units::ByteCount;

use super::*;

const SHIP: PublicKey = PublicKey([1; 32]);
const RIG: PublicKey = PublicKey([2; 32]);
const DAY: u64 = 86_400;

fn ledger(volume: u64, period: RenewalPeriod) -> Ledger {
    let then = ExhaustedAction::Block;
    let quota = VolumeQuota { volume: ByteCount::new(volume), period, then };
    let mut ledger = Ledger::default();
    ledger.configure(BTreeMap::from([(SHIP, quota)]));
    ledger
}

fn to(bytes_to: u64) -> TrafficUsage {
    TrafficUsage { bytes_to, ..TrafficUsage::default() }
}

fn used(ledger: &Ledger) -> u64 {
    ledger.accounts()[&SHIP].counted.unwrap().used
}

fn total(ledger: &Ledger) -> u64 {
    ledger.accounts()[&SHIP].total().bytes()
}

#[test]
fn a_quota_is_used_up_once_and_comes_back_with_the_next_period() {
    let mut ledger = ledger(1000, RenewalPeriod::Day);
    let none: [QuotaChange; 0] = [];
    ledger.record(10, SHIP, "bulk", &to(600));
    ledger.record(10, RIG, "bulk", &to(5000));
    assert_eq!(ledger.follow(10), none, "a terminal without a quota has no limit");
    let both = TrafficUsage { bytes_to: 100, bytes_from: 300, ..TrafficUsage::default() };
    ledger.record(20, SHIP, "default", &both);
    assert_eq!(ledger.follow(20), [QuotaChange { key: SHIP, now: Some(ExhaustedAction::Block) }]);
    assert_eq!(ledger.follow(DAY - 1), none);
    assert_eq!(ledger.exhausted(&SHIP), Some(&ExhaustedAction::Block));
    assert_eq!(ledger.follow(DAY), [QuotaChange { key: SHIP, now: None }]);
    assert_eq!((used(&ledger), total(&ledger)), (0, 1000));
}

#[test]
fn another_quota_holds_at_once() {
    let mut ledger = ledger(1000, RenewalPeriod::Day);
    ledger.record(10, SHIP, "bulk", &to(1200));
    assert_eq!(ledger.follow(10).len(), 1);
    let mut quota = ledger.quota(&SHIP).unwrap().clone();
    quota.then = ExhaustedAction::Class("bulk".to_owned());
    ledger.configure(BTreeMap::from([(SHIP, quota.clone())]));
    assert_eq!(ledger.follow(10), [QuotaChange { key: SHIP, now: Some(quota.then.clone()) }]);
    quota.volume = ByteCount::new(1201);
    ledger.configure(BTreeMap::from([(SHIP, quota)]));
    assert_eq!(ledger.follow(10), [QuotaChange { key: SHIP, now: None }]);
    ledger.record(11, SHIP, "bulk", &to(1));
    assert_eq!(ledger.follow(11).len(), 1);
    ledger.configure(BTreeMap::new());
    assert_eq!(ledger.follow(11), [QuotaChange { key: SHIP, now: None }]);
}

#[test]
fn a_restart_goes_on_counting() {
    let mut before = ledger(1000, RenewalPeriod::Month);
    before.record(500 * DAY, SHIP, "bulk", &to(700));
    let kept = before.changed_accounts().unwrap().clone();
    assert!(before.changed_accounts().is_none(), "nothing new");
    let mut after = Ledger::new(kept);
    after.configure(before.quotas);
    // The machine has no clock of its own, and starts in 1970.
    after.record(0, SHIP, "bulk", &to(200));
    assert_eq!((used(&after), total(&after)), (900, 900));
    after.record(501 * DAY, SHIP, "bulk", &to(100));
    assert_eq!(after.follow(501 * DAY).len(), 1);
}

#[test]
fn a_clock_that_was_ahead_and_returns_loses_nothing() {
    let mut ledger = ledger(10_000, RenewalPeriod::Day);
    ledger.record(DAY, SHIP, "bulk", &to(700));
    ledger.record(5000 * DAY, SHIP, "bulk", &to(20));
    assert_eq!(used(&ledger), 20);
    ledger.record(DAY + 9, SHIP, "bulk", &to(3));
    assert_eq!(used(&ledger), 723, "back on the same day");
    ledger.record(5000 * DAY, SHIP, "bulk", &to(20));
    ledger.record(2 * DAY, SHIP, "bulk", &to(4));
    assert_eq!(used(&ledger), 24, "back on the next day");
    assert_eq!(total(&ledger), 747);
    ledger.record(3 * DAY, SHIP, "bulk", &to(1));
    assert_eq!(used(&ledger), 1, "and days pass as ever");
}

#[test]
fn classes_beyond_the_maximum_share_an_entry() {
    let mut ledger = Ledger::default();
    for n in 0..100 {
        ledger.record(1, SHIP, &format!("class {n}"), &to(1));
    }
    let classes = &ledger.accounts()[&SHIP].classes;
    assert_eq!(classes.len(), CLASSES_MAX + 1);
    assert_eq!(classes[OTHER_CLASSES].bytes_to, 36);
}

proptest! {
    /// Whatever the clock does, the account holds what was recorded, and a period no more than that.
    #[test]
    fn no_step_of_the_clock_loses_or_doubles_volume(
        steps in prop::collection::vec((0u64..40, 0u64..1000), 1..60),
        restart in 0usize..60,
    ) {
        let mut ledger = ledger(u64::MAX, RenewalPeriod::Day);
        let mut recorded = 0;
        for (n, (day, bytes)) in steps.into_iter().enumerate() {
            if n == restart {
                let kept = ledger.accounts().clone();
                let quotas = core::mem::take(&mut ledger.quotas);
                ledger = Ledger::new(kept);
                ledger.configure(quotas);
            }
            ledger.record(day * DAY, SHIP, "bulk", &to(bytes));
            ledger.follow(day * DAY);
            recorded += bytes;
            if recorded > 0 {
                prop_assert_eq!(total(&ledger), recorded);
                prop_assert!(used(&ledger) <= recorded);
            }
        }
    }

    /// With a clock that only runs forward, each day is counted alone.
    #[test]
    fn each_period_counts_its_own(days in prop::collection::vec(0u64..500, 1..30)) {
        let mut ledger = ledger(u64::MAX, RenewalPeriod::Day);
        for (day, bytes) in days.into_iter().enumerate() {
            for _ in 0..2 {
                ledger.record(day as u64 * DAY + 5, SHIP, "bulk", &to(bytes + 1));
            }
            prop_assert_eq!(used(&ledger), 2 * (bytes + 1));
        }
    }
}
