//! Section `[tunnel]`: the network device for traffic that is not split.

use core::ops::RangeInclusive;

use config::{TunnelConfig, TunnelDevice};

use super::raw::sections;
use super::raw::values::Device;
use super::{LONGEST_INTERFACE_NAME, number};
use crate::FileError;
use crate::place::{KeyContext, quoted};

const NAME: &str = "skyhop0";
/// Permitted MTUs: from the IPv6 minimum link MTU to a jumbo frame.
const MTU: RangeInclusive<i64> = 1280..=9216;
/// Ethernet's MTU. It may exceed the hop's MTU, because a packet channel splits longer packets.
pub(super) const USUAL_MTU: u16 = 1500;

pub(super) fn read(
    place: &KeyContext<'_>,
    raw: sections::Tunnel,
    link: &slacp::Config,
) -> Result<TunnelConfig, FileError> {
    let sections::Tunnel { name, device, mtu, clamp_mss } = raw;
    let usual_mtu = link.mtu.max(USUAL_MTU);
    let device = device_of(&place.within("tunnel"), name, device, mtu, NAME, usual_mtu)?;
    Ok(TunnelConfig { clamp_mss: clamp_mss.unwrap_or(device.clamp_mss), ..device })
}

/// Reads the keys `name`, `device` and `mtu` of a network device, with defaults of name and MTU.
pub(super) fn device_of(
    place: &KeyContext<'_>,
    name: Option<String>,
    device: Option<Device>,
    mtu: Option<i64>,
    usual_name: &str,
    usual_mtu: u16,
) -> Result<TunnelConfig, FileError> {
    let name = name.unwrap_or_else(|| usual_name.to_owned());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.bytes().all(known);
    let expected = "a device name of 1 to 15 letters, digits, or any of \"-_.\"";
    place.check(good, "name", quoted(&name), expected)?;
    let mtu = number(place, "mtu", mtu, MTU, " bytes")?;
    Ok(TunnelConfig {
        name,
        device: device.map_or(TunnelDevice::Auto, Into::into),
        mtu: mtu.map_or(usual_mtu, |mtu| mtu as u16),
        clamp_mss: true,
    })
}
