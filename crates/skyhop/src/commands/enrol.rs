//! `skyhop enrol`: lets new terminals join a hub, and lists and revokes permits.

use std::fs::{self, File};
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use gateway::Prefix;
use gateway::config::pair::NewPair;
use gateway::config::{HubAddress, TcpAddress};
use gateway::enrolment::join::join;
use gateway::enrolment::permit::{self, Invitation};
use gateway::enrolment::token::JoinToken;
use gateway::keys::{PrivateKey, PublicKey, parse_public_key};
use units::{format_duration, parse_duration};

use crate::commands::init::valid;
use crate::{print, print_to_stderr};

/// Maximum length of a token, in bytes.
const LONGEST_TOKEN: u64 = 64 << 10;

/// Subcommands of `skyhop enrol`.
#[derive(clap::Subcommand)]
pub(crate) enum EnrolCommand {
    /// On the hub: invite a new terminal, and print the token with which it joins once
    Invite(InviteArgs),
    /// On the terminal: join with a token, and write the terminal's configuration
    Join(JoinArgs),
    /// On the hub: remove a terminal's permit; its session ends within a second
    Revoke(RevokeArgs),
    /// On the hub: list the terminals that may connect
    List(ListArgs),
}

/// The arguments of `skyhop enrol invite`.
#[derive(clap::Args)]
pub(crate) struct InviteArgs {
    /// The hub's configuration, which has `permits`
    hub_file: PathBuf,
    /// Name of the terminal in log and status, and of its permit
    #[arg(value_parser = valid::name)]
    name: String,
    /// Where terminals reach this hub: host and UDP port
    #[arg(long, value_name = "HOST:PORT")]
    hub: HubAddress,
    /// Where terminals reach this hub over TCP, if the hub has `listen_tcp`
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<TcpAddress>,
    /// A further hub with the same permits, and its public key; may be repeated
    #[arg(long, value_name = "HOST:PORT=KEY", value_parser = other_hub)]
    other_hub: Vec<(HubAddress, PublicKey)>,
    /// Addresses of the terminal's clients; may be repeated
    #[arg(long, value_name = "PREFIX")]
    network: Vec<Prefix>,
    /// How long the token is valid
    #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    valid_for: Duration,
}

/// The arguments of `skyhop enrol join`.
#[derive(clap::Args)]
pub(crate) struct JoinArgs {
    /// A file with what `skyhop enrol invite` has printed on the hub; `-` for standard input
    #[arg(value_name = "TOKEN_FILE", value_parser = token_file)]
    token: PathBuf,
    /// Where to write the configuration
    #[arg(default_value = "skyhop")]
    directory: PathBuf,
    /// Interface towards the clients
    #[arg(long, value_parser = valid::interface, default_value = "lan0")]
    interface: String,
    /// Rate of the return link; `auto` measures it
    #[arg(long, value_name = "RATE", value_parser = valid::rate, default_value = "auto")]
    terminal_rate: String,
    /// Every byte of the hop is paid for: measure the rate with users' data only
    #[arg(long)]
    metered: bool,
}

/// The arguments of `skyhop enrol revoke`.
#[derive(clap::Args)]
pub(crate) struct RevokeArgs {
    /// The hub's configuration
    hub_file: PathBuf,
    /// Name of the terminal
    name: String,
}

/// The arguments of `skyhop enrol list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// The hub's configuration
    hub_file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn other_hub(text: &str) -> Result<(HubAddress, PublicKey), String> {
    let (address, key) =
        text.split_once('=').ok_or("expected HOST:PORT=KEY, with the hub's public key")?;
    let address = address.parse().map_err(|_| format!("expected {}", HubAddress::FORM))?;
    Ok((address, parse_public_key(key).map_err(|error| error.to_string())?))
}

pub(crate) fn run(command: EnrolCommand) -> Result<ExitCode> {
    match command {
        EnrolCommand::Invite(args) => invite(args),
        EnrolCommand::Join(args) => join_hub(&args),
        EnrolCommand::Revoke(args) => {
            permit::revoke(&args.hub_file, &args.name)?;
            print(&format!("{} is no longer permitted\n", args.name))?;
            Ok(ExitCode::SUCCESS)
        }
        EnrolCommand::List(args) => list(&args),
    }
}

fn invite(args: InviteArgs) -> Result<ExitCode> {
    let InviteArgs { hub_file, name, hub, tcp, other_hub: others, network, valid_for } = args;
    let invitation = Invitation { name, hub, tcp, others, networks: network, valid_for };
    let token = invitation.write(&hub_file)?;
    let valid_for = in_hours(valid_for);
    // On standard error, so that standard output has the token only.
    print_to_stderr(format_args!(
        "Within {valid_for}, run on the terminal, once:  skyhop enrol join -\nand paste this:"
    ));
    print(&format!("{token}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats whole hours as hours, such as "24 h", and other durations as usual.
fn in_hours(duration: Duration) -> String {
    match (duration.as_secs() / 3600, duration.as_secs() % 3600) {
        (hours @ 1.., 0) => format!("{hours} h"),
        _ => format_duration(duration),
    }
}

/// Refuses a token as an argument, because every user of the machine can read the arguments of a command.
fn token_file(text: &str) -> Result<PathBuf, String> {
    match text.parse::<JoinToken>() {
        Ok(_) => Err(
            "others could read a token here: give a file that contains it, or - and paste it on \
                      standard input"
                .to_owned(),
        ),
        Err(_) => Ok(PathBuf::from(text)),
    }
}

fn read_token(file: &Path) -> Result<JoinToken> {
    let problem = || format!("cannot read the token from {}", file.display());
    let mut text = String::new();
    if file == Path::new("-") {
        if io::stdin().is_terminal() {
            print_to_stderr("Paste the token, and press Enter:");
        }
        io::stdin().lock().take(LONGEST_TOKEN).read_line(&mut text).with_context(problem)?;
    } else {
        let opened = File::open(file).with_context(problem)?;
        opened.take(LONGEST_TOKEN).read_to_string(&mut text).with_context(problem)?;
    }
    text.trim().parse().with_context(problem)
}

fn join_hub(args: &JoinArgs) -> Result<ExitCode> {
    let token = read_token(&args.token)?;
    let (first, others) = token.hubs.split_first().context("the token names no hub")?;
    let pair = NewPair {
        hub: first.address.as_str().to_owned(),
        port: gateway::PORT,
        // Not used: only the terminal's file is written.
        hub_rate: String::new(),
        terminal_rate: args.terminal_rate.clone(),
        interface: args.interface.clone(),
        name: valid::name(&token.name).map_err(anyhow::Error::msg)?,
        metered: args.metered,
        hub_tcp: first.tcp.clone(),
        other_hubs: others.to_vec(),
    };
    let key = PrivateKey::generate()?;
    // Written before joining, so that a key that the hub knows is never lost.
    let path = pair.write_terminal(&args.directory, &first.key, &key)?;
    if let Err(error) = join(&token, &key) {
        let _ = fs::remove_file(&path);
        return Err(error.into());
    }
    let path = path.display();
    print(&format!(
        "{path}\n\nThe hub knows this terminal now. Next:\n  skyhop doctor {path}   and then   \
         skyhop terminal {path}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let terminals = permit::list(&args.hub_file)?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&terminals)? + "\n",
        false => permit::table(&terminals),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;
    use gateway::config::pair::HubContact;

    use super::*;

    #[test]
    fn a_token_is_refused_as_an_argument() {
        let secret = PrivateKey::generate().unwrap();
        let address = "hub.example:5900".parse().unwrap();
        let hubs = vec![HubContact { address, tcp: None, key: secret.public() }];
        let token = JoinToken { name: "ship".to_owned(), hubs, secret }.to_string();
        let join = |token: &str| {
            let command = EnrolCommand::augment_subcommands(clap::Command::new("enrol"));
            let parsed = command.try_get_matches_from(["enrol", "join", token]);
            parsed.map(drop).map_err(|error| error.to_string())
        };
        assert!(join(&token).is_err_and(|why| why.contains("others could read a token here")));
        assert_eq!([join("-"), join("token")], [Ok(()), Ok(())]);
    }
}
