//! A machine shared by several users, with its own copies of the world-writable directories, so
//! that a test can do there what it likes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::Runner;

/// Covers `/tmp` and `/run` with empty directories, keeps the programs in `$1` accessible, then
/// waits for the end of its input.
const COVER: &str = "
    set -e
    mkdir -p \"$1/cover\"
    mount -t tmpfs -o mode=1777 tmpfs \"$1/cover\"
    case $1 in /tmp/*)
        mkdir -p \"$1/cover/${1#/tmp/}\"
        mount --bind \"$1\" \"$1/cover/${1#/tmp/}\";;
    esac
    mount --rbind \"$1/cover\" /tmp
    mount -t tmpfs -o mode=755 tmpfs /run
    echo ready
    read line";

/// A mount namespace with an empty `/tmp` and `/run`.
pub(super) struct Shared {
    /// Keeps the namespace alive.
    holder: Child,
    runner: Runner,
    tmp: File,
    run: File,
}

impl Shared {
    /// Requires root.
    pub(super) fn new() -> Self {
        let runner = Runner::ordinary();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", COVER, "sh"]).arg(runner.skyhop.parent().unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let open = |name| File::open(format!("/proc/{}/root/{name}", holder.id())).unwrap();
        let [tmp, run] = ["tmp", "run"].map(open);
        Self { holder, runner, tmp, run }
    }

    /// `skyhop` as this user.
    pub(super) fn skyhop(&self, user: u32) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.holder.id().to_string()).args(["--mount", "setpriv"]);
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.arg("--clear-groups").arg(&self.runner.skyhop);
        command.env("SKYHOP", &self.runner.skyhop).env("HOME", "/nonexistent");
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).current_dir("/");
        command
    }

    /// `/tmp` inside the namespace.
    pub(super) fn tmp(&self) -> impl AsRef<Path> {
        format!("/proc/self/fd/{}", self.tmp.as_raw_fd())
    }

    /// Everything in `/tmp` and `/run` except the programs.
    pub(super) fn litter(&self) -> Vec<String> {
        let programs = self.runner.skyhop.parent().unwrap().file_name().unwrap();
        let entries = |directory: &File| {
            fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap()
        };
        let names = [&self.tmp, &self.run].into_iter().flat_map(entries);
        let names = names.map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != programs).map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
