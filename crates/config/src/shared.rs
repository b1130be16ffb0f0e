//! The configuration keys that both sides of a pair have.

use crate::hop::ConnectTimeout;
use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;

use pep::traffic::TrafficClasses;
use slacp::KeyPair;

use crate::classes::ClassSection;
use crate::dlep::DlepSection;
use crate::file::FileError;
use crate::file::place::KeyContext;
use crate::file::text::Text;
use crate::hop::HopKeys;
use crate::identity::identity;
use crate::links::{self, LinkSection, LinkSide};
use crate::operation::OperationKeys;
use crate::rate::{RateKeys, RateSettings};
use crate::source::{ConfigFile, KeySource};
use crate::tunnel::TunnelSection;
use crate::values::AddressWithPort;
use crate::{LinkConfig, OperationConfig, TunnelConfig, classes, dlep, tunnel};

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

/// Moves the fields of [`SharedKeys`] out of a raw terminal or hub. The raw types repeat the fields,
/// because serde cannot both flatten structs and deny unknown fields.
macro_rules! shared_keys {
    ($raw:ident, $side:expr) => {
        $crate::shared::SharedKeys {
            private_key: $raw.private_key,
            private_key_file: $raw.private_key_file,
            rates: $crate::rate::RateKeys {
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
        let tunnel = self.tunnel.map(|raw| tunnel::read(place, raw, &link)).transpose()?;
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
