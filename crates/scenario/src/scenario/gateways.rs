//! Split gateways of a scenario.

use core::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount, format_duration};

use super::raw::RawGateways;
use crate::FileError;
use crate::place::Place;
use crate::text::Text;

/// Default for the IP packets that wait in front of SLACP: the SLACP paper's (§4).
const QUEUE: ByteCount = ByteCount::new(40_000);
/// The longest that packets may wait for others, as in the gateway.
const LONGEST_GATHERING: Duration = Duration::from_millis(200);
/// Sizes of buffers, in bytes: at least a packet.
const SIZES: core::ops::RangeInclusive<u64> = 1000..=1_000_000_000;

/// Where connections are split, and how the parts are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateways {
    /// Where.
    pub split: Split,
    /// The name of the TCP on the hop.
    pub tcp: String,
    /// The name of the TCP towards the hosts.
    pub lan_tcp: String,
    /// SLACP's configured rate on the forward link, or that at which acknowledgements release data;
    /// `None`: that of the link.
    pub forward_rate: Option<BitRate>,
    /// SLACP's configured rate on the return link; `None`: that of the link.
    pub return_rate: Option<BitRate>,
    /// What links charge for SLACP's packets.
    pub overhead: Overhead,
    /// Bytes of IP packets that wait in front of SLACP, or that hosts with limited windows let wait
    /// for the return link.
    pub queue: ByteCount,
    /// Bytes that SLACP lets wait for the link below it; `None`: it sends at its rate.
    pub mac_buffer: Option<ByteCount>,
    /// How bytes of the hop are saved.
    pub thrift: Thrift,
}

/// How SLACP saves bytes of the hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thrift {
    /// Whether streams are compressed where it pays.
    pub compress: bool,
    /// Whether headers of packets are compressed.
    pub compress_headers: bool,
    /// How long a packet may wait for others to share one of the hop with.
    pub gather: Duration,
}

/// What links charge for a packet of SLACP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Overhead {
    /// The whole IP packet: SLACP is a secure tunnel.
    #[default]
    Tunnel,
    /// SLACP's own headers only: it is the link layer, which needs no IP and UDP headers, no index
    /// and no tag. It then also behaves as one (`slacp::Config::link_layer`).
    LinkLayer,
}

/// Where connections are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// By one gateway, at the hub.
    Two,
    /// By a gateway on each side, with TCP between them.
    ThreeTcp,
    /// By a gateway on each side, with SLACP between them.
    ThreeSlacp,
    /// Nowhere: SLACP carries whole packets.
    Packets,
    /// Nowhere: terminals lower the windows that hosts behind them are offered.
    Window,
    /// Nowhere: hubs space the acknowledgements that they pass on to servers.
    Spacing,
}

/// Where connections are split, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum Splitting {
    None,
    Two,
    Three,
    Packets,
    Window,
    Spacing,
}

/// The protocol between two gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum HopProtocol {
    Tcp,
    Slacp,
}

impl Gateways {
    pub(super) fn read(
        place: &Place<'_>,
        raw: Option<RawGateways>,
    ) -> Result<Option<Self>, FileError> {
        let Some(raw) = raw else { return Ok(None) };
        let split = match (raw.split, raw.hop.unwrap_or(HopProtocol::Tcp)) {
            (Splitting::None, _) => return Ok(None),
            (Splitting::Two, HopProtocol::Tcp) => Split::Two,
            (Splitting::Three, HopProtocol::Tcp) => Split::ThreeTcp,
            (Splitting::Three, HopProtocol::Slacp) => Split::ThreeSlacp,
            (Splitting::Packets, HopProtocol::Slacp) => Split::Packets,
            (Splitting::Window, HopProtocol::Tcp) => Split::Window,
            (Splitting::Spacing, HopProtocol::Tcp) => Split::Spacing,
            (Splitting::Window | Splitting::Spacing, HopProtocol::Slacp) => {
                return Err(place.wrong("hop", "\"slacp\"", "\"tcp\": connections are not split"));
            }
            (Splitting::Packets, HopProtocol::Tcp) => {
                return Err(place.wrong("hop", "\"tcp\"", "\"slacp\" to carry packets"));
            }
            (Splitting::Two, HopProtocol::Slacp) => {
                let expected = "a gateway on each side: split = \"three\"";
                return Err(place.wrong("hop", "\"slacp\"", expected));
            }
        };
        let rate = |key, rate: Option<Text<BitRate>>| {
            let rate = rate.map(|text| text.0);
            let good = rate.is_none_or(|rate| rate.bits_per_second() > 0);
            place.check(good, key, "0 bit/s", "above 0").map(|()| rate)
        };
        let size = |key, size: Option<Text<ByteCount>>| {
            let size = size.map(|text| text.0);
            let good = size.is_none_or(|size| SIZES.contains(&size.get()));
            let shown = size.unwrap_or_default();
            place.check(good, key, shown, "1 kB to 1 GB").map(|()| size)
        };
        let thrift = Thrift::read(place, &raw, split)?;
        let name = |name: Option<String>| name.unwrap_or_else(|| "default".to_owned());
        Ok(Some(Self {
            split,
            tcp: name(raw.tcp),
            lan_tcp: name(raw.lan_tcp),
            forward_rate: rate("forward-rate", raw.forward_rate)?,
            return_rate: rate("return-rate", raw.return_rate)?,
            overhead: raw.overhead.unwrap_or_default(),
            queue: size("queue", raw.queue)?.unwrap_or(QUEUE),
            mac_buffer: size("mac-buffer", raw.mac_buffer)?,
            thrift,
        }))
    }

    /// Checks that there are networks where gateways need them.
    pub(super) fn check(
        &self,
        place: &Place<'_>,
        mesh: bool,
        [server_side, client_side]: [bool; 2],
    ) -> Result<(), FileError> {
        let split = match self.split {
            Split::Two => "\"two\"",
            Split::ThreeTcp | Split::ThreeSlacp => "\"three\"",
            Split::Packets => "\"packets\"",
            Split::Window => "\"window\"",
            Split::Spacing => "\"spacing\"",
        };
        place.check(!mesh, "split", split, "no gateways in a mesh")?;
        let behind = |key| format!("a network behind the gateway: [{key}]");
        let good = server_side || self.split == Split::Window;
        place.check(good, "split", split, behind("server-side"))?;
        let good = client_side || matches!(self.split, Split::Two | Split::Spacing);
        place.check(good, "split", split, behind("client-side"))
    }

    /// Whether SLACP runs between two gateways.
    pub fn has_slacp(&self) -> bool {
        matches!(self.split, Split::ThreeSlacp | Split::Packets)
    }
}

impl Thrift {
    fn read(place: &Place<'_>, raw: &RawGateways, split: Split) -> Result<Self, FileError> {
        let compress = raw.compress.unwrap_or(false);
        let good = !compress || split == Split::ThreeSlacp;
        let expected = "false without streams: split = \"three\", hop = \"slacp\"";
        place.check(good, "compress", true, expected)?;
        let is_packets = split == Split::Packets;
        let compress_headers = raw.compress_headers.unwrap_or(false);
        let expected = "false unless packets are carried whole: split = \"packets\"";
        place.check(is_packets || !compress_headers, "compress-headers", true, expected)?;
        let gather = place.time("gather", raw.gather)?.unwrap_or_default();
        let good = gather.is_zero() || is_packets && gather <= LONGEST_GATHERING;
        let expected = "0 s or, with split = \"packets\", up to 200 ms";
        place.check(good, "gather", format_duration(gather), expected)?;
        Ok(Self { compress, compress_headers, gather })
    }
}
