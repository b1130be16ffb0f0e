//! A DLEP router (RFC 8175): the modem itself reports its rate.
//!
//! [`pep::dlep`] decides and has no clock; [`driver`] provides sockets and the time.
//! [`crate::hop::peers`] maps what the modem reports to sessions.

mod client;
mod driver;
mod signals;

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use config::DlepConfig;
use control::status::GatewayStatus;
use units::BitRate;

use self::client::DlepClient;
use super::{Service, Surroundings};
use crate::process::error::RunError;

/// Rate of a session while a link with capacity on demand grants nothing. A first packet leaves at
/// once in any case; more would only wait in the modem, while capacity is requested for packets
/// that wait here, too. A full packet takes 3 s at this rate, longer than most grants take to
/// arrive.
const RATE_FLOOR: BitRate = BitRate::from_bits_per_second(4_000);

/// Follows the rates that a modem reports.
pub(crate) struct DlepService {
    client: DlepClient,
    /// Set once another process has the session with the modem.
    is_released: bool,
}

impl DlepService {
    /// Starts looking for a modem.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn start(config: DlepConfig) -> Result<Self, RunError> {
        let client = DlepClient::start(config).map_err(RunError::System)?;
        Ok(Self { client, is_released: false })
    }
}

impl Service for DlepService {
    fn start(&mut self, role: &mut Surroundings<'_>) {
        if let (Some(demand), Some(hop)) = (self.client.waiting(), role.hop) {
            role.peers.set_floor(RATE_FLOOR);
            hop.enable_forecast();
            hop.publish_demand_to(demand);
        }
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        if self.is_released { Box::pin(pending()) } else { Box::pin(self.client.changed()) }
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        if let (Some(hop), Some(report)) = (role.hop, self.client.take_report()) {
            role.peers.handle_report(role.now, hop, report);
        }
    }

    fn add_status(&self, role: &Surroundings<'_>, status: &mut GatewayStatus) {
        status.dlep = (!self.is_released).then(|| self.client.status(role.now));
    }

    fn release(&mut self, role: &mut Surroundings<'_>, within: Duration) -> bool {
        // The next process opens its own session. Rates reported so far stay in force here.
        if let Some(hop) = role.hop {
            role.peers.hold_rates(role.now, hop, within);
        }
        self.is_released = true;
        self.stop()
    }

    fn stop(&mut self) -> bool {
        self.client.stop();
        true
    }
}
