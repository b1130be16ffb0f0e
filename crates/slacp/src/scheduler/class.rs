//! Traffic classes as configured by the owner.

use units::BitRate;

use crate::channels::ConfigError;

/// Maximum number of classes in a configuration.
pub(crate) const MAX_CLASSES: usize = 64;

/// Identifies a class of a [`Config`](crate::Config).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class of all traffic not assigned to another one.
    pub const DEFAULT: Self = Self(0);
}

/// The share of a session's rate that a traffic class gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassConfig {
    /// Weight against other classes in what the guarantees leave, 1 to 1000. Default 1.
    pub weight: u16,
    /// Rate served before other classes, in bits of IP packets per second. If the guarantees exceed
    /// the rate, they share it in proportion. Default none.
    pub guaranteed: Option<BitRate>,
    /// Maximum rate, even when the link is otherwise idle. Default none.
    pub maximum: Option<BitRate>,
}

impl ClassConfig {
    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        if !(1..=1000).contains(&self.weight) {
            return Err(ConfigError::Weight { weight: self.weight });
        }
        let is_zero = |rate: Option<BitRate>| rate.is_some_and(|rate| rate.bits_per_second() == 0);
        if is_zero(self.guaranteed) || is_zero(self.maximum) {
            return Err(ConfigError::NoRate);
        }
        Ok(self)
    }
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self { weight: 1, guaranteed: None, maximum: None }
    }
}
