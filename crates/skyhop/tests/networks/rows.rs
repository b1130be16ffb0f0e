//! The set-ups of real machines, in the words of `ip`, `nft` and `sysctl`.

/// A shell script that waits until a command succeeds. Whether it did, the connection shows.
macro_rules! await_that {
    ($command:literal) => {
        concat!("timeout 5 sh -c \"until ", $command, "; do sleep 0.05; done\" || true")
    };
}

/// A set-up, and what becomes of a client's connection.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Host and script, before the gateways start.
    pub(crate) set: &'static [(&'static str, &'static str)],
    /// The same, while they run.
    pub(crate) then: &'static [(&'static str, &'static str)],
    /// Whether the terminal's kernel has IPv6.
    pub(crate) has_v6: bool,
    /// The clients' interfaces of the terminal.
    pub(crate) interfaces: &'static [&'static str],
    /// The address at which the terminal finds its hub.
    pub(crate) hub: &'static str,
    pub(crate) to: &'static str,
    /// Connections before the one that counts: a gateway may have to learn.
    pub(crate) before: usize,
    /// Without the pair, and through it with early and with deferred answers.
    pub(crate) expected: [&'static str; 3],
}

const ROW: Row = Row {
    name: "",
    set: &[],
    then: &[],
    has_v6: true,
    interfaces: &["lan0", "lan1"],
    hub: "10.9.0.2",
    to: "10.2.0.2:8000",
    before: 0,
    expected: ["server", "server, carried", "server, carried"],
};

/// The clients' interface becomes a port of a bridge.
const BRIDGE: &str = "ip link add br0 type bridge; ip address del 10.1.0.1/24 dev lan0
    ip address del fd00:1::1/64 dev lan0; ip link set lan0 master br0
    ip address add 10.1.0.1/24 dev br0; ip address add fd00:1::1/64 dev br0 nodad
    ip link set br0 up";
const FILTERED: &str =
    "sysctl -q net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1";
const UNFILTERED: &str =
    "sysctl -q net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0";

const NAT: &str = "nft add table ip nat
    nft 'add chain ip nat prerouting { type nat hook prerouting priority dstnat; }'
    nft 'add chain ip nat postrouting { type nat hook postrouting priority srcnat; }'";
const FILTER: &str = "nft add table inet filter
    nft 'add chain inet filter input { type filter hook input priority filter; }'
    nft 'add chain inet filter forward { type filter hook forward priority filter; }'";

pub(crate) const ROWS: &[Row] = &[
    Row { name: "IPv4", ..ROW },
    Row { name: "IPv6", to: "[fd00:2::2]:8000", ..ROW },
    Row {
        name: "bridge, br_netfilter on",
        set: &[("terminal", BRIDGE), ("terminal", FILTERED)],
        interfaces: &["br0"],
        ..ROW
    },
    Row {
        name: "bridge, br_netfilter on, IPv6",
        set: &[("terminal", BRIDGE), ("terminal", FILTERED)],
        interfaces: &["br0"],
        to: "[fd00:2::2]:8000",
        ..ROW
    },
    Row {
        name: "bridge, br_netfilter off",
        set: &[("terminal", BRIDGE), ("terminal", UNFILTERED)],
        interfaces: &["br0"],
        ..ROW
    },
    Row {
        name: "bridge, br_netfilter on later (Docker)",
        set: &[("terminal", BRIDGE), ("terminal", UNFILTERED)],
        then: &[
            ("terminal", FILTERED),
            ("terminal", await_that!("nft list ruleset | grep -q 'log group 5900 drop'")),
        ],
        interfaces: &["br0"],
        ..ROW
    },
    Row {
        name: "captive portal (DNAT to the gateway)",
        set: &[
            ("terminal", NAT),
            (
                "terminal",
                "nft add rule ip nat prerouting iifname lan0 tcp dport 8000 dnat to 10.1.0.1:8080",
            ),
        ],
        expected: ["terminal", "terminal", "terminal"],
        ..ROW
    },
    Row {
        name: "redirect to a port of the gateway",
        set: &[
            ("terminal", NAT),
            (
                "terminal",
                "nft add rule ip nat prerouting iifname lan0 tcp dport 8000 redirect to :8080",
            ),
        ],
        expected: ["terminal", "terminal", "terminal"],
        ..ROW
    },
    Row {
        name: "DNAT to another LAN",
        set: &[
            ("terminal", NAT),
            (
                "terminal",
                "nft add rule ip nat prerouting iifname lan0 tcp dport 25 dnat to 10.3.0.2:8000",
            ),
        ],
        to: "10.2.0.2:25",
        expected: ["neighbour", "neighbour", "neighbour"],
        ..ROW
    },
    Row {
        name: "DNAT to a relay across the hop",
        set: &[
            ("terminal", NAT),
            (
                "terminal",
                "nft add rule ip nat prerouting iifname lan0 tcp dport 25 dnat to 10.2.0.2:8000",
            ),
        ],
        to: "192.0.2.1:25",
        expected: ["server", "server, carried", "server"],
        ..ROW
    },
    Row {
        name: "MASQUERADE to the hop",
        set: &[
            ("terminal", NAT),
            ("terminal", "nft add rule ip nat postrouting oifname wan0 masquerade"),
        ],
        ..ROW
    },
    Row {
        name: "a host on another LAN",
        to: "10.3.0.2:8000",
        expected: ["neighbour", "neighbour", "neighbour"],
        ..ROW
    },
    Row {
        name: "another router on the LAN",
        set: &[("terminal", "ip route add 10.4.0.0/24 via 10.1.0.254")],
        to: "10.4.0.2:8000",
        expected: ["router", "router", "router"],
        ..ROW
    },
    Row {
        name: "another router on the LAN, added later",
        then: &[("terminal", "ip route replace 10.4.0.0/24 via 10.1.0.254")],
        set: &[("hub", "ip route add blackhole 10.4.0.0/24")],
        to: "10.4.0.2:8000",
        expected: ["silence", "router", "router"],
        ..ROW
    },
    Row {
        name: "policy routing by incoming interface",
        set: &[(
            "terminal",
            "ip route add 10.4.0.0/24 via 10.1.0.254 table 100
             ip route add default via 10.9.0.2 table 100; ip rule add iif lan0 lookup 100",
        )],
        to: "10.4.0.2:8000",
        expected: ["router", "router", "router"],
        ..ROW
    },
    Row {
        name: "policy routing by incoming interface, server",
        set: &[(
            "terminal",
            "ip route add 10.4.0.0/24 via 10.1.0.254 table 100
             ip route add default via 10.9.0.2 table 100; ip rule add iif lan0 lookup 100",
        )],
        ..ROW
    },
    Row {
        name: "policy routing by mark",
        set: &[(
            "terminal",
            "nft add table inet mangle
             nft 'add chain inet mangle prerouting { type filter hook prerouting priority mangle; }'
             nft add rule inet mangle prerouting iifname lan0 tcp dport 8000 meta mark set 7
             ip route add 10.4.0.0/24 via 10.1.0.254 table 101; ip rule add fwmark 7 lookup 101",
        )],
        to: "10.4.0.2:8000",
        expected: ["router", "router", "router"],
        ..ROW
    },
    Row {
        name: "policy routing by source",
        set: &[(
            "terminal",
            "ip route add 10.4.0.0/24 via 10.1.0.254 table 102
             ip rule add from 10.1.0.0/24 lookup 102",
        )],
        to: "10.4.0.2:8000",
        expected: ["router", "router", "router"],
        ..ROW
    },
    Row {
        name: "no default route",
        set: &[("terminal", "ip route del default")],
        expected: ["unreachable", "server, carried", "server, carried"],
        ..ROW
    },
    Row {
        name: "a single interface",
        set: SINGLE,
        interfaces: &["lan0"],
        hub: "10.1.0.253",
        ..ROW
    },
    Row {
        name: "a single interface, another router",
        set: SINGLE,
        then: &[
            ("terminal", "ip route replace 10.4.0.0/24 via 10.1.0.254"),
            ("terminal", await_that!("nft list table inet skyhop-0 | grep -q 10.4.0.0/24")),
        ],
        interfaces: &["lan0"],
        hub: "10.1.0.253",
        to: "10.4.0.2:8000",
        expected: ["unreachable", "router", "router"],
        ..ROW
    },
    Row {
        name: "IPv6 off",
        set: &[("terminal", "sysctl -q net.ipv6.conf.all.disable_ipv6=1")],
        ..ROW
    },
    Row {
        name: "no IPv6 in the kernel, rule and route deleted",
        has_v6: false,
        then: &[
            ("terminal", "ip rule del priority 59; ip route flush table 5900"),
            (
                "terminal",
                await_that!(
                    "ip rule | grep -q 'lookup 5900' && ip route show table 5900 | grep -q local"
                ),
            ),
        ],
        ..ROW
    },
    Row {
        name: "strict rp_filter",
        set: &[(
            "terminal",
            "for each in all lan0 lan1 wan0; do sysctl -q net.ipv4.conf.$each.rp_filter=1; done",
        )],
        ..ROW
    },
    Row {
        name: "forwarding off",
        set: &[("terminal", "sysctl -q net.ipv4.ip_forward=0")],
        expected: ["silence", "server, carried", "server, carried"],
        ..ROW
    },
    Row {
        name: "FORWARD drops (doctor warns)",
        set: &[
            ("terminal", FILTER),
            ("terminal", "nft 'add chain inet filter forward { policy drop; }'"),
        ],
        expected: ["silence", "server, carried", "server, carried"],
        ..ROW
    },
    Row {
        name: "FORWARD rejects (doctor warns)",
        set: &[
            ("terminal", FILTER),
            ("terminal", "nft add rule inet filter forward tcp dport 8000 reject with tcp reset"),
        ],
        expected: ["refused", "server, carried", "server, carried"],
        ..ROW
    },
    Row {
        name: "INPUT drops",
        set: &[
            ("terminal", FILTER),
            ("terminal", "nft add rule inet filter input ct state established,related accept"),
            ("terminal", "nft add rule inet filter input meta l4proto icmpv6 accept"),
            ("terminal", "nft 'add chain inet filter input { policy drop; }'"),
        ],
        expected: ["server", "server", "server"],
        ..ROW
    },
    Row {
        name: "the hub itself has no route",
        set: &[(
            "hub",
            "ip rule add iif lo to 10.2.0.0/24 lookup 66; ip route add blackhole default table 66",
        )],
        before: 1,
        expected: ["server", "server", "unreachable"],
        ..ROW
    },
];

/// The terminal's uplink is a host on the clients' LAN.
const SINGLE: &[(&str, &str)] = &[
    ("hub", "ip address add 10.1.0.253/24 dev lan0; ip link set lan0 up; ip link set wan0 down"),
    ("terminal", "ip link set wan0 down; ip route add default via 10.1.0.253"),
];
