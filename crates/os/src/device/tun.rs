//! A TUN device: the kernel routes packets into it, and receives packets that are written to it. It
//! lives as long as its descriptor (Linux's Documentation/networking/tuntap.rst).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use super::request;

const DEVICE: &str = "/dev/net/tun";

/// Creates the device `name`, which must not exist, in the calling thread's network namespace; it
/// is still down. Each read from the non-blocking descriptor is an IP packet, and each write.
///
/// # Errors
/// `NotFound` or `PermissionDenied` if `/dev/net/tun` is missing or not accessible; `ResourceBusy`
/// or EINVAL if a device of that name exists.
pub fn open(name: &str) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
    let mut request = request(name);
    // IFF_TUN_EXCL: fail if a persistent device of that name exists.
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    Errno::result(code)?;
    Ok(file.into())
}

/// Returns the name of the TUN device behind a descriptor.
///
/// # Errors
/// ENOTTY and others if it is not a TUN device.
pub fn name_of(device: &OwnedFd) -> io::Result<String> {
    let mut request = request("");
    // SAFETY: TUNGETIFF writes an ifreq.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) };
    Errno::result(code)?;
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8);
    Ok(String::from_utf8_lossy(&name.collect::<Vec<u8>>()).into_owned())
}
