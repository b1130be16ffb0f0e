//! Writes the configuration files of new gateways: a pair with fresh keys, a further terminal of a
//! hub, a single gateway. Beside them it writes their schemas, which their first lines name.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::{FileError, FileKind, HubAddress, TcpAddress, schema_text};
use os::{create_directory, sync_directory};
use slacp::PublicKey;
use thiserror::Error;

use super::keys::{KeyError, PrivateKey, format_public_key};
use super::{KeyCheck, check};

/// Name of a hub's file.
const HUB_FILE: &str = "hub.toml";
/// Name of a single gateway's file.
const SOLO_FILE: &str = "solo.toml";
/// The folder of the schemas, beside the files.
const SCHEMAS: &str = "schemas/";
/// A commented-out setting for troubleshooting.
const LOG: &str = "# log = \"debug\"   # \"off\", \"error\", \"warn\", \"info\" (unless told \
                   otherwise), \"trace\"\n";
/// Commented-out settings that a hub's operator most often needs.
const DENY: &str = "# Clients reach everything but this machine's own addresses. To close networks:\n\
                    # deny = [\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\"]\n";
/// Commented-out settings that a terminal's operator may need.
const ACCEPT: &str = "\n# Connections from the hub's side are refused, except to these:\n\
                      # [accept]\n# to = [\"10.1.0.0/16:22\"]\n";
/// Commented-out settings of a terminal's resolver.
const DNS: &str = "\n# Clients' names from a cache, if the hub's file has a section [dns], too:\n\
                   # [dns]\n\
                   # canary = true   # browsers stay with this resolver, which then sees all names\n";

/// How a terminal treats HTTP/3.
const QUIC: &str =
    "quic = \"tcp\"   # browsers use HTTP/2, which is accelerated, instead of HTTP/3\n";

/// Default UDP port of a hub.
pub const PORT: u16 = 5900;

/// Addresses and key of a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubContact {
    /// Host, by name or address, and UDP port.
    pub address: HubAddress,
    /// Host and TCP port, if the hub accepts TCP.
    pub tcp: Option<TcpAddress>,
    /// Public key of the hub.
    pub key: PublicKey,
}

/// Contents of the files of a new pair. Texts are written as they are.
#[derive(Debug, Clone)]
pub struct NewPair {
    /// The hub's address for terminals: host and UDP port.
    pub hub: String,
    /// UDP port on which the hub listens, that of `hub`.
    pub port: u16,
    /// Rate of the forward link, or `auto`.
    pub hub_rate: String,
    /// Rate of the return link, or `auto`.
    pub terminal_rate: String,
    /// The terminal's interface towards the clients.
    pub interface: String,
    /// Name of the terminal, and of its file without `.toml`.
    pub name: String,
    /// Set if every byte of the hop is paid for: then no padding measures a rate that is `auto`.
    pub metered: bool,
    /// The hub's TCP address, where UDP is blocked.
    pub hub_tcp: Option<TcpAddress>,
    /// Further hubs of the terminal.
    pub other_hubs: Vec<HubContact>,
}

/// Contents of the file of a single gateway.
#[derive(Debug, Clone)]
pub struct NewSolo {
    /// The interface towards the clients.
    pub interface: String,
}

/// A new terminal of an existing hub.
#[derive(Debug)]
pub struct AddedTerminal {
    /// Path of the terminal's file.
    pub path: PathBuf,
    /// The section `[[terminal]]` for the hub's file.
    pub section: String,
}

/// Reason for which no files were written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NewPairError {
    /// A file exists already, and is left as it is.
    #[error("{} already exists and is not overwritten", path.display())]
    Exists {
        /// Path of the gateway's file.
        path: PathBuf,
    },
    /// No key can be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The directory cannot be created.
    #[error("cannot create {}: {cause}", path.display())]
    Directory {
        /// Path of the files' directory.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    File {
        /// Path of the gateway's file.
        path: PathBuf,
        /// The error of the system call.
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
    /// A file exists, cannot be written, or would be refused by a gateway.
    pub fn write(&self, directory: &Path) -> Result<[PathBuf; 2], NewPairError> {
        let [hub, terminal] = [PrivateKey::generate()?, PrivateKey::generate()?];
        let paths = [HUB_FILE.to_owned(), self.terminal_name()].map(|name| directory.join(name));
        write(
            directory,
            &[
                NewFile::new(FileKind::Hub, &paths[0], &self.hub_file(&hub, &terminal)),
                NewFile::new(
                    FileKind::Terminal,
                    &paths[1],
                    &self.terminal_file(&hub.public(), &terminal),
                ),
            ],
        )?;
        Ok(paths)
    }

    /// Writes only the terminal's file, with a new key, for an existing hub with this key.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn add_terminal(
        &self,
        directory: &Path,
        hub_key: &PublicKey,
    ) -> Result<AddedTerminal, NewPairError> {
        let terminal = PrivateKey::generate()?;
        let path = self.write_terminal(directory, hub_key, &terminal)?;
        Ok(AddedTerminal { path, section: self.section(&terminal) })
    }

    /// Writes only the terminal's file, with a key that the hub does not know yet.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn write_terminal(
        &self,
        directory: &Path,
        hub_key: &PublicKey,
        key: &PrivateKey,
    ) -> Result<PathBuf, NewPairError> {
        let path = directory.join(self.terminal_name());
        let text = self.terminal_file(hub_key, key);
        write(directory, &[NewFile::new(FileKind::Terminal, &path, &text)])?;
        Ok(path)
    }

    fn rate(&self, rate: &str, link: &str) -> String {
        let mut text = format!("rate = {rate:?}   # of {link}; \"auto\" measures it\n");
        if self.metered && rate == "auto" {
            text += "probe = false   # the link is metered: users' data measures the rate, not padding\n";
        }
        text
    }

    fn terminal_name(&self) -> String {
        format!("{}.toml", self.name)
    }

    fn hub_file(&self, hub: &PrivateKey, terminal: &PrivateKey) -> String {
        let mut text = String::from(
            "# The hub: at the earth station's side of the hop. Keep this file secret.\n",
        );
        let _ = writeln!(text, "private_key = \"{}\"", hub.to_base64());
        if self.port != PORT {
            let _ = writeln!(text, "listen = \"[::]:{}\"", self.port);
        }
        text += &self.rate(&self.hub_rate, "the forward link, from here to the terminals");
        text += LOG;
        text + "\n" + &self.section(terminal) + DENY
    }

    /// The section of the hub's file that permits the terminal.
    fn section(&self, terminal: &PrivateKey) -> String {
        let key = format_public_key(&terminal.public());
        format!("[[terminal]]\nname = {:?}\nkey = \"{key}\"\n", self.name)
    }

    fn terminal_file(&self, hub_key: &PublicKey, terminal: &PrivateKey) -> String {
        let mut text =
            String::from("# The terminal: where the clients are. Keep this file secret.\n");
        let _ = writeln!(text, "private_key = \"{}\"", terminal.to_base64());
        let _ = writeln!(text, "hub = {:?}", self.hub);
        let _ = writeln!(text, "hub_key = \"{}\"", format_public_key(hub_key));
        if let Some(tcp) = &self.hub_tcp {
            let _ = writeln!(text, "hub_tcp = \"{tcp}\"");
        }
        text += &self.rate(&self.terminal_rate, "the return link, from here to the hub");
        text += QUIC;
        text += LOG;
        let _ = writeln!(text, "\n[intercept]\ninterfaces = [{:?}]", self.interface);
        for HubContact { address, tcp, key } in &self.other_hubs {
            let address = address.as_str();
            let key = format_public_key(key);
            let _ = writeln!(text, "\n[[other_hub]]\naddress = {address:?}\nkey = \"{key}\"");
            if let Some(tcp) = tcp {
                let _ = writeln!(text, "tcp = \"{tcp}\"");
            }
        }
        text + DNS + ACCEPT
    }
}

/// Commented-out settings that a single gateway's operator may need.
const WAN: &str = "\n[wan]                            # towards the servers, over the satellite link\n\
                   # congestion_control = \"bbr\"     # if the kernel has it\n\
                   # send_buffer = \"8 MB\"           # at least rate x round-trip time\n";

impl NewSolo {
    /// Writes `solo.toml` into a directory, which is created if missing. Returns its path.
    ///
    /// # Errors
    /// As for [`NewPair::write`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, NewPairError> {
        let path = directory.join(SOLO_FILE);
        let interface = &self.interface;
        let text = format!(
            "# A single gateway: splits connections, with the kernel's TCP on both sides.\n{LOG}\
             \n[intercept]\ninterfaces = [{interface:?}]   # towards the clients\n{WAN}"
        );
        write(directory, &[NewFile::new(FileKind::Solo, &path, &text)])?;
        Ok(path)
    }
}

/// A file to be written.
struct NewFile<'a> {
    kind: FileKind,
    path: &'a Path,
    text: String,
}

impl<'a> NewFile<'a> {
    fn new(kind: FileKind, path: &'a Path, text: &str) -> Self {
        Self { kind, path, text: kind.schema_line(SCHEMAS) + text }
    }
}

/// Writes all files and their schemas, or none.
fn write(directory: &Path, files: &[NewFile<'_>]) -> Result<(), NewPairError> {
    if let Some(file) = files.iter().find(|file| file.path.symlink_metadata().is_ok()) {
        return Err(NewPairError::Exists { path: file.path.to_owned() });
    }
    let is_new = !directory.exists();
    create(directory)?;
    write_checked(files).and_then(|()| write_schemas(directory, files)).inspect_err(|_| {
        for file in files {
            let _ = fs::remove_file(file.path);
        }
        // In an existing directory, the schemas may be those of other files.
        if is_new {
            let _ = fs::remove_dir_all(directory.join(SCHEMAS));
            let _ = fs::remove_dir(directory);
        }
    })
}

fn create(directory: &Path) -> Result<(), NewPairError> {
    let created = create_directory(directory, 0o700);
    created.map_err(|cause| NewPairError::Directory { path: directory.to_owned(), cause })
}

fn write_checked(files: &[NewFile<'_>]) -> Result<(), NewPairError> {
    for NewFile { path, text, .. } in files {
        let cannot = |cause| NewPairError::File { path: (*path).to_owned(), cause };
        write_new(path, text).map_err(cannot)?;
    }
    // Read from the disk as a gateway will, with keys and permissions.
    for NewFile { kind, path, .. } in files {
        check(path, *kind, KeyCheck::Read)?;
    }
    Ok(())
}

/// Writes the schemas of this version, and replaces those of an earlier one.
fn write_schemas(directory: &Path, files: &[NewFile<'_>]) -> Result<(), NewPairError> {
    let folder = directory.join(SCHEMAS);
    create(&folder)?;
    for NewFile { kind, .. } in files {
        let path = folder.join(kind.schema_file());
        let schema = schema_text(*kind).expect("every file of a gateway has a schema");
        let written = fs::write(&path, schema);
        written.map_err(|cause| NewPairError::File { path, cause })?;
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    sync_directory(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use os::testkit::durable_steps;
    use pep::traffic::{PolicyAction, TrafficPolicy};

    use super::*;
    use crate::config::{read_hub, read_solo, read_terminal};

    fn pair() -> NewPair {
        NewPair {
            hub: "hub.example.net:5901".to_owned(),
            port: 5901,
            hub_rate: "50Mbit/s".to_owned(),
            terminal_rate: "auto".to_owned(),
            interface: "lan7".to_owned(),
            name: "ship-1".to_owned(),
            metered: false,
            hub_tcp: None,
            other_hubs: Vec::new(),
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
        assert_eq!(terminal.hubs[0].key, hub.identity.public());
        assert_eq!(hub.terminals[0].key, terminal.identity.public());
        assert_eq!(hub.terminals[0].name, "ship-1");
        assert_eq!(hub.listen.unwrap().port(), 5901);
        assert_eq!(terminal.hubs[0].address.as_str(), pair().hub);
        for path in &paths {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let before = fs::read_to_string(&paths[0]).unwrap();
        let error = pair().write(&directory).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), before);
    }

    #[test]
    fn the_files_of_a_pair_and_their_names_are_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let write = || drop(pair().write(&directory.path().join("new")).unwrap());
        let Some(steps) = durable_steps(directory.path(), write) else { return };
        let files = ["sync new/hub.toml", "sync new", "sync new/ship-1.toml", "sync new"];
        // The last one is for the schemas.
        assert_eq!(steps, [&["sync ."], &files[..], &["sync new"]].concat());
    }

    #[test]
    fn what_may_be_reached_is_a_comment_away() {
        let (_directory, plain) = with(&[]);
        let (_other, [hub, terminal]) = with(&["deny", "[accept]", "to"]);
        let default = read_hub(&hub).unwrap().terminals[0].egress.clone();
        assert_ne!(default, crate::EgressRules::everywhere());
        let accept = |path| read_terminal(path).unwrap().accept;
        assert_ne!(accept(&terminal), accept(&plain[1]));
    }

    #[test]
    fn browsers_stay_with_the_terminal_s_resolver_if_two_comments_go() {
        let (_directory, [_, plain]) = with(&[]);
        let (_other, [_, terminal]) = with(&["[dns]", "canary"]);
        assert_eq!(read_terminal(&plain).unwrap().dns, None);
        assert!(read_terminal(&terminal).unwrap().dns.unwrap().names.canary);
    }

    #[test]
    fn a_new_terminal_refuses_quic() {
        let (_directory, [_, terminal]) = with(&[]);
        let policies = read_terminal(&terminal).unwrap().policies;
        assert_eq!(policies, [TrafficPolicy::of_quic(PolicyAction::Refuse)]);
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
        let directory = directory.path().join("new");
        let slow = NewPair { hub_rate: "slow".to_owned(), ..pair() };
        assert!(slow.write(&directory).is_err() && !directory.exists());
        refused(|pair| pair.interface = "a-name-far-too-long".to_owned(), "intercept.interfaces");
    }

    #[test]
    fn files_name_their_schemas_and_these_are_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let [hub, terminal] = pair().write(directory.path()).unwrap();
        let solo = NewSolo { interface: "lan7".to_owned() }.write(directory.path()).unwrap();
        assert_eq!(read_solo(&solo).unwrap().intercept.unwrap().interfaces, ["lan7"]);
        for (path, kind) in
            [(hub, FileKind::Hub), (terminal, FileKind::Terminal), (solo, FileKind::Solo)]
        {
            let text = fs::read_to_string(path).unwrap();
            let schema = text.lines().next().unwrap().strip_prefix("#:schema ").unwrap();
            let schema = fs::read_to_string(directory.path().join(schema)).unwrap();
            assert_eq!(schema, schema_text(kind).unwrap());
        }
    }

    #[test]
    fn a_further_terminal_fits_the_hub_with_the_section_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let [hub, _] = pair().write(directory.path()).unwrap();
        let key = read_hub(&hub).unwrap().identity.public();
        let second = NewPair { name: "ship-2".to_owned(), ..pair() };
        let added = second.add_terminal(directory.path(), &key).unwrap();
        let text = fs::read_to_string(&hub).unwrap() + &added.section;
        fs::write(&hub, text).unwrap();
        let (hub, terminal) = (read_hub(&hub).unwrap(), read_terminal(&added.path).unwrap());
        assert_eq!(terminal.hubs[0].key, key);
        assert_eq!(hub.terminals[1].key, terminal.identity.public());
    }

    #[test]
    fn a_metered_link_is_not_measured_with_padding() {
        let directory = tempfile::tempdir().unwrap();
        let [hub, terminal] = NewPair { metered: true, ..pair() }.write(directory.path()).unwrap();
        let probes = |rate| matches!(rate, slacp::Rate::Auto { probe: true, .. });
        assert!(!probes(read_terminal(&terminal).unwrap().link.rate));
        // The hub's rate is given, so nothing measures it.
        assert!(!fs::read_to_string(hub).unwrap().contains("probe"));
    }
}
