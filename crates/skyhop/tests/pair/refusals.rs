//! Invalid configurations are rejected with one line and exit code 2, before anything is changed.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

use gateway::keys::{PrivateKey, format_public_key};
use nix::unistd::Uid;

use crate::common::{Runner, assert_refused};

/// A directory for configuration files, owned by the user who reads them.
struct Desk<'a> {
    runner: &'a Runner,
    directory: tempfile::TempDir,
}

impl<'a> Desk<'a> {
    fn new(runner: &'a Runner) -> Self {
        let directory = tempfile::tempdir().unwrap();
        chown(directory.path(), runner.user, runner.user).unwrap();
        Self { runner, directory }
    }

    fn write(&self, text: &str, mode: u32) -> PathBuf {
        let path = self.directory.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, self.runner.user, self.runner.user).unwrap();
        path
    }

    /// Output of a gateway with this configuration.
    fn run(&self, role: &str, config: &str) -> Output {
        self.run_file(role, &self.write(config, 0o600))
    }

    fn run_file(&self, role: &str, config: &Path) -> Output {
        self.runner.skyhop().arg(role).arg(config).output().unwrap()
    }
}

fn hub() -> String {
    let [key, terminal] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    format!(
        "private_key = \"{}\"\nlisten = \"127.0.0.1:0\"\nrate = \"50 Mbit/s\"\n\
         [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n",
        key.to_base64(),
        format_public_key(&terminal.public())
    )
}

/// A terminal whose hub does not exist.
fn terminal() -> String {
    let [key, hub] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    format!(
        "private_key = \"{}\"\nhub = \"127.0.0.1:9\"\nhub_key = \"{}\"\nrate = \"10 Mbit/s\"\n\
         [intercept]\ninterfaces = [\"lo\"]\n",
        key.to_base64(),
        format_public_key(&hub.public())
    )
}

/// `config` with a part replaced.
fn with(config: &str, from: &str, to: &str) -> String {
    assert!(config.contains(from), "{from} not in {config}");
    config.replace(from, to)
}

#[test]
fn a_bad_configuration() {
    let runner = Runner::myself();
    let desk = Desk::new(&runner);
    let hub = hub();
    for (from, to, parts) in [
        ("50 Mbit/s", "fast", ["rate", "fast"]),
        ("50 Mbit/s", "0 bit/s", ["rate", "0 bit/s"]),
        ("127.0.0.1:0", "localhost", ["listen", "localhost"]),
        ("rate =", "speed =", ["gateway.toml:3: ", "speed"]),
        ("[[terminal]]", "[[terminal]", ["gateway.toml:4: ", "[[terminal]"]),
        ("name = \"ship\"", "", ["terminal", "name"]),
    ] {
        assert_refused(&desk.run("hub", &with(&hub, from, to)), &parts);
    }
    let terminal = terminal();
    for (from, to, parts) in [
        ("127.0.0.1:9", "127.0.0.1", ["hub", "127.0.0.1"]),
        ("hub_key", "key_of_the_hub", ["gateway.toml:3: ", "key_of_the_hub"]),
        ("[\"lo\"]", "[]", ["intercept.interfaces", "lan0"]),
        ("private_key =", "private_key_file =", ["gateway.toml", "No such file"]),
    ] {
        assert_refused(&desk.run("terminal", &with(&terminal, from, to)), &parts);
    }
    assert_refused(
        &desk.run("terminal", &hub),
        &["gateway.toml: this is the configuration of a hub"],
    );
    assert_refused(&desk.run_file("hub", Path::new("/no/such/file.toml")), &["No such file"]);
}

#[test]
fn a_key_that_others_can_read() {
    let runner = Runner::myself();
    let desk = Desk::new(&runner);
    let path = desk.write(&hub(), 0o644);
    assert_refused(&desk.run_file("hub", &path), &["gateway.toml", "644"]);
}

#[test]
fn a_user_without_the_right_to_intercept() {
    let runner = if Uid::effective().is_root() { Runner::ordinary() } else { Runner::myself() };
    let output = Desk::new(&runner).run("terminal", &terminal());
    assert_refused(&output, &["not permitted", "CAP_NET_ADMIN", "setcap"]);
}

#[test]
fn a_port_that_somebody_else_has() {
    let runner = Runner::myself();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let output = Desk::new(&runner).run("hub", &with(&hub(), "127.0.0.1:0", &address));
    assert_refused(&output, &["cannot listen", &address, "in use"]);
}
