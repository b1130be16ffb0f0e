//! Switches off a network device's offloads through the ethtool ioctl.
//!
//! With offloads on, the kernel passes 64 KB segments without checksums from device to device, and
//! nothing on the way sees the packets that a real link carries.

use std::io;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::AsRawFd;

use super::request;

/// `ETHTOOL_GFEATURES` and `ETHTOOL_SFEATURES` of linux/ethtool.h.
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// Room for features, in words of 32; kernels use two words.
const WORDS: usize = 4;

/// The state of 32 features: `struct ethtool_get_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FeatureBlock {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// `struct ethtool_gfeatures` with room for [`WORDS`].
#[repr(C)]
struct GetFeatures {
    command: u32,
    size: u32,
    words: [FeatureBlock; WORDS],
}

/// A change of 32 features: `struct ethtool_set_features_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FeatureChange {
    valid: u32,
    requested: u32,
}

/// `struct ethtool_sfeatures` with room for [`WORDS`].
#[repr(C)]
struct SetFeatures {
    command: u32,
    size: u32,
    words: [FeatureChange; WORDS],
}

/// Switches off every feature of `device` that can be: segmentation, checksums, scatter-gather, GRO
/// and whatever else this kernel has. The calling thread must be in the device's network namespace.
pub fn switch_off(device: &str) -> io::Result<()> {
    let mut get = GetFeatures {
        command: GET_FEATURES,
        size: WORDS as u32,
        words: [FeatureBlock::default(); WORDS],
    };
    ioctl(device, &mut get)?;
    let size = get.size.min(WORDS as u32);
    let mut set =
        SetFeatures { command: SET_FEATURES, size, words: [FeatureChange::default(); WORDS] };
    for (wish, word) in set.words.iter_mut().zip(get.words) {
        // Valid but not requested means: change to off.
        wish.valid = word.available & !word.never_changed;
    }
    ioctl(device, &mut set)
}

fn ioctl<T>(device: &str, argument: &mut T) -> io::Result<()> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = request(device);
    request.ifr_ifru.ifru_data = core::ptr::from_mut(argument).cast();
    // SAFETY: SIOCETHTOOL takes an ifreq whose data points to the command's
    // structure; `T` is one of the two above, with its true size inside.
    let code = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    Errno::result(code)?;
    Ok(())
}
