//! Checks the copy of the main table in the kernel.

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteProtocol, RouteScope};

use super::*;
use crate::testkit::in_namespace;

/// The loopback device has index 1 in every network namespace.
const LOOPBACK: u32 = 1;

fn side() -> SideConfig {
    SideConfig {
        initial_window: Some(32),
        initial_receive_window: Some(64),
        ..SideConfig::default()
    }
}

/// A main table route to 10.`net`.0.0/16.
fn route(net: u8, own: &[RouteMetric]) -> Route {
    let mut route = Route::default();
    route.header.address_family = netlink_packet_route::AddressFamily::Inet;
    route.header.destination_prefix_length = 16;
    route.header.table = 254;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Link;
    route.header.kind = netlink_packet_route::route::RouteType::Unicast;
    let destination = RouteAddress::Inet([10, net, 0, 0].into());
    route.attributes =
        vec![RouteAttribute::Destination(destination), RouteAttribute::Oif(LOOPBACK)];
    if !own.is_empty() {
        route.attributes.push(RouteAttribute::Metrics(own.to_vec()));
    }
    route
}

fn add(route: Route) {
    let add = RouteNetlinkMessage::NewRoute(route);
    RouteSocket::open().unwrap().request(add, NLM_F_CREATE).unwrap();
}

/// Metrics of each IPv4 route in the first slot's table.
fn copied() -> Vec<Vec<RouteMetric>> {
    let routes = RouteSocket::open().unwrap().routes().unwrap();
    let table = copy::present(&routes, FIRST_TABLE).into_iter();
    let v4 = table.filter(|it| it.header.address_family == routing::family(Version::V4));
    let metrics = |route: Route| {
        let metrics = route.attributes.into_iter().find_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        metrics.unwrap_or_default()
    };
    v4.map(metrics).collect()
}

#[test]
fn the_copy_follows_the_main_table_and_goes_with_its_owner() {
    in_namespace(|| {
        add(route(1, &[RouteMetric::Mtu(1400), RouteMetric::InitCwnd(3)]));
        let window = Window::install(&side()).unwrap().unwrap();
        let windows = [RouteMetric::InitCwnd(32), RouteMetric::InitRwnd(64)];
        assert_eq!(copied(), [[&[RouteMetric::Mtu(1400)], &windows[..]].concat()]);

        add(route(2, &[]));
        window.copy().unwrap();
        assert_eq!(copied().len(), 2);
        let remove = RouteNetlinkMessage::DelRoute(route(1, &[]));
        RouteSocket::open().unwrap().request(remove, 0).unwrap();
        window.copy().unwrap();
        assert_eq!(copied(), [windows.to_vec()]);

        drop(window);
        assert!(copied().is_empty());
        assert!(!nft_table::is_there("skyhop-window-0").unwrap());
    });
}

#[test]
fn two_sides_have_a_slot_each_and_leftovers_are_removed() {
    in_namespace(|| {
        add(route(1, &[]));
        let first = Window::install(&side()).unwrap().unwrap();
        let second = Window::install(&side()).unwrap().unwrap();
        assert_eq!(first.mark() | second.mark(), 3 << MARK_SHIFT);
        // Like a killed gateway: the kernel removes only the nftables table.
        first._claim.remove().unwrap();
        std::mem::forget(first);
        let third = Window::install(&side()).unwrap().unwrap();
        assert_eq!(copied().len(), 1);
        drop((second, third));
        assert!(copied().is_empty());
    });
}

#[test]
fn changes_of_routes_are_reported() {
    in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let mut changes = Changes::listen().unwrap();
            add(route(1, &[]));
            changes.next().await;
        });
    });
}

#[test]
fn a_side_without_windows_sets_nothing() {
    assert!(Window::install(&SideConfig::default()).unwrap().is_none());
    assert_eq!(display(0, &SideConfig::default()), None);
    let shown = display(0, &side()).unwrap();
    assert!(shown.contains("initcwnd 32 initrwnd 64") && shown.contains("5940"), "{shown}");
}
