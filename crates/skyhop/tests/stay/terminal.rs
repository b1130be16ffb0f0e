//! A terminal window is closed while a lab runs in it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use os::testkit::take_terminal;

use super::stays::Stays;
use crate::common::{Remains, as_each_user};

/// Starts a command on its own pseudo-terminal; returns the other end.
fn on_a_terminal(mut command: Command) -> (Child, File) {
    let other = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&other).unwrap();
    unlockpt(&other).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
    let terminal = options.open(ptsname_r(&other).unwrap()).unwrap();
    let end = || terminal.try_clone().unwrap();
    command.stdin(end()).stdout(end()).stderr(end());
    take_terminal(&mut command);
    (command.spawn().unwrap(), OwnedFd::from(other).into())
}

/// Reads until the terminal shows `text`.
fn await_text(terminal: &mut File, text: &str) {
    let (mut shown, mut bytes) = (String::new(), [0; 1024]);
    while !shown.contains(text) {
        let length = terminal.read(&mut bytes).unwrap_or(0);
        assert!(length > 0, "{text:?} not in {shown:?}");
        shown += &String::from_utf8_lossy(&bytes[..length]);
    }
}

#[test]
fn a_closed_terminal_leaves_nothing_of_the_lab_in_it() {
    as_each_user(|runner| {
        let mut shell = runner.lab(&["shell", "geo"]);
        shell.env("SHELL", "/bin/sh");
        let (mut supervisor, mut terminal) = on_a_terminal(shell);
        // Matches the shell's output, not the echo of the input.
        terminal.write_all(b"sleep 1000 & echo rea''dy\n").unwrap();
        await_text(&mut terminal, "ready");
        let remains = Remains::of(supervisor.id());
        drop(terminal);
        // 129, or the shell's exit code for an unreadable terminal.
        assert!(supervisor.wait().unwrap().code().is_some_and(|code| code != 0));
        remains.assert_gone();
    });
}

#[test]
fn a_closed_terminal_ends_a_shell_in_a_lab_and_not_the_lab() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &[]);
        let mut shell = stays.lab(&["exec", "client"]);
        shell.env("SHELL", "/bin/sh");
        let (mut command, mut terminal) = on_a_terminal(shell);
        terminal.write_all(b"echo rea''dy\n").unwrap();
        await_text(&mut terminal, "ready");
        drop(terminal);
        command.wait().unwrap();
        assert_eq!(stays.status("one")["name"], "one");
    });
}
