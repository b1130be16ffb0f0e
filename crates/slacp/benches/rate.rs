//! What a sender gets of a link whose rate nobody told it, in virtual time, as a
//! table: `cargo bench -p skyhop-slacp --bench rate`; a part of it with `-- fresh`, `downloads`,
//! `start`, `fades`,
//! `varied`, `policed`, `steps`, `beside`, `sharing`, `tcp`, `crowds`, `aggregate` or `luck`, and with a number
//! of seeds instead of 32. `-- plots` draws the pictures of `docs/rate.md` instead; it must be named,
//! because it writes files.
//!
//! 600 ms round trip and a queue of one BDP unless said. The limit is a round trip
//! and the bytes at the link's rate less what it loses.

#[path = "../tests/kit/carrier.rs"]
mod carrier;
#[path = "../tests/kit/fresh.rs"]
mod fresh;
#[path = "../tests/kit/hop.rs"]
mod hop;
#[path = "../tests/kit/luck.rs"]
mod luck;
#[path = "../tests/kit/path/mod.rs"]
mod path;
mod plots;
mod quic;
#[path = "quic/fresh.rs"]
mod quic_fresh;
#[path = "../tests/kit/beside.rs"]
mod requests;

use core::time::Duration;

use carrier::Members;
use fresh::{Knowing, Use};
use link::Jitter;
use luck::{Hidden, ReportEnds};
use path::cases::{Case, first_round_trips};
use path::crowd::Crowd;
use path::fades::Fade;
use path::ms;
use path::rivals::{Rivals, joined, udp};
use path::sharing::{Sharing, beside_udp};
use path::steps::Steps;
use path::tcp::Control;
use path::varied::Varied;
use rayon::prelude::*;
use slacp::Law;

/// Unless told otherwise.
const MANY: u64 = 32;
/// Of downloads, of which medians are shown.
const SEEDS: u64 = 5;
/// Of runs beside TCP, unless told otherwise.
const FEW: u64 = 4;
/// Of the rest, of which the worst is shown, unless told otherwise.
const RUNS: u64 = 8;
const STARTS: u64 = 50;

fn main() {
    let chosen: Vec<String> = arguments().filter(|arg| arg.parse::<u64>().is_err()).collect();
    let parts: [(&str, fn()); 13] = [
        ("fresh", fresh_sessions),
        ("downloads", downloads),
        ("start", start),
        ("fades", fades),
        ("varied", varied),
        ("policed", policed),
        ("steps", steps),
        ("beside", beside),
        ("sharing", sharing),
        ("tcp", tcp),
        ("crowds", crowds),
        ("aggregate", aggregates),
        ("luck", luck),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            part();
        }
    }
    if chosen.iter().any(|chosen| chosen == "plots") {
        plots::draw();
    }
}

fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|arg| !arg.starts_with('-'))
}

/// How many seeds of rows whose median is judged.
fn seeds() -> u64 {
    seeds_or(MANY)
}

fn seeds_or(many: u64) -> u64 {
    arguments().find_map(|arg| arg.parse().ok()).unwrap_or(many)
}

fn verdict(ok: bool) -> &'static str {
    if ok { "reached" } else { "MISSED" }
}

/// The first traffic of a session, and what it takes if the rates are told.
fn fresh_sessions() {
    println!(
        "fresh session: told / auto / quinn's BBR, seconds, median (worst) of {} seeds; kB sent by \
         hub and terminal before traffic that begins after 5 s",
        seeds()
    );
    for path in fresh::Path::all() {
        for what in [Use::Page, Use::Download] {
            for at_once in [false, true] {
                fresh_session(&path, what, at_once);
            }
        }
    }
}

fn fresh_session(path: &fresh::Path, what: Use, at_once: bool) {
    let run = |knowing| -> Vec<fresh::Outcome> {
        (1..=seeds()).into_par_iter().map(|seed| path.run(knowing, what, at_once, seed)).collect()
    };
    let (told, auto) = (run(Knowing::Told), run(Knowing::Auto));
    let seconds = |runs: &[fresh::Outcome]| {
        let all: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        (stats::median(&all).expect("runs"), all.iter().copied().fold(0.0, f64::max))
    };
    let ((told, told_worst), (median, worst)) = (seconds(&told), seconds(&auto));
    let most = 1.1 * told + if at_once { 2.0 * path.round_trip() } else { 0.0 };
    let [hub, terminal] = [0, 1].map(|side| {
        let all: Vec<f64> = auto.iter().map(|run| run.before[side] as f64 / 1e3).collect();
        stats::median(&all).expect("runs")
    });
    println!(
        "  {:<32} {:<9} {:<8} {told:>7.2} ({told_worst:>6.2}) {median:>7.2} ({worst:>6.2}) \
         <= {most:>6.2} {:<8} {:<26} {hub:>6.0} {terminal:>5.0}",
        path.name,
        format!("{what:?}"),
        if at_once { "at once" } else { "after 5" },
        verdict(median <= most),
        quinn(path, what, at_once),
    );
}

/// What a rival takes, or in how many runs it fails.
fn quinn(path: &fresh::Path, what: Use, at_once: bool) -> String {
    let runs: Vec<_> = (1..=seeds())
        .into_par_iter()
        .map(|seed| quic_fresh::run(path, what, at_once, seed))
        .collect();
    if let Some(failure) = runs.iter().find_map(|run| run.err()) {
        let failed = runs.iter().filter(|run| run.is_err()).count();
        return format!("{} in {failed} of {}", failure.verb(), runs.len());
    }
    let loaded = || runs.iter().flatten();
    let (median, worst) = spread(loaded().map(|run| run.seconds), f64::max);
    let window = loaded().map(|run| run.window).min().unwrap_or_default();
    let window = if window < quic::WINDOWS[0] { format!(", {window} MB") } else { String::new() };
    format!("quinn {median:.2} ({worst:.2}{window})")
}

/// What a download must reach.
#[derive(Debug, Clone, Copy)]
enum Must {
    Seconds(f64),
    OfLimit(f64),
    StartLoss(f64),
    Lost(f64),
    Nothing,
}

impl Must {
    fn words(self) -> String {
        match self {
            Self::Seconds(most) => format!("<= {most} s"),
            Self::OfLimit(least) => format!(">= {:.0}%", least * 100.0),
            Self::StartLoss(most) | Self::Lost(most) => format!("<= {:.0}% lost", most * 100.0),
            Self::Nothing => "-".to_owned(),
        }
    }
}

fn downloads() {
    println!(
        "{:<42} {:>9} {:>9} {:>11} {:>8} {:>10} {:>7}  {:<11}",
        "bytes over forward/return Mbit/s",
        "time s",
        "of limit",
        "start loss",
        "all loss",
        "queue p95",
        "return",
        "must reach"
    );
    for (case, must) in fast().into_iter().chain(ordinary()).chain(unkind()) {
        let run = case.median(SEEDS);
        let ok = match must {
            Must::Seconds(most) => run.seconds <= most,
            Must::OfLimit(least) => run.of_limit >= least,
            Must::StartLoss(most) => run.start_loss <= most,
            Must::Lost(most) => run.lost <= most,
            Must::Nothing => true,
        };
        println!(
            "{:<42} {:>9.3} {:>8.1}% {:>10.2}% {:>7.2}% {:>7.0} ms {:>6.2}%  {:<11} {}",
            case.name,
            run.seconds,
            100.0 * run.of_limit,
            100.0 * run.start_loss,
            100.0 * run.lost,
            run.queue.as_secs_f64() * 1e3,
            100.0 * run.returned,
            must.words(),
            verdict(ok),
        );
    }
}

fn fast() -> Vec<(Case, Must)> {
    let geo = |name| Case::geo(name, 250.0, 3.0);
    let wrong = |name| Case { bytes: 50_000_000, ..Case::geo(name, 25.0, 3.0) }.resumed(250.0);
    vec![
        (geo("100 MB 250/3, told").fixed(), Must::Seconds(4.2)),
        (geo("  cold"), Must::Seconds(5.8)),
        (Case { per: 0.01, ..geo("  cold, 1 % lost") }, Must::Seconds(6.2)),
        (Case { queue: 100, ..geo("  cold, queue of 100 packets") }, Must::Seconds(6.2)),
        (geo("  resumed").resumed(250.0), Must::Seconds(4.5)),
        (geo("  resumed, remembered a tenth").resumed(25.0), Must::Seconds(7.5)),
        (wrong("50 MB 25/3, remembered tenfold"), Must::StartLoss(0.1)),
        (Case { queue: 312, ..wrong("  with a queue of 1/4 BDP") }, Must::StartLoss(0.1)),
    ]
}

fn ordinary() -> Vec<(Case, Must)> {
    let geo = |name| Case::geo(name, 50.0, 10.0);
    let most = Must::OfLimit(0.9);
    vec![
        (geo("100 MB 50/10, told").fixed(), Must::OfLimit(0.94)),
        (geo("  cold"), most),
        (Case { per: 0.01, ..geo("  cold, 1 % lost") }, most),
        (Case { per: 0.1, ..geo("  cold, 10 % lost") }, most),
        (Case::geo("100 MB 50/0.064, cold", 50.0, 0.064), most),
        (Case::geo("100 MB 10/2, cold", 10.0, 2.0), most),
        (Case::geo("100 MB 2/10, cold", 2.0, 10.0), most),
        (Case { bytes: 10_000_000, ..Case::geo("10 MB 1/1, cold", 1.0, 1.0) }, most),
        (
            Case { bytes: 400_000_000, ..Case::geo("400 MB 1000/10, cold", 1000.0, 10.0) },
            Must::Nothing,
        ),
        (
            Case {
                delay: ms(10),
                leo: true,
                ..Case::geo("100 MB LEO 150/20, 20 ms, cold", 150.0, 20.0)
            },
            most,
        ),
    ]
}

fn unkind() -> Vec<(Case, Must)> {
    let fast = |name| Case::geo(name, 250.0, 3.0);
    let geo = |name| Case::geo(name, 50.0, 10.0);
    let slow = |name| Case { bytes: 10_000_000, ..Case::geo(name, 6.0, 1.0) };
    let most = Must::OfLimit(0.85);
    let leo = |name, per| Case { delay: ms(20), per, queue: 10, ..Case::geo(name, 100.0, 10.0) };
    let long = |case: Case| Case { bytes: 500_000_000, ..case };
    vec![
        (long(Case { jitter: Jitter::InOrder(ms(5)), ..fast("500 MB 250/3, jitter 5 ms") }), most),
        (long(Case { jitter: Jitter::InOrder(ms(20)), ..fast("  jitter 20 ms") }), most),
        (Case { jitter: Jitter::InOrder(ms(2)), ..geo("100 MB 50/10, jitter 2 ms") }, most),
        (Case { jitter: Jitter::InOrder(ms(20)), ..geo("  jitter 20 ms") }, most),
        (Case { jitter: Jitter::Reordering(ms(2)), ..geo("  reordering jitter 2 ms") }, most),
        (Case { jitter: Jitter::Reordering(ms(20)), ..geo("  reordering jitter 20 ms") }, most),
        (leo_reordering(), most),
        (Case { return_slot: Some(50), ..geo("100 MB 50/10, return slots every 50 ms") }, most),
        (Case { slot: Some(26), ..geo("  time slots every 26 ms") }, most),
        (long(Case { slot: Some(10), ..fast("500 MB 250/3, time slots every 10 ms") }), most),
        (Case { slot: Some(26), ..slow("10 MB 6/1, time slots every 26 ms") }, most),
        (Case { slot: Some(100), ..slow("  time slots every 100 ms") }, most),
        (leo("100 MB 100/10, 40 ms, queue of 10 packets", 0.0), Must::Lost(0.1)),
        (leo("  and 2 % lost", 0.02), Must::Lost(0.1)),
        (Case { queue: 10, ..geo("100 MB 50/10, queue of 10 packets") }, Must::Lost(0.1)),
    ]
}

fn leo_reordering() -> Case {
    let jitter = Jitter::Reordering(ms(5));
    Case {
        delay: ms(20),
        jitter,
        ..Case::geo("100 MB 100/10, 40 ms, reordering 5 ms", 100.0, 10.0)
    }
}

fn start() {
    println!("250/3 Mbit/s, cold, after three round trips; the worst of {STARTS} seeds");
    for (name, queue) in [("queue 1 BDP", 0), ("queue 1/4 BDP", 3125), ("queue 100 packets", 100)] {
        let runs: Vec<(f64, f64)> =
            (1..=STARTS).map(|seed| first_round_trips(queue, seed)).collect();
        let used = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
        let lost = runs.iter().map(|run| run.1).fold(0.0, f64::max);
        let ok = used >= 0.9 && lost <= 0.02;
        let must = ">= 90 % used, <= 2 % lost";
        println!(
            "  {name:<20} {:>5.1}% used {:>5.2}% lost   {must} {}",
            used * 100.0,
            lost * 100.0,
            verdict(ok)
        );
    }
}

fn fades() {
    let seeds = seeds_or(RUNS);
    println!("50 -> 5 -> 50 Mbit/s; the worst of {seeds} seeds, in s after the last change");
    for fade in [
        Fade::step("queue 1 BDP", ms(600)),
        Fade::step("queue 100 ms", ms(100)),
        Fade::ramp("ten steps in 10 s", 10.0),
        Fade::ramp("ten steps in 60 s", 60.0),
    ] {
        let runs: Vec<_> = (1..=seeds).into_par_iter().map(|n| fade.run(n * 4)).collect();
        let late = runs.iter().map(|run| run.calm - run.earliest).fold(f64::NEG_INFINITY, f64::max);
        let full = runs.iter().map(|run| run.full).fold(0.0, f64::max);
        let used = runs.iter().map(|run| run.used).fold(1.0, f64::min);
        let earliest = runs.iter().map(|run| run.earliest).fold(0.0, f64::max);
        println!(
            "  {:<20} empty at the earliest {earliest:.2}, calm {late:+.2} (<= +1.2) {}; full after \
             {full:.2} (<= 1.8) {}; {:.1}% used",
            fade.name,
            verdict(late <= 1.2),
            verdict(full <= 1.8),
            used * 100.0,
        );
    }
}

/// The median and the worst.
fn spread(values: impl IntoIterator<Item = f64>, worst: fn(f64, f64) -> f64) -> (f64, f64) {
    let values: Vec<f64> = values.into_iter().collect();
    let median = stats::median(&values).expect("runs");
    (median, values.into_iter().reduce(worst).expect("runs"))
}

fn varied() {
    println!(
        "links that vary: goodput of auto by that of told, and the p95 of added delay, told and \
         auto; median (worst) of {} seeds, over 60 s",
        seeds()
    );
    for link in Varied::all() {
        let runs: Vec<[path::varied::Came; 2]> = (1..=seeds())
            .into_par_iter()
            .map(|seed| [true, false].map(|told| link.run(told, seed)))
            .collect();
        let share = runs.iter().map(|[told, auto]| auto.goodput / told.goodput);
        let (share, least) = spread(share, f64::min);
        let added = |which: usize| {
            spread(runs.iter().map(|run| run[which].added.as_secs_f64() * 1e3), f64::max)
        };
        let ((told, _), (auto, most)) = (added(0), added(1));
        let lost = runs.iter().map(|[_, auto]| auto.lost).fold(0.0, f64::max);
        println!(
            "  {:<36} {share:.3} ({least:.3}) (>= 0.90) {:<8} added {told:>4.0}; {auto:>4.0} \
             ({most:>4.0}) ms (<= +50) {:<8} lost {:.1}%",
            link.name,
            verdict(share >= 0.9),
            verdict(auto <= told + 50.0),
            lost * 100.0,
        );
    }
}

fn policed() {
    println!(
        "token buckets: goodput of auto by the bucket's rate, and what is lost of it and of what one \
         sends that is told the rate; median (worst) of {} seeds, over 60 s",
        seeds()
    );
    for link in Varied::all_policed() {
        let runs: Vec<[path::varied::Came; 2]> = (1..=seeds())
            .into_par_iter()
            .map(|seed| [true, false].map(|told| link.run(told, seed)))
            .collect();
        let share = runs.iter().map(|[_, auto]| auto.goodput / link.mbit);
        let (share, least) = spread(share, f64::min);
        let lost = |which: usize| spread(runs.iter().map(|run| run[which].lost * 100.0), f64::max);
        let ((told, _), (auto, most)) = (lost(0), lost(1));
        println!(
            "  {:<36} {share:.3} ({least:.3}) (>= 0.90) {:<8} lost {auto:.2} ({most:.2}) % (<= 2) \
             {:<8} told {told:.2} %",
            link.name,
            verdict(share >= 0.9),
            verdict(auto <= 2.0),
        );
    }
}

fn steps() {
    println!(
        "10 -> 1 -> 10 Mbit/s, 600 ms: seconds to 90 % of the new rate, and what is lost; median \
         (worst) of {} seeds",
        seeds()
    );
    for steps in Steps::all() {
        let runs: Vec<_> = (1..=seeds()).into_par_iter().map(|seed| steps.run(seed)).collect();
        let (fall, fall_worst) = spread(runs.iter().map(|run| run.fall), f64::max);
        let (rise, rise_worst) = spread(runs.iter().map(|run| run.rise), f64::max);
        let (lost, lost_worst) = spread(runs.iter().map(|run| run.lost), f64::max);
        println!(
            "  {:<32} fall {fall:.2} ({fall_worst:.2}) (<= 2.2) {:<8} rise {rise:.2} \
             ({rise_worst:.2}) (<= 4.4) {:<8} lost {lost:.2} ({lost_worst:.2}) BDP (<= 1.5) {}",
            steps.name,
            verdict(fall <= 2.2),
            verdict(rise <= 4.4),
            verdict(lost_worst <= 1.5),
        );
    }
}

fn sharing() {
    let seeds = seeds_or(RUNS);
    println!("two sessions on 50 Mbit/s; the worst of {seeds} seeds, from 7 round trips on");
    for nearer in [false, true] {
        for later in [0.0, 3.0, 10.0] {
            let runs = (1..=seeds).into_par_iter().map(|seed| Sharing { later, nearer }.run(seed));
            let runs: Vec<_> = runs.collect();
            let least = |of: fn(&path::sharing::Shared) -> f64| {
                runs.iter().map(of).fold(f64::INFINITY, f64::min)
            };
            let jain = least(|run| run.jain.iter().copied().fold(1.0, f64::min));
            let queue = runs.iter().map(|run| run.queue).max().unwrap_or(Duration::ZERO);
            println!(
                "  RTT 600/{} ms, {later:>4} s later: Jain {jain:.3} (>= 0.95) {}; least share \
                 {:.2}, {:.1}% used, queue p50 {queue:.0?}",
                if nearer { 300 } else { 600 },
                verdict(jain >= 0.95),
                least(|run| run.least),
                least(|run| run.used) * 100.0,
            );
        }
    }
    let runs = (1..=seeds).into_par_iter().map(|seed| beside_udp(25.0, seed));
    let runs: Vec<(f64, Duration)> = runs.collect();
    let share = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
    let queue = runs.iter().map(|run| run.1).max().unwrap_or(Duration::ZERO);
    println!(
        "  beside UDP of 25 Mbit/s: {:.1}% of the rest (>= 90 %) {}, queue p50 {queue:.0?}",
        share * 100.0,
        verdict(share >= 0.9),
    );
}

/// One session beside real TCP, and beside UDP.
fn tcp() {
    let seeds = seeds_or(FEW);
    println!(
        "a session beside TCP on 50 Mbit/s, 600 ms, from 30 to 120 s: of their fair shares; median \
         (least) of {seeds} seeds"
    );
    for control in [Control::Cubic, Control::Bbr] {
        for count in [1, 8] {
            beside_tcp(Rivals { control, count }, seeds);
        }
    }
    for control in [Control::Cubic, Control::Bbr] {
        beside_newcomer(control, seeds);
    }
    let runs: Vec<_> = (1..=seeds).into_par_iter().map(|seed| udp(0.3, seed)).collect();
    let (lost, worst) = spread(runs.iter().map(|run| run.0 * 100.0), f64::max);
    let (rest, least) = spread(runs.iter().map(|run| run.1), f64::min);
    println!(
        "  UDP of 30 %   lost {lost:.2} ({worst:.2})% (< 1 %) {:<8} session {rest:.2} ({least:.2}) \
         of the rest",
        verdict(worst < 1.0),
    );
}

fn beside_tcp(rivals: Rivals, seeds: u64) {
    let runs: Vec<_> = (1..=seeds).into_par_iter().map(|seed| rivals.run(seed)).collect();
    let (session, session_least) = spread(runs.iter().map(|run| run.session), f64::min);
    let (least, least_of_all) = spread(runs.iter().map(|run| run.least), f64::min);
    let (mean, _) = spread(runs.iter().map(|run| run.mean), f64::min);
    let (used, _) = spread(runs.iter().map(|run| run.used), f64::min);
    println!(
        "  {:<13} session {session:.2} ({session_least:.2}), least TCP {least:.2} \
         ({least_of_all:.2}), mean TCP {mean:.2}, {:.1}% used (each >= 1/3) {}",
        format!("{} {:?}", rivals.count, rivals.control),
        used * 100.0,
        verdict(session_least.min(least_of_all) >= 1.0 / 3.0),
    );
}

fn beside_newcomer(control: Control, seeds: u64) {
    let runs: Vec<_> = (1..=seeds).into_par_iter().map(|seed| joined(control, seed)).collect();
    let [first, next, last] = [0, 1, 2].map(|part| {
        let (median, least) = spread(runs.iter().map(|run| run[part]), f64::min);
        format!("{median:.2} ({least:.2})")
    });
    println!(
        "  {control:?} joins: the session keeps {first} of the link for 20 s, {next} for the next 40 s, \
         {last} for 40 s more"
    );
}

/// Requests and replies while a download fills the link.
fn beside() {
    println!(
        "requests of 1 kB, replies of 10 kB, every 200 ms beside a download of 40 s: its goodput by \
         told's, and the p95 of answers; {} seeds",
        seeds()
    );
    for link in requests::Link::all() {
        let runs: Vec<[requests::Answered; 2]> = (1..=seeds())
            .into_par_iter()
            .map(|seed| [true, false].map(|told| link.run(told, seed)))
            .collect();
        let share = runs.iter().map(|[told, auto]| auto.bulk / told.bulk);
        let (share, least) = spread(share, f64::min);
        let p95 = |which: usize| spread(runs.iter().map(|run| run[which].p95 * 1e3), f64::max);
        let ((told, _), (auto, most)) = (p95(0), p95(1));
        println!(
            "  {:<24} bulk {share:.3} ({least:.3}) (>= 0.95 each) {:<8} told {told:.0}, auto \
             {auto:.0} ({most:.0}) ms (<= {:.0}) {}",
            link.name,
            verdict(least >= 0.95),
            link.rtt + 25.0,
            verdict(auto <= link.rtt + 25.0),
        );
    }
}

/// Many sessions that do not know of each other.
fn crowds() {
    let runs = seeds_or(RUNS);
    println!(
        "sessions on 50 Mbit/s, begun within 20 s, over their last 30 s; worst of {runs} seeds"
    );
    for count in [2, 8, 32, 100] {
        for unequal in [false, true] {
            let crowd = Crowd { count, unequal, law: Law::default() };
            let all: Vec<_> = (1..=runs).into_par_iter().map(|seed| crowd.run(seed)).collect();
            let used = all.iter().map(|run| run.used).fold(f64::INFINITY, f64::min);
            let least = all.iter().map(|run| run.least).fold(f64::INFINITY, f64::min);
            let queue = all.iter().map(|run| run.queue).max().unwrap_or_default();
            let lost = all.iter().map(|run| run.lost).fold(0.0, f64::max);
            let share = if unequal { 0.5 } else { 0.8 };
            println!(
                "  {count:>3}, RTT {:<14} {:.1}% used (>= 95 %) {:<8} queue p95 {:>4.0} ms (<= 60) \
                 {:<8} least share {least:.2} (>= {share}) {:<8} lost {:.2}%",
                if unequal { "600/300/40 ms" } else { "600 ms" },
                used * 100.0,
                verdict(used >= 0.95),
                queue.as_secs_f64() * 1e3,
                verdict(queue <= Duration::from_millis(60)),
                verdict(least >= share),
                lost * 100.0,
            );
        }
    }
}

/// Sessions of one hub that share a link, strangers and then as an aggregate.
fn aggregates() {
    let runs = seeds_or(RUNS);
    println!(
        "sessions of a hub on 50 Mbit/s, begun within 20 s, over their last 30 s; worst of {runs} \
         seeds"
    );
    for count in [2, 8, 32, 100] {
        for unequal in [false, true] {
            for aggregate in [false, true] {
                // A hundred strangers take minutes to simulate, because they overflow the queue.
                if aggregate || count < 32 {
                    shared(Members { count, unequal, aggregate }, runs);
                }
            }
        }
    }
}

fn shared(members: Members, runs: u64) {
    let all: Vec<_> = (1..=runs).into_par_iter().map(|seed| members.run(seed)).collect();
    let least = |of: fn(&carrier::Shared) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&carrier::Shared) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let (low, high) = (least(|run| run.least), most(|run| run.most));
    println!(
        "  {:>3}, RTT {:<14} {:<10} {:.1}% used (>= 95 %) {:<8} queue p95 {:>4.0} ms (<= 60) {:<8} \
         shares {low:.2} to {high:.2} (0.90 to 1.10) {:<8} lost {:.2}%",
        members.count,
        if members.unequal { "600/300/40 ms" } else { "600 ms" },
        if members.aggregate { "together" } else { "strangers" },
        least(|run| run.used) * 100.0,
        verdict(least(|run| run.used) >= 0.95),
        most(|run| run.queue),
        verdict(most(|run| run.queue) <= 60.0),
        verdict(low >= 0.9 && high <= 1.1),
        most(|run| run.lost) * 100.0,
    );
}

/// How much single seeds differ in what tests assert of a few.
fn luck() {
    println!("shares of equal ones: least, median and most of {} seeds", seeds());
    for later in [3.0, 8.0] {
        let least = |seed| Sharing { later, nearer: false }.run(seed).least;
        distribution(&format!("of two, {later} s later: least in 3 s"), least, |least| {
            least > 0.65
        });
    }
    for (count, aggregate) in [(2, false), (8, false), (2, true), (8, true)] {
        let whose = if aggregate { "members" } else { "strangers" };
        let least = |seed| ReportEnds { count, aggregate }.run(seed).after;
        distribution(&format!("of {count} {whose} after a report"), least, |least| least > 0.9);
    }
    for count in [2, 8] {
        let hider = |seed| Hidden { count }.run(seed).hider;
        distribution(&format!("of {count}, hides the queue"), hider, |hider| hider <= 1.2);
    }
}

fn distribution(name: &str, run: impl Fn(u64) -> f64 + Send + Sync, ok: fn(f64) -> bool) {
    let all: Vec<f64> = (1..=seeds()).into_par_iter().map(run).collect();
    let (median, most) = spread(all.iter().copied(), f64::max);
    let (_, least) = spread(all.iter().copied(), f64::min);
    let failing = all.iter().filter(|value| !ok(**value)).count();
    println!("  {name:<36} {least:.2} {median:.2} {most:.2}   {failing} fail their test");
}
