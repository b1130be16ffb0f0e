//! File descriptors: passing them to another process, closing inherited ones, watching them, and their
//! limit.

pub(crate) mod watched;

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Maximum number of descriptors in one message of ours; the kernel's is 253.
pub const MAX_PASSED: usize = 8;

/// Sends bytes and, with the first of them, descriptors (`SCM_RIGHTS`, unix(7)). Returns the number
/// of bytes sent.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(bytes)];
    // MSG_NOSIGNAL: a closed peer is an error, not the end of this process.
    Ok(sendmsg::<()>(stream.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Receives bytes and up to [`MAX_PASSED`] descriptors that came with them, which are
/// close-on-exec. Returns the number of bytes, 0 at the end of the stream.
///
/// # Errors
/// Those of recvmsg(2); ENOBUFS if there were more descriptors.
pub fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut parts = [IoSliceMut::new(bytes)];
    let mut space = cmsg_space!([RawFd; MAX_PASSED]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made them for this process.
            descriptors.extend(received.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
        }
    }
    Ok((message.bytes, descriptors))
}

/// Closes the descriptors above 2 that this process inherited, recognised by their lack of
/// close-on-exec: whatever the standard library opens has that flag.
///
/// A caller that has itself opened a descriptor without the flag loses it.
pub fn close_inherited() {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    // Collected first, because closing descriptors changes the directory.
    for fd in numbers.collect::<Vec<_>>() {
        // SAFETY: whether it is open or not, reading its flags changes nothing.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let flags = fcntl(borrowed, FcntlArg::F_GETFD).map(FdFlag::from_bits_truncate);
        if fd > 2 && flags.is_ok_and(|flags| !flags.contains(FdFlag::FD_CLOEXEC)) {
            // SAFETY: open and inherited, so no value of this program owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// Raises the soft limit of this process's descriptors to the hard one, and returns it.
pub fn raise_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn descriptors_arrive_with_the_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let zero = File::open("/dev/zero").unwrap();
        assert_eq!(send(&one, b"two", &[null.as_fd(), zero.as_fd()]).unwrap(), 3);
        assert_eq!(send(&one, b"none", &[]).unwrap(), 4);
        let mut bytes = [0; 16];
        let (length, descriptors) = receive(&other, &mut bytes).unwrap();
        assert_eq!((&bytes[..length], descriptors.len()), (&b"two"[..], 2));
        let mut read = [7; 3];
        File::from(descriptors.into_iter().nth(1).unwrap()).read_exact(&mut read).unwrap();
        assert_eq!(read, [0; 3]);
        let (length, descriptors) = receive(&other, &mut bytes).unwrap();
        assert_eq!((&bytes[..length], descriptors.len()), (&b"none"[..], 0));
    }
}
