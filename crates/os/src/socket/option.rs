//! Socket options (setsockopt(2)) for which `nix` and `socket2` have no function.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::errno::Errno;

/// Sets an option to `value`, whose type must be the option's.
pub(crate) fn set<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe one `T`, which the kernel only reads.
    let code = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    Errno::result(code)?;
    Ok(())
}

/// Reads the beginning of an option's value, a structure of numbers. Returns its length, at most
/// that of `bytes`.
pub(crate) fn get(
    socket: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(bytes.len()).unwrap_or(libc::socklen_t::MAX);
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` bytes, which `bytes` has. If nothing or something
    // else has this number, it refuses.
    let code = unsafe { libc::getsockopt(socket, level, option, to, &raw mut length) };
    Errno::result(code)?;
    Ok(length as usize)
}
