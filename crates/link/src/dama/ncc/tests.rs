//! The allocation, with a test for each mistake that public implementations make.

use proptest::prelude::*;
use units::BitRate;

use super::*;
use crate::dama::TerminalConfig;
use crate::dama::testkit;

/// Slots of a superframe of [`ncc`]: two frames of 16 slots on one carrier.
const CAPACITY: u32 = 32;
/// The rate of one slot per superframe.
const SLOT: u64 = 4_000;

fn rate(slots: u64) -> BitRate {
    BitRate::from_bits_per_second(slots * SLOT)
}

fn terminal() -> TerminalConfig {
    testkit::terminal(0, u64::from(CAPACITY) * SLOT, 4_080)
}

fn config(terminals: Vec<TerminalConfig>, carriers: u32) -> DamaConfig {
    let mut config = testkit::config(terminals);
    config.frames.carriers = carriers;
    config
}

/// Terminals on one carrier.
fn ncc(terminals: Vec<TerminalConfig>) -> Ncc {
    Ncc::new(&config(terminals, 1))
}

fn for_rate(slots: u64) -> TerminalRequest {
    TerminalRequest { rate: Some(rate(slots)), ..TerminalRequest::default() }
}

fn for_volume(cells: u32) -> TerminalRequest {
    TerminalRequest { volume: Some(VolumeRequest::More(cells)), ..TerminalRequest::default() }
}

/// Slots of each of the first `N` terminals in a superframe.
fn slots<const N: usize>(ncc: &mut Ncc, superframe: u64) -> [u32; N] {
    let mut all = [0; N];
    for grant in ncc.allocate(superframe) {
        all[grant.terminal as usize] += grant.slots();
    }
    all
}

#[test]
fn a_constant_rate_needs_no_request() {
    let cra = |slots| TerminalConfig { cra: rate(slots), ..terminal() };
    let mut ncc = ncc(vec![cra(2), cra(30)]);
    for superframe in 0..3 {
        assert_eq!(slots(&mut ncc, superframe), [2, 30]);
    }
}

#[test]
fn a_fraction_of_a_slot_comes_every_so_often() {
    let cra = |bits| TerminalConfig { cra: BitRate::from_bits_per_second(bits), ..terminal() };
    // A quarter and 31 ¾ slots: nothing is left over, and nobody is cut short.
    let mut ncc = ncc(vec![cra(1_000), cra(127_000)]);
    let mut sums = [0; 2];
    for superframe in 0..400 {
        let got: [u32; 2] = slots(&mut ncc, superframe);
        assert!(got[0] <= 1 && got[0] + got[1] <= CAPACITY);
        sums = [sums[0] + got[0], sums[1] + got[1]];
    }
    assert!(sums[0].abs_diff(100) <= 1 && sums[1].abs_diff(12_700) <= 32, "{sums:?}");
}

/// Mistake: volumes limited by the terminal's carrier, but not by what is left.
#[test]
fn volumes_get_no_more_than_rates_leave() {
    let mut ncc = ncc(vec![terminal(), terminal(), terminal()]);
    ncc.handle_request(0, 0, for_rate(20));
    ncc.handle_request(0, 1, for_volume(100));
    ncc.handle_request(0, 2, for_volume(100));
    assert_eq!(slots::<3>(&mut ncc, 0).iter().sum::<u32>(), CAPACITY);
}

/// Mistake: requests that never expire.
#[test]
fn a_rate_expires_unless_it_is_repeated() {
    let mut ncc = ncc(vec![terminal()]);
    ncc.handle_request(0, 0, for_rate(5));
    assert_eq!([0, 11].map(|superframe| slots(&mut ncc, superframe)), [[5], [5]]);
    ncc.handle_request(12, 0, for_rate(5));
    assert_eq!([12, 23, 24].map(|superframe| slots(&mut ncc, superframe)), [[5], [5], [0]]);
}

#[test]
fn a_rate_of_0_ends_it_at_once() {
    let mut ncc = ncc(vec![terminal()]);
    ncc.handle_request(0, 0, for_rate(5));
    ncc.handle_request(1, 0, for_rate(0));
    assert_eq!(slots(&mut ncc, 1), [0]);
}

/// Mistake: integer division that never grants the last slot.
#[test]
fn under_overload_every_slot_is_granted_and_fractions_add_up() {
    for sharing in [SharingRule::Proportional, SharingRule::Fair] {
        let mut config = config(vec![terminal(); 3], 1);
        config.allocation.sharing = sharing;
        let mut ncc = Ncc::new(&config);
        let mut sums = [0; 3];
        for superframe in 0..30 {
            (0..3).for_each(|index| ncc.handle_request(superframe, index, for_rate(30)));
            let got: [u32; 3] = slots(&mut ncc, superframe);
            assert!(got.iter().all(|got| (9..=12).contains(got)), "{got:?}");
            sums = core::array::from_fn(|index| sums[index] + got[index]);
        }
        // 32 / 3 = 10 ⅔ slots each.
        assert!(sums.iter().all(|sum| (318..=320).contains(sum)), "{sums:?}");
        assert!(sums.iter().sum::<u32>() >= 30 * CAPACITY - 3, "{sums:?}");
    }
}

/// Mistake: the largest request first, which starves the small ones.
#[test]
fn a_large_volume_does_not_keep_out_a_small_one() {
    let mut ncc = ncc(vec![terminal(); 3]);
    ncc.handle_request(0, 0, for_volume(4_000));
    ncc.handle_request(0, 1, for_volume(2));
    ncc.handle_request(0, 2, for_volume(5));
    let first: [u32; 3] = slots(&mut ncc, 0);
    // Two, and three first cells of five.
    assert_eq!((first[1], first.iter().sum()), (2, CAPACITY));
    assert!(first[2] >= 3);
    let second: [u32; 3] = slots(&mut ncc, 1);
    assert_eq!(first[2] + second[2], 5);
}

/// Mistake: a volume of 16 bits that wraps.
/// The first cells of 20 terminals are more than a superframe. The next one begins with those that
/// got none.
#[test]
fn nobody_goes_without_when_the_first_cells_fill_the_superframe() {
    for sharing in [SharingRule::Proportional, SharingRule::Fair] {
        let mut config = config(vec![terminal(); 20], 1);
        config.allocation.sharing = sharing;
        let mut ncc = Ncc::new(&config);
        (0..20).for_each(|index| ncc.handle_request(0, index, for_volume(500)));
        let mut sums = [0; 20];
        for superframe in 0..15 {
            let got: [u32; 20] = slots(&mut ncc, superframe);
            sums = core::array::from_fn(|index| sums[index] + got[index]);
        }
        assert_eq!(sums, [15 * CAPACITY / 20; 20], "{sharing:?}");
    }
}

#[test]
fn volumes_add_up_beyond_65535() {
    let mut ncc = ncc(vec![terminal()]);
    for _ in 0..20 {
        ncc.handle_request(0, 0, for_volume(4_080));
    }
    assert_eq!(ncc.outstanding(0), 81_600);
    let granted: u32 = (0..2_550).map(|superframe| slots::<1>(&mut ncc, superframe)[0]).sum();
    assert_eq!((granted, ncc.outstanding(0)), (81_600, 0));
}

#[test]
fn an_absolute_volume_replaces_what_was_outstanding() {
    let mut ncc = ncc(vec![terminal()]);
    ncc.handle_request(0, 0, for_volume(100));
    ncc.handle_request(
        0,
        0,
        TerminalRequest { volume: Some(VolumeRequest::All(7)), ..TerminalRequest::default() },
    );
    assert_eq!([0, 1].map(|superframe| slots(&mut ncc, superframe)), [[7], [0]]);
}

/// Mistake: free capacity in one pass in the order of credit.
#[test]
fn free_capacity_goes_round_all_terminals() {
    let mut config = config(vec![terminal(); 5], 1);
    config.allocation.free = FreeCapacity::All { chunk: 3 };
    let mut ncc = Ncc::new(&config);
    let mut sums = [0; 5];
    for superframe in 0..50 {
        let got: [u32; 5] = slots(&mut ncc, superframe);
        assert_eq!(got.iter().sum::<u32>(), CAPACITY);
        sums = core::array::from_fn(|index| sums[index] + got[index]);
    }
    let even = 50 * CAPACITY / 5;
    assert!(sums.iter().all(|sum| sum.abs_diff(even) <= 6), "{sums:?}");
}

#[test]
fn free_capacity_may_be_for_those_who_ask() {
    let mut config = config(vec![terminal(); 3], 1);
    config.allocation.free = FreeCapacity::Asking { chunk: 1 };
    let mut ncc = Ncc::new(&config);
    assert_eq!(slots(&mut ncc, 0), [0; 3]);
    ncc.handle_request(1, 1, for_rate(2));
    assert_eq!(slots(&mut ncc, 1), [0, CAPACITY, 0]);
}

#[test]
fn one_transmitter_uses_one_carrier_at_a_time() {
    let mut ncc = Ncc::new(&config(vec![terminal(); 2], 3));
    ncc.handle_request(0, 0, for_volume(1_000));
    assert_eq!(slots(&mut ncc, 0), [CAPACITY, 0]);
    let mut limited = config(vec![terminal()], 3);
    limited.terminals[0].ceiling = Some(rate(10));
    let mut ncc = Ncc::new(&limited);
    ncc.handle_request(0, 0, for_volume(1_000));
    assert_eq!(slots(&mut ncc, 0), [10]);
}

#[test]
fn a_terminal_gets_no_more_than_its_ceilings() {
    let mut config = config(vec![terminal()], 1);
    config.terminals[0].rbdc = rate(4);
    config.terminals[0].vbdc = 10;
    let mut ncc = Ncc::new(&config);
    ncc.handle_request(0, 0, for_rate(1_000));
    ncc.handle_request(0, 0, for_volume(10_000));
    assert_eq!([0, 1].map(|superframe| slots(&mut ncc, superframe)), [[14], [4]]);
    // Nobody has number 9.
    ncc.handle_request(1, 9, for_rate(1));
}

#[test]
fn weights_divide_what_is_shared_fairly() {
    let mut config = config(vec![terminal(); 2], 1);
    config.allocation.sharing = SharingRule::Fair;
    config.terminals[0].weight = 3;
    let mut ncc = Ncc::new(&config);
    (0..2).for_each(|index| ncc.handle_request(0, index, for_rate(30)));
    assert_eq!(slots(&mut ncc, 0), [24, 8]);
    config.terminals.iter_mut().for_each(|terminal| terminal.vbdc_first = 0);
    let mut ncc = Ncc::new(&config);
    (0..2).for_each(|index| ncc.handle_request(0, index, for_volume(500)));
    assert_eq!(slots(&mut ncc, 0), [24, 8]);
}

#[test]
fn the_rtt_aware_policy_fits_small_requests_beside_a_large_one() {
    let mut config = config(vec![terminal(); 3], 1);
    config.requests.policy = CapacityPolicy::RttAware;
    let mut ncc = Ncc::new(&config);
    ncc.handle_request(0, 0, for_volume(1_000));
    ncc.handle_request(0, 1, for_rate(8));
    ncc.handle_request(0, 2, for_volume(6));
    assert_eq!(slots(&mut ncc, 0), [18, 8, 6]);
    // A volume that is not repeated is forgotten after seven superframes.
    assert!(ncc.outstanding(0) > 0);
    assert_eq!(slots(&mut ncc, 7), [0, 8, 0]);
}

/// What a request of a random terminal asks for.
fn requests() -> impl Strategy<Value = Vec<(u8, u32, u64, u32)>> {
    prop::collection::vec((0u8..3, 0u32..20, 0u64..100, 0u32..300), 0..200)
}

proptest! {
    /// Whoever asks for what, a superframe is never overdrawn, a terminal never beyond its
    /// transmitter, no volume is granted that was not asked for, and what is asked for is granted
    /// sooner or later.
    #[test]
    fn capacity_is_conserved(
        asked in requests(), carriers in 1u32..4, cra in prop::collection::vec(0u64..3, 20),
        fair: bool, aware: bool, free in 0u32..3,
    ) {
        let guaranteed = |slots: &u64| TerminalConfig { cra: rate(*slots), ..terminal() };
        let mut config = config(cra.iter().map(guaranteed).collect(), carriers.max(2));
        config.allocation.sharing = if fair { SharingRule::Fair } else { SharingRule::Proportional };
        config.requests.policy = if aware { CapacityPolicy::RttAware } else { CapacityPolicy::Classic };
        config.allocation.free = match free {
            0 => FreeCapacity::None,
            1 => FreeCapacity::All { chunk: 2 },
            _ => FreeCapacity::Asking { chunk: 2 },
        };
        let frames = config.frames;
        let mut ncc = Ncc::new(&config);
        let mut volumes = [0u64; 20];
        for superframe in 0..3_000u64 {
            if let Some((kind, terminal, slots, cells)) = asked.get(superframe as usize).copied() {
                let request = match kind {
                    0 => for_rate(slots),
                    1 => for_volume(cells),
                    _ => TerminalRequest { volume: Some(VolumeRequest::All(cells)), ..for_rate(slots) },
                };
                ncc.handle_request(superframe, terminal, request);
                volumes[terminal as usize] += u64::from(coded_volume(cells));
            }
            let mut sum = 0;
            let mut seen = BTreeSet::new();
            for grant in ncc.allocate(superframe) {
                prop_assert!(seen.insert(grant.terminal), "two grants");
                prop_assert!(grant.slots() <= frames.slots_per_terminal());
                prop_assert!(u64::from(grant.vbdc) <= volumes[grant.terminal as usize]);
                volumes[grant.terminal as usize] -= u64::from(grant.vbdc);
                sum += grant.slots();
            }
            prop_assert!(sum <= frames.capacity());
        }
        for terminal in 0..20 {
            prop_assert_eq!(ncc.outstanding(terminal), 0, "a volume was never granted");
        }
    }

    /// What is foreseen comes from what is left: everything that is asked for is granted as without.
    #[test]
    fn what_is_foreseen_costs_nobody_anything(
        asked in requests(), foreseen in requests(), fair: bool, aware: bool,
    ) {
        let mut config = config(vec![terminal(); 20], 2);
        config.allocation.sharing = if fair { SharingRule::Fair } else { SharingRule::Proportional };
        config.requests.policy = if aware { CapacityPolicy::RttAware } else { CapacityPolicy::Classic };
        let [mut with, mut without] = [Ncc::new(&config), Ncc::new(&config)];
        let mut outstanding = [0u64; 20];
        for superframe in 0..2_000u64 {
            if let Some((kind, terminal, slots, cells)) = asked.get(superframe as usize).copied() {
                let request = if kind == 0 { for_rate(slots) } else { for_volume(cells) };
                with.handle_request(superframe, terminal, request);
                without.handle_request(superframe, terminal, request);
            }
            if let Some((_, terminal, _, cells)) = foreseen.get(superframe as usize).copied() {
                let request = TerminalRequest { foreseen: Some(cells), ..TerminalRequest::default() };
                with.handle_request(superframe, terminal, request);
                outstanding[terminal as usize] = coded_volume(cells).into();
            }
            let order = |mut grants: Vec<SlotGrant>| {
                grants.sort_by_key(|grant| grant.terminal);
                grants
            };
            let grants = order(with.allocate(superframe));
            prop_assert!(grants.iter().map(SlotGrant::slots).sum::<u32>() <= config.frames.capacity());
            for grant in &grants {
                prop_assert!(u64::from(grant.fca) <= outstanding[grant.terminal as usize]);
                outstanding[grant.terminal as usize] -= u64::from(grant.fca);
            }
            let asked = |grant: SlotGrant| (grant.slots() > grant.fca).then_some(SlotGrant { fca: 0, ..grant });
            let asked: Vec<SlotGrant> = grants.into_iter().filter_map(asked).collect();
            prop_assert_eq!(asked, order(without.allocate(superframe)));
        }
        prop_assert_eq!(outstanding.iter().sum::<u64>(), 0, "all that was foreseen is granted in the end");
    }
}
