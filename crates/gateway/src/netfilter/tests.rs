use super::*;
use crate::routing::Routing;
use crate::testkit::{in_namespace, output, skip};

const BOTH: [Version; 2] = [Version::V4, Version::V6];

fn rules() -> Rules {
    Rules {
        interfaces: vec!["lan0".to_owned(), "lan1".to_owned()],
        bypass: vec!["10.0.0.0/9".parse().unwrap(), "2001:db8::/33".parse().unwrap()],
        listeners: vec![(Version::V4, 4001), (Version::V6, 4002)],
    }
}

fn nft(arguments: &[&str]) -> Option<String> {
    let listed = output("nft", arguments, "");
    if listed.is_none() {
        skip("no nft to list the rules with");
    }
    listed
}

/// A table's chains as nft lists them, without its name and its owner.
fn chains(listed: &str) -> Vec<&str> {
    listed.lines().skip(1).map(str::trim).filter(|l| !l.is_empty() && *l != "flags owner").collect()
}

#[test]
fn the_kernel_has_the_rules_that_we_print() {
    in_namespace(|| {
        let table = Table::claim().unwrap();
        table.start(&rules()).unwrap();
        let Some(ours) = nft(&["list", "table", "inet", "skyhop-0"]) else { return };
        let printed = rules().display(table.slot()).to_string();
        output("nft", &["-f", "-"], &printed.replace("skyhop-0", "printed")).unwrap();
        let theirs = nft(&["list", "table", "inet", "printed"]).unwrap();
        assert_eq!(chains(&ours), chains(&theirs));
        assert!(ours.contains("tproxy ip6 to [::1]:4002"), "{ours}");
    });
}

#[test]
fn stopping_leaves_the_connections_there_are_and_dropping_leaves_nothing() {
    in_namespace(|| {
        let table = Table::claim().unwrap();
        let Some(idle) = nft(&["list", "ruleset"]) else { return };
        table.start(&rules()).unwrap();
        table.start(&rules()).unwrap();
        let started = nft(&["list", "ruleset"]).unwrap();
        assert_eq!(started.matches("tproxy ip to").count(), 2, "once for each interface");
        table.stop().unwrap();
        assert_eq!(nft(&["list", "ruleset"]).unwrap(), idle);
        assert!(idle.contains("socket transparent 1") && !idle.contains("tproxy"), "{idle}");
        drop(table);
        assert_eq!(nft(&["list", "ruleset"]).unwrap(), "");
    });
}

#[test]
fn two_gateways_in_one_namespace_do_not_meet() {
    in_namespace(|| {
        let first = Table::claim().unwrap();
        let second = Table::claim().unwrap();
        assert_eq!((first.slot(), second.slot()), (Slot(0), Slot(1)));
        assert_ne!(first.slot().mark(), second.slot().mark());
        let first_routing = Routing::install(first.slot(), &BOTH).unwrap();
        let second_routing = Routing::install(second.slot(), &BOTH).unwrap();
        assert_eq!(ip_rules(), Some(4));
        drop((first, first_routing));
        assert_eq!(ip_rules(), Some(2));
        drop((second, second_routing));
        assert_eq!(ip_rules(), Some(0));
    });
}

#[test]
fn leftovers_of_a_killed_gateway_go_at_the_next_start() {
    in_namespace(|| {
        for slot in [Slot(0), Slot(3)] {
            std::mem::forget(Routing::install(slot, &BOTH).unwrap());
        }
        let table = Table::claim().unwrap();
        let routing = Routing::install(table.slot(), &BOTH).unwrap();
        assert_eq!(ip_rules(), Some(2));
        drop(routing);
        assert_eq!(ip_rules(), Some(0));
    });
}

#[test]
fn rules_and_routes_are_as_printed() {
    in_namespace(|| {
        let _routing = Routing::install(Slot(2), &BOTH).unwrap();
        for family in ["-4", "-6"] {
            let Some(rules) = output("ip", &[family, "rule", "show"], "") else {
                return skip("no ip to list the rules with");
            };
            assert!(
                rules.contains("59:\tfrom all fwmark 0x300000/0xf00000 lookup 5902"),
                "{rules}"
            );
            let routes = output("ip", &[family, "route", "show", "table", "5902"], "").unwrap();
            assert!(routes.starts_with("local default dev lo"), "{routes}");
        }
    });
}

/// How many of our rules and routes there are, of both versions of IP.
fn ip_rules() -> Option<usize> {
    let show = |family| output("ip", &[family, "rule", "show"], "");
    let rules = [show("-4")?, show("-6")?].concat();
    let tables: Vec<&str> = rules.lines().filter_map(|line| line.split("lookup ").nth(1)).collect();
    Some(tables.iter().filter(|table| table.starts_with("59")).count())
}

#[test]
fn an_unprivileged_caller_is_told_so() {
    let unprivileged = io::Error::from_raw_os_error(libc::EPERM);
    let error = crate::RunError::interception(unprivileged).to_string();
    assert!(error.contains("CAP_NET_ADMIN") && error.contains("root"), "{error}");
}
