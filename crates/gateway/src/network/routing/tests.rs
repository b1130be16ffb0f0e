use super::*;
use crate::intercept::netfilter::{GatewaySlot, InterceptTable};
use crate::testkit::in_namespace;

/// The tables of our rules, then of our routes.
fn ours() -> (Vec<u32>, Vec<u32>) {
    let mut kernel = RouteSocket::open().unwrap();
    let (mut rules, mut routes) = (Vec::new(), Vec::new());
    for version in IpFamily::BOTH {
        let mut rule = RuleMessage::default();
        rule.header.family = family(version);
        for found in kernel.list(RouteNetlinkMessage::GetRule(rule)).unwrap() {
            let RouteNetlinkMessage::NewRule(rule) = found else { continue };
            let is_ours = rule.attributes.contains(&RuleAttribute::Protocol(PROTOCOL));
            rules.extend(rule.attributes.iter().filter_map(|attribute| match attribute {
                RuleAttribute::Table(table) if is_ours => Some(*table),
                _ => None,
            }));
        }
        let mut route = RouteMessage::default();
        route.header.address_family = family(version);
        for found in kernel.list(RouteNetlinkMessage::GetRoute(route)).unwrap() {
            let RouteNetlinkMessage::NewRoute(route) = found else { continue };
            let is_ours = route.header.protocol == PROTOCOL;
            routes.extend(route.attributes.iter().filter_map(|attribute| match attribute {
                RouteAttribute::Table(table) if is_ours => Some(*table),
                _ => None,
            }));
        }
    }
    (rules, routes)
}

#[test]
fn two_gateways_in_one_namespace_do_not_meet() {
    in_namespace(|| {
        let (first, second) = (
            InterceptTable::claim(false, &[]).unwrap(),
            InterceptTable::claim(false, &[]).unwrap(),
        );
        let first_routing = Routing::install(first.slot(), LOOPBACK, &IpFamily::BOTH).unwrap().0;
        let second_routing = Routing::install(second.slot(), LOOPBACK, &IpFamily::BOTH).unwrap().0;
        let tables = vec![5900, 5901, 5900, 5901];
        assert_eq!(ours(), (tables.clone(), tables));
        drop((first, first_routing));
        assert_eq!(ours(), (vec![5901, 5901], vec![5901, 5901]));
        drop((second, second_routing));
        assert_eq!(ours(), (vec![], vec![]));
    });
}

#[test]
fn leftovers_of_a_killed_gateway_go_at_the_next_start() {
    in_namespace(|| {
        for slot in [GatewaySlot(0), GatewaySlot(3)] {
            std::mem::forget(Routing::install(slot, LOOPBACK, &IpFamily::BOTH).unwrap().0);
        }
        let table = InterceptTable::claim(false, &[]).unwrap();
        let routing = Routing::install(table.slot(), LOOPBACK, &IpFamily::BOTH).unwrap().0;
        assert_eq!(ours(), (vec![5900, 5900], vec![5900, 5900]));
        drop(routing);
        assert_eq!(ours(), (vec![], vec![]));
    });
}

#[test]
fn what_goes_with_ipv6_comes_back_with_it() {
    in_namespace(|| {
        let switch =
            |off: &str| std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", off).unwrap();
        let routing = Routing::install(GatewaySlot(0), LOOPBACK, &IpFamily::BOTH).unwrap().0;
        let (all, without_v6) = (vec![5900, 5900], vec![5900]);
        assert!(routing.restore(&IpFamily::BOTH).unwrap().is_none());
        assert_eq!(ours(), (all.clone(), all.clone()), "nothing is there twice");
        switch("1");
        assert!(
            routing.restore(&IpFamily::BOTH).unwrap().is_some_and(|refusal| refusal.is_denial())
        );
        assert_eq!(ours(), (all.clone(), without_v6));
        switch("0");
        assert!(routing.restore(&IpFamily::BOTH).unwrap().is_none());
        assert_eq!(ours(), (all.clone(), all));
    });
}

#[test]
fn the_mark_leads_to_the_table_and_the_table_to_this_machine() {
    in_namespace(|| {
        let _routing = Routing::install(GatewaySlot(2), LOOPBACK, &IpFamily::BOTH).unwrap().0;
        let mut kernel = RouteSocket::open().unwrap();
        for (version, nowhere) in [(IpFamily::V4, "192.0.2.9"), (IpFamily::V6, "2001:db8::9")] {
            let mut route = RouteMessage::default();
            route.header.address_family = family(version);
            route.header.destination_prefix_length = if version == IpFamily::V4 { 32 } else { 128 };
            let address: std::net::IpAddr = nowhere.parse().unwrap();
            route.attributes = vec![RouteAttribute::Destination(address.into())];
            let unmarked = kernel.request(RouteNetlinkMessage::GetRoute(route.clone()), 0);
            assert!(unmarked.is_err(), "there is no route for others");
            route.attributes.push(RouteAttribute::Mark(GatewaySlot(2).mark().value | 1));
            kernel.request(RouteNetlinkMessage::GetRoute(route), 0).unwrap();
        }
    });
}

#[test]
fn the_commands_that_do_the_same_are_printed() {
    let printed = display(GatewaySlot(1), "lo", &IpFamily::BOTH);
    assert_eq!(printed.lines().count(), 4);
    assert!(printed.contains("ip -6 rule add priority 59 fwmark 0x200000/0xf00000 lookup 5901"));
    assert!(printed.contains("ip route add local default dev lo table 5901"));
}

#[test]
fn a_refusal_of_the_ipv6_rule_or_route_is_handed_back_and_leaves_ipv4() {
    for operation in [KernelOperation::Rule, KernelOperation::Route] {
        let mut done = Vec::new();
        let mut refusing = |refused: IpFamily| {
            for_versions(&IpFamily::BOTH, |version| {
                if version == refused {
                    return Err(KernelRefusal::expected(operation(version), libc::EOPNOTSUPP));
                }
                done.push(version);
                Ok(())
            })
        };
        let without_v6 = refusing(IpFamily::V6).unwrap().expect("a refusal");
        let named = format!("{}: EOPNOTSUPP: ", operation(IpFamily::V6));
        assert!(without_v6.what().starts_with(&named), "{without_v6}");
        assert!(refusing(IpFamily::V4).is_err(), "nothing works without IPv4");
        assert_eq!(done, IpFamily::BOTH, "the repair of one does not depend on the other");
    }
}
