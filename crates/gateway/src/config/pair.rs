//! Writes the configuration files of a new pair, with fresh keys.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use scenario::FileError;
use thiserror::Error;

use super::keys::{KeyError, PrivateKey, format_public_key};
use super::{read_hub, read_terminal};
use crate::hub::PORT;

/// A commented-out setting for troubleshooting.
const LOG: &str = "# log = \"debug\"   # \"off\", \"error\", \"warn\", \"info\" (unless told \
                   otherwise), \"trace\"\n";
/// Commented-out settings that a hub's operator most often needs.
const DENY: &str = "# Clients reach everything but this machine's own addresses. To close networks:\n\
                    # deny = [\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\"]\n";
/// Commented-out settings that a terminal's operator may need.
const ACCEPT: &str = "\n# Connections from the hub's side are refused, except to these:\n\
                      # [accept]\n# to = [\"10.1.0.0/16:22\"]\n";

/// What the files of a pair say. Texts are written as they are.
#[derive(Debug, Clone)]
pub struct NewPair {
    /// Where terminals reach the hub: host and UDP port.
    pub hub: String,
    /// That port, on which the hub listens.
    pub port: u16,
    /// Rate of the forward link, or `auto`.
    pub hub_rate: String,
    /// Rate of the return link, or `auto`.
    pub terminal_rate: String,
    /// The terminal's interface towards the clients.
    pub interface: String,
    /// Name of the terminal, and of its file without `.toml`.
    pub name: String,
}

/// Why no files were written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NewPairError {
    /// A file exists.
    #[error("{} already exists and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There are no keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The directory is missing.
    #[error("cannot create {}: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A gateway would refuse a file.
    #[error(transparent)]
    Refused(#[from] FileError),
}

impl NewPair {
    /// Writes `hub.toml` and the terminal's file into a directory, which is created if missing:
    /// both, or neither. Only their owner can read them. Returns their paths.
    ///
    /// # Errors
    /// If a file exists, cannot be written, or would be refused by a gateway.
    pub fn write(&self, directory: &Path) -> Result<[PathBuf; 2], NewPairError> {
        let [hub, terminal] = [PrivateKey::generate()?, PrivateKey::generate()?];
        let texts = [self.hub_file(&hub, &terminal), self.terminal_file(&hub, &terminal)];
        let names = ["hub.toml".to_owned(), format!("{}.toml", self.name)];
        let paths = names.map(|name| directory.join(name));
        if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(NewPairError::Exists { path: path.clone() });
        }
        let path = || directory.to_owned();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|cause| NewPairError::Directory { path: path(), cause })?;
        write_checked(&paths, &texts).inspect_err(|_| {
            for path in &paths {
                let _ = fs::remove_file(path);
            }
        })?;
        Ok(paths)
    }

    fn hub_file(&self, hub: &PrivateKey, terminal: &PrivateKey) -> String {
        let mut text = String::from(
            "# The hub: at the earth station's side of the hop. Keep this file secret.\n",
        );
        let _ = writeln!(text, "private_key = \"{}\"", hub.to_base64());
        if self.port != PORT {
            let _ = writeln!(text, "listen = \"[::]:{}\"", self.port);
        }
        text += &rate(&self.hub_rate, "the forward link, from here to the terminals");
        text += LOG;
        let _ = writeln!(text, "\n[[terminal]]\nname = {:?}", self.name);
        let _ = writeln!(text, "key = \"{}\"", format_public_key(&terminal.public()));
        text + DENY
    }

    fn terminal_file(&self, hub: &PrivateKey, terminal: &PrivateKey) -> String {
        let mut text =
            String::from("# The terminal: where the clients are. Keep this file secret.\n");
        let _ = writeln!(text, "private_key = \"{}\"", terminal.to_base64());
        let _ = writeln!(text, "hub = {:?}", self.hub);
        let _ = writeln!(text, "hub_key = \"{}\"", format_public_key(&hub.public()));
        text += &rate(&self.terminal_rate, "the return link, from here to the hub");
        text += LOG;
        let _ = writeln!(text, "\n[intercept]\ninterfaces = [{:?}]", self.interface);
        text + ACCEPT
    }
}

fn rate(rate: &str, link: &str) -> String {
    format!("rate = {rate:?}   # of {link}; \"auto\" measures it\n")
}

fn write_checked(paths: &[PathBuf; 2], texts: &[String; 2]) -> Result<(), NewPairError> {
    for (path, text) in paths.iter().zip(texts) {
        let written = write_new(path, text);
        written.map_err(|cause| NewPairError::File { path: path.clone(), cause })?;
    }
    read_hub(&paths[0])?;
    read_terminal(&paths[1])?;
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn pair() -> NewPair {
        NewPair {
            hub: "hub.example.net:5901".to_owned(),
            port: 5901,
            hub_rate: "50Mbit/s".to_owned(),
            terminal_rate: "auto".to_owned(),
            interface: "lan7".to_owned(),
            name: "ship-1".to_owned(),
        }
    }

    /// Writes a pair, and removes the comment signs before these settings.
    fn with(settings: &[&str]) -> (tempfile::TempDir, [PathBuf; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let paths = pair().write(directory.path()).unwrap();
        for path in &paths {
            let mut text = fs::read_to_string(path).unwrap();
            for setting in settings {
                text = text.replace(&format!("# {setting}"), setting);
            }
            fs::write(path, text).unwrap();
        }
        (directory, paths)
    }

    #[test]
    fn the_pair_fits_together_and_is_secret() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("new");
        let paths = pair().write(&directory).unwrap();
        assert_eq!(paths, ["hub.toml", "ship-1.toml"].map(|name| directory.join(name)));
        let (hub, terminal) = (read_hub(&paths[0]).unwrap(), read_terminal(&paths[1]).unwrap());
        assert_eq!(terminal.hub_key, hub.identity.public());
        assert_eq!(hub.terminals[0].key, terminal.identity.public());
        assert_eq!(hub.terminals[0].name, "ship-1");
        assert_eq!(hub.listen.unwrap().port(), 5901);
        assert_eq!(terminal.hub.as_str(), pair().hub);
        for path in &paths {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let before = fs::read_to_string(&paths[0]).unwrap();
        let error = pair().write(&directory).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), before);
    }

    #[test]
    fn what_may_be_reached_is_a_comment_away() {
        let (_directory, plain) = with(&[]);
        let (_other, [hub, terminal]) = with(&["deny", "[accept]", "to"]);
        let default = read_hub(&hub).unwrap().terminals[0].egress.clone();
        assert_ne!(default, crate::Egress::everywhere());
        let accept = |path| read_terminal(path).unwrap().accept;
        assert_ne!(accept(&terminal), accept(&plain[1]));
    }

    #[test]
    fn the_log_s_filter_is_a_comment_away() {
        let (_directory, [hub, terminal]) = with(&["log ="]);
        let (hub, terminal) = (read_hub(&hub).unwrap(), read_terminal(&terminal).unwrap());
        for log in [hub.operation.log, terminal.operation.log] {
            assert_eq!(log.unwrap().to_string(), "debug");
        }
    }

    #[test]
    fn what_a_gateway_would_refuse_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |change: fn(&mut NewPair), told: &str| {
            let mut pair = pair();
            change(&mut pair);
            let error = pair.write(directory.path()).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{told}");
        };
        refused(|pair| pair.hub = ":7".to_owned(), "hub");
        refused(|pair| pair.hub_rate = "fast".to_owned(), "rate");
        refused(|pair| pair.terminal_rate = "0Mbit/s".to_owned(), "rate");
        refused(|pair| pair.interface = "a-name-far-too-long".to_owned(), "intercept.interfaces");
    }
}
