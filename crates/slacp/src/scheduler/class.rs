//! Classes of traffic, as the owner defines them.

use units::BitRate;

use crate::channels::ConfigError;

/// The most classes of a configuration.
pub(crate) const MAX_CLASSES: usize = 64;

/// Names a class of a [`Config`](crate::Config).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub(crate) u8);

impl ClassId {
    /// The class of everything that is put in no other.
    pub const DEFAULT: Self = Self(0);
}

/// What a class of traffic gets of the rate of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassConfig {
    /// Its share of what the guarantees leave, against other classes; 1 to
    /// 1000. Default 1.
    pub weight: u16,
    /// What it gets before other classes, in bits of IP packets per second.
    /// Guarantees that exceed the rate share it. Default none.
    pub guaranteed: Option<BitRate>,
    /// What it never exceeds, even when nobody else wants the link. Default
    /// none.
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
