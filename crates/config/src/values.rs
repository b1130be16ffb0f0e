//! Values in gateways' configuration files, which several sections share.

pub(crate) mod bounded;
pub(crate) mod hub_address;
pub(crate) mod identity;
pub(crate) mod interface_name;
pub(crate) mod source;
pub(crate) mod tls_files;

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};

use pep::hubs::HubOrder;
use pep::keys::{KeyTextError, parse_public_key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slacp::{ErrorControl, PublicKey, QueueDiscipline};
use units::BitRate;

/// A local or remote IP address with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressWithPort(pub(crate) SocketAddr);

impl From<AddressWithPort> for SocketAddr {
    fn from(written: AddressWithPort) -> Self {
        written.0
    }
}

impl FromStr for AddressWithPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "expected an address and a port, like \"127.0.0.1:1080\" or \"[::]:5900\"";
        text.parse().map(Self).map_err(|_| EXPECTED)
    }
}

/// A public key in base64.
#[derive(Clone, Copy)]
pub(crate) struct PublicKeyText(pub(crate) PublicKey);

impl FromStr for PublicKeyText {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        parse_public_key(text).map(Self)
    }
}

/// The source of a side's rate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateChoice {
    /// Set by the operator.
    Fixed(BitRate),
    /// Measured on the path.
    Auto,
    /// Reported by the modem.
    Modem,
}

impl FromStr for RateChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "modem" => Ok(Self::Modem),
            _ => {
                let rate = text.parse().map_err(|e| format!("{e}, or \"auto\", or \"modem\""));
                rate.map(Self::Fixed)
            }
        }
    }
}

impl fmt::Display for RateChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(rate) => rate.fmt(f),
            Self::Auto => f.write_str("auto"),
            Self::Modem => f.write_str("modem"),
        }
    }
}

/// The rate used while the modem reports none.
pub(crate) struct InitialRate(pub(crate) BitRate);

impl FromStr for InitialRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse().map(Self);
        rate.map_err(|error| format!("{error}, or no such key, which measures the rate"))
    }
}

/// The kind of address with which a new name is answered.
#[derive(Debug, Deserialize, Serialize, JsonSchema, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum DnsAnswer {
    #[default]
    Real,
    Instant,
}

/// A resolver; without a port it gets 53.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolverAddress(pub(crate) SocketAddr);

impl From<ResolverAddress> for SocketAddr {
    fn from(written: ResolverAddress) -> Self {
        written.0
    }
}

impl FromStr for ResolverAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected an address, with a port unless it is 53, like \"192.0.2.53\" or \"[::1]:5353\"";
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
        address.or_else(|_| text.parse()).map(Self).map_err(|_| EXPECTED)
    }
}

/// The order in which hubs are tried.
#[derive(Deserialize, JsonSchema, Clone, Copy, Default)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum HubOrderChoice {
    #[default]
    Spread,
    Listed,
}

impl From<HubOrderChoice> for HubOrder {
    fn from(order: HubOrderChoice) -> Self {
        match order {
            HubOrderChoice::Spread => Self::Spread,
            HubOrderChoice::Listed => Self::Listed,
        }
    }
}

/// The TCP that a solo gateway uses towards servers.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Stack {
    #[default]
    Kernel,
    Skyhop,
}

/// The action of a policy.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Action {
    Split,
    Tunnel,
    Bypass,
    Refuse,
}

impl From<Action> for pep::traffic::PolicyAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Split => Self::Split,
            Action::Tunnel => Self::Tunnel,
            Action::Bypass => Self::Bypass,
            Action::Refuse => Self::Refuse,
        }
    }
}

/// Treatment of new QUIC flows to web servers.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum QuicChoice {
    Tcp,
    Carry,
    Pass,
}

/// The value as written.
impl fmt::Display for QuicChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "\"tcp\"",
            Self::Carry => "\"carry\"",
            Self::Pass => "\"pass\"",
        })
    }
}

/// Active queue management of a class's packets.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Aqm {
    Codel,
    None,
}

impl From<Aqm> for QueueDiscipline {
    fn from(aqm: Aqm) -> Self {
        match aqm {
            Aqm::Codel => Self::CoDel,
            Aqm::None => Self::DropTail,
        }
    }
}

/// Error control of a class's packets.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Channel {
    None,
    Fec,
    Arq,
    FecArq,
}

impl From<Channel> for ErrorControl {
    fn from(channel: Channel) -> Self {
        match channel {
            Channel::None => Self::None,
            Channel::Fec => Self::Fec,
            Channel::Arq => Self::Arq,
            Channel::FecArq => Self::FecArq,
        }
    }
}
