//! Numbers of nodes of a scenario.

use super::raw::RawNetwork;
use crate::FileError;
use crate::place::Place;

/// Numbers of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        })
    }

    /// Checks that the numbers fit each other, and whether there are links to servers and clients.
    pub(super) fn check(
        &self,
        place: &Place<'_>,
        [server_side, client_side]: [bool; 2],
    ) -> Result<(), FileError> {
        let Self { terminals, servers, clients, return_channels, mesh } = *self;
        let all = u64::from(terminals) * u64::from(clients);
        place.check(all <= u64::from(MOST_NODES), "clients", clients, "100,000 in all")?;
        let good = servers == 1 || server_side;
        place.check(good, "servers", servers, "1, or links to them: [server-side]")?;
        let good = clients == 1 || client_side;
        place.check(good, "clients", clients, "1, or links to them: [client-side]")?;
        let good = return_channels <= terminals && !(mesh && return_channels > 0);
        let expected = "at most the terminals; 0 in a mesh";
        place.check(good, "return-channels", return_channels, expected)?;
        place.check(!mesh || terminals > 1, "terminals", terminals, "2 or more in a mesh")
    }
}
