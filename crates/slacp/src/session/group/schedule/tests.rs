//! Guarantees, maxima and weights of sessions on a link, under random traffic.

use core::time::Duration;

use proptest::prelude::*;
use units::BitRate;

use super::*;

const LINK: BitRate = BitRate::from_mbit(10);
const PACKET: u64 = 1500;
const START: Instant = Instant::from_nanos(5_000_000_000);
const END: Instant = Instant::from_nanos(15_000_000_000);

/// A session that always has packets of one size during its times.
#[derive(Debug, Clone)]
struct Source {
    share: SessionShare,
    size: u64,
    /// Milliseconds from the start: when it begins and when it stops.
    on: [u64; 2],
}

impl Source {
    fn is_on(&self, now: Instant) -> bool {
        let [begin, end] = self.on.map(|millis| START + Duration::from_millis(millis));
        (begin..end).contains(&now)
    }
}

/// Packets in order: when each left, the number of its session, and its size.
type Sent = Vec<(Instant, usize, u64)>;

/// Sends over the link from the start to the end, packet by packet.
fn run(sources: &[Source]) -> Sent {
    run_with(sources, 0)
}

/// The same with turns of `quantum` bytes.
fn run_with(sources: &[Source], quantum: u64) -> Sent {
    let mut schedule = SessionSchedule::new();
    let mut entries: Vec<_> = sources.iter().map(|_| ScheduleEntry::new()).collect();
    let id = |index: usize| SessionId(index as u64);
    for (index, source) in sources.iter().enumerate() {
        schedule.set_share(START, id(index), &mut entries[index], source.share);
    }
    let (mut now, mut sent) = (START, Vec::new());
    while now < END {
        for (index, source) in sources.iter().enumerate() {
            let send = source.is_on(now).then_some((Instant::ZERO, Wake::Pacing));
            let open_at = entries[index].limits().open_at();
            let wants = NextActions { send, ..NextActions::default() }.not_before(open_at);
            if wants != entries[index].wants() {
                schedule.enter(now, id(index), &mut entries[index], wants);
            }
        }
        while let Some(next) = schedule.take_sender(now) {
            schedule.queue(next, &mut entries[next.0 as usize]);
        }
        while let Some(next) = schedule.take_claim(now) {
            schedule.claim(next, &mut entries[next.0 as usize]);
        }
        let Some(next) = schedule.turn(|id| entries.get(id.0 as usize)) else {
            now += Duration::from_micros(500);
            continue;
        };
        let (index, size) = (next.0 as usize, sources[next.0 as usize].size);
        schedule.spend(now, next, &mut entries[index], (size, quantum));
        sent.push((now, index, size));
        now += LINK.time_to_send(ByteCount::new(size));
    }
    sent
}

/// Bits that a rate sends in a time.
fn bits(rate: BitRate, time: Duration) -> f64 {
    rate.bits_per_second() as f64 * time.as_secs_f64()
}

/// Checks that no interval has more of a session than its maximum and what may leave at once.
fn check_maximum(sent: &Sent, index: usize, maximum: BitRate) -> Result<(), TestCaseError> {
    let (mut above, mut last) = (0.0f64, START);
    for (now, _, size) in sent.iter().filter(|it| it.1 == index) {
        above = (above - bits(maximum, now.saturating_since(last))).max(0.0) + *size as f64 * 8.0;
        last = *now;
        let most = bits(maximum, Duration::from_millis(4)) + PACKET as f64 * 8.0 + 8.0;
        prop_assert!(above <= most, "{above} of {most} bits at {now:?}");
    }
    Ok(())
}

/// Checks that a session had its guarantee at every moment since it began to send, but for a packet
/// of each session.
fn check_guarantee(
    sent: &Sent,
    source: &Source,
    index: usize,
    slack: f64,
) -> Result<(), TestCaseError> {
    let Some(guaranteed) = source.share.guaranteed else { return Ok(()) };
    let begin = START + Duration::from_millis(source.on[0]);
    let mut had = 0.0;
    for (now, of, size) in sent.iter().filter(|it| source.is_on(it.0)) {
        let due = bits(guaranteed, now.saturating_since(begin));
        prop_assert!(had + slack >= due, "{had} of {due} bits at {now:?} for {source:?}");
        had += if *of == index { *size as f64 * 8.0 } else { 0.0 };
    }
    Ok(())
}

prop_compose! {
    fn sources()(
        all in prop::collection::vec(
            (1u32..20, 0u64..1000, 0u64..4, 100u64..=PACKET, 0u64..9_000, 500u64..9_000), 1..12),
        total in 1u64..=10_000,
    ) -> Vec<Source> {
        // The guarantees together are `total` kbit/s, at most the link's rate.
        let sum = all.iter().map(|it| it.1).sum::<u64>().max(1);
        let kbit = |kbit: u64| (kbit > 0).then(|| BitRate::from_bits_per_second(kbit * 1000));
        let source = |(weight, part, room, size, begin, time): (u32, u64, u64, u64, u64, u64)| {
            let guaranteed = part * total / sum;
            let maximum = kbit(if room == 0 { 0 } else { guaranteed * room + 100 });
            let share = SessionShare { weight, guaranteed: kbit(guaranteed), maximum };
            Source { share, size, on: [begin, begin + time] }
        };
        all.into_iter().map(source).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the others want: a session that has something to send has its guarantee, and never
    /// more than its maximum.
    #[test]
    fn guarantees_and_maxima_hold(sources in sources()) {
        let sent = run(&sources);
        let slack = (sources.len() as u64 + 3) as f64 * PACKET as f64 * 8.0;
        for (index, source) in sources.iter().enumerate() {
            check_guarantee(&sent, source, index, slack)?;
            if let Some(maximum) = source.share.maximum {
                check_maximum(&sent, index, maximum)?;
            }
        }
    }

    /// The link does not rest while a session without a maximum has something to send.
    #[test]
    fn nothing_is_left_unused(sources in sources()) {
        let greedy = Source { share: SessionShare::default(), size: PACKET, on: [0, 10_000] };
        let sources: Vec<_> = sources.into_iter().chain([greedy]).collect();
        let bytes: u64 = run(&sources).iter().map(|it| it.2).sum();
        let capacity = bits(LINK, END.saturating_since(START)) / 8.0;
        prop_assert!(bytes as f64 >= capacity - PACKET as f64, "{bytes} of {capacity}");
    }
}

#[test]
fn what_guarantees_leave_follows_the_weights() {
    let source = |guaranteed: u64, weight| Source {
        share: SessionShare {
            weight,
            guaranteed: Some(BitRate::from_mbit(guaranteed)),
            maximum: None,
        },
        size: PACKET,
        on: [0, 10_000],
    };
    let sources = [source(1, 1), source(3, 1), source(2, 2)];
    let sent = run(&sources);
    let mbit = |index| {
        let bytes: u64 = sent.iter().filter(|it| it.1 == index).map(|it| it.2).sum();
        bytes as f64 * 8.0 / 10e6
    };
    // 4 Mbit/s are left for weights of 1, 1 and 2.
    for (index, want) in [(0, 2.0), (1, 4.0), (2, 4.0)] {
        assert!((mbit(index) - want).abs() < 0.05, "{index}: {} of {want}", mbit(index));
    }
}

/// Sixty small guarantees fall due together, and take 72 ms of the link every 240 ms.
#[test]
fn a_guarantee_is_owed_while_many_others_go_first() {
    let source = |kbit: u64| {
        let guaranteed = (kbit > 0).then(|| BitRate::from_bits_per_second(kbit * 1000));
        let share = SessionShare { guaranteed, ..SessionShare::default() };
        Source { share, size: PACKET, on: [0, 10_000] }
    };
    let sources: Vec<_> =
        [source(6_900), source(0)].into_iter().chain(vec![source(50); 60]).collect();
    let sent = run(&sources);
    let bytes: u64 = sent.iter().filter(|it| it.1 == 0).map(|it| it.2).sum();
    let mbit = bytes as f64 * 8.0 / 10e6;
    assert!(mbit > 6.85, "{mbit} of 6.9 Mbit/s");
}

#[test]
fn a_turn_of_several_packets_changes_nobodys_share() {
    let source = |weight, size, on| {
        let share = SessionShare { weight, ..SessionShare::default() };
        Source { share, size, on }
    };
    let always = [0, 20_000];
    // The last one has packets for a moment.
    let sources =
        [source(1, PACKET, always), source(3, 700, always), source(1, 100, [5_000, 5_010])];
    let sent = run_with(&sources, 4 * PACKET);
    let bytes = |index| sent.iter().filter(|it| it.1 == index).map(|it| it.2).sum::<u64>() as f64;
    let ratio = bytes(1) / bytes(0);
    assert!((2.98..3.02).contains(&ratio), "{ratio}");
    let runs: Vec<u64> =
        sent.chunk_by(|a, b| a.1 == b.1).map(|run| run.iter().map(|it| it.2).sum()).collect();
    assert!(runs.iter().any(|run| *run >= 4 * PACKET), "packets leave together");
    // Two turns of the same session may follow each other, by its weight.
    let first = sent.iter().find(|it| it.1 == 2).unwrap();
    let waited = first.0.saturating_since(START + Duration::from_millis(5_000));
    assert!(waited <= LINK.time_to_send(ByteCount::new(4 * PACKET + PACKET)), "{waited:?}");
}
