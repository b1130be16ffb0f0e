//! The section `[gateways]` of a scenario.

use core::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use units::{BitRate, ByteCount, format_duration};

use super::raw::RawGateways;
use config::FileError;
use config::file::place::KeyContext;
use config::file::text::Text;

/// Default queue of IP packets in front of SLACP, in bytes (SLACP paper, §4).
const QUEUE: ByteCount = ByteCount::new(40_000);
/// Longest time for which packets may wait for others; the same as in the gateway.
const LONGEST_GATHERING: Duration = Duration::from_millis(200);
/// Permitted sizes of buffers, in bytes.
const SIZES: core::ops::RangeInclusive<u64> = 1000..=1_000_000_000;

/// The gateways of a case, and the protocols between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaysSpec {
    /// The places where connections are split.
    pub split: SplitMode,
    /// Name of the TCP on the hop.
    pub tcp: String,
    /// Name of the TCP towards the hosts.
    pub lan_tcp: String,
    /// SLACP's configured rate on the forward link, or the rate at which acknowledgements release data;
    /// `None`: the link's rate.
    pub forward_rate: Option<BitRate>,
    /// SLACP's configured rate on the return link; `None`: the link's rate.
    pub return_rate: Option<BitRate>,
    /// Overhead that links charge for SLACP's packets.
    pub overhead: Overhead,
    /// Bytes of IP packets that may wait in front of SLACP, or for the return link if windows are limited.
    pub queue: ByteCount,
    /// Bytes that may wait in the MAC buffer below SLACP; `None`: SLACP sends at its own rate.
    pub mac_buffer: Option<ByteCount>,
    /// Settings that save bytes on the hop.
    pub compression: CompressionSpec,
}

/// Compression and gathering of packets by SLACP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompressionSpec {
    /// True if streams are compressed where that saves bytes.
    pub compress: bool,
    /// True if headers of packets are compressed.
    pub compress_headers: bool,
    /// Longest time for which a packet may wait for others, to share a packet of the hop with them.
    pub gather: Duration,
}

/// Overhead that links charge for a packet of SLACP.
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

/// The places where connections are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitMode {
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

/// The places where connections are split, as written.
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

/// Returns the places of the splits; `None` without gateways. Each of them needs one of the protocols.
fn split_mode(
    place: &KeyContext<'_>,
    split: Splitting,
    hop: HopProtocol,
) -> Result<Option<SplitMode>, FileError> {
    let mode = match (split, hop) {
        // With any protocol, so that a case can switch gateways off by a single key.
        (Splitting::None, _) => return Ok(None),
        (Splitting::Two, HopProtocol::Tcp) => SplitMode::Two,
        (Splitting::Three, HopProtocol::Tcp) => SplitMode::ThreeTcp,
        (Splitting::Three, HopProtocol::Slacp) => SplitMode::ThreeSlacp,
        (Splitting::Packets, HopProtocol::Slacp) => SplitMode::Packets,
        (Splitting::Window, HopProtocol::Tcp) => SplitMode::Window,
        (Splitting::Spacing, HopProtocol::Tcp) => SplitMode::Spacing,
        (Splitting::Window | Splitting::Spacing, HopProtocol::Slacp) => {
            let expected = "\"tcp\": connections are not split";
            return Err(place.wrong_value("hop", "\"slacp\"", expected));
        }
        (Splitting::Packets, HopProtocol::Tcp) => {
            return Err(place.wrong_value("hop", "\"tcp\"", "\"slacp\" to carry packets"));
        }
        (Splitting::Two, HopProtocol::Slacp) => {
            let expected = "a gateway on each side: split = \"three\"";
            return Err(place.wrong_value("hop", "\"slacp\"", expected));
        }
    };
    Ok(Some(mode))
}

impl GatewaysSpec {
    pub(super) fn read(
        place: &KeyContext<'_>,
        raw: Option<RawGateways>,
    ) -> Result<Option<Self>, FileError> {
        let Some(raw) = raw else { return Ok(None) };
        let hop = raw.hop.unwrap_or(HopProtocol::Tcp);
        let Some(split) = split_mode(place, raw.split, hop)? else { return Ok(None) };
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
        let thrift = CompressionSpec::read(place, &raw, split)?;
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
            compression: thrift,
        }))
    }

    /// Checks that gateways have a network behind them where they need one.
    pub(super) fn check(
        &self,
        place: &KeyContext<'_>,
        mesh: bool,
        [server_side, client_side]: [bool; 2],
    ) -> Result<(), FileError> {
        let split = match self.split {
            SplitMode::Two => "\"two\"",
            SplitMode::ThreeTcp | SplitMode::ThreeSlacp => "\"three\"",
            SplitMode::Packets => "\"packets\"",
            SplitMode::Window => "\"window\"",
            SplitMode::Spacing => "\"spacing\"",
        };
        place.check(!mesh, "split", split, "no gateways in a mesh")?;
        let behind = |key| format!("a network behind the gateway: [{key}]");
        // Terminals limit windows, so the hub needs no network behind it.
        let good = server_side || self.split == SplitMode::Window;
        place.check(good, "split", split, behind("server-side"))?;
        // These gateways are only at the hub.
        let good = client_side || matches!(self.split, SplitMode::Two | SplitMode::Spacing);
        place.check(good, "split", split, behind("client-side"))
    }

    /// Returns true if SLACP runs between two gateways.
    pub fn has_slacp(&self) -> bool {
        matches!(self.split, SplitMode::ThreeSlacp | SplitMode::Packets)
    }
}

impl CompressionSpec {
    fn read(
        place: &KeyContext<'_>,
        raw: &RawGateways,
        split: SplitMode,
    ) -> Result<Self, FileError> {
        let compress = raw.compress.unwrap_or(false);
        let good = !compress || split == SplitMode::ThreeSlacp;
        let expected = "false without streams: split = \"three\", hop = \"slacp\"";
        place.check(good, "compress", true, expected)?;
        let is_packets = split == SplitMode::Packets;
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
