//! Numbers of nodes of a scenario.

use units::BitRate;

use super::raw::RawNetwork;
use crate::FileError;
use crate::link_spec::check_rate;
use crate::place::Place;

/// Numbers of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Terminals, 1 to 100,000. More than one are a star.
    pub terminals: u32,
    /// Servers behind the hub, 1 to 100,000.
    pub servers: u32,
    /// Clients behind each terminal; 1 to 100,000 in all.
    pub clients: u32,
    /// Number of links that terminals share on the way to the hub; 0 if each has its own.
    pub return_channels: u32,
    /// Whether terminals talk to each other rather than to servers.
    pub mesh: bool,
    /// Rates of the terminals' own links towards hub or mesh (single channels per carrier, SCPC):
    /// terminal n has number n modulo their number. Empty: all have the return link's rate.
    pub carrier_rates: Vec<BitRate>,
}

/// Maximum number of nodes of a kind.
const MOST_NODES: u32 = 100_000;

impl Network {
    pub(super) fn read(place: &Place<'_>, raw: &RawNetwork) -> Result<Self, FileError> {
        let one = |key, value: Option<u32>| {
            let value = value.unwrap_or(1);
            let good = (1..=MOST_NODES).contains(&value);
            place.check(good, key, value, "1 to 100,000").map(|()| value)
        };
        Ok(Self {
            terminals: one("terminals", raw.terminals)?,
            servers: one("servers", raw.servers)?,
            clients: one("clients", raw.clients)?,
            return_channels: raw.return_channels.unwrap_or(0),
            mesh: raw.mesh.unwrap_or(false),
            carrier_rates: carrier_rates(place, raw)?,
        })
    }

    /// Checks that the numbers fit each other, and whether there are links to servers and clients.
    pub(super) fn check(
        &self,
        place: &Place<'_>,
        [server_side, client_side]: [bool; 2],
    ) -> Result<(), FileError> {
        let Self { terminals, servers, clients, return_channels, mesh, .. } = *self;
        let all = u64::from(terminals) * u64::from(clients);
        place.check(all <= u64::from(MOST_NODES), "clients", clients, "100,000 in all")?;
        let good = servers == 1 || server_side;
        place.check(good, "servers", servers, "1, or links to them: [server-side]")?;
        let good = clients == 1 || client_side;
        place.check(good, "clients", clients, "1, or links to them: [client-side]")?;
        let good = return_channels <= terminals && !(mesh && return_channels > 0);
        let expected = "at most the terminals; 0 in a mesh";
        place.check(good, "return-channels", return_channels, expected)?;
        let carriers = self.carrier_rates.len();
        let good = carriers <= terminals as usize && !(carriers > 0 && return_channels > 0);
        let expected = "at most one for each terminal; none with return-channels";
        place.check(good, "carrier-rates", format!("a list of {carriers}"), expected)?;
        place.check(!mesh || terminals > 1, "terminals", terminals, "2 or more in a mesh")
    }
}

fn carrier_rates(place: &Place<'_>, raw: &RawNetwork) -> Result<Vec<BitRate>, FileError> {
    let given = raw.carrier_rates.iter().flatten().enumerate();
    let checked = given.map(|(number, rate)| {
        check_rate(&place.within("carrier-rates"), &number.to_string(), rate.0).map(|()| rate.0)
    });
    checked.collect()
}
