//! The kind of capacity that each class of traffic uses.
//!
//! Two-way satellite networks give a service its own kind of capacity: constant rate for voice,
//! requested rates for streams, requested volumes for bulk (EN 301 790 §6.6.1).

use super::config::TerminalConfig;
use crate::TrafficClass;

/// A kind of capacity (EN 301 790 §6.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityKind {
    /// CRA: constant rate, without requests. Cells of such a class go between those of a packet of
    /// a less urgent class, as on a VC or PID of their own, so that the packet does not take the
    /// slots of the constant rate before them.
    Cra,
    /// RBDC: the incoming rate is requested.
    Rbdc,
    /// VBDC: the waiting volume is requested.
    Vbdc,
}

/// The category of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCapacities([CapacityKind; TrafficClass::COUNT]);

impl Default for ClassCapacities {
    /// Volumes for bulk, rates for everything else.
    fn default() -> Self {
        let rate = CapacityKind::Rbdc;
        Self([rate, rate, rate, CapacityKind::Vbdc])
    }
}

impl ClassCapacities {
    /// Changes the category of one class.
    pub const fn with(mut self, class: TrafficClass, category: CapacityKind) -> Self {
        self.0[class as usize] = category;
        self
    }

    /// Returns the category configured for a class.
    pub const fn of(&self, class: TrafficClass) -> CapacityKind {
        self.0[class as usize]
    }
}

impl TerminalConfig {
    /// Returns the category that a class uses: if the terminal may request only one of rates and
    /// volumes, that one stands for the other.
    pub fn category(&self, class: TrafficClass) -> CapacityKind {
        let [rates, volumes] = [self.rbdc.bits_per_second() > 0, self.vbdc > 0];
        match self.categories.of(class) {
            CapacityKind::Rbdc if !rates => CapacityKind::Vbdc,
            CapacityKind::Vbdc if rates && !volumes => CapacityKind::Rbdc,
            category => category,
        }
    }
}
