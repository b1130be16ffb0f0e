//! `skyhop init`: writes a matching pair of configurations with fresh keys.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use gateway::config::{read_hub, read_terminal};
use gateway::hub::PORT as HUB_PORT;
use gateway::keys::{PrivateKey, format_public_key};

use crate::print;

/// Name of the hub's file.
const HUB: &str = "hub.toml";
/// A commented-out setting for troubleshooting.
const LOG: &str = "# log = \"debug\"   # \"off\", \"error\", \"warn\", \"info\" (unless told \
                   otherwise), \"trace\"\n";

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
    let port = port(&args.hub)?;
    let file = terminal_file(&args.name)?;
    let [hub, terminal] = [PrivateKey::generate()?, PrivateKey::generate()?];
    let texts = [
        (HUB, hub_config(args, port, &hub, &terminal)),
        (&*file, terminal_config(args, &hub, &terminal)),
    ];
    let paths = texts.each_ref().map(|(name, _)| args.directory.join(name));
    if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        bail!("{} already exists and is not overwritten", path.display());
    }
    make_directory(&args.directory)?;
    write_checked(&paths, texts.each_ref().map(|(_, text)| text.as_str()))?;
    print(&told(args, &paths))?;
    Ok(ExitCode::SUCCESS)
}

fn port(hub: &str) -> Result<u16> {
    let port = hub.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.with_context(|| {
        format!("--hub {hub:?}: expected host and UDP port, like hub.example.net:5900")
    })
}

/// The terminal's file name. Its name must be usable as one.
fn terminal_file(name: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name == "hub" || name.starts_with('.') || !name.chars().all(plain) {
        bail!("--name {name:?}: expected letters, digits, '-', '_' or '.', and not \"hub\"");
    }
    Ok(format!("{name}.toml"))
}

fn make_directory(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// Writes both files, or neither. Files that a gateway would reject are not kept.
fn write_checked(paths: &[PathBuf; 2], texts: [&str; 2]) -> Result<()> {
    let written = paths.iter().zip(texts).try_for_each(|(path, text)| {
        write_new(path, text).with_context(|| format!("cannot write {}", path.display()))
    });
    let checked = written.and_then(|()| {
        read_hub(&paths[0])?;
        read_terminal(&paths[1])?;
        Ok(())
    });
    if checked.is_err() {
        for path in paths {
            let _ = fs::remove_file(path);
        }
    }
    checked
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn hub_config(args: &Args, port: u16, hub: &PrivateKey, terminal: &PrivateKey) -> String {
    let mut text =
        String::from("# The hub: at the earth station's side of the hop. Keep this file secret.\n");
    let _ = writeln!(text, "private_key = \"{}\"", hub.to_base64());
    if port != HUB_PORT {
        let _ = writeln!(text, "listen = \"[::]:{port}\"");
    }
    text += &rate(&args.hub_rate, "the forward link, from here to the terminals");
    text += LOG;
    let _ = writeln!(text, "\n[[terminal]]\nname = {:?}", args.name);
    let _ = writeln!(text, "key = \"{}\"", format_public_key(&terminal.public()));
    text += DENY;
    text
}

fn terminal_config(args: &Args, hub: &PrivateKey, terminal: &PrivateKey) -> String {
    let mut text = String::from("# The terminal: where the clients are. Keep this file secret.\n");
    let _ = writeln!(text, "private_key = \"{}\"", terminal.to_base64());
    let _ = writeln!(text, "hub = {:?}", args.hub);
    let _ = writeln!(text, "hub_key = \"{}\"", format_public_key(&hub.public()));
    text += &rate(&args.terminal_rate, "the return link, from here to the hub");
    text += LOG;
    let _ = writeln!(text, "\n[intercept]\ninterfaces = [{:?}]", args.interface);
    text += ACCEPT;
    text
}

/// Commented-out settings that a hub's operator most often needs.
const DENY: &str = "# Clients reach everything but this machine's own addresses. To close networks:\n\
                    # deny = [\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\"]\n";
/// Commented-out settings that a terminal's operator may need.
const ACCEPT: &str = "\n# Connections from the hub's side are refused, except to these:\n\
                      # [accept]\n# to = [\"10.1.0.0/16:22\"]\n";

fn rate(rate: &str, link: &str) -> String {
    format!("rate = {rate:?}   # of {link}; \"auto\" measures it\n")
}

fn told(args: &Args, [hub, terminal]: &[PathBuf; 2]) -> String {
    let (hub, terminal, at) = (hub.display(), terminal.display(), &args.hub);
    format!(
        "{hub}\n{terminal}\n\n\
         Both contain private keys. Next:\n\
         1. Copy the first to the machine at {at}, the second to the remote site.\n\
         2. There:  skyhop doctor {HUB}   and   skyhop doctor {}.toml\n\
         3. Then:   skyhop hub {HUB}      and   skyhop terminal {}.toml\n\
         Clients' packets must pass through the terminal, on interface {}.\n",
        args.name, args.name, args.interface
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args(directory: &Path) -> Args {
        Args {
            directory: directory.join("new"),
            hub: "hub.example.net:5901".to_owned(),
            hub_rate: "50Mbit/s".to_owned(),
            terminal_rate: "auto".to_owned(),
            interface: "lan7".to_owned(),
            name: "ship-1".to_owned(),
        }
    }

    #[test]
    fn the_pair_fits_together_and_is_secret() {
        let directory = tempfile::tempdir().unwrap();
        let args = args(directory.path());
        run(&args).unwrap();
        let paths = ["hub.toml", "ship-1.toml"].map(|name| args.directory.join(name));
        let (hub, terminal) = (read_hub(&paths[0]).unwrap(), read_terminal(&paths[1]).unwrap());
        assert_eq!(terminal.hub_key, hub.identity.public());
        assert_eq!(hub.terminals[0].key, terminal.identity.public());
        assert_eq!(hub.terminals[0].name, "ship-1");
        assert_eq!(hub.listen.unwrap().port(), 5901);
        assert_eq!(terminal.hub.as_str(), args.hub);
        for path in &paths {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let before = fs::read_to_string(&paths[0]).unwrap();
        let error = run(&args).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), before);
    }

    #[test]
    fn what_may_be_reached_is_a_comment_away() {
        let directory = tempfile::tempdir().unwrap();
        let args = args(directory.path());
        run(&args).unwrap();
        let paths = ["hub.toml", "ship-1.toml"].map(|name| args.directory.join(name));
        let before = read_terminal(&paths[1]).unwrap().accept;
        for path in &paths {
            let text = fs::read_to_string(path).unwrap();
            let text = text.replace("# deny", "deny").replace("# [accept]", "[accept]");
            fs::write(path, text.replace("# to", "to")).unwrap();
        }
        let default = read_hub(&paths[0]).unwrap().terminals[0].egress.clone();
        assert_ne!(default, gateway::Egress::everywhere());
        assert_ne!(read_terminal(&paths[1]).unwrap().accept, before);
    }

    #[test]
    fn what_the_log_tells_is_a_comment_away() {
        let directory = tempfile::tempdir().unwrap();
        let args = args(directory.path());
        run(&args).unwrap();
        let [hub, terminal] = ["hub.toml", "ship-1.toml"].map(|name| {
            let path = args.directory.join(name);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("# log =", "log =")).unwrap();
            path
        });
        let logs = [
            read_hub(&hub).unwrap().operation.log,
            read_terminal(&terminal).unwrap().operation.log,
        ];
        assert_eq!(
            logs.map(|log| log.map(|log| log.to_string())),
            ["debug", "debug"].map(|it| Some(it.to_owned()))
        );
    }

    #[test]
    fn what_a_gateway_would_refuse_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |change: fn(&mut Args), told: &str| {
            let mut args = args(directory.path());
            change(&mut args);
            let error = format!("{:#}", run(&args).unwrap_err());
            assert!(error.contains(told), "{error}");
            assert_eq!(fs::read_dir(&args.directory).map_or(0, Iterator::count), 0, "{told}");
        };
        refused(|args| args.hub = "hub".to_owned(), "host and UDP port");
        refused(|args| args.hub = ":7".to_owned(), "hub");
        refused(|args| args.hub_rate = "fast".to_owned(), "rate");
        refused(|args| args.terminal_rate = "0Mbit/s".to_owned(), "rate");
        refused(|args| args.interface = "a-name-far-too-long".to_owned(), "intercept.interfaces");
        refused(|args| args.name = "../x".to_owned(), "--name");
        refused(|args| args.name = "hub".to_owned(), "--name");
    }
}
