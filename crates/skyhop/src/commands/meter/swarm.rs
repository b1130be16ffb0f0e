//! `skyhop meter swarm`: runs many terminals towards a hub.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use gateway::config::has_aes;
use gateway::keys::{PublicKey, format_public_key, parse_public_key};
use meter::swarm::{SwarmTraffic, terminal_key};
use meter::{FlowAmount, Stop, SwarmOptions, swarm};
use units::{BitRate, ByteCount};

use super::{fresh_key, print, resolve, resolve_with, some_bytes, some_rate, stop_on_interrupt};
use crate::progress;

/// Default payload of each busy terminal, if neither bytes nor a time are given.
const USUAL: ByteCount = ByteCount::new(10_000_000);

/// Arguments of `skyhop meter swarm`.
#[derive(Debug, Args)]
pub(crate) struct SwarmArgs {
    /// The hub to measure: name or address, with or without `:PORT`
    #[arg(required_unless_present = "print_hub_config")]
    hub: Option<String>,
    /// The hub's public key
    #[arg(long, value_name = "KEY", value_parser = public_key, required_unless_present = "print_hub_config")]
    hub_key: Option<PublicKey>,
    /// Number of terminals, each with its own key and UDP socket
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    terminals: u32,
    /// Seed of the terminals' keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the terminals that the hub has to permit, as sections of its file, instead of measuring
    #[arg(long)]
    print_hub_config: bool,
    /// Time over which the terminals start, e.g. 10s
    #[arg(long, value_name = "TIME", default_value = "0 s", value_parser = units::parse_duration)]
    over: Duration,
    /// Meter server, as the hub reaches it, from which busy terminals download
    #[arg(long, value_name = "HOST")]
    server: Option<String>,
    /// Number of terminals that download, one flow each
    #[arg(long, value_name = "N", default_value_t = 1, requires = "server")]
    busy: u32,
    /// Payload of each download, e.g. 20MB
    #[arg(long, value_parser = some_bytes, requires = "server", conflicts_with = "time")]
    bytes: Option<ByteCount>,
    /// Time of each download, e.g. 10s
    #[arg(long, value_parser = units::parse_duration, requires = "server")]
    time: Option<Duration>,
    /// Rate of each terminal's return link
    #[arg(long, default_value = "10 Mbit/s", value_parser = some_rate)]
    rate: BitRate,
    /// Time limit for the sessions to come up, and again for the downloads
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = units::parse_duration)]
    limit: Duration,
    /// Process id of the hub on this machine, to report its memory and CPU time
    #[arg(long, value_name = "PID")]
    hub_pid: Option<u32>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    parse_public_key(text).map_err(|error| error.to_string())
}

/// Measures, or prints the hub's configuration. Returns exit code 1 if a session or download did not
/// complete.
pub(super) fn run(args: &SwarmArgs, runtime: &tokio::runtime::Runtime) -> Result<ExitCode> {
    let server = args.server.as_deref().map(resolve).transpose()?;
    if args.print_hub_config {
        print(&hub_config(args.seed, args.terminals, server))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = args.options(server, stop_on_interrupt(runtime))?;
    let spinner = progress::spinner(format!("{} terminals", args.terminals));
    let report = runtime.block_on(swarm(&options)).context("cannot run the terminals")?;
    spinner.finish_and_clear();
    print(&match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    })?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl SwarmArgs {
    fn options(&self, server: Option<SocketAddr>, stop: Stop) -> Result<SwarmOptions> {
        let hub = self.hub.as_deref().context("no hub")?;
        let amount = match self.time {
            Some(time) => FlowAmount::Time(time),
            None => FlowAmount::Bytes(self.bytes.unwrap_or(USUAL)),
        };
        let key = fresh_key()?;
        let busy = self.busy.min(self.terminals);
        Ok(SwarmOptions {
            hub: resolve_with(hub, gateway::PORT)?,
            hub_key: self.hub_key.context("no key of the hub")?,
            seed: self.seed,
            terminals: self.terminals,
            rate: self.rate,
            aes: has_aes(),
            over: self.over,
            traffic: server.map(|server| SwarmTraffic { server, terminals: busy, amount, key }),
            // A timed transfer takes its time in any case.
            limit: self.limit.saturating_add(self.time.unwrap_or_default()),
            hub_process: self.hub_pid,
            stop,
        })
    }
}

/// Returns the sections that let a hub serve a swarm. Its terminals may reach only the meter server.
fn hub_config(seed: u64, terminals: u32, server: Option<SocketAddr>) -> String {
    let mut text = format!(
        "# For `skyhop meter swarm --seed {seed} --terminals {terminals}`. Remove it afterwards:\n\
         # whoever knows the seed has the keys.\n"
    );
    let allowed = match server {
        Some(SocketAddr::V4(address)) => {
            format!("reach = [\"{}/32:{}\"]", address.ip(), address.port())
        }
        Some(SocketAddr::V6(address)) => {
            format!("reach = [\"[{}/128]:{}\"]", address.ip(), address.port())
        }
        None => "deny = [\"0.0.0.0/0\", \"::/0\"]".to_owned(),
    };
    for number in 0..terminals {
        let key = format_public_key(&terminal_key(seed, number).public());
        let _ = write!(
            text,
            "\n[[terminal]]\nname = \"swarm-{seed}-{number}\"\nkey = \"{key}\"\n{allowed}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use config::ConfigFile;

    use super::*;

    #[test]
    fn the_printed_sections_are_a_hub_s_and_reach_the_server_only() {
        for (server, reach) in [("198.18.0.7:5259", true), ("[2a00::7]:5259", true), ("", false)] {
            let server = server.parse().ok();
            let own = format!("private_key = \"{}\"\nrate = \"1 Mbit/s\"\n", "A".repeat(43) + "=");
            let text = own + &hub_config(7, 3, server);
            let file = ConfigFile { path: "hub.toml".as_ref(), text: &text, regular: false };
            let pair = |_| Ok::<_, std::io::Error>(terminal_key(7, 99));
            let config = file.hub(pair).unwrap();
            let keys: Vec<_> = config.terminals.iter().map(|terminal| terminal.key).collect();
            assert_eq!(keys, [0, 1, 2].map(|number| terminal_key(7, number).public()));
            let egress = &config.terminals[2].egress;
            let to = |address: SocketAddr| egress.check(address, |_| Some(false)).is_ok();
            assert_eq!(server.is_some_and(to), reach);
            assert!(!to("1.2.3.4:80".parse().unwrap()));
        }
    }
}
