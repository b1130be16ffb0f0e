//! The section `[network]` of a scenario: numbers of nodes.

use units::BitRate;

use super::raw::{RawNetwork, RawPlatforms};
use crate::link_spec::check_rate;
use config::FileError;
use config::file::place::{KeyContext, quoted};

/// Numbers of nodes, and the links that terminals share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSpec {
    /// Number of terminals of all platforms, 1 to 100,000. More than one form a star.
    pub terminals: u32,
    /// Number of terminals of each platform, 1 or more; their sum is [`NetworkSpec::terminals`]. A platform
    /// is a hub with its own forward and return links.
    pub platforms: Vec<u32>,
    /// Number of servers behind each hub, 1 to 100,000.
    pub servers: u32,
    /// Number of clients behind each terminal; 1 to 100,000 in all.
    pub clients: u32,
    /// Number of links that a platform's terminals share on the way to the hub; 0 if each has its
    /// own.
    pub return_channels: u32,
    /// True if terminals communicate with each other rather than with servers.
    pub mesh: bool,
    /// Rates of the terminals' own links towards hub or mesh (single channel per carrier, SCPC), assigned
    /// to terminals in turn. Empty: all have the return link's rate.
    pub carrier_rates: Vec<BitRate>,
}

/// Maximum number of nodes of each kind.
const MOST_NODES: u32 = 100_000;

impl NetworkSpec {
    pub(super) fn read(place: &KeyContext<'_>, raw: &RawNetwork) -> Result<Self, FileError> {
        let one = |key, value: Option<u32>| {
            let value = value.unwrap_or(1);
            let good = (1..=MOST_NODES).contains(&value);
            place.check(good, key, value, "1 to 100,000").map(|()| value)
        };
        let platforms = platforms(place, raw)?;
        Ok(Self {
            // The sum, because a list of platforms needs no `terminals`.
            terminals: one("terminals", Some(platforms.iter().sum()))?,
            platforms,
            servers: one("servers", raw.servers)?,
            clients: one("clients", raw.clients)?,
            return_channels: raw.return_channels.unwrap_or(0),
            mesh: raw.mesh.unwrap_or(false),
            carrier_rates: carrier_rates(place, raw)?,
        })
    }

    /// Returns the number of terminals of the largest platform.
    pub fn largest_platform(&self) -> u32 {
        self.platforms.iter().copied().max().unwrap_or(0)
    }

    /// Checks that the numbers fit each other and the links to servers and clients.
    pub(super) fn check(
        &self,
        place: &KeyContext<'_>,
        [server_side, client_side]: [bool; 2],
    ) -> Result<(), FileError> {
        let Self { terminals, servers, clients, return_channels, mesh, .. } = *self;
        // In 64 bits, because each may be 100,000.
        let all = u64::from(terminals) * u64::from(clients);
        place.check(all <= u64::from(MOST_NODES), "clients", clients, "100,000 in all")?;
        let good = servers == 1 || server_side;
        place.check(good, "servers", servers, "1, or links to them: [server-side]")?;
        let good = clients == 1 || client_side;
        place.check(good, "clients", clients, "1, or links to them: [client-side]")?;
        let fewest = self.platforms.iter().copied().min().unwrap_or(0);
        // A channel without a terminal is most likely a mistake.
        let good = return_channels <= fewest && !(mesh && return_channels > 0);
        let expected = "at most the terminals of a platform; 0 in a mesh";
        place.check(good, "return-channels", return_channels, expected)?;
        let carriers = self.carrier_rates.len();
        // Rates are assigned in turn, so those beyond the terminals would have no effect.
        let good = carriers <= terminals as usize && !(carriers > 0 && return_channels > 0);
        let expected = "at most one for each terminal; none with return-channels";
        place.check(good, "carrier-rates", format!("a list of {carriers}"), expected)?;
        place.check(!mesh || terminals > 1, "terminals", terminals, "2 or more in a mesh")?;
        let count = self.platforms.len();
        place.check(!mesh || count == 1, "platforms", count, "1 in a mesh")
    }
}

/// Returns the number of terminals of each platform: as listed, or as evenly as possible.
fn platforms(place: &KeyContext<'_>, raw: &RawNetwork) -> Result<Vec<u32>, FileError> {
    let terminals = raw.terminals.unwrap_or(1);
    match &raw.platforms {
        // The caller checks the sum.
        None => Ok(vec![terminals]),
        Some(RawPlatforms::Number(count)) => {
            // The number of terminals is checked later, and may be absurd.
            let good = (1..=terminals.min(MOST_NODES)).contains(count);
            place.check(good, "platforms", count, "1 or more, at most the terminals")?;
            // The first platforms get one terminal more if the division leaves a rest.
            let each = terminals / count;
            let more = terminals % count;
            Ok((0..*count).map(|number| each + u32::from(number < more)).collect())
        }
        Some(RawPlatforms::Terminals(list)) => {
            // In 64 bits, because the numbers are not checked yet.
            let sum = list.iter().map(|terminals| u64::from(*terminals)).sum::<u64>();
            let good = !list.is_empty() && list.iter().all(|terminals| *terminals > 0);
            let value = || quoted(format!("{list:?}"));
            place.check(good, "platforms", value(), "1 terminal or more on each platform")?;
            let good = raw.terminals.is_none_or(|terminals| u64::from(terminals) == sum);
            let expected = format!("{terminals} terminals together");
            place.check(good, "platforms", value(), expected)?;
            let good = sum <= u64::from(MOST_NODES);
            place.check(good, "platforms", value(), "100,000 terminals at most")?;
            Ok(list.clone())
        }
    }
}

fn carrier_rates(place: &KeyContext<'_>, raw: &RawNetwork) -> Result<Vec<BitRate>, FileError> {
    let given = raw.carrier_rates.iter().flatten().enumerate();
    let checked = given.map(|(number, rate)| {
        check_rate(&place.within("carrier-rates"), &number.to_string(), rate.0).map(|()| rate.0)
    });
    checked.collect()
}
