//! The measurement, step by step.

use core::time::Duration;

use link::DisciplineChoice;
use scenario::Preset;

use super::asked::{self, ConfiguredLink};
use super::bench::Bench;
use super::judge::ProbeTrace;
use super::span::PathPart;
use super::verdict::MeasuredDirection;
use super::{CheckError, CheckReport, DriverReport, flows, reach};
use crate::Lateness;
use crate::preset::PresetLinks as _;

/// TCP retransmits a SYN after 1, 3, 7, 15 and 31 s (RFC 6298).
const RETRANSMISSIONS: Duration = Duration::from_secs(32);

/// Measures the links of `preset` in separate labs: those of the hop (in a star, of its first
/// terminal) and of the terrestrial part. The process must have [entered](crate::enter). Each part
/// takes about 8 s plus twice the round-trip time; `progress` is called with what is being
/// measured.
///
/// # Errors
/// If the lab does not start or the measurement itself fails. A link that deviates from its
/// configuration is not an error; the report says so.
pub fn check(
    preset: &Preset,
    seed: u64,
    mut progress: impl FnMut(&str),
) -> Result<CheckReport, CheckError> {
    let mut report = CheckReport {
        preset: preset.name.clone(),
        directions: Vec::new(),
        reach: Vec::new(),
        driver: DriverReport::default(),
    };
    for span in PathPart::all(preset) {
        measure(span, preset, seed, &mut report, &mut progress)?;
    }
    report.driver.within = report.driver.faults == 0;
    Ok(report)
}

/// Measures a part of the path, and reachability if that has not been done yet.
fn measure(
    span: PathPart,
    preset: &Preset,
    seed: u64,
    report: &mut CheckReport,
    progress: &mut impl FnMut(&str),
) -> Result<(), CheckError> {
    let (_, mtu) = preset.scale(span.links()[0]);
    let links = span.links().map(|link| ConfiguredLink::of(preset, link));
    // Early drops would look like losses of the link, so disciplines are measured separately.
    let mut bench = Bench::start(&asked::drop_tail(preset), seed, span)?;
    if report.reach.is_empty() {
        progress("reachability");
        report.reach = reach::reach(&bench.lab, preset.path_rtt() * 4 + patience(preset));
    } else {
        progress("the terrestrial link");
    }
    let before = bench.lab.lateness();
    progress("one-way delay");
    let delays = bench.measure(&links.each_ref().map(|link| Some(flows::delay(link))))?;
    add_lateness(&mut report.driver, &bench.lab.lateness().since(&before));
    progress("rate, loss and order");
    let dropped = bench.queue_drops();
    let age = bench.age();
    let floods = bench.measure(&links.each_ref().map(|link| flows::flood(link, mtu, age)))?;
    let dropped = [0, 1].map(|lane| bench.queue_drops()[lane] - dropped[lane]);
    let mut faults = bench.lab.faults().total();
    let (plain, fills) = fill_queues(bench, preset, span, seed, &mut faults, progress)?;
    let overloads = overload(preset, span, &links, seed, &mut faults, progress)?;
    let directions = [0, 1].map(|lane| MeasuredDirection {
        name: span.links()[lane],
        asked: &links[lane],
        mtu,
        delay: &delays[lane],
        flood: &floods[lane],
        dropped: dropped[lane],
        fill: &fills[lane],
        each: plain[lane].longest_time_of(mtu.into()),
        overload: overloads.as_ref().and_then(|all| all[lane].as_ref()),
    });
    report.directions.extend(directions.map(|direction| direction.report()));
    report.driver.faults += faults;
    Ok(())
}

/// Fills the queues of the links without their disturbances; returns these links and the traces.
/// `bench` is used again if it has no disturbances anyway. Adds the driver's faults to `faults`,
/// which holds those of `bench` already.
fn fill_queues(
    mut bench: Bench,
    preset: &Preset,
    span: PathPart,
    seed: u64,
    faults: &mut u64,
    progress: &mut impl FnMut(&str),
) -> Result<([ConfiguredLink; 2], [ProbeTrace; 2]), CheckError> {
    let (_, mtu) = preset.scale(span.links()[0]);
    let mut counted = *faults;
    // Queue drops are only predictable if the link does nothing else.
    let plain = asked::plain(preset);
    if !span.links().into_iter().all(|link| asked::is_plain(preset.spec(link))) {
        drop(bench);
        bench = Bench::start(&plain, seed, span)?;
        counted = 0;
    }
    progress("queue");
    let plain = span.links().map(|link| ConfiguredLink::of(&plain, link));
    let fills = bench.measure(&plain.each_ref().map(|link| flows::fill(link, mtu)))?;
    // Faults of the same lab were counted by the caller.
    *faults += bench.lab.faults().total() - counted;
    Ok((plain, fills))
}

/// Returns the time that a connection may take beyond its round trips.
fn patience(preset: &Preset) -> Duration {
    let sure = |link| {
        let (_, mtu) = preset.scale(link);
        ConfiguredLink::of(preset, link).loss_of_each(mtu) == Some(0.0)
    };
    let all = PathPart::all(preset).into_iter().flat_map(PathPart::links);
    if all.into_iter().all(sure) { flows::PATIENCE } else { RETRANSMISSIONS }
}

/// Measures the queue disciplines, if there are any.
fn overload(
    preset: &Preset,
    span: PathPart,
    links: &[ConfiguredLink; 2],
    seed: u64,
    faults: &mut u64,
    progress: &mut impl FnMut(&str),
) -> Result<Option<[Option<ProbeTrace>; 2]>, CheckError> {
    let has_one = |link: &ConfiguredLink| link.discipline != DisciplineChoice::DropTail;
    if !links.iter().any(has_one) {
        return Ok(None);
    }
    progress("discipline");
    // Without losses of the link, each missing probe was dropped by the discipline.
    let mut bench = Bench::start(&asked::lossless(preset), seed, span)?;
    let age = bench.age();
    let (_, mtu) = preset.scale(span.links()[0]);
    let flow = |link| has_one(link).then(|| flows::overload(link, mtu, age)).flatten();
    let flows = links.each_ref().map(flow);
    let traces = bench.measure(&flows)?;
    *faults += bench.lab.faults().total();
    let [forward, ret] = traces;
    Ok(Some([flows[0].is_some().then_some(forward), flows[1].is_some().then_some(ret)]))
}

/// Adds the driver's figures; of two measurements the larger lateness counts.
fn add_lateness(driver: &mut DriverReport, late: &Lateness) {
    let later = |noted: f64, time: Duration| noted.max(time.as_secs_f64() * 1e3);
    driver.late_median_ms = later(driver.late_median_ms, late.quantile(0.5));
    driver.late_p99_ms = later(driver.late_p99_ms, late.quantile(0.99));
    driver.late_worst_ms = later(driver.late_worst_ms, late.worst());
}
