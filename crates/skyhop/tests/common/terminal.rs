//! Programs on a terminal of their own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use os::testkit::take_terminal;

/// A new pseudo-terminal: this end, and the program's.
fn open() -> (File, File) {
    let other = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&other).unwrap();
    unlockpt(&other).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
    let terminal = options.open(ptsname_r(&other).unwrap()).unwrap();
    (OwnedFd::from(other).into(), terminal)
}

/// A pseudo-terminal that has hung up: its other end is closed.
pub(crate) fn hung_up() -> File {
    let (other, terminal) = open();
    drop(other);
    terminal
}

/// Starts a command on its own pseudo-terminal; returns the other end.
pub(crate) fn on_a_terminal(mut command: Command) -> (Child, File) {
    let (other, terminal) = open();
    let end = || terminal.try_clone().unwrap();
    command.stdin(end()).stdout(end()).stderr(end());
    take_terminal(&mut command);
    (command.spawn().unwrap(), other)
}

/// Reads until the terminal shows `text`; returns everything that it has shown meanwhile.
pub(crate) fn await_text(terminal: &mut File, text: &str) -> String {
    read_until(terminal, text, |shown| shown.contains(text))
}

/// Reads until the terminal shows a prompt: a line with `text` that ends with a colon.
pub(crate) fn await_prompt(terminal: &mut File, text: &str) {
    read_until(terminal, text, |shown| shown.contains(text) && shown.ends_with(": "));
}

fn read_until(terminal: &mut File, text: &str, enough: impl Fn(&str) -> bool) -> String {
    let (mut shown, mut bytes) = (String::new(), [0; 1024]);
    while !enough(&shown) {
        let length = terminal.read(&mut bytes).unwrap_or(0);
        assert!(length > 0, "{text:?} not in {shown:?}");
        shown += &String::from_utf8_lossy(&bytes[..length]);
    }
    shown
}

/// Enters a line.
pub(crate) fn enter(terminal: &mut File, line: &str) {
    terminal.write_all(line.as_bytes()).unwrap();
    terminal.write_all(b"\n").unwrap();
}

/// Runs a command whose stderr is a terminal and whose stdout is a pipe: its exit status, its
/// output, and what the terminal has shown.
pub(crate) fn stderr_on_a_terminal(mut command: Command) -> (ExitStatus, String, String) {
    let (mut other, terminal) = open();
    command.stderr(terminal.try_clone().unwrap()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The last end of the terminal is then the program's.
    drop((command, terminal));
    let shown = std::thread::spawn(move || {
        let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
        // The end of the last writer is an error (EIO).
        while let Ok(length @ 1..) = other.read(&mut bytes) {
            shown.extend_from_slice(&bytes[..length]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    (child.wait().unwrap(), output, shown.join().unwrap())
}
