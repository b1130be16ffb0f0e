//! Hybla: a long round trip should cost nothing.

use core::num::NonZeroU64;
use core::time::Duration;

use link::LossModel;
use units::ByteCount;

use super::trial::{MSS, Trial};
use super::{Effort, Plot, Row, Section, Series, equations};

const RTT0: f64 = 0.025;
const LOSSES: f64 = 15.0;

pub(super) fn section(effort: Effort) -> Section {
    let rates: &[f64] = if effort == Effort::Quick { &[1e-4] } else { &[1e-4, 1e-5] };
    let mut rows = Vec::new();
    for p in rates {
        let every = format!("{:.0}", 1.0 / p);
        let near = goodput("hybla:rho-max=100", RTT0, *p);
        for rtt in [0.1, 0.5] {
            let quotient = goodput("hybla:rho-max=100", rtt, *p) / near;
            let claim = format!("Hybla at {rtt} s against {RTT0} s, every {every}th packet lost");
            let source =
                "the goodput does not depend on the RTT (Caini and Firrincieli 2004, eq. 5)";
            rows.push(Row::near(claim, source, "", (1.0, quotient), 0.15));
        }
        let quotient = goodput("newreno", 0.5, *p) / goodput("newreno", RTT0, *p);
        let claim = format!("NewReno at 0.5 s against {RTT0} s, every {every}th packet lost");
        let source = "1/RTT (Mathis et al. 1997, eq. 3)";
        rows.push(Row::near(claim, source, "", (RTT0 / 0.5, quotient), 0.15));
    }
    let rtts = [0.025, 0.05, 0.1, 0.2, 0.35, 0.5];
    let line = |name: &str, controller: &str| {
        let points = rtts.map(|rtt| (rtt, goodput(controller, rtt, 1e-4) / 1e6));
        Series::line(name, points.into())
    };
    let series = match effort {
        Effort::Quick => Vec::new(),
        Effort::Full => vec![line("hybla", "hybla:rho-max=100"), line("newreno", "newreno")],
    };
    Section {
        title: "Hybla",
        text: "Ratios of the goodputs of single transfers limited only by loss, with ρ unbounded \
             (`hybla:rho-max=100`)."
            .to_owned(),
        rows,
        plots: vec![Plot {
            name: "hybla",
            title: "Goodput and RTT, every 10,000th packet lost".to_owned(),
            axes: ["RTT in s", "goodput in Mbit/s"],
            logarithmic: true,
            series,
        }],
    }
}

/// In bits per second.
fn goodput(controller: &str, rtt: f64, p: f64) -> f64 {
    let rho = if controller == "newreno" { 1.0 } else { rtt / RTT0 };
    let window = rho * equations::mathis(p);
    let mut trial = Trial::new(Duration::from_secs_f64(rtt), controller);
    trial.tcp.initial_ssthresh = Some(ByteCount::new((window * MSS) as u64));
    trial.loss =
        NonZeroU64::new((1.0 / p).round() as u64).map_or(LossModel::None, LossModel::Periodic);
    let time = LOSSES / p / window * rtt;
    trial.warm_up = Duration::from_secs_f64(0.25 * time);
    trial.time = Duration::from_secs_f64(1.25 * time);
    trial.run().goodput
}
