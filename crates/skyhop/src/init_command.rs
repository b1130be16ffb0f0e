//! `skyhop init`: writes a matching pair of configurations with fresh keys.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use gateway::config::pair::NewPair;

use crate::print;

/// `skyhop init …`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory for the files; created if missing
    directory: PathBuf,
    /// Address where terminals reach the hub: host and UDP port
    #[arg(long, value_name = "HOST:PORT")]
    hub: String,
    /// Rate at which the hub sends (forward link), such as 50Mbit/s, or `auto`
    #[arg(long, default_value = "auto", value_name = "RATE")]
    hub_rate: String,
    /// Rate at which the terminal sends (return link), such as 10Mbit/s, or `auto`
    #[arg(long, default_value = "auto", value_name = "RATE")]
    terminal_rate: String,
    /// The terminal's interface towards the clients
    #[arg(long, default_value = "lan0", value_name = "NAME")]
    interface: String,
    /// Name of the terminal
    #[arg(long, default_value = "terminal")]
    name: String,
}

/// Writes both files.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let pair = args.pair()?;
    let paths = pair.write(&args.directory)?;
    print(&told(args, &paths))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn pair(&self) -> Result<NewPair> {
        let port = port(&self.hub)?;
        check_name(&self.name)?;
        Ok(NewPair {
            hub: self.hub.clone(),
            port,
            hub_rate: self.hub_rate.clone(),
            terminal_rate: self.terminal_rate.clone(),
            interface: self.interface.clone(),
            name: self.name.clone(),
        })
    }
}

fn port(hub: &str) -> Result<u16> {
    let port = hub.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.with_context(|| {
        format!("--hub {hub:?}: expected host and UDP port, like hub.example.net:5900")
    })
}

/// The terminal's name must be usable as that of a file.
fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name == "hub" || name.starts_with('.') || !name.chars().all(plain) {
        bail!("--name {name:?}: expected letters, digits, '-', '_' or '.', and not \"hub\"");
    }
    Ok(())
}

fn told(args: &Args, [hub, terminal]: &[PathBuf; 2]) -> String {
    let (hub, terminal, at) = (hub.display(), terminal.display(), &args.hub);
    format!(
        "{hub}\n{terminal}\n\n\
         Both contain private keys. Next:\n\
         1. Copy the first to the machine at {at}, the second to the remote site.\n\
         2. There:  skyhop doctor hub.toml   and   skyhop doctor {}.toml\n\
         3. Then:   skyhop hub hub.toml      and   skyhop terminal {}.toml\n\
         Clients' packets must pass through the terminal, on interface {}.\n",
        args.name, args.name, args.interface
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_has_a_port_and_the_terminal_a_file_name() {
        assert_eq!(port("hub.example.net:5901").unwrap(), 5901);
        assert!(port("hub").unwrap_err().to_string().contains("host and UDP port"));
        assert!(check_name("ship-1").is_ok());
        for name in ["", "hub", "../x", ".x"] {
            assert!(check_name(name).unwrap_err().to_string().contains("--name"), "{name}");
        }
    }
}
