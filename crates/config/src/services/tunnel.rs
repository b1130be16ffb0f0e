//! Section `[tunnel]`: the network device for traffic that is not split.

use pep::traffic::Prefix;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hop::links::LinkSide;
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
    /// On a hub: private IPv4 addresses, one for each `[[terminal]]` without `networks`, whose clients' packets are
    /// translated to it; of 8 to 30 bits. No route of hub or terminal may lead there. See [Without a plan of
    /// networks](traffic.md#without-a-plan-of-networks).
    #[schemars(extend("default" = "10.213.0.0/16"))]
    pub(crate) pool: Option<Text<Prefix>>,
}

const NAME: &str = "skyhop0";
/// Rarely used by others: home routers, containers and VPNs begin elsewhere.
const POOL: Prefix = Prefix::v4([10, 213, 0, 0], 16);
/// Private addresses (RFC 1918). Neither those shared by carriers (RFC 6598), which many uplinks have, nor those of
/// benchmarks (RFC 2544), which stand for names in `[dns]`.
const PRIVATE: [Prefix; 3] = [
    Prefix::v4([10, 0, 0, 0], 8),
    Prefix::v4([172, 16, 0, 0], 12),
    Prefix::v4([192, 168, 0, 0], 16),
];
const POOL_FORM: &str = "a prefix of 8 to 30 bits in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 \
                         (100.64.0.0/10 belongs to carriers, 198.18.0.0/15 to `[dns] pool`)";
/// Ethernet's MTU. It may exceed the hop's MTU, because a packet channel splits longer packets.
pub(crate) const USUAL_MTU: u16 = 1500;

pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: TunnelSection,
    link: &slacp::Config,
    side: LinkSide,
) -> Result<TunnelConfig, FileError> {
    let TunnelSection { name, device, mtu, clamp_mss, pool } = raw;
    let place = place.within("tunnel");
    let usual_mtu = link.mtu.max(USUAL_MTU);
    let device = device_of(&place, name, device, mtu, NAME, usual_mtu)?;
    let pool = match side {
        LinkSide::Hub => Some(self::pool(&place, pool)?),
        LinkSide::Terminal => {
            let expected = "no such key: a terminal gets its address from the hub";
            pool.map_or(Ok(()), |pool| Err(place.wrong_value("pool", quoted(pool.0), expected)))?;
            None
        }
    };
    Ok(TunnelConfig { clamp_mss: clamp_mss.unwrap_or(device.clamp_mss), pool, ..device })
}

/// Reads the addresses for terminals without networks.
fn pool(place: &KeyContext<'_>, raw: Option<Text<Prefix>>) -> Result<Prefix, FileError> {
    let Some(Text(pool)) = raw else { return Ok(POOL) };
    let is_private = PRIVATE.iter().any(|private| private.covers(pool)) && pool.length() <= 30;
    place.check(is_private, "pool", quoted(pool), POOL_FORM)?;
    Ok(pool)
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
        pool: None,
        clamp_mss: true,
    })
}
