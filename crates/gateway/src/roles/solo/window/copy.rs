//! Computes the routes of a copy of the main table.

use std::io;

use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMetric, RouteType,
};

use super::Route;
use crate::intercept::routing::PROTOCOL;

/// Maximum routes to copy: a larger table is a backbone router's, too large to copy at every
/// change.
const MOST: usize = 10_000;

/// The routes of the main table for another `table`, with these metrics.
///
/// # Errors
/// If there are too many.
pub(super) fn wanted(
    routes: &[Route],
    table: u32,
    metrics: &[RouteMetric],
) -> io::Result<Vec<Route>> {
    let main = u32::from(RouteHeader::RT_TABLE_MAIN);
    let own = routes.iter().filter(|route| table_of(route) == main && is_configured(route));
    let wanted: Vec<Route> = own.map(|route| copy(route, table, metrics)).collect();
    if wanted.len() > MOST {
        let problem = format!("the main routing table has more than {MOST} routes");
        return Err(io::Error::other(problem));
    }
    Ok(wanted)
}

/// The routes in `table`, as they were added.
pub(super) fn present(routes: &[Route], table: u32) -> Vec<Route> {
    let own = routes.iter().filter(|route| table_of(route) == table && is_configured(route));
    own.map(|route| copy(route, table, &[])).collect()
}

fn table_of(route: &Route) -> u32 {
    let given = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    given.unwrap_or(route.header.table.into())
}

/// Excludes cached, local and multicast routes.
fn is_configured(route: &Route) -> bool {
    let kinds = [
        RouteType::Unicast,
        RouteType::BlackHole,
        RouteType::Unreachable,
        RouteType::Prohibit,
        RouteType::Throw,
    ];
    !route.header.flags.contains(RouteFlags::Cloned) && kinds.contains(&route.header.kind)
}

fn copy(route: &Route, table: u32, metrics: &[RouteMetric]) -> Route {
    let mut copy = route.clone();
    copy.header.table = 0;
    copy.header.protocol = PROTOCOL;
    copy.header.flags &= RouteFlags::Onlink;
    let by_id = copy.attributes.iter().any(|it| matches!(it, RouteAttribute::NhId(_)));
    copy.attributes.retain(|attribute| match attribute {
        RouteAttribute::Table(_) | RouteAttribute::CacheInfo(_) => false,
        // Derived by the kernel from a next hop that is given by its id.
        RouteAttribute::Gateway(_)
        | RouteAttribute::Via(_)
        | RouteAttribute::Oif(_)
        | RouteAttribute::MultiPath(_) => !by_id,
        _ => true,
    });
    let at = copy.attributes.iter().position(|it| matches!(it, RouteAttribute::Metrics(_)));
    let mut all = match at.map(|at| copy.attributes.remove(at)) {
        Some(RouteAttribute::Metrics(own)) => own,
        _ => Vec::new(),
    };
    let kind = std::mem::discriminant::<RouteMetric>;
    all.retain(|own| metrics.iter().all(|new| kind(own) != kind(new)));
    all.extend_from_slice(metrics);
    // The order in which the kernel lists them.
    all.sort_by_key(netlink_packet_core::Nla::kind);
    if !all.is_empty() {
        copy.attributes.push(RouteAttribute::Metrics(all));
    }
    copy.attributes.sort_by_key(netlink_packet_core::Nla::kind);
    copy.attributes.push(RouteAttribute::Table(table));
    copy
}
