//! Initial windows of one side's connections.
//!
//! No socket option sets them: without eBPF the kernel takes them from the route alone (`initcwnd`
//! and `initrwnd`, ip-route(8)). So a side's connections bear a mark, and a rule just before that
//! of the main routing table sends marked packets to a table of ours: a copy of the main table
//! whose routes have the windows. The operator's own rules come first, paths stay those of the main
//! table, and an incomplete copy is not used at all.
//!
//! As with interception, remains of a killed gateway are harmless, since nothing bears the mark any
//! more, and the next start removes them. An nftables table without chains shows whether the
//! gateway of a slot is alive.

mod changes;
mod copy;

use std::io;

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteMessage, RouteMetric};
use netlink_packet_route::rule::RuleMessage;
use os::netlink::RouteSocket;
use pep::config::SideConfig;
use pep::traffic::Version;

pub(crate) use self::changes::Changes;
use crate::intercept::nft_table::{self, NftTable};
use crate::intercept::routing;
use crate::intercept::rule::Mark;

/// Routing tables 5940 and up, one per slot.
const FIRST_TABLE: u32 = 5940;
/// The three bits above those of tunnels.
const MARK_SHIFT: u32 = 29;
const MARK_MASK: u32 = 7 << MARK_SHIFT;
/// Maximum sides with windows per network namespace: the non-zero values of three mark bits.
const SLOTS: u32 = 7;
/// Just before the main table (32766), after all other rules.
const PRIORITY: u32 = 32_765;
const VERSIONS: [Version; 2] = [Version::V4, Version::V6];

/// A slot for a side's windows in a network namespace. It determines the nftables table, packet
/// mark and routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    fn name(self) -> String {
        format!("skyhop-window-{}", self.0)
    }

    fn mark(self) -> Mark {
        Mark { value: (self.0 + 1) << MARK_SHIFT, mask: MARK_MASK }
    }

    fn table(self) -> u32 {
        FIRST_TABLE + self.0
    }

    fn rule(self, version: Version) -> RuleMessage {
        routing::rule_at(PRIORITY, self.mark(), self.table(), version)
    }
}

/// The windows of one side's connections. Removes everything when dropped.
pub(crate) struct Window {
    slot: Slot,
    metrics: Vec<RouteMetric>,
    /// Shows that the slot is taken while it lives.
    _claim: NftTable,
}

impl Window {
    /// Installs what a side's connections need; `None` if no windows are configured.
    ///
    /// # Errors
    /// The key, and the kernel's refusal: `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn install(side: &SideConfig) -> Result<Option<Self>, (&'static str, io::Error)> {
        let metrics = metrics(side);
        let key = match metrics.first() {
            None => return Ok(None),
            Some(RouteMetric::InitCwnd(_)) => "initial_window",
            Some(_) => "initial_receive_window",
        };
        Self::claim(metrics).map(Some).map_err(|error| (key, error))
    }

    fn claim(metrics: Vec<RouteMetric>) -> io::Result<Self> {
        let slots = (0..SLOTS).map(Slot);
        let (slot, claim) = NftTable::claim(slots, Slot::name, |_| vec![])?;
        let window = Self { slot, metrics, _claim: claim };
        let mut kernel = RouteSocket::open()?;
        for other in (0..SLOTS).map(Slot) {
            if other == slot || !nft_table::is_there(&other.name())? {
                sweep(&mut kernel, other)?;
            }
        }
        window.copy()?;
        Ok(window)
    }

    /// Mark of the side's packets.
    pub(crate) fn mark(&self) -> u32 {
        self.slot.mark().value
    }

    /// Copies the main table again. Meanwhile, and if the copy would be incomplete, connections use
    /// the main table itself, without the windows.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn copy(&self) -> io::Result<()> {
        let mut kernel = RouteSocket::open()?;
        let routes = kernel.routes()?;
        let wanted = copy::wanted(&routes, self.slot.table(), &self.metrics)?;
        let present = copy::present(&routes, self.slot.table());
        let all_there =
            present.len() == wanted.len() && wanted.iter().all(|it| present.contains(it));
        if all_there && !wanted.is_empty() && self.has_rules(&mut kernel) {
            return Ok(());
        }
        sweep(&mut kernel, self.slot)?;
        for route in wanted {
            let added = kernel.request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE);
            if let Err(error) = added {
                sweep(&mut kernel, self.slot)?;
                return Err(error);
            }
        }
        self.add_rules(&mut kernel)
    }

    /// Whether the rule exists, which adding it again shows.
    fn has_rules(&self, kernel: &mut RouteSocket) -> bool {
        let add = RouteNetlinkMessage::NewRule(self.slot.rule(Version::V4));
        let added = kernel.create(add);
        added.is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST))
    }

    fn add_rules(&self, kernel: &mut RouteSocket) -> io::Result<()> {
        for version in VERSIONS {
            let rule = RouteNetlinkMessage::NewRule(self.slot.rule(version));
            match kernel.create(rule) {
                // The machine has no IPv6, or it is switched off.
                Err(_) if version == Version::V6 => {}
                added => added?,
            }
        }
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let swept = RouteSocket::open().and_then(|mut kernel| sweep(&mut kernel, self.slot));
        if let Err(error) = swept {
            tracing::warn!("cannot remove routing table {}: {error}", self.slot.table());
        }
    }
}

/// Removes everything of `slot`, rules first: an incomplete table would misroute packets.
fn sweep(kernel: &mut RouteSocket, slot: Slot) -> io::Result<()> {
    for version in VERSIONS {
        while kernel.remove(RouteNetlinkMessage::DelRule(slot.rule(version)))? {}
    }
    for route in copy::present(&kernel.routes()?, slot.table()) {
        kernel.remove(RouteNetlinkMessage::DelRoute(route))?;
    }
    Ok(())
}

/// The metrics of a side's routes.
fn metrics(side: &SideConfig) -> Vec<RouteMetric> {
    let send = side.initial_window.map(RouteMetric::InitCwnd);
    let receive = side.initial_receive_window.map(RouteMetric::InitRwnd);
    send.into_iter().chain(receive).collect()
}

/// Equivalent `ip` commands for the `number`-th side with windows.
pub(crate) fn display(number: u32, side: &SideConfig) -> Option<String> {
    let (slot, metrics) = (Slot(number), metrics(side));
    let words = metrics.iter().map(|metric| match metric {
        RouteMetric::InitCwnd(segments) => format!(" initcwnd {segments}"),
        RouteMetric::InitRwnd(segments) => format!(" initrwnd {segments}"),
        _ => unreachable!("a side has no other metrics"),
    });
    let words: String = words.collect();
    let (mark, table) = (slot.mark(), slot.table());
    let line = |family: &str| {
        format!(
            "# ip {family}rule add priority {PRIORITY} fwmark {:#x}/{:#x} lookup {table}\n\
             # ip {family}route add … table {table}{words}    # for each route of the main table\n",
            mark.value, mark.mask
        )
    };
    (!words.is_empty()).then(|| line("") + &line("-6 "))
}

/// A route in the kernel's form.
type Route = RouteMessage;

#[cfg(test)]
mod tests;
