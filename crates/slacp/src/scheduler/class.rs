//! Traffic classes as the owner of an endpoint configures them.

use units::BitRate;

use crate::ConfigError;

/// Maximum number of classes in a configuration.
pub(crate) const MAX_CLASSES: usize = 64;

/// The share of a session's rate that a traffic class gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassConfig {
    /// Weight against other classes in the rate that the guarantees leave, 1 to 1000. Default 1.
    pub weight: u16,
    /// Rate served before other classes, in bits of IP packets per second, and before other
    /// sessions of the hub. If the guarantees exceed the rate, they share it in proportion. Default
    /// none.
    pub guaranteed: Option<BitRate>,
    /// Maximum rate, even when the link is otherwise idle. Default none.
    pub maximum: Option<BitRate>,
    /// Code point (RFC 2474), 0 to 63, of the packets that carry new data of the class, for links
    /// that serve classes differently. Packets then carry data of classes with the same code point
    /// only, and those without new data are marked as network control, CS6. Default 0.
    pub dscp: u8,
    /// The link, an index of [`Config::links`](crate::Config::links), that carries the new data of
    /// the class as long as it works. Retransmissions take the quickest link. Default none: any.
    pub link: Option<u8>,
}

/// The rates of a class in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassRates {
    /// The rate served before other classes and sessions, as [`ClassConfig::guaranteed`].
    pub guaranteed: Option<BitRate>,
    /// The maximum rate, as [`ClassConfig::maximum`].
    pub maximum: Option<BitRate>,
}

impl ClassRates {
    /// These rates, with those of `usual` in place of `None`.
    #[must_use]
    pub fn or(self, usual: Self) -> Self {
        Self {
            guaranteed: self.guaranteed.or(usual.guaranteed),
            maximum: self.maximum.or(usual.maximum),
        }
    }
}

/// Code point of packets without new data if any class has one: network control (RFC 4594 §3.2).
pub(crate) const CONTROL_DSCP: u8 = 48;
/// Highest code point: a DSCP has six bits.
const MAX_DSCP: u8 = 63;

/// The code point of packets without new data: 0 if no class has one.
pub(crate) fn control_dscp(classes: &[ClassConfig]) -> u8 {
    if classes.iter().any(|class| class.dscp != 0) { CONTROL_DSCP } else { 0 }
}

impl ClassConfig {
    /// The rates that the class has in sessions without rates of their own.
    pub fn rates(&self) -> ClassRates {
        ClassRates { guaranteed: self.guaranteed, maximum: self.maximum }
    }

    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        if !(1..=1000).contains(&self.weight) {
            return Err(ConfigError::Weight { weight: self.weight });
        }
        // A maximum of 0 would count as no maximum (`Class::set_rates`).
        let is_zero = |rate: Option<BitRate>| rate.is_some_and(|rate| rate.bits_per_second() == 0);
        if is_zero(self.guaranteed) || is_zero(self.maximum) {
            return Err(ConfigError::NoRate);
        }
        if self.dscp > MAX_DSCP {
            return Err(ConfigError::Dscp { dscp: self.dscp });
        }
        Ok(self)
    }
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self { weight: 1, guaranteed: None, maximum: None, dscp: 0, link: None }
    }
}
