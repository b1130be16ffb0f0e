//! The report as a table of text.

use core::fmt;

use ::report::{TableColumn, TextTable};

use super::report::{
    CheckReport, DelayReport, DirectionReport, DisciplineReport, LossReport, QueueReport,
    RateReport,
};

/// A quantity's configured and measured value, and whether it is within the tolerance.
struct ReportRow {
    asked: String,
    measured: String,
    within: bool,
}

/// A table of all quantities, and what explains a value outside its tolerance.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [self.preset.as_str(), "asked", "measured", "verdict"];
        let mut table = TextTable::new(names.map(TableColumn::left));
        for direction in &self.directions {
            for (what, row) in rows(direction) {
                add(&mut table, &format!("{} {what}", direction.direction), row);
            }
        }
        for reach in &self.reach {
            let measured = reach.error.clone().unwrap_or_else(|| "answered".into());
            let what = format!("{} {} – server", reach.family, reach.client);
            add(
                &mut table,
                &what,
                Some(ReportRow { asked: "echo".into(), measured, within: reach.within }),
            );
        }
        let measured = self.driver.faults.to_string();
        let within = self.driver.within;
        let faults = ReportRow { asked: "0".into(), measured, within };
        add(&mut table, "lost outside the link", Some(faults));
        let mut losses = self.directions.iter().filter_map(|direction| direction.loss.as_ref());
        if losses.any(|loss| !loss.within) {
            table.note(
                "One correct link in a hundred falls outside the loss interval by chance: try \
                 another --seed.",
            );
        }
        write!(f, "{table}{}", lateness(self))
    }
}

/// Adds a line; without a `row`, the quantity was not measured.
fn add(table: &mut TextTable, what: &str, row: Option<ReportRow>) {
    let what = what.to_owned();
    table.row(match row {
        None => [what, String::new(), "–".into(), "not measured".into()],
        Some(ReportRow { asked, measured, within }) => {
            [what, asked, measured, if within { "ok" } else { "OUTSIDE" }.to_owned()]
        }
    });
}

fn rows(report: &DirectionReport) -> Vec<(&'static str, Option<ReportRow>)> {
    let order = &report.order;
    let order = ReportRow {
        asked: if order.reordering { "any" } else { "0" }.to_owned(),
        measured: format!("{} of {}", order.out_of_order, order.arrived),
        within: order.within,
    };
    let mut rows = vec![
        ("delay", report.delay.as_ref().map(delay)),
        ("rate", report.rate.as_ref().map(rate)),
        ("loss", report.loss.as_ref().map(loss)),
        ("out of order", Some(order)),
        ("queue", report.queue.as_ref().map(queue)),
    ];
    if let Some(discipline) = &report.discipline {
        rows.push(("early drops", Some(early_drops(discipline))));
    }
    rows
}

fn delay(delay: &DelayReport) -> ReportRow {
    let asked = match delay.jitter_ms {
        0.0 => format!("{:.3}", delay.asked_ms),
        jitter => format!("{:.3} to {:.3}", delay.asked_ms, delay.asked_ms + jitter),
    };
    let median = delay.median_ms;
    let error = delay.p99_error_ms;
    ReportRow {
        asked: format!("{asked} ms ± 0.5 ms (p99)"),
        measured: format!("median {median:.3} ms, p99 error {error:.3} ms"),
        within: delay.within,
    }
}

fn rate(rate: &RateReport) -> ReportRow {
    let mbit = |bits: f64| format!("{:.3} Mbit/s", bits / 1e6);
    let share = (rate.measured_bit_s / rate.asked_bit_s - 1.0) * 100.0;
    ReportRow {
        asked: format!("{} ± {:.1} %", mbit(rate.asked_bit_s), rate.tolerance * 100.0),
        measured: format!("{} ({share:+.2} %)", mbit(rate.measured_bit_s)),
        within: rate.within,
    }
}

fn loss(loss: &LossReport) -> ReportRow {
    ReportRow {
        asked: format!("{:.4} %: {} to {}", loss.asked * 100.0, loss.least, loss.most),
        measured: format!("{} of {}", loss.lost, loss.sent),
        within: loss.within,
    }
}

fn queue(queue: &QueueReport) -> ReportRow {
    let more = if queue.full { "" } else { " or more" };
    ReportRow {
        asked: format!("{} packets", queue.asked_packets),
        measured: format!("{} packets{more}", queue.measured_packets),
        within: queue.within,
    }
}

fn early_drops(discipline: &DisciplineReport) -> ReportRow {
    ReportRow {
        asked: format!("{} to {}", discipline.least, discipline.most),
        measured: format!("{} of {}", discipline.dropped, discipline.sent),
        within: discipline.within,
    }
}

/// A line on the driver's lateness, and whether it explains a delay outside its tolerance.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkName;
    use crate::check::{DriverReport, OrderReport, ReachReport};

    #[test]
    fn a_value_outside_is_marked_and_explained() {
        let order = OrderReport { arrived: 9, out_of_order: 0, reordering: false, within: true };
        let asked = 0.01;
        let sent = 1000;
        let lost = 99;
        let least = 3;
        let most = 19;
        let forward = DirectionReport {
            direction: LinkName::Forward,
            delay: None,
            rate: None,
            loss: Some(LossReport { asked, sent, lost, least, most, within: false }),
            order,
            queue: None,
            discipline: None,
        };
        let client = "client".to_owned();
        let family = "IPv4";
        let report = CheckReport {
            preset: "geo".to_owned(),
            directions: vec![forward],
            reach: vec![ReachReport { client, family, error: None, within: true }],
            driver: DriverReport { within: true, ..DriverReport::default() },
        };
        let expected = "\
geo                    asked              measured    verdict
forward delay                             –           not measured
forward rate                              –           not measured
forward loss           1.0000 %: 3 to 19  99 of 1000  OUTSIDE
forward out of order   0                  0 of 9      ok
forward queue                             –           not measured
IPv4 client – server   echo               answered    ok
lost outside the link  0                  0           ok
One correct link in a hundred falls outside the loss interval by chance: try another --seed.
The driver's own lateness while the delay was measured: median 0.00 ms, p99 0.00 ms, worst 0.00 ms.
";
        assert_eq!(report.to_string(), expected);
    }
}
