//! `skyhop init`: writes configurations with fresh keys. At a terminal and without options, it asks for
//! the settings.

mod ask;
pub(crate) mod valid;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;
use gateway::config::pair::{AddedTerminal, NewPair, NewSolo};
use gateway::keys::PublicKey;

use crate::print;

/// Default directory of the files.
const DIRECTORY: &str = "skyhop";
/// Default interface towards the clients.
const INTERFACE: &str = "lan0";
/// Default name of the terminal.
const NAME: &str = "terminal";
/// Rate that is measured; the default of both rates.
const AUTO: &str = "auto";

/// The arguments of `skyhop init`.
#[derive(Default, clap::Args)]
pub(crate) struct InitArgs {
    /// Directory for the files; created if missing [default: skyhop]
    directory: Option<PathBuf>,
    /// What to write [default: pair]
    #[arg(long, value_enum)]
    role: Option<InitRole>,
    /// Address where terminals reach the hub: host and UDP port
    #[arg(long, value_name = "HOST:PORT", value_parser = valid::hub)]
    hub: Option<String>,
    /// With `--role terminal`: the hub's public key
    #[arg(long, value_name = "KEY", value_parser = valid::key)]
    hub_key: Option<PublicKey>,
    /// Rate at which the hub sends (forward link), such as 50Mbit/s, `auto` or `modem` [default:
    /// auto]
    #[arg(long, value_name = "RATE", value_parser = valid::rate)]
    hub_rate: Option<String>,
    /// Rate at which the terminal sends (return link), such as 10Mbit/s, `auto` or `modem`
    /// [default: auto]
    #[arg(long, value_name = "RATE", value_parser = valid::rate)]
    terminal_rate: Option<String>,
    /// The interface towards the clients, of the terminal or the single gateway [default: lan0]
    #[arg(long, value_name = "NAME", value_parser = valid::interface)]
    interface: Option<String>,
    /// Name of the terminal [default: terminal]
    #[arg(long, value_parser = valid::name)]
    name: Option<String>,
    /// Every byte is paid for: no padding measures a rate that is `auto`
    #[arg(long)]
    metered: bool,
}

/// The set of files to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum InitRole {
    /// A hub and its first terminal
    #[default]
    Pair,
    /// A further terminal of a hub
    Terminal,
    /// A single gateway
    Solo,
}

/// Asks for the settings if needed, then writes the files.
pub(crate) fn run(args: &InitArgs) -> Result<ExitCode> {
    // Questions are on standard error, so that standard output may be redirected.
    let asks = !args.has_options() && io::stdin().is_terminal() && io::stderr().is_terminal();
    let text = if asks {
        let mut asker = ask::SetupDialogue::new(io::stdin().lock(), io::stderr().lock());
        asker.ask_all(args)?.write()?
    } else {
        args.write()?
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl InitArgs {
    fn has_options(&self) -> bool {
        let Self { role, hub, hub_key, hub_rate, terminal_rate, interface, name, metered, .. } =
            self;
        let texts = [hub, hub_rate, terminal_rate, interface, name];
        texts.iter().any(|text| text.is_some()) || role.is_some() || hub_key.is_some() || *metered
    }

    /// Writes the files; returns a text with their paths and the next steps.
    fn write(&self) -> Result<String> {
        let directory = self.directory.clone().unwrap_or_else(|| DIRECTORY.into());
        Ok(match self.role.unwrap_or_default() {
            InitRole::Pair => {
                let pair = self.pair()?;
                let paths = pair.write(&directory)?;
                pair_written(&pair, &paths)
            }
            InitRole::Terminal => {
                let pair = self.pair()?;
                let Some(key) = &self.hub_key else {
                    bail!("--hub-key is missing: expected the hub's public key");
                };
                terminal_written(&pair, &pair.add_terminal(&directory, key)?)
            }
            InitRole::Solo => {
                let solo = NewSolo { interface: self.interface() };
                solo_written(&solo, &solo.write(&directory)?)
            }
        })
    }

    fn pair(&self) -> Result<NewPair> {
        let Some(hub) = &self.hub else {
            bail!(
                "--hub is missing: expected the address where terminals reach the hub, like \
                 hub.example.net:5900; at a terminal, `skyhop init` without options asks for it"
            );
        };
        let or_auto = |rate: &Option<String>| rate.clone().unwrap_or_else(|| AUTO.to_owned());
        Ok(NewPair {
            hub: hub.clone(),
            port: valid::port(hub),
            hub_rate: or_auto(&self.hub_rate),
            terminal_rate: or_auto(&self.terminal_rate),
            interface: self.interface(),
            name: self.name.clone().unwrap_or_else(|| NAME.to_owned()),
            metered: self.metered,
            hub_tcp: None,
            other_hubs: Vec::new(),
        })
    }

    fn interface(&self) -> String {
        self.interface.clone().unwrap_or_else(|| INTERFACE.to_owned())
    }
}

fn pair_written(pair: &NewPair, [hub, terminal]: &[PathBuf; 2]) -> String {
    let NewPair { hub: at, name, interface, .. } = pair;
    let hub = hub.display();
    let terminal = terminal.display();
    format!(
        "{hub}\n{terminal}\n\n\
         Both contain private keys. Next:\n\
         1. Copy the first to the machine at {at}, the second to the remote site.\n\
         2. There:  skyhop doctor hub.toml   and   skyhop doctor {name}.toml\n\
         3. Then:   skyhop hub hub.toml      and   skyhop terminal {name}.toml\n\
         Clients' packets must pass through the terminal, on interface {interface}.\n"
    )
}

fn terminal_written(pair: &NewPair, AddedTerminal { path, section }: &AddedTerminal) -> String {
    let NewPair { name, interface, .. } = pair;
    format!(
        "{}\n\n\
         It contains a private key. Next:\n\
         1. Add this to the hub's file, and run there:  skyhop reload\n\n\
         {section}\n\
         2. Copy the file to the remote site, and run there:\n   \
            skyhop doctor {name}.toml   and then   skyhop terminal {name}.toml\n\
         Clients' packets must pass through the terminal, on interface {interface}.\n",
        path.display()
    )
}

fn solo_written(solo: &NewSolo, path: &std::path::Path) -> String {
    let path = path.display();
    let interface = &solo.interface;
    format!(
        "{path}\n\nNext:  skyhop doctor {path}   and then   skyhop solo {path}\n\
         Clients' packets must pass through this machine, on interface {interface}.\n"
    )
}
