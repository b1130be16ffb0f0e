//! The configuration keys that both sides of a pair have.

use core::fmt::Display;
use core::time::Duration;
use std::net::SocketAddr;

use config::{LinkConfig, OperationConfig, TunnelConfig};
use pep::traffic::TrafficClasses;
use slacp::KeyPair;

use super::hop::HopKeys;
use super::links::{self, LinkSide};
use super::operation::OperationKeys;
use super::rate::{RateKeys, RateSettings};
use super::raw::sections;
use super::raw::values::AddressWithPort;
use super::{ConfigFile, KeySource, classes, dlep, hop, identity, tunnel};
use crate::FileError;
use crate::place::KeyContext;
use crate::text::{Text, Time};

/// The shared keys as written; [`shared_keys`] takes them out of a raw file.
pub(super) struct SharedKeys {
    pub(super) private_key: Option<String>,
    pub(super) private_key_file: Option<String>,
    pub(super) rates: RateKeys,
    pub(super) hop: HopKeys,
    pub(super) operation: OperationKeys,
    pub(super) dlep: Option<sections::Dlep>,
    pub(super) listen: Option<Text<AddressWithPort>>,
    pub(super) connect_timeout: Option<Text<Time>>,
    pub(super) tunnel: Option<sections::Tunnel>,
    pub(super) class: Vec<sections::Class>,
    pub(super) links: Vec<sections::Link>,
    pub(super) side: LinkSide,
    /// True if there is a node for bundles.
    pub(super) bundles: bool,
}

/// Moves the fields of [`SharedKeys`] out of a raw terminal or hub. The raw types repeat the fields,
/// because serde cannot both flatten structs and deny unknown fields.
macro_rules! shared_keys {
    ($raw:ident, $side:expr) => {
        SharedKeys {
            private_key: $raw.private_key,
            private_key_file: $raw.private_key_file,
            rates: RateKeys {
                rate: $raw.rate,
                initial: $raw.initial_rate,
                maximum: $raw.maximum_rate,
                probe: $raw.probe,
                probe_share: $raw.probe_share,
            },
            hop: HopKeys {
                mtu: $raw.mtu,
                burst: $raw.burst,
                memory: $raw.memory,
                stream_window: $raw.stream_window,
            },
            operation: OperationKeys {
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
pub(super) use shared_keys;

/// The settings that follow from the shared keys.
pub(super) struct SharedSettings {
    pub(super) identity: KeyPair,
    pub(super) link: slacp::Config,
    pub(super) operation: OperationConfig,
    pub(super) listen: Option<SocketAddr>,
    pub(super) connect_timeout: Duration,
    pub(super) tunnel: Option<TunnelConfig>,
    pub(super) classes: TrafficClasses,
    pub(super) links: Vec<LinkConfig>,
}

impl SharedKeys {
    /// Validates the keys; `key` reads the private key.
    pub(super) fn read<E: Display>(
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
            connect_timeout: hop::connect_timeout(place, self.connect_timeout)?,
            tunnel,
            classes,
            links,
        })
    }
}
