//! Reads configuration files, which the crate `config` parses. This module has what needs the machine: the file,
//! the private key and its permissions, the processor.
//! [`pair`] writes the files of a new pair, `whole_file` any file of the gateway's that is replaced as a whole.

mod cpu;
pub mod keys;
pub mod pair;
pub(crate) mod permits;
pub(crate) mod whole_file;

use std::fs;
use std::path::Path;

use control::Role;

pub use self::cpu::has_aes;
use config::{ConfigFile, FileKind, KeySource, RestartKeys, WrittenKeys};
pub use config::{FileError, HubAddress, HubConfig, SoloConfig, TcpAddress, TerminalConfig};
use slacp::KeyPair;
use zeroize::Zeroizing;

use self::keys::{KeyError, PrivateKey, check_private, open_with_metadata, read_text};

/// Reads a hub's configuration from the file at `path`, which may be a pipe such as `/dev/stdin`.
///
/// # Errors
/// The file cannot be read or is not a hub's configuration.
pub fn read_hub(path: &Path) -> Result<HubConfig, FileError> {
    let file = ConfigSource::read(path)?;
    let mut config = file.as_read().hub(|key| file.key(key))?;
    // AES-256-GCM is used if both sides have instructions for it.
    config.link.aes = has_aes();
    Ok(config)
}

/// Reads a terminal's configuration, as [`read_hub`] does a hub's.
///
/// # Errors
/// The file cannot be read or is not a terminal's configuration.
pub fn read_terminal(path: &Path) -> Result<TerminalConfig, FileError> {
    let file = ConfigSource::read(path)?;
    let mut config = file.as_read().terminal(|key| file.key(key))?;
    config.link.aes = has_aes();
    Ok(config)
}

/// Reads a solo gateway's configuration, as [`read_hub`] does a hub's.
///
/// # Errors
/// The file cannot be read or is not a solo gateway's configuration.
pub fn read_solo(path: &Path) -> Result<SoloConfig, FileError> {
    ConfigSource::read(path)?.as_read().solo()
}

/// Treatment of the private key that a file names, in a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCheck {
    /// Read it, as at a start.
    Read,
    /// Leave it out: the file is checked away from its gateway, where the key is.
    Elsewhere,
}

/// Checks a gateway's configuration as a start does, without touching the machine. Returns a warning for each
/// key that no longer has an effect.
///
/// # Errors
/// The file cannot be read, or a gateway of this kind would refuse it.
pub fn check(path: &Path, kind: FileKind, keys: KeyCheck) -> Result<Vec<String>, FileError> {
    let file = ConfigSource::read(path)?;
    let key = |source| match (keys, source) {
        // Any valid key serves for checking the rest of the file.
        (KeyCheck::Elsewhere, KeySource::File(_)) => Ok(PrivateKey::generate()?.pair()),
        (_, source) => file.key(source),
    };
    match kind {
        FileKind::Hub => {
            let config = file.as_read().hub(key)?;
            permits::check(&config).map(|()| config.operation.warnings)
        }
        FileKind::Permit => permits::check_permit(&file.as_read()).map(|()| Vec::new()),
        FileKind::Solo => file.as_read().solo().map(|config| config.operation.warnings),
        _ => file.as_read().terminal(key).map(|config| config.operation.warnings),
    }
}

/// The keys of a file that take effect only at a restart; empty if it cannot be read.
pub(crate) fn restart_keys(file: Option<&Path>, role: Role) -> RestartKeys {
    let Some(Ok(text)) = file.map(fs::read_to_string) else { return RestartKeys::default() };
    let kind = match role {
        Role::Hub => FileKind::Hub,
        Role::Terminal => FileKind::Terminal,
        Role::Solo => FileKind::Solo,
    };
    // The file may hold the private key.
    RestartKeys::of(&Zeroizing::new(text), kind)
}

/// The keys of a file; empty if it cannot be read.
pub(crate) fn written_keys(file: Option<&Path>) -> WrittenKeys {
    let Some(Ok(text)) = file.map(fs::read_to_string) else { return WrittenKeys::default() };
    WrittenKeys::of(&Zeroizing::new(text))
}

/// A configuration file, which may hold a private key.
struct ConfigSource<'a> {
    path: &'a Path,
    metadata: fs::Metadata,
    text: Zeroizing<String>,
}

impl<'a> ConfigSource<'a> {
    fn read(path: &'a Path) -> Result<Self, FileError> {
        let failed = |cause| FileError::Read { file: path.display().to_string(), cause };
        let (file, metadata) = open_with_metadata(path).map_err(failed)?;
        let text = read_text(file).map_err(failed)?;
        Ok(Self { path, metadata, text })
    }

    fn as_read(&self) -> ConfigFile<'_> {
        ConfigFile { path: self.path, text: &self.text, regular: self.metadata.is_file() }
    }

    /// Reads the private key. A file that contains it needs the same permissions as a key file.
    fn key(&self, source: KeySource) -> Result<KeyPair, KeyError> {
        let key = match source {
            KeySource::Inline(text) => {
                let text = Zeroizing::new(text);
                check_private(self.path, &self.metadata)?;
                PrivateKey::parse(&text)
            }
            KeySource::File(path) => PrivateKey::read_file(&path),
        };
        key.map(|key| key.pair())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    const PUBLIC: &str = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";

    struct Directory(tempfile::TempDir);

    impl Directory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, name: &str, mode: u32, text: &str) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        /// A hub's file with these lines, which only its owner can read.
        fn hub(&self, lines: &str) -> Result<HubConfig, String> {
            let path = self.write("hub.toml", 0o600, &hub(lines));
            read_hub(&path).map_err(|error| error.to_string())
        }
    }

    fn hub(lines: &str) -> String {
        format!(
            "{lines}\nrate = \"50 Mbit/s\"\n[[terminal]]\nname = \"ship-1\"\nkey = \"{PUBLIC}\"\n"
        )
    }

    #[test]
    fn a_private_key_is_in_the_file_or_beside_it() {
        let directory = Directory::new();
        let key = PrivateKey::generate().unwrap();
        let inline = format!("private_key = \"{}\"", key.to_base64());
        assert_eq!(directory.hub(&inline).unwrap().identity.public(), key.public());
        directory.write("hub.key", 0o600, &key.to_base64());
        let path = directory.write("open.toml", 0o644, &hub("private_key_file = \"hub.key\""));
        let config = read_hub(&path).unwrap();
        assert_eq!(config.identity.public(), key.public());
        assert_eq!(config.operation.file, Some(path));
        assert_eq!(config.link.aes, has_aes());
    }

    #[test]
    fn an_unusable_private_key_is_reported_with_its_line() {
        let directory = Directory::new();
        let secret = PrivateKey::generate().unwrap().to_base64();
        directory.write("open.key", 0o644, &secret);
        directory.write("no.key", 0o600, "hello");
        for (line, parts) in [
            ("private_key = \"AAAA\"", &["private_key: not a key", "base64"][..]),
            (
                "private_key_file = \"missing.key\"",
                &["private_key_file: cannot read", "missing.key"],
            ),
            ("private_key_file = \"open.key\"", &["open.key", "chmod 600"]),
            ("private_key_file = \"no.key\"", &["no.key holds no key"]),
        ] {
            let error = directory.hub(line).unwrap_err();
            assert!(error.contains("hub.toml:1: private_key"), "{error}");
            assert!(!error.contains('\n'), "more than one line: {error}");
            parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in {error}"));
        }
        let inline = hub(&format!("private_key = \"{secret}\""));
        let error = read_hub(&directory.write("hub.toml", 0o644, &inline)).unwrap_err().to_string();
        assert!(error.contains("chmod 600") && !error.contains(&secret), "{error}");
    }

    #[test]
    fn a_check_is_that_of_a_start_but_for_a_key_that_is_elsewhere() {
        let directory = Directory::new();
        let text = hub("private_key_file = \"hub.key\"");
        let path = directory.write("hub.toml", 0o644, &text);
        let told = |keys| check(&path, FileKind::Hub, keys).map_err(|error| error.to_string());
        assert!(told(KeyCheck::Read).unwrap_err().contains("hub.toml:1: private_key_file"));
        assert_eq!(told(KeyCheck::Elsewhere), Ok(Vec::new()));
        directory.write("hub.toml", 0o644, &text.replace("50 Mbit/s", "fast"));
        assert!(told(KeyCheck::Elsewhere).unwrap_err().contains("hub.toml:2: rate"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_hub(Path::new("/nowhere/hub.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/hub.toml"), "{error}");
    }
}
