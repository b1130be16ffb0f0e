//! `skyhop lab status`.

use std::process::ExitCode;

use lab::{Found, LabName, LinkStatus, Standing, Standings, StateError, Status};

use crate::print;

/// `skyhop lab status …`
#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// Name of the lab; all that are up if omitted
    name: Option<LabName>,
    /// Print everything as JSON: a list of labs
    #[arg(long)]
    json: bool,
}

/// Shows one lab, or all.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let found = look(&Standings::default())?;
    let labs = match &args.name {
        Some(name) => vec![found.named(name)?],
        None => found.up,
    };
    let all = labs.iter().map(Standing::status).collect::<Result<Vec<Status>, _>>()?;
    let text = match (args.json, all.is_empty()) {
        (true, _) => serde_json::to_string_pretty(&all)? + "\n",
        (false, true) => "no lab is up\n".to_owned(),
        (false, false) => all.iter().map(table).collect::<Vec<_>>().join("\n"),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The labs that are up. Reports labs that were killed and removes their remains.
pub(super) fn look(labs: &Standings) -> Result<Found, StateError> {
    let found = labs.find()?;
    for name in &found.swept {
        eprintln!("skyhop: lab {name} was killed; its remains have been removed");
    }
    Ok(found)
}

fn table(lab: &Status) -> String {
    let gateways = if lab.gateways { ", gateway pair" } else { "" };
    let mut text = format!(
        "{}: {} ({}), seed {}{gateways}, up {:.0} s\n",
        lab.name, lab.preset, lab.description, lab.seed, lab.uptime_s
    );
    let hosts = lab.hosts.iter().map(|host| format!("{} {}", host.name, host.ipv4));
    text += &format!("  hosts   {}\n", hosts.collect::<Vec<_>>().join(", "));
    for link in &lab.links {
        text += &row(link);
    }
    let faults = &lab.faults;
    let total = faults.missed + faults.oversized + faults.refused + faults.astray;
    text += &format!(
        "  driver  {:.2} ms late (p99), {:.2} ms at worst; {total} packets lost outside the \
         links\n",
        lab.lateness.p99_ms, lab.lateness.worst_ms
    );
    text
}

fn row(link: &LinkStatus) -> String {
    format!(
        "  {:<20} {}, {}, loss {}, queue {}\n  {:<20} {} packets delivered, {} lost, {} dropped, \
         {} waiting\n",
        link.link,
        link.rate,
        link.delay,
        link.loss,
        link.queue,
        "",
        link.delivered.packets,
        link.lost.packets,
        link.dropped.packets,
        link.queued.packets,
    )
}
