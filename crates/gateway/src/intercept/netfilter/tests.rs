use pep::traffic::quic::QuicVersions;
use pep::traffic::{PortRange, TCP};

use super::*;
use crate::network::nft::table::exists;
use crate::testkit::{assert_printed, in_namespace, nft};

fn rules() -> Rules {
    Rules {
        interfaces: vec!["lan0".to_owned(), "lan1".to_owned()],
        policies: policies(),
        exemptions: PassExemptions {
            destinations: ["192.0.2.1:80", "[2001:db8::1]:443"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            clients: ["10.0.0.9", "2001:db8:9::"].map(|text| text.parse().unwrap()).to_vec(),
        },
        unanswered: ["10.1.0.9/32", "fd00:1::/64"].map(|text| text.parse().unwrap()).to_vec(),
        lans: LanRoutes::example(&["lan0", "lan1"]),
        bridges: vec![FilteredBridge::example("lan1")],
        can_withhold: true,
        watched: true,
        can_refuse: true,
        listeners: vec![(IpFamily::V4, 4001), (IpFamily::V6, 4002)],
        deferred: false,
        own_traffic: false,
        names: None,
    }
}

/// Policies with every kind of match.
fn policies() -> Vec<TrafficPolicy> {
    let prefixes = ["10.0.0.0/9", "2001:db8::/33"].map(|text| text.parse().unwrap()).to_vec();
    let ports = |protocol, first, last| PortRange { protocol, first, last };
    vec![
        TrafficPolicy {
            to: prefixes.clone(),
            ..TrafficPolicy::new("bypass", PolicyAction::Bypass)
        },
        TrafficPolicy {
            from: prefixes,
            dscp: vec![46, 8],
            ..TrafficPolicy::new("voice", PolicyAction::Tunnel)
        },
        TrafficPolicy {
            ports: vec![ports(None, 22, 22), ports(Some(TCP), 5000, 5010)],
            ..TrafficPolicy::new("ports", PolicyAction::Split)
        },
    ]
}

/// Rules with every kind of term.
fn all_rules() -> Rules {
    Rules { deferred: true, own_traffic: true, ..rules() }
}

/// The rules of a chain in a printed table.
fn chain<'t>(printed: &'t str, name: &str) -> Vec<&'t str> {
    let head = format!("chain {name} {{");
    let lines = printed.lines().map(str::trim).skip_while(|line| *line != head);
    lines.skip(1).take_while(|line| *line != "}").collect()
}

#[test]
fn the_kernel_has_the_rules_that_we_print() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(false, &[]).unwrap();
        table.add_watch().unwrap();
        let networks = ["10.1.0.0/16", "10.2.0.0/16", "fd00:1::/64"];
        let only = Scope::only(networks.map(|network| network.parse().unwrap()).to_vec());
        for (scope, ways) in [(Scope::Everything, 2 + 1), (only, 6)] {
            table.apply(&rules(), &scope).unwrap();
            let printed = rules().display(table.slot(), &scope);
            let Some(ours) = assert_printed("skyhop-0", &printed) else { return };
            assert_eq!(ours.matches("goto policies").count(), ways, "{ours}");
            assert_eq!(ours.matches("counter name").count(), 2 + 4 + 2, "{ours}");
            assert!(ours.contains("ip daddr 192.0.2.1 tcp dport 80 return"), "{ours}");
            assert!(ours.contains("ip saddr 10.0.0.9 return"), "{ours}");
            assert!(ours.contains("ip6 saddr 2001:db8:9::/64 return"), "{ours}");
            assert!(ours.contains("tproxy ip to 127.0.0.1:4001"), "{ours}");
            assert!(ours.contains("tproxy ip6 to [::1]:4002"), "{ours}");
            assert!(ours.contains("iifname \"lan1\" ether daddr != 02:00:00:00:00:01"), "{ours}");
            let withheld =
                "iifname \"lan1\" meta nfproto ipv4 meta l4proto tcp log group 5900 drop";
            assert!(ours.contains(withheld), "{ours}");
            let routed = "fib daddr . mark oifname \"lan1\" return";
            assert_eq!(ours.contains(routed), scope == Scope::Everything, "{ours}");
            assert!(ours.contains("ip saddr 10.1.0.9 return"), "{ours}");
            assert!(
                ours.contains("limit rate 200/second burst 200 packets log group 5915"),
                "{ours}"
            );
        }
    });
}

#[test]
fn the_kernel_has_the_rules_for_own_and_deferred_connections_that_we_print() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(false, &[]).unwrap();
        table.add_own().unwrap();
        table.add_watch().unwrap();
        table.apply(&all_rules(), &Scope::Everything).unwrap();
        let printed = all_rules().display(table.slot(), &Scope::Everything);
        let Some(ours) = assert_printed("skyhop-0", &printed) else { return };
        for part in [
            "log group 5900 drop",
            "ct status dnat return",
            "type route hook output",
            "ct mark set",
            "fib saddr type != local",
        ] {
            assert!(ours.contains(part), "{part} is not in {ours}");
        }
        table.apply(&all_rules(), &Scope::Nothing).unwrap();
        let idle = nft(&["list", "table", "inet", "skyhop-0"], "").unwrap();
        // Answers are still watched, as those to connections that we hold.
        let (deciding, answers) = idle.split_once("chain answers").unwrap();
        assert!(!deciding.contains("log group") && !deciding.contains("tproxy"), "{idle}");
        assert!(answers.contains("log group 5915"), "{idle}");
    });
}

#[test]
fn a_syn_whose_destination_the_operator_has_translated_is_not_sent_round() {
    const TRANSLATED: &str = "ct status dnat return";
    let of_bridge = format!("iifname \"lan1\" {TRANSLATED}");
    for (rules, name, exempt, taken) in [
        (all_rules(), TAKEOVER_CHAIN, TRANSLATED, "log group 5900 drop"),
        (all_rules(), OWN_TAKEOVER_CHAIN, TRANSLATED, "ct mark set"),
        (rules(), TAKEOVER_CHAIN, of_bridge.as_str(), "log group 5900 drop"),
    ] {
        let printed = rules.display(GatewaySlot(0), &Scope::Everything);
        let chain = chain(&printed, name);
        let exempted = chain.iter().position(|rule| *rule == exempt);
        let first = chain.iter().position(|rule| rule.contains(taken));
        assert!(exempted.is_some() && exempted < first, "{exempt} in {name}: {chain:#?}");
    }
}

#[test]
fn stopping_leaves_the_connections_there_are_and_dropping_leaves_nothing() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(false, &rules().interfaces).unwrap();
        let Some(idle) = nft(&["list", "ruleset"], "") else { return };
        let rules = Rules { bridges: vec![], ..rules() };
        table.apply(&rules, &Scope::Everything).unwrap();
        table.apply(&rules, &Scope::Everything).unwrap();
        let started = nft(&["list", "ruleset"], "").unwrap();
        assert_eq!(started.matches("tproxy ip to").count(), 1, "once, however often");
        let none = Rules { policies: vec![], ..rules };
        table.apply(&none, &Scope::Nothing).unwrap();
        assert_eq!(nft(&["list", "ruleset"], "").unwrap(), idle);
        assert!(idle.contains("socket transparent 1") && !idle.contains("tproxy"), "{idle}");
        drop(table);
        assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
    });
}

#[test]
fn each_gateway_of_a_namespace_has_a_slot_of_its_own() {
    in_namespace(|| {
        let first = InterceptTable::claim(false, &[]).unwrap();
        let second = InterceptTable::claim(false, &[]).unwrap();
        assert_eq!((first.slot(), second.slot()), (GatewaySlot(0), GatewaySlot(1)));
        assert_ne!(first.slot().mark(), second.slot().mark());
        let is_claimed = |number| exists(&GatewaySlot(number).table_name()).unwrap();
        assert!(is_claimed(1) && !is_claimed(2));
        drop(first);
        assert!(!is_claimed(0));
        assert_eq!(InterceptTable::claim(false, &[]).unwrap().slot(), GatewaySlot(0));
    });
}

#[test]
fn counts_begin_anew_with_other_policies_only() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(false, &[]).unwrap();
        assert_eq!(table.counts().unwrap(), BTreeMap::new());
        table.apply(&rules(), &Scope::Everything).unwrap();
        let names: Vec<String> = table.counts().unwrap().into_keys().collect();
        assert_eq!(names, ["policy-1-connections", "policy-2-connections", "policy-3-connections"]);
        for scope in [Scope::Nothing, Scope::Everything] {
            table.apply(&rules(), &scope).unwrap();
        }
        let fewer = Rules { policies: policies().split_off(2), ..rules() };
        table.apply(&fewer, &Scope::Everything).unwrap();
        assert_eq!(table.counts().unwrap(), [("policy-1-connections".to_owned(), 0)].into());
    });
}

/// What a resolver wants.
fn names(asking: bool) -> NameRules {
    let prefixes = |texts: [&str; 2]| texts.map(|text| text.parse().unwrap()).to_vec();
    NameRules {
        connections: vec![(IpFamily::V4, 4003), (IpFamily::V6, 4004)],
        questions: ["127.59.0.1:53", "[fd7a::1]:53"].map(|it| it.parse().unwrap()).to_vec(),
        pool: prefixes(["198.18.0.0/15", "fd00:53::/64"]),
        bypass: prefixes(["192.0.2.53/32", "2001:db8::/32"]),
        listen: vec![[10, 1, 0, 1].into()],
        answering: asking,
        intercept: true,
    }
}

#[test]
fn names_are_redirected_while_they_are_asked_for_and_the_pool_always() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(true, &[]).unwrap();
        for (asking, questions) in [(true, 4 + 4), (false, 0)] {
            let rules =
                Rules { names: Some(names(asking)), bridges: vec![], watched: false, ..rules() };
            table.apply(&rules, &Scope::Nothing).unwrap();
            let printed = rules.display(table.slot(), &Scope::Nothing);
            let Some(ours) = assert_printed("skyhop-0", &printed) else { return };
            let asked = ours.matches("dport 53 ").count();
            assert_eq!(asked, questions, "{ours}");
            // By two interfaces, to two prefixes: SYNs, other segments, other packets.
            assert_eq!(ours.matches("daddr 198.18.0.0/15").count(), 2 * 4, "{ours}");
            assert!(ours.contains("tproxy ip to 127.0.0.1:4003"), "{ours}");
            assert_eq!(ours.contains("tproxy ip to 127.59.0.1:53"), asking, "{ours}");
            assert_eq!(ours.contains("ip daddr 192.0.2.53 return"), asking, "{ours}");
        }
    });
}

/// Redirected, the kernel would lose them.
#[test]
fn queries_and_names_on_bridges_with_filtered_frames_pass() {
    let rules = Rules { names: Some(names(true)), ..rules() };
    let printed = rules.display(GatewaySlot(0), &Scope::Everything);
    for (name, taken) in [(NAMES_CHAIN, "dport 53"), (POOL_CHAIN, "198.18.0.0/15")] {
        let chain = chain(&printed, name);
        let of = |interface: &str| {
            let interface = format!("iifname \"{interface}\"");
            let rules = chain.iter().filter(|rule| rule.contains(&interface));
            rules.filter(|rule| rule.contains(taken)).count()
        };
        assert!(of("lan0") > 0 && of("lan1") == 0, "{name}: {chain:#?}");
    }
}

/// Rules with policies that refuse a port of TCP and UDP, and QUIC.
fn refusing() -> Rules {
    let mail = vec![PortRange { protocol: None, first: 25, last: 25 }];
    let policies = vec![
        TrafficPolicy { ports: mail, ..TrafficPolicy::new("mail", PolicyAction::Refuse) },
        TrafficPolicy::of_quic(PolicyAction::Refuse),
    ];
    Rules { policies, ..rules() }
}

#[test]
fn the_kernel_has_the_rules_for_refusals_that_we_print() {
    in_namespace(|| {
        let mut table = InterceptTable::claim(false, &[]).unwrap();
        table.add_watch().unwrap();
        table.apply(&refusing(), &Scope::Everything).unwrap();
        let printed = refusing().display(table.slot(), &Scope::Everything);
        let Some(ours) = assert_printed("skyhop-0", &printed) else { return };
        for part in [
            "tcp dport 25 counter name \"policy-1-connections\" goto refusals",
            "udp dport 25 counter name \"policy-1-packets\" goto refusals",
            "udp dport 443 ct state new udp length >= 1208",
            "counter name \"policy-2-packets\" goto quic-refusals",
            "limit rate 2000/second burst 2000 packets log group 5930 drop",
        ] {
            assert!(ours.contains(part), "{part} is not in {ours}");
        }
        assert_eq!(ours.matches("goto quic-refusals").count(), QuicVersions::KNOWN.len());
        let names: Vec<String> = table.counts().unwrap().into_keys().collect();
        let of = |policy: u8, subject: &str| format!("policy-{policy}-{subject}");
        let pairs = [(1, "connections"), (1, "packets"), (2, "connections"), (2, "packets")];
        assert_eq!(names, pairs.map(|(policy, subject)| of(policy, subject)));
        let none = Rules { policies: vec![], ..rules() };
        table.apply(&none, &Scope::Everything).unwrap();
        assert_eq!(table.counts().unwrap(), BTreeMap::new());
    });
}

#[test]
fn nothing_is_refused_without_a_hub_or_by_a_gateway_that_cannot_answer() {
    let refused = |rules: &Rules, scope: &Scope| {
        let printed = rules.display(GatewaySlot(0), scope);
        let chains = ["policies", "own-policies", "datagram-policies"];
        let rules = chains.iter().flat_map(|name| chain(&printed, name));
        rules.filter(|rule| rule.contains("refusals")).count()
    };
    let own = Rules { own_traffic: true, ..refusing() };
    let all = 1 + 1 + 1 + QuicVersions::KNOWN.len();
    assert_eq!(refused(&own, &Scope::Everything), all);
    assert_eq!(refused(&own, &Scope::only(vec!["10.0.0.0/8".parse().unwrap()])), all);
    assert_eq!(refused(&own, &Scope::ports(&[80])), 0);
    assert_eq!(refused(&own, &Scope::Nothing), 0);
    assert_eq!(refused(&Rules { can_refuse: false, ..own }, &Scope::Everything), 0);
}

#[test]
fn what_cannot_be_accelerated_anyway_keeps_quic() {
    let printed = refusing().display(GatewaySlot(0), &Scope::Everything);
    let policies = chain(&printed, UDP_POLICY_CHAIN);
    let first = policies.iter().position(|rule| rule.contains("goto")).unwrap();
    let is_exempt = |client: &str| policies[..first].iter().any(|rule| rule.contains(client));
    assert!(is_exempt("ip saddr 10.0.0.9/32 return") && is_exempt("ip6 saddr fd00:1::/64 return"));
    for name in [REFUSAL_CHAIN, QUIC_REFUSAL_CHAIN] {
        assert_eq!(chain(&printed, name)[0], "ct status dnat return");
    }
    // Beyond the limit, a refused packet gets no answer, and QUIC passes.
    assert_eq!(chain(&printed, REFUSAL_CHAIN).last(), Some(&"drop"));
    assert!(chain(&printed, QUIC_REFUSAL_CHAIN).last().unwrap().contains("limit rate"));
}
