//! Section `[tunnel]`: the network device for traffic that is not split.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::values::bounded::Number;
use crate::values::interface_name::LONGEST_INTERFACE_NAME;
use crate::{TunnelConfig, TunnelDevice};

/// The tunnel for traffic that is not split.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tunnel")]
pub(crate) struct TunnelSection {
    /// The name of the network device, which exists as long as the gateway.
    #[schemars(extend("default" = "skyhop0"))]
    pub(crate) name: Option<String>,
    /// The device's type: `"tun"`, `"veth"` where the gateway cannot open `/dev/net/tun` (needs CAP_SYS_ADMIN and
    /// CAP_NET_RAW), or `"auto"`, the first that works.
    #[schemars(extend("default" = "auto"))]
    pub(crate) device: Option<TunnelDevice>,
    /// The longest packet that the tunnel takes, in bytes. It need not fit into one packet of the hop. Default: 1500, or
    /// `mtu` of the hop if that is larger.
    pub(crate) mtu: Option<Number<1280, 9216>>,
    /// Lower the MSS in SYNs to what fits into one packet of the hop, so that full segments are not carried in
    /// two.
    #[schemars(extend("default" = true))]
    pub(crate) clamp_mss: Option<bool>,
}

const NAME: &str = "skyhop0";
/// Ethernet's MTU. It may exceed the hop's MTU, because a packet channel splits longer packets.
pub(crate) const USUAL_MTU: u16 = 1500;

pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: TunnelSection,
    link: &slacp::Config,
) -> Result<TunnelConfig, FileError> {
    let TunnelSection { name, device, mtu, clamp_mss } = raw;
    let usual_mtu = link.mtu.max(USUAL_MTU);
    let device = device_of(&place.within("tunnel"), name, device, mtu, NAME, usual_mtu)?;
    Ok(TunnelConfig { clamp_mss: clamp_mss.unwrap_or(device.clamp_mss), ..device })
}

/// Reads the keys `name`, `device` and `mtu` of a network device, with defaults of name and MTU.
pub(crate) fn device_of(
    place: &KeyContext<'_>,
    name: Option<String>,
    device: Option<TunnelDevice>,
    mtu: Option<Number<1280, 9216>>,
    usual_name: &str,
    usual_mtu: u16,
) -> Result<TunnelConfig, FileError> {
    let name = name.unwrap_or_else(|| usual_name.to_owned());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.bytes().all(known);
    let expected = "a device name of 1 to 15 letters, digits, or any of \"-_.\"";
    place.check(good, "name", quoted(&name), expected)?;
    Ok(TunnelConfig {
        name,
        device: device.unwrap_or_default(),
        mtu: mtu.map_or(usual_mtu, |mtu| mtu.get() as u16),
        clamp_mss: true,
    })
}
