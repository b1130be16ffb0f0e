//! Shared helpers for tests of the real binary in real labs.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test program uses its part of it"
)]

pub(crate) mod browser;
pub(crate) mod program;
mod running;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use os::testkit::restore_signal_defaults;

pub(crate) use self::running::{Remains, Running};
pub(crate) use os::testkit::skip;

/// User id of `nobody`; any user but root would do.
const ORDINARY: u32 = 65534;

/// The user who runs skyhop, and the copy of the programs to run.
pub(crate) struct Runner {
    pub(crate) skyhop: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) user: Option<u32>,
    _copies: Option<tempfile::TempDir>,
}

impl Runner {
    pub(crate) fn myself() -> Self {
        let tests = std::env::current_exe().unwrap();
        Self { skyhop: env!("CARGO_BIN_EXE_skyhop").into(), tests, user: None, _copies: None }
    }

    /// An ordinary user, with readable copies of the programs.
    pub(crate) fn ordinary() -> Self {
        let copies = tempfile::tempdir().unwrap();
        fs::set_permissions(copies.path(), Permissions::from_mode(0o755)).unwrap();
        let copy = |from: &Path, name: &str| {
            let to = copies.path().join(name);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
            to
        };
        let own = Self::myself();
        let (skyhop, tests) = (copy(&own.skyhop, "skyhop"), copy(&own.tests, "tests"));
        Self { skyhop, tests, user: Some(ORDINARY), _copies: Some(copies) }
    }

    /// `skyhop lab run geo` with these options and this shell script.
    pub(crate) fn shell(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.lab(&["run", "geo"]);
        command.args(options).args(["--", "sh", "-c", script]);
        command.env("SKYHOP", &self.skyhop).env("TESTS", &self.tests);
        command
    }

    /// Runs a [program] in a lab with these options.
    pub(crate) fn inside(&self, options: &[&str], program: &str) {
        self.inside_with(options, program, "");
    }

    /// Runs a [program] with these environment variables, as in a shell command.
    pub(crate) fn inside_with(&self, options: &[&str], program: &str, variables: &str) {
        let script = format!("{variables} {}", program::command(program));
        self.assert_passes(self.shell(options, &script), program);
    }

    /// Runs a command that must succeed, and run one [program].
    pub(crate) fn assert_passes(&self, mut command: Command, program: &str) {
        let output = command.output().unwrap();
        let said = [text(&output.stdout), text(&output.stderr)].join("\n");
        assert!(output.status.success(), "as {:?}: {}\n{said}", self.user, output.status);
        assert!(said.contains("1 passed"), "{program} did not run: {said}");
    }

    /// `skyhop lab` with these arguments.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = self.skyhop();
        command.arg("lab").args(arguments);
        command
    }

    /// `skyhop` as this user.
    pub(crate) fn skyhop(&self) -> Command {
        self.program(&self.skyhop)
    }

    /// A program as this user.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir("/");
        restore_signal_defaults(&mut command);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

/// Runs `check` as every available user, if labs are possible.
pub(crate) fn as_each_user(check: impl Fn(&Runner)) {
    let ordinary = Uid::effective().is_root().then(Runner::ordinary);
    for runner in [Some(Runner::myself()), ordinary].into_iter().flatten() {
        where_possible(&runner, &check);
    }
}

/// Runs `check` as the current user, if labs are possible.
pub(crate) fn as_myself(check: impl Fn(&Runner)) {
    where_possible(&Runner::myself(), check);
}

fn where_possible(runner: &Runner, check: impl Fn(&Runner)) {
    let output = runner.shell(&[], "true").output().unwrap();
    if output.status.code() == Some(2) {
        skip(text(&output.stderr));
    } else {
        check(runner);
    }
}

pub(crate) fn is_present(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Expects exit code 2 and a single line with these parts.
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("skyhop: ") && !error.contains('\n'), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part} not in {error}");
    }
}

/// Expects a duration that is never below `exactly` (the time set by the links), and within a few
/// tries at most `own` above it: a busy machine delays most tries.
pub(crate) fn assert_takes(exactly: Duration, own: Duration, mut once: impl FnMut() -> Duration) {
    const TRIES: usize = 40;
    let mut times = Vec::new();
    while times.len() < TRIES {
        let time = once();
        assert!(time >= exactly, "{time:?} for what takes {exactly:?}");
        if time <= exactly + own {
            return;
        }
        times.push(time);
    }
    panic!("{times:?} for what takes {exactly:?}");
}

/// Time that the machine may add in an undisturbed try.
pub(crate) const OWN: Duration = Duration::from_millis(15);

/// Time to connect to `address`.
pub(crate) fn connect_time(address: impl ToSocketAddrs) -> Duration {
    let start = Instant::now();
    TcpStream::connect(address).unwrap();
    start.elapsed()
}

/// Sends `words` words with this `mark`, then a FIN, and expects all of them back.
pub(crate) fn assert_echo(server: impl ToSocketAddrs, words: u32, mark: u32) {
    let sent: Vec<u8> = (0..words).flat_map(|word: u32| (word * 4 + mark).to_le_bytes()).collect();
    let mut connection = TcpStream::connect(server).unwrap();
    let mut writer = connection.try_clone().unwrap();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        connection.read_to_end(&mut back).unwrap();
    });
    assert!(back == sent, "{} bytes back of {} by {mark}", back.len(), sent.len());
}
