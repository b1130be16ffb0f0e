//! The configuration keys that both sides of a pair have.

use crate::hop::ConnectTimeout;
use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;

use pep::traffic::TrafficClasses;
use slacp::KeyPair;

use crate::file::FileError;
use crate::file::place::KeyContext;
use crate::file::text::Text;
use crate::hop::HopKeys;
use crate::hop::links::{self, LinkSection, LinkSide};
use crate::operation::OperationKeys;
use crate::services::dlep::DlepSection;
use crate::services::tunnel::TunnelSection;
use crate::services::{dlep, tunnel};
use crate::traffic::classes::{self, ClassSection};
use crate::traffic::rate::{RateKeys, RateSettings};
use crate::values::AddressWithPort;
use crate::values::identity::identity;
use crate::values::source::{ConfigFile, KeySource};
use crate::{LinkConfig, OperationConfig, TunnelConfig};

/// The shared keys as written; [`shared_keys`] takes them out of a raw file.
pub(crate) struct SharedKeys {
    pub(crate) private_key: Option<String>,
    pub(crate) private_key_file: Option<String>,
    pub(crate) rates: RateKeys,
    pub(crate) hop: HopKeys,
    pub(crate) operation: OperationKeys,
    pub(crate) dlep: Option<DlepSection>,
    pub(crate) listen: Option<Text<AddressWithPort>>,
    pub(crate) connect_timeout: ConnectTimeout,
    pub(crate) tunnel: Option<TunnelSection>,
    pub(crate) class: Vec<ClassSection>,
    pub(crate) links: Vec<LinkSection>,
    pub(crate) side: LinkSide,
    /// True if there is a node for bundles.
    pub(crate) bundles: bool,
}

/// Declares the keys of a side's file: those that terminals and hubs have in common, and its own. Serde cannot
/// both flatten structs and refuse unknown keys.
macro_rules! keys_of_a_pair {
    ($(#[$attribute:meta])* struct $name:ident { $($own:tt)* }) => {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub(crate) struct $name {
            /// This gateway's private key, in base64. Give either this or `private_key_file`.
            pub(crate) private_key: Option<String>,
            /// The rate at which this side sends, in IP packets: that of its link. A fixed rate, `"auto"` (measured and
            /// followed), or `"modem"` (reported at run time by the [modem](modem.md) or `skyhop rate`). Too high floods
            /// the modem's queue, and what does not fit is sent again; more than four times too high for half a minute
            /// lowers it to what arrives ([circuit breaker](slacp.md#circuit-breaker)). Too low leaves the link unused.
            #[schemars(required, extend("examples" = ["10 Mbit/s", "auto", "modem"]))]
            pub(crate) rate: Option<$crate::file::text::Text<$crate::values::RateChoice>>,
            /// With `rate = "modem"`: the rate before the first report and after a report has expired. Without it, the
            /// path is measured then, as with `"auto"`; see [what stands in for a
            /// report](modem.md#while-no-rate-is-reported). Set it where the modem must never get more than a known rate,
            /// or where the link cannot be measured.
            #[schemars(extend("examples" = ["10 Mbit/s"]))]
            pub(crate) initial_rate: Option<$crate::file::text::Text<$crate::values::InitialRate>>,
            /// With `rate = "auto"` or `"modem"`: the upper limit of a session's rate on this side, at least
            /// `initial_rate`.
            #[schemars(extend("examples" = ["50 Mbit/s"]))]
            pub(crate) maximum_rate: Option<$crate::file::text::Text<units::BitRate>>,
            /// While rates are measured (`"auto"`, or `"modem"` without `initial_rate`): measure the path with padding
            /// when a session starts, the terminal's address changes or the modem stops reporting. It takes 50 ms of most
            /// links, at most 400 kB; a few times that with much jitter. Without it the first user's data measures the
            /// path, two round trips slower. Disable it where every byte is paid for and sessions are short.
            #[schemars(extend("default" = true))]
            pub(crate) probe: Option<bool>,
            /// With `probe`: the share of the bytes sent to a peer that padding may take, 0 % to 100 %, besides two
            /// measurements in advance (800 kB; with much jitter, twice the first one if that is more). Counted in IP
            /// packets over all sessions with the peer since the gateway started; `skyhop status` shows what is left.
            /// Once it is used up, data measures the path. `"0.5 %"` allows at most 51 MB of padding for 10 GB sent.
            #[schemars(extend("default" = "2 %", "examples" = ["0.5 %"]))]
            #[schemars(extend("x-restart" = true))]
            pub(crate) probe_share: Option<$crate::file::text::Text<units::Probability>>,
            /// The path of the control socket, or `"none"`. Default: the first available of several directories; see
            /// [Control sockets](operate.md#control-sockets).
            #[schemars(extend("x-restart" = true))]
            pub(crate) control: Option<String>,
            /// A directory of this gateway's own, such as `/var/lib/skyhop`, or `/var/lib/skyhop-ship-1` of a packaged
            /// terminal, for what must survive a restart: measured paths, so that sessions resume at the remembered rate. A
            /// hub also keeps its [accounts](operate.md#accounts-and-quotas) (else a restart renews quotas), permits from
            /// etcd, the addresses of terminals in its tunnel, and where they were last heard, so that they are back within
            /// seconds after a crash. A terminal keeps the [next keys of its hubs](hubs.md#replace-a-hubs-key).
            #[schemars(extend("examples" = ["/var/lib/skyhop"]))]
            #[schemars(extend("x-restart" = true))]
            pub(crate) state: Option<String>,
            /// An HTTP server for the [dashboard](dashboard.md), [metrics](operate.md#metrics) and status. Without it,
            /// nothing is served.
            #[schemars(extend("x-restart" = true))]
            pub(crate) metrics: Option<$crate::operation::MetricsSection>,
            /// The modem's rate by DLEP (RFC 8175), with `rate = "modem"`. Without it, only `skyhop rate` reports rates.
            /// See [DLEP](modem.md).
            #[schemars(extend("x-restart" = true))]
            pub(crate) dlep: Option<$crate::services::dlep::DlepSection>,
            /// The memory of all sessions together (streams, FEC, channels, packets in flight) above which new
            /// connections pass unaccelerated and a hub refuses them. Default: half of the machine's memory, or of its
            /// control group's limit.
            #[schemars(extend("examples" = ["1 GB"]))]
            pub(crate) total_memory: Option<$crate::values::bounded::Memory>,
            /// The most connections carried. Further ones pass unaccelerated; a hub refuses them. One client (an IPv4
            /// address or an IPv6 /64) has at most seven times as many as are free, and when a sixteenth is left,
            /// connections idle for more than a minute give way to new ones. Default: the process's descriptors − 64,
            /// which it cannot exceed.
            pub(crate) max_connections: Option<$crate::values::bounded::Number<1, { u32::MAX }>>,
            /// The local UDP address. Default: port 5900 of every address on a hub, a free port on a terminal.
            #[schemars(extend("examples" = ["[::]:5900"]))]
            #[schemars(extend("x-restart" = true))]
            pub(crate) listen: Option<$crate::file::text::Text<$crate::values::AddressWithPort>>,
            /// The longest IP packet to send over the hop, in bytes. Shorter limits of the path are discovered, down to 576.
            #[schemars(extend("x-restart" = true))]
            #[serde(default)]
            pub(crate) mtu: $crate::values::bounded::Number<576, 9216, 1500>,
            /// The most that all streams of a session hold, in each direction.
            #[schemars(extend("x-restart" = true))]
            #[serde(default)]
            pub(crate) memory: $crate::values::bounded::Memory<256_000_000>,
            /// The largest burst that may leave at once, at least `mtu`, for a policer that drops longer ones: `"3 kB"`
            /// for one that takes two packets. Packets that measure the path are exempt. Without it, packets within 0.5
            /// ms are handled together, and up to 4 ms of the rate may leave at once after a delay. With it, the gateway
            /// wakes up for each packet, which takes [more of the processor](performance.md#what-it-costs).
            #[schemars(extend("examples" = ["3 kB"]))]
            #[schemars(extend("x-restart" = true))]
            pub(crate) burst: Option<$crate::file::text::Text<units::ByteCount>>,
            /// The most that one stream holds, at most `memory`. One connection cannot fill the hop if this is below rate
            /// × RTT, or below four times that when packets are lost. Default: 64 MB, or `memory` if that is less.
            #[schemars(extend("default" = "64 MB"))]
            #[schemars(extend("x-restart" = true))]
            pub(crate) stream_window: Option<$crate::values::bounded::Memory>,
            /// Silence after which a client or server is probed. Up to six probes follow over the same time again, at
            /// most one a second; without an answer the connection is reset. The default keeps connections of clients
            /// that are suspended or out of reach for two hours, but one whose peer is gone holds its slot of
            /// `max_connections` and [its memory](performance.md) for four. Shorter costs a few packets on the LAN.
            #[schemars(extend("default" = "2 h"))]
            pub(crate) keepalive: Option<$crate::operation::Keepalive>,
            /// Filter of the log (standard error): `"off"`, `"error"`, `"warn"`, `"info"`, `"debug"` or `"trace"`, or
            /// several parts such as `"info,gateway::hop=debug"`. Of libraries, `warn` and `info` show only errors. Up
            /// to `info`, one place in the code writes at most 200 lines at once and then one every 10 s; the rest is
            /// counted once a minute. The environment variable `SKYHOP_LOG` overrides it.
            #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::hop=debug"]))]
            pub(crate) log: Option<$crate::file::text::Text<$crate::operation::log::LogFilter>>,
            /// Connect with the client's address and port instead of this machine's; on a terminal, for connections from
            /// the hub's side. On a hub the client must be in its terminal's `networks`, and replies must come back
            /// through the hub. Needs CAP_NET_ADMIN. See [Show servers the client's
            /// address](traffic.md#show-servers-the-clients-address).
            #[schemars(extend("x-restart" = true))]
            #[serde(default)]
            pub(crate) transparent: bool,
            /// Interception of the TCP connections that come in by the interfaces to the clients; on a hub, of those to
            /// its terminals' `networks`. Without it, nothing is intercepted. See [Steer traffic](traffic.md).
            #[schemars(extend("x-restart" = "presence"))]
            pub(crate) intercept: Option<$crate::intercept::InterceptSection>,
            /// A node of a delay-tolerant network (BPv7), which keeps bundles on disk until the other side can be
            /// reached. Without it, the gateway is no node. See [Bundles](bundles.md).
            #[schemars(extend("x-restart" = true))]
            pub(crate) bundles: Option<$crate::services::bundles::BundlesSection>,
            /// A tunnel for traffic that is not split, such as UDP and QUIC, if both sides have this section; otherwise
            /// it passes as without skyhop. Needs `[intercept]` on a terminal. On a hub, packets of a terminal with
            /// `networks` are routed; those of others are translated. See [the
            /// tunnel](traffic.md#carry-udp-quic-and-everything-else).
            #[schemars(extend("x-restart" = true))]
            pub(crate) tunnel: Option<$crate::services::tunnel::TunnelSection>,
            /// The links that a session uses at once, 2 to 4, in the same order on both sides. Without them, or if only
            /// one side has them, a session uses one link. See [Several links](links.md).
            #[serde(default)]
            #[schemars(extend("x-restart" = true))]
            pub(crate) link: Vec<$crate::hop::links::LinkSection>,
            /// Classes that share the rate, at most 31 besides `default`; the first that matches takes a connection or
            /// packet. Default: bulk, interactive and default, with `[bundles]` also bundles. See
            /// [Classes](traffic.md#classes).
            #[serde(default)]
            pub(crate) class: Vec<$crate::traffic::classes::ClassSection>,
            /// Rules that split, tunnel, bypass or refuse traffic; the first match decides. By default TCP is split, and
            /// everything else takes the tunnel if there is one. See [Policies](traffic.md#policies).
            #[serde(default)]
            pub(crate) policy: Vec<$crate::traffic::policies::PolicySection>,
            $($own)*
        }
    };
}
pub(crate) use keys_of_a_pair;

/// Moves the fields of [`SharedKeys`] out of the keys of a terminal or hub.
macro_rules! shared_keys {
    ($raw:ident, $side:expr) => {
        $crate::shared::SharedKeys {
            private_key: $raw.private_key,
            private_key_file: $raw.private_key_file,
            rates: $crate::traffic::rate::RateKeys {
                rate: $raw.rate,
                initial: $raw.initial_rate,
                maximum: $raw.maximum_rate,
                probe: $raw.probe,
                probe_share: $raw.probe_share,
            },
            hop: $crate::hop::HopKeys {
                mtu: $raw.mtu,
                burst: $raw.burst,
                memory: $raw.memory,
                stream_window: $raw.stream_window,
            },
            operation: $crate::operation::OperationKeys {
                control: $raw.control,
                state: $raw.state,
                metrics: $raw.metrics,
                total_memory: $raw.total_memory,
                max_connections: $raw.max_connections,
                keepalive: $raw.keepalive,
                log: $raw.log,
            },
            dlep: $raw.dlep,
            listen: $raw.listen,
            connect_timeout: $raw.connect_timeout,
            tunnel: $raw.tunnel,
            class: $raw.class,
            links: $raw.link,
            side: $side,
            bundles: $raw.bundles.is_some(),
        }
    };
}
pub(crate) use shared_keys;

/// The settings that follow from the shared keys.
pub(crate) struct SharedSettings {
    pub(crate) identity: KeyPair,
    pub(crate) link: slacp::Config,
    pub(crate) operation: OperationConfig,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) connect_timeout: Duration,
    pub(crate) tunnel: Option<TunnelConfig>,
    pub(crate) classes: TrafficClasses,
    pub(crate) links: Vec<LinkConfig>,
}

impl SharedKeys {
    /// Validates the keys; `key` reads the private key.
    pub(crate) fn read<E: Display>(
        self,
        place: &KeyContext<'_>,
        file: &ConfigFile<'_>,
        key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
    ) -> Result<SharedSettings, FileError> {
        let RateSettings { rate, maximum: maximum_rate, probe_share } = self.rates.read(place)?;
        let dlep = self.dlep.map(|raw| dlep::read(place, raw, &rate)).transpose()?;
        let mut link = self.hop.read(place, rate)?;
        link.padding_share = probe_share.unwrap_or(link.padding_share);
        // Before the classes, whose default queues depend on it.
        link.on_demand = dlep.as_ref().is_some_and(|dlep| dlep.on_demand);
        let tunnel =
            self.tunnel.map(|raw| tunnel::read(place, raw, &link, self.side)).transpose()?;
        let links = links::read(place, self.links, &link.rate, self.side)?;
        link.links = links.iter().map(|link| link.rate.clone()).collect();
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        let packets = tunnel.is_some();
        let classes = classes::read(place, self.class, self.bundles, &names, packets, &mut link)?;
        let operation = self.operation.read(place, file)?;
        Ok(SharedSettings {
            identity: identity(place, self.private_key, self.private_key_file, key)?,
            link,
            operation: OperationConfig { maximum_rate, dlep, ..operation },
            listen: self.listen.map(|address| address.0.0),
            connect_timeout: self.connect_timeout.get(),
            tunnel,
            classes,
            links,
        })
    }
}
