//! Network devices: TUN, veth pairs with a packet socket at one end, and their offloads.

pub mod offload;
pub mod tun;
pub mod veth;

/// Returns a request about `device` (netdevice(7)) with all other fields zero.
fn request(device: &str) -> libc::ifreq {
    let mut name = [0; libc::IFNAMSIZ];
    // The last byte stays zero.
    for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    let data = core::ptr::null_mut();
    libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } }
}
