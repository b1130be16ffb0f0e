use std::fs;
use std::os::fd::AsFd;

use netlink_packet_route::rule::RuleAction;
use os::namespace::NetNs;
use os::netlink::VethEnd;

use super::*;
use crate::testkit::{give_address, in_namespace};

const TABLE: u32 = 100;

/// `lan0` and `lan1`, with 10.1.0.1 and 10.2.0.1, on a machine that forwards.
fn machine() -> RouteSocket {
    let mut kernel = RouteSocket::open().unwrap();
    let netns = NetNs::current().unwrap();
    for (name, other, address) in [("lan0", "out0", [10, 1, 0, 1]), ("lan1", "out1", [10, 2, 0, 1])]
    {
        let [one, two] =
            [name, other].map(|name| VethEnd { netns: netns.as_fd(), name, station: None });
        kernel.add_veth([&one, &two]).unwrap();
        [name, other].iter().for_each(|name| kernel.bring_up(name, None, true).unwrap());
        give_address(name, address.into());
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    kernel
}

fn names() -> Vec<String> {
    ["lan0", "lan1"].map(str::to_owned).to_vec()
}

/// What is left alone on a pair's terminal.
fn look_up() -> LanRoutes {
    LanRoutes::look_up(&names(), LocalInterfaces::AllInterfaces).unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn add_route(kernel: &mut RouteSocket, to: &str, via: &str) {
    let to = prefix(to);
    kernel.add_route(to.address(), to.length(), via.parse().unwrap()).unwrap();
}

/// A route of [`TABLE`].
fn add_route_of_table(kernel: &mut RouteSocket, to: &str, via: &str) {
    let to = prefix(to);
    let mut route = RouteMessage::default();
    route.header.address_family = family(IpFamily::V4);
    route.header.destination_prefix_length = to.length();
    route.header.kind = RouteType::Unicast;
    let via: IpAddr = via.parse().unwrap();
    route.attributes = vec![
        RouteAttribute::Destination(to.address().into()),
        RouteAttribute::Gateway(via.into()),
        RouteAttribute::Table(TABLE),
    ];
    kernel.create(RouteNetlinkMessage::NewRoute(route)).unwrap();
}

fn add_rule_for(kernel: &mut RouteSocket, interface: &str) {
    let mut rule = RuleMessage::default();
    rule.header.family = family(IpFamily::V4);
    rule.header.action = RuleAction::ToTable;
    rule.attributes =
        vec![RuleAttribute::Iifname(interface.to_owned()), RuleAttribute::Table(TABLE)];
    kernel.create(RouteNetlinkMessage::NewRule(rule)).unwrap();
}

fn found(routes: &LanRoutes) -> Vec<(&str, String, bool)> {
    let found = routes.looked_up.iter();
    found.map(|it| (it.from.as_str(), it.to.to_string(), it.is_nearby)).collect()
}

#[test]
fn on_an_ordinary_router_the_kernel_looks_up_everything() {
    in_namespace(|| {
        let mut kernel = machine();
        add_route(&mut kernel, "10.4.0.0/24", "10.1.0.254");
        let routes = look_up();
        assert_eq!(routes.inward.len(), 4, "both interfaces, for both versions: {routes:?}");
        assert_eq!(found(&routes), []);
        let rules = routes.rules("lan0", &[vec![Term::Accept]]);
        let routed = |name: &str| Term::RoutedTo(name.to_owned());
        assert!(["lan0", "lan1"].iter().all(|name| {
            rules.iter().any(|rule| rule.contains(&routed(name)) && rule.ends_with(&[Term::Return]))
        }));
        assert_eq!(rules.last().unwrap(), &[Term::FromInterface("lan0".to_owned()), Term::Accept]);
        // An interface that is not there is no reason to give up.
        assert_eq!(
            LanRoutes::of(&["no-such".to_owned()], LocalInterfaces::AllInterfaces),
            LanRoutes::default()
        );
    });
}

#[test]
fn rules_that_ask_for_the_incoming_interface_are_followed() {
    in_namespace(|| {
        let mut kernel = machine();
        add_route_of_table(&mut kernel, "10.4.0.0/24", "10.1.0.254");
        assert_eq!(found(&look_up()), [], "nothing leads to the table");
        add_rule_for(&mut kernel, "lan1");
        let routes = look_up();
        assert!(found(&routes).contains(&("lan1", "10.4.0.0/24".to_owned(), true)), "{routes:?}");
        assert!(routes.looked_up.iter().all(|route| route.from == "lan1"), "{routes:?}");
    });
}

#[test]
fn with_a_default_route_over_the_lan_the_router_decides() {
    in_namespace(|| {
        let mut kernel = machine();
        add_route(&mut kernel, "0.0.0.0/0", "10.1.0.254");
        add_route(&mut kernel, "10.4.0.0/16", "10.1.0.253");
        add_route(&mut kernel, "10.4.5.0/24", "10.1.0.254");
        let routes = look_up();
        let inward: Vec<_> = routes.inward.iter().filter(|it| it.0 == IpFamily::V4).collect();
        assert_eq!(inward, [&(IpFamily::V4, "lan1".to_owned())]);
        let from_lan0: Vec<_> =
            found(&routes).into_iter().filter(|(from, ..)| *from == "lan0").collect();
        let expected = [("10.4.5.0/24", false), ("10.4.0.0/16", true)];
        for (to, is_nearby) in expected {
            assert!(from_lan0.contains(&("lan0", to.to_owned(), is_nearby)), "{from_lan0:?}");
        }
        // The longest prefix comes first, and continues.
        let rules = routes.rules("lan0", &[vec![Term::Accept]]);
        let at = |to: &str| {
            let rule = rules.iter().position(|rule| rule.contains(&Term::ToPrefix(prefix(to))));
            let rule = rule.unwrap();
            (rule, rules[rule].last().unwrap().clone())
        };
        let (inner, outer) = (at("10.4.5.0/24"), at("10.4.0.0/16"));
        assert!(inner.0 < outer.0 && inner.1 == Term::Accept && outer.1 == Term::Return);
    });
}

#[test]
fn changes_of_routes_and_rules_are_noticed() {
    in_namespace(|| {
        let mut kernel = machine();
        let mut watch = LanWatch::start(&names(), LocalInterfaces::AllInterfaces);
        assert!(!watch.follow());
        add_route(&mut kernel, "192.0.2.0/24", "10.1.0.9");
        assert!(!watch.follow(), "the kernel looks it up itself");
        add_route(&mut kernel, "0.0.0.0/0", "10.1.0.254");
        assert!(watch.follow());
        assert!(watch.routes().looked_up.iter().any(|route| route.to == prefix("192.0.2.0/24")));
        assert!(!watch.follow());
        add_route_of_table(&mut kernel, "0.0.0.0/0", "10.2.0.9");
        add_rule_for(&mut kernel, "lan0");
        assert!(watch.follow() && watch.routes().inward.iter().all(|it| it.0 == IpFamily::V6));
    });
}

#[test]
fn between_the_interfaces_of_a_gateway_alone_nothing_is_left_alone() {
    in_namespace(|| {
        let mut kernel = machine();
        let returns = |from: &str| {
            let routes = LanRoutes::look_up(&names(), LocalInterfaces::SameInterface).unwrap();
            let rules = routes.rules(from, &[vec![Term::Accept]]);
            rules.into_iter().filter(|rule| rule.ends_with(&[Term::Return])).collect::<Vec<_>>()
        };
        let routed_to = |name: &str| Term::RoutedTo(name.to_owned());
        for (from, other) in [("lan0", "lan1"), ("lan1", "lan0")] {
            let rules = returns(from);
            assert!(rules.iter().all(|rule| !rule.contains(&routed_to(other))), "{rules:?}");
            assert!(rules.iter().any(|rule| rule.contains(&routed_to(from))), "{rules:?}");
        }
        // The satellite is behind lan1, another router beside it.
        add_route(&mut kernel, "0.0.0.0/0", "10.2.0.254");
        add_route(&mut kernel, "10.4.0.0/16", "10.2.0.253");
        let leads_to = |rules: &[NftRule], to: &str| {
            rules.iter().any(|rule| rule.contains(&Term::ToPrefix(prefix(to))))
        };
        let (from_lan0, from_lan1) = (returns("lan0"), returns("lan1"));
        assert!(!leads_to(&from_lan0, "10.4.0.0/16"), "{from_lan0:?}");
        assert!(!leads_to(&from_lan1, "10.1.0.0/24"), "{from_lan1:?}");
        assert!(leads_to(&from_lan1, "10.4.0.0/16"), "{from_lan1:?}");
    });
}
