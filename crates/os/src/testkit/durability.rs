//! Records what a function syncs and renames, in order: after a power cut only what was synced is there.
//!
//! A system call filter of one thread asks this process about each of these calls (seccomp_unotify(2)).

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;

use super::filter::{LOAD, NUMBER, RETURN, SKIP_UNLESS, instruction};
use super::skip;

const SYNCS: [libc::c_long; 2] = [libc::SYS_fsync, libc::SYS_fdatasync];
const RENAMES: &[libc::c_long] = &[
    libc::SYS_renameat2,
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// Runs `work` on a thread of its own, and returns its steps towards a durable file, in order: `sync NAME` of a
/// file or directory under the name that it has at that moment, relative to `directory`, and `rename`. Threads
/// that `work` starts are not followed.
///
/// Skips the test and returns [`None`] if the kernel lets no filter ask.
///
/// # Panics
/// If `work` does, or `directory` does not exist.
pub fn durable_steps(directory: &Path, work: impl FnOnce() + Send) -> Option<Vec<String>> {
    let directory = directory.canonicalize().expect("the directory exists");
    let (announce, installed) = channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let listener = install();
            let is_followed = listener.is_ok();
            announce.send(listener).expect("the other thread waits for it");
            if is_followed {
                work();
            }
        });
        match installed.recv().expect("the thread tells") {
            Ok(listener) => {
                let steps = follow(&listener, &directory);
                worker.join().unwrap_or_else(|panic| resume_unwind(panic));
                Some(steps)
            }
            Err(error) => {
                skip(format!("system calls cannot be followed: {error}"));
                None
            }
        }
    })
}

/// Makes each of the calls of this thread wait for an answer at the returned descriptor.
fn install() -> io::Result<OwnedFd> {
    let mut filter = vec![instruction(LOAD, NUMBER, 0)];
    for call in SYNCS.iter().chain(RENAMES) {
        filter.push(instruction(SKIP_UNLESS, *call as u32, 1));
        filter.push(instruction(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0));
    }
    filter.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    prctl::set_no_new_privs()?;
    // SAFETY: the program outlives the call; the kernel copies it.
    let listener = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    })?;
    // SAFETY: the kernel has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as RawFd) })
}

/// Lets every call pass, until the thread has ended.
fn follow(listener: &OwnedFd, directory: &Path) -> Vec<String> {
    let mut steps = Vec::new();
    loop {
        let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        while poll(&mut waiting, PollTimeout::NONE) == Err(Errno::EINTR) {}
        // Otherwise it is a hang-up: no thread has the filter any more.
        if !waiting[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            return steps;
        }
        steps.push(pass_call(listener, directory));
    }
}

/// Lets the call that waits pass, and says what it is.
fn pass_call(listener: &OwnedFd, directory: &Path) -> String {
    // SAFETY: numbers only, and the kernel wants them to be 0.
    let mut call: libc::seccomp_notif = unsafe { mem::zeroed() };
    control(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call).expect("a call waits");
    let step = if RENAMES.contains(&libc::c_long::from(call.data.nr)) {
        "rename".to_owned()
    } else {
        // Descriptors are shared by the threads of a process.
        let path = fs::read_link(format!("/proc/self/fd/{}", call.data.args[0]));
        let path = path.expect("the descriptor is open");
        let name = path.strip_prefix(directory).unwrap_or(&path);
        let is_itself = name.as_os_str().is_empty();
        format!("sync {}", if is_itself { ".".into() } else { name.to_string_lossy() })
    };
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags };
    control(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer).expect("it still waits");
    step
}

/// Makes a request whose argument is a `T`.
fn control<T>(listener: &OwnedFd, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request reads or writes the structure that it is called with here.
    let code = unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut *argument) };
    Errno::result(code).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn syncs_and_renames_are_steps_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let [before, after] = ["before", "after"].map(|name| directory.path().join(name));
        let steps = durable_steps(directory.path(), || {
            let file = File::create(&before).unwrap();
            file.sync_data().unwrap();
            fs::rename(&before, &after).unwrap();
            file.sync_all().unwrap();
            File::open(directory.path()).unwrap().sync_all().unwrap();
        });
        let Some(steps) = steps else { return };
        assert_eq!(steps, ["sync before", "rename", "sync after", "sync ."]);
        assert!(after.exists(), "the calls were made");
    }
}
