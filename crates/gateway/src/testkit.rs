//! Tests that need a network of their own.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Says that a test cannot run here; fails where every test must run.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("SKYHOP_REQUIRE_LAB").is_none(), "must not be skipped: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Runs `work` in a thread with an empty network namespace whose loopback device
/// is up, or skips.
pub(crate) fn in_namespace(work: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return sender.send(error.to_string()).expect("the test waits");
        }
        drop(sender);
        bring_up("lo");
        work();
    });
    if let Ok(error) = receiver.recv() {
        skip(&format!("no network namespace: {error}"));
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `ip link set NAME up`, by ioctl.
fn bring_up(name: &str) {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: SIOCSIFFLAGS reads an ifreq.
    let result = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) };
    assert_eq!(result, 0, "{name}: {}", std::io::Error::last_os_error());
}

/// What a program prints in the caller's namespace, given `input`; `None` if there
/// is no such program.
pub(crate) fn output(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
