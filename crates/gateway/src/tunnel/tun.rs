//! A TUN device: the kernel routes packets into it, and receives packets that are written to it. It
//! lives as long as its descriptor.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/net/tun";

/// Creates the device `name`, which must not exist, in the calling thread's network namespace.
///
/// # Errors
/// `NotFound` or `PermissionDenied` if `/dev/net/tun` is missing or not accessible; `ResourceBusy`
/// or EINVAL if a device of that name exists.
pub(super) fn open(name: &str) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // IFF_TUN_EXCL: fail if a persistent device of that name exists.
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(file.into()) }
}
