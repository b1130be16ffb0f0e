use std::fs;
use std::os::unix::fs::PermissionsExt;

use units::{BitRate, ByteCount};

use super::*;
use crate::keys::format_public_key;

/// A private key, and a public one, of nobody.
const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
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

    fn terminal(&self, text: &str) -> Result<TerminalConfig, ConfigError> {
        TerminalConfig::read(&self.write("terminal.toml", 0o600, text))
    }

    fn hub(&self, text: &str) -> Result<HubConfig, ConfigError> {
        HubConfig::read(&self.write("hub.toml", 0o600, text))
    }
}

/// A terminal's configuration with `from` replaced by `to`.
fn terminal_with(from: &str, to: &str) -> String {
    let text = format!(
        "private_key = \"{PRIVATE}\"\nhub = \"192.0.2.1:5900\"\nhub_key = \"{PUBLIC}\"\n\
         rate = \"10 Mbit/s\"\n[intercept]\ninterfaces = [\"lan0\"]\n"
    );
    assert!(text.contains(from), "{from:?} is not in the configuration");
    text.replace(from, to)
}

fn hub_with(from: &str, to: &str) -> String {
    let text = format!(
        "private_key = \"{PRIVATE}\"\nrate = \"50 Mbit/s\"\n\
         [[terminal]]\nname = \"ship-1\"\nkey = \"{PUBLIC}\"\n"
    );
    assert!(text.contains(from), "{from:?} is not in the configuration");
    text.replace(from, to)
}

#[test]
fn a_short_terminal_configuration_suffices() {
    let config = Directory::new().terminal(&terminal_with("lan0", "lan0")).unwrap();
    assert_eq!(config.hub.as_str(), "192.0.2.1:5900");
    assert_eq!(format_public_key(&config.hub_key), PUBLIC);
    assert_eq!(config.link.rate, BitRate::from_mbit(10));
    assert_eq!(config.link.mtu, 1500);
    assert_eq!(config.intercept.interfaces, ["lan0"]);
    assert!(config.intercept.bypass.is_empty() && config.listen.is_none());
}

#[test]
fn a_short_hub_configuration_suffices() {
    let config = Directory::new().hub(&hub_with("", "")).unwrap();
    assert_eq!(config.link.rate, BitRate::from_mbit(50));
    assert_eq!(config.connect_timeout, Duration::from_secs(30));
    assert_eq!(config.terminals[0].name, "ship-1");
}

#[test]
fn every_key_is_taken_over() {
    let all = "listen = \"[::1]:7\"\nmtu = 1400\nmemory = \"8 MB\"\nstream_window = \"1 MB\"\n\
               connect_timeout = \"5 s\"\n[intercept]\nbypass = [\"10.0.0.0/8\", \"fd00::/8\"]";
    let config = Directory::new().terminal(&terminal_with("[intercept]", all)).unwrap();
    assert_eq!(config.listen, Some("[::1]:7".parse().unwrap()));
    assert_eq!(config.link.mtu, 1400);
    assert_eq!(config.link.memory, ByteCount::new(8_000_000));
    assert_eq!(config.link.stream_window, ByteCount::new(1_000_000));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.intercept.bypass.len(), 2);
}

#[test]
fn the_default_window_fits_into_a_small_memory() {
    let text = terminal_with("[intercept]", "memory = \"1 MB\"\n[intercept]");
    let config = Directory::new().terminal(&text).unwrap();
    assert_eq!(config.link.stream_window, ByteCount::new(1_000_000));
}

#[test]
fn a_bad_terminal_configuration_is_told_in_one_line() {
    let directory = Directory::new();
    let open_key = directory.write("open.key", 0o644, PRIVATE);
    let no_key = directory.write("no.key", 0o600, "hello");
    let file = |path: &Path| format!("private_key_file = {path:?}");
    let inline = format!("private_key = \"{PRIVATE}\"");
    let cases: &[(&str, &str, &[&str])] = &[
        ("rate = \"10 Mbit/s\"", "rate = 10", &["line 4", "rate = 10", "expected a string"]),
        ("rate = \"10 Mbit/s\"", "rate = \"10 Mbps\"", &["rate", "10 Mbps", "Mbit/s"]),
        ("rate = \"10 Mbit/s\"", "rate = \"0 bit/s\"", &["rate", "0 bit/s", "like"]),
        ("rate = \"10 Mbit/s\"", "", &["`rate` is missing", "10 Mbit/s"]),
        ("rate = \"10 Mbit/s\"", "rat = \"1\"", &["line 4", "rat = \"1\"", "`rate`"]),
        ("rate = ", "rate : ", &["line 4", "rate : "]),
        ("192.0.2.1:5900", "192.0.2.1", &["hub", "192.0.2.1", "port"]),
        ("192.0.2.1:5900", "2001:db8::1", &["hub", "2001:db8::1", "port"]),
        ("192.0.2.1:5900", "192.0.2.1:0", &["hub", "port"]),
        (PUBLIC, "AAAA", &["hub_key", "AAAA", "base64"]),
        (&inline, "private_key = \"AAAA\"", &["not a key", "base64"]),
        (&inline, "", &["private_key_file", "skyhop keygen"]),
        (&inline, &format!("{inline}\nprivate_key_file = \"x\""), &["one of the two"]),
        (&inline, "private_key_file = \"missing.key\"", &["cannot read", "missing.key"]),
        (&inline, &file(&open_key), &["open.key", "chmod 600"]),
        (&inline, &file(&no_key), &["no.key holds no key"]),
        ("[intercept]", "mtu = 70000\n[intercept]", &["mtu = 70000", "576 to 9216"]),
        ("[intercept]", "memory = \"1 kB\"\n[intercept]", &["memory", "at least 64 kB"]),
        (
            "[intercept]",
            "memory = \"1 MB\"\nstream_window = \"2 MB\"\n[intercept]",
            &["stream_window", "2 MB", "at most the memory, 1 MB"],
        ),
        ("[intercept]", "listen = \"lan0\"\n[intercept]", &["listen", "lan0", "[::]:5900"]),
        ("[intercept]", "connect_timeout = \"0 s\"\n[intercept]", &["connect_timeout", "10 min"]),
        ("[intercept]\ninterfaces = [\"lan0\"]\n", "", &["`intercept.interfaces` is missing"]),
        ("[\"lan0\"]", "[]", &["intercept.interfaces = []", "lan0"]),
        ("lan0", "a-name-far-too-long", &["a-name-far-too-long", "1 to 15"]),
        ("[\"lan0\"]", "[\"lan0\"]\nbypass = [\"10.1.0.0/8\"]", &["bypass", "10.0.0.0/8"]),
    ];
    for (from, to, expected) in cases {
        let error = directory.terminal(&terminal_with(from, to)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        assert!(error.contains("terminal.toml"), "no file name: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn a_bad_hub_configuration_is_told_in_one_line() {
    let directory = Directory::new();
    let section = format!("[[terminal]]\nname = \"ship-1\"\nkey = \"{PUBLIC}\"\n");
    let same_name = format!("{section}{section}");
    let same_key = format!("{section}[[terminal]]\nname = \"ship-2\"\nkey = \"{PUBLIC}\"\n");
    let cases: &[(&str, &str, &[&str])] = &[
        (&section, "", &["[[terminal]]"]),
        (&section, &same_name, &["terminal.name", "ship-1", "two"]),
        (&section, &same_key, &["terminal.key", "ship-1 already"]),
        ("name = \"ship-1\"", "", &["`terminal.name` is missing"]),
        ("name = \"ship-1\"", "nam = 1", &["nam = 1", "`name`"]),
        ("rate", "hub = \"x:1\"\nrate", &["hub", "unknown field"]),
    ];
    for (from, to, expected) in cases {
        let error = directory.hub(&hub_with(from, to)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn a_key_in_an_open_file_is_refused() {
    let directory = Directory::new();
    let path = directory.write("terminal.toml", 0o644, &terminal_with("", ""));
    let error = TerminalConfig::read(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn a_key_file_is_found_beside_the_configuration() {
    let directory = Directory::new();
    directory.write("hub.key", 0o600, PRIVATE);
    let inline = format!("private_key = \"{PRIVATE}\"");
    let text = hub_with(&inline, "private_key_file = \"hub.key\"");
    let path = directory.write("hub.toml", 0o644, &text);
    assert_eq!(HubConfig::read(&path).unwrap().identity.to_base64(), PRIVATE);
}

#[test]
fn a_missing_file_is_named() {
    let error = HubConfig::read(Path::new("/nowhere/hub.toml")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/hub.toml"), "{error}");
}
