use std::cell::Cell;

use proptest::prelude::*;

use super::*;

fn targets(texts: &[&str]) -> Vec<EgressTarget> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn egress(reach: &[&str], deny: &[&str]) -> EgressRules {
    EgressRules { reach: targets(reach), deny: targets(deny) }
}

/// This machine's addresses in these tests.
fn is_own(address: IpAddr) -> Option<bool> {
    let own = ["10.0.0.1", "203.0.113.1", "2001:db8::1", "127.0.0.1", "::1"];
    Some(own.iter().any(|text| address == text.parse::<IpAddr>().unwrap()))
}

fn permits(egress: &EgressRules, to: &str) -> bool {
    egress.check(to.parse().unwrap(), is_own).is_ok()
}

const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

#[test]
fn a_line_is_a_prefix_with_ports_or_without() {
    for (text, printed) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1/32"),
        ("0.0.0.0/0:443", "0.0.0.0/0:443"),
        ("192.0.2.1:udp/53", "192.0.2.1/32:udp/53"),
        ("192.0.2.1:1-65535", "192.0.2.1/32:1-65535"),
        ("::/0", "::/0"),
        ("[2001:db8::]", "2001:db8::/128"),
        ("[2001:db8::/32]:8000-8080", "[2001:db8::/32]:8000-8080"),
    ] {
        let target: EgressTarget = text.parse().unwrap();
        assert_eq!(target.to_string(), printed);
        assert_eq!(printed.parse(), Ok(target));
    }
    for text in ["", "lan", ":443", "10.0.0.0/8:", "10.0.0.0/8:0", "10.0.0.0/8:9-8", "[::/0]443"] {
        assert_eq!(text.parse::<EgressTarget>(), Err(TargetError::Malformed), "{text}");
    }
    let error = "10.1.2.3/8:443".parse::<EgressTarget>().unwrap_err().to_string();
    assert!(error.contains("10.0.0.0/8"), "{error}");
}

#[test]
fn by_default_a_hub_lets_terminals_reach_everything_but_itself_and_special_addresses() {
    let hub = EgressRules::everywhere();
    for open in [
        "192.0.2.1:80",
        "10.0.0.2:80",
        "192.168.1.1:22",
        "172.16.0.1:1",
        "100.100.100.201:80",
        "[2001:db8::2]:443",
        "[fd00:1::1]:443",
        "[64:ff9b::c000:201]:443",
        "[2002:c000:201::1]:443",
        "[::ffff:192.0.2.1]:443",
    ] {
        assert!(permits(&hub, open), "{open}");
    }
    for refused in [
        "10.0.0.1:80",
        "203.0.113.1:80",
        "[2001:db8::1]:80",
        "[::ffff:10.0.0.1]:80",
        "[64:ff9b::a00:1]:80",
        "[2002:a00:1::7]:80",
        "[::ffff:0:a00:1]:80",
        "[64:ff9b:1::a00:1]:80",
        "127.0.0.1:80",
        "127.255.0.9:80",
        "0.0.0.0:80",
        "0.1.2.3:80",
        "169.254.169.254:80",
        "100.100.100.200:80",
        "168.63.129.16:80",
        "192.0.0.192:80",
        "224.0.0.1:80",
        "239.255.255.250:80",
        "255.255.255.255:80",
        "[::]:80",
        "[::1]:80",
        "[::7f00:1]:80",
        "[::ffff:127.0.0.1]:80",
        "[::ffff:169.254.169.254]:80",
        "[64:ff9b::7f00:1]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[2002:7f00:1::]:80",
        "[::ffff:0:7f00:1]:80",
        "[::ffff:0:a9fe:a9fe]:80",
        "[64:ff9b:1:fffe::c000:201]:80",
        "[2002:a9fe:a9fe::1]:80",
        "[2001::1]:80",
        "[fd00:ec2::254]:80",
        "[fd20:ce::254]:80",
        "[fe80::1]:80",
        "[febf::1]:80",
        "[fec0::1]:80",
        "[ff02::1]:80",
        "192.0.2.1:0",
    ] {
        assert!(!permits(&hub, refused), "{refused}");
    }
}

#[test]
fn by_default_a_terminal_accepts_nothing_from_its_hub() {
    for to in ["192.0.2.1:80", "10.0.0.2:22", "[2001:db8::2]:443", "127.0.0.1:80"] {
        assert_eq!(
            EgressRules::nowhere().check(to.parse().unwrap(), is_own),
            Err(EgressRefusal::NotListed)
        );
    }
}

#[test]
fn denied_destinations_are_refused_even_if_listed() {
    let both = egress(&["10.0.0.0/8", "10.1.0.5"], &["10.1.0.0/16", "10.2.0.0/16:25"]);
    assert!(permits(&both, "10.3.0.1:80") && permits(&both, "10.2.0.1:80"));
    assert!(!permits(&both, "10.1.0.5:80") && !permits(&both, "10.2.0.1:25"));
    assert!(!permits(&both, "192.0.2.1:80"));
    let translated = egress(&ALL, &["10.1.0.0/16"]);
    assert!(!permits(&translated, "[64:ff9b::a01:5]:80"));
    assert!(!permits(&translated, "[2002:a01:5::1]:80"));
    assert!(!permits(&translated, "[::ffff:0:a01:5]:80"));
}

#[test]
fn ports_are_those_of_the_line_and_of_its_protocol() {
    let some = egress(&["0.0.0.0/0:443", "[2001:db8::/32]:8000-8080", "192.0.2.1:udp/53"], &[]);
    assert!(permits(&some, "192.0.2.1:443") && !permits(&some, "192.0.2.1:80"));
    assert!(permits(&some, "[2001:db8::2]:8080") && !permits(&some, "[2001:db8::2]:8081"));
    assert!(!permits(&some, "192.0.2.1:53"), "TCP is not UDP");
}

#[test]
fn a_special_range_is_opened_by_a_line_inside_it_and_by_no_wider_one() {
    for (line, opened) in [
        ("127.0.0.0/8", "127.0.0.1:80"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("127.0.0.1", "[::ffff:127.0.0.1]:80"),
        ("169.254.169.254", "169.254.169.254:80"),
        ("fe80::/10", "[fe80::7]:80"),
        ("64:ff9b:1::/96", "[64:ff9b:1::c000:201]:80"),
        ("fd00:ec2::254", "[fd00:ec2::254]:80"),
    ] {
        assert!(permits(&egress(&[ALL[0], ALL[1], line], &[]), opened), "{line}");
    }
    for (line, closed) in [
        ("127.0.0.1:81", "127.0.0.1:80"),
        ("126.0.0.0/7", "127.0.0.1:80"),
        ("169.254.0.0/15", "169.254.169.254:80"),
        ("fe00::/7", "[fe80::7]:80"),
    ] {
        assert!(!permits(&egress(&[ALL[0], ALL[1], line], &[]), closed), "{line}");
    }
}

#[test]
fn an_own_address_is_opened_by_itself_alone() {
    assert!(!permits(&egress(&["10.0.0.0/8", "10.0.0.0/31"], &[]), "10.0.0.1:53"));
    let resolver = egress(&["10.0.0.0/8", "10.0.0.1:53"], &[]);
    assert!(permits(&resolver, "10.0.0.1:53") && !permits(&resolver, "10.0.0.1:22"));
}

#[test]
fn an_address_that_the_kernel_says_nothing_about_is_refused() {
    let to = "192.0.2.1:80".parse().unwrap();
    assert_eq!(EgressRules::everywhere().check(to, |_| None), Err(EgressRefusal::Unknown));
}

#[test]
fn the_kernel_is_asked_only_about_what_nothing_else_refuses() {
    let asked = Cell::new(0);
    let ask = |_| {
        asked.set(asked.get() + 1);
        Some(false)
    };
    let refused = EgressRules::nowhere().check("192.0.2.1:80".parse().unwrap(), ask);
    assert_eq!((refused, asked.get()), (Err(EgressRefusal::NotListed), 0));
    EgressRules::everywhere().check("192.0.2.1:80".parse().unwrap(), ask).unwrap();
    assert_eq!(asked.get(), 1);
}

/// Addresses, many of them special, in many forms.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        any::<u32>(),
        any::<u16>().prop_map(|low| 0xa9fe_0000 | u32::from(low)),
        any::<u32>().prop_map(|bits| 0x7f00_0000 | bits >> 8),
    ];
    (v4, any::<u128>(), 0..6).prop_map(|(v4, bits, form)| match form {
        0 => std::net::Ipv4Addr::from_bits(v4).into(),
        1 => IpAddr::V6((0xffff_0000_0000 | u128::from(v4)).into()),
        2 => IpAddr::V6((0x0064_ff9b << 96 | u128::from(v4)).into()),
        3 => IpAddr::V6((0x2002 << 112 | u128::from(v4) << 80 | bits >> 48).into()),
        4 => IpAddr::V6((0xfe80 << 112 | bits >> 10).into()),
        _ => IpAddr::V6(bits.into()),
    })
}

/// Lines wider than every special range, or outside of them.
fn wide() -> impl Strategy<Value = EgressTarget> {
    (address(), 0u8..=3).prop_map(|(address, length)| {
        EgressTarget::from(Prefix::around(address.to_canonical(), length).unwrap())
    })
}

proptest! {
    #[test]
    fn nothing_special_is_reachable_unless_it_is_listed(
        to in address(), port in 1u16.., mut reach in prop::collection::vec(wide(), 0..4),
    ) {
        reach.extend(targets(&ALL));
        let egress = EgressRules { reach, deny: vec![] };
        let seen = [Some(to.to_canonical()), special::embedded_views(to).get(1).copied()];
        let is_special = SPECIAL.iter().any(|it| seen.iter().flatten().any(|at| it.range.contains(*at)));
        let permitted = egress.check((to, port).into(), |_| Some(false)).is_ok();
        prop_assert_eq!(permitted, !is_special);
        prop_assert!(egress.check((to, port).into(), |_| Some(true)).is_err());
    }

    #[test]
    fn the_forms_of_a_prefix_hold_the_addresses_that_are_seen_as_one_of_its(
        bits: u32, length in 0u8..=32, to in address(),
    ) {
        let prefix = Prefix::around(std::net::Ipv4Addr::from_bits(bits).into(), length).unwrap();
        let to = to.to_canonical();
        let seen = special::embedded_views(to).iter().any(|view| prefix.contains(*view));
        prop_assert_eq!(forms(prefix).iter().any(|form| form.contains(to)), seen);
    }
}
