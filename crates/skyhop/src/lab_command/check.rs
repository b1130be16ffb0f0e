//! `skyhop lab check`: compares a link's settings with measurements.

use std::process::ExitCode;

use lab::{CheckReport, DelayReport, DirectionReport};

use super::link_args::LinkArgs;
use crate::print;

/// Measures the link in its own lab; exit code 1 if it is out of tolerance.
pub(super) fn run(link: &LinkArgs, json: bool) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    lab::enter()?;
    let say = |what: &str| eprintln!("skyhop: measuring {what} …");
    let report = lab::check(&preset, link.seed(), say)?;
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { table(&report) };
    print(&text)?;
    Ok(if report.is_within() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line of the table: quantity, setting, measurement, verdict (`None`: not measured).
struct Line(String, String, String, Option<bool>);

fn table(report: &CheckReport) -> String {
    let mut lines: Vec<Line> = report.directions.iter().flat_map(direction).collect();
    lines.extend(report.reach.iter().map(|reach| {
        let heard = reach.error.clone().unwrap_or_else(|| "answered".into());
        Line(
            format!("{} {} – server", reach.family, reach.client),
            "echo".into(),
            heard,
            Some(reach.within),
        )
    }));
    let driver = &report.driver;
    let faults = format!("{}", driver.faults);
    lines.push(Line("lost outside the link".into(), "0".into(), faults, Some(driver.within)));
    let longest = lines.iter().map(|line| line.0.chars().count()).max().unwrap_or(0);
    let width = longest.max(report.preset.chars().count());
    let mut text =
        format!("{:<width$} {:<26} {:<42} verdict\n", report.preset, "asked", "measured");
    for Line(what, asked, measured, within) in lines {
        let verdict = match within {
            Some(true) => "ok",
            Some(false) => "OUTSIDE",
            None => "not measured",
        };
        text += &format!("{what:<width$} {asked:<26} {measured:<42} {verdict}\n");
    }
    let losses = report.directions.iter().filter_map(|direction| direction.loss.as_ref());
    if losses.into_iter().any(|loss| !loss.within) {
        text += "One correct link in a hundred falls outside the loss interval by chance: try \
                 another --seed.\n";
    }
    text + &lateness(report)
}

fn direction(report: &DirectionReport) -> Vec<Line> {
    let line = |what: &str, asked: String, measured: String, within| {
        Line(format!("{} {what}", report.direction), asked, measured, Some(within))
    };
    let missing =
        |what: &str| Line(format!("{} {what}", report.direction), String::new(), "–".into(), None);
    let delay = report.delay.as_ref().map_or_else(
        || missing("delay"),
        |delay| {
            line(
                "delay",
                format!("{} ms ± 0.5 ms (p99)", asked_delay(delay)),
                format!("median {:.3} ms, p99 error {:.3} ms", delay.median_ms, delay.p99_error_ms),
                delay.within,
            )
        },
    );
    let rate = report.rate.as_ref().map_or_else(
        || missing("rate"),
        |rate| {
            let share = (rate.measured_bit_s / rate.asked_bit_s - 1.0) * 100.0;
            line(
                "rate",
                format!("{} ± {:.1} %", mbit(rate.asked_bit_s), rate.tolerance * 100.0),
                format!("{} ({share:+.2} %)", mbit(rate.measured_bit_s)),
                rate.within,
            )
        },
    );
    let loss = report.loss.as_ref().map_or_else(
        || missing("loss"),
        |loss| {
            let asked = format!("{:.4} %: {} to {}", loss.asked * 100.0, loss.least, loss.most);
            line("loss", asked, format!("{} of {}", loss.lost, loss.sent), loss.within)
        },
    );
    let order = &report.order;
    let measured = format!("{} of {}", order.out_of_order, order.arrived);
    let asked = if order.reordering { "any" } else { "0" };
    let order = line("out of order", asked.into(), measured, order.within);
    let queue = report.queue.as_ref().map_or_else(
        || missing("queue"),
        |queue| {
            let more = if queue.full { "" } else { " or more" };
            let measured = format!("{} packets{more}", queue.measured_packets);
            line("queue", format!("{} packets", queue.asked_packets), measured, queue.within)
        },
    );
    let discipline = report.discipline.as_ref().map(|discipline| {
        let asked = format!("{} to {}", discipline.least, discipline.most);
        let measured = format!("{} of {}", discipline.dropped, discipline.sent);
        line("early drops", asked, measured, discipline.within)
    });
    [delay, rate, loss, order, queue].into_iter().chain(discipline).collect()
}

fn asked_delay(delay: &DelayReport) -> String {
    match delay.jitter_ms {
        0.0 => format!("{:.3}", delay.asked_ms),
        jitter => format!("{:.3} to {:.3}", delay.asked_ms, delay.asked_ms + jitter),
    }
}

/// Says whether a missed delay is the machine's fault.
fn lateness(report: &CheckReport) -> String {
    let driver = &report.driver;
    let mut text = format!(
        "The driver's own lateness while the delay was measured: median {:.2} ms, p99 {:.2} ms, \
         worst {:.2} ms.\n",
        driver.late_median_ms, driver.late_p99_ms, driver.late_worst_ms
    );
    let delays = report.directions.iter().filter_map(|direction| direction.delay.as_ref());
    let missed = delays.filter(|delay| !delay.within).map(|delay| delay.p99_error_ms);
    if let Some(worst) = missed.reduce(f64::max) {
        text += if driver.late_p99_ms >= worst / 2.0 {
            "It explains the delay's error: this machine is too busy to wake the driver in time.\n"
        } else {
            "It does not explain the delay's error.\n"
        };
    }
    text
}

fn mbit(bits: f64) -> String {
    format!("{:.3} Mbit/s", bits / 1e6)
}
