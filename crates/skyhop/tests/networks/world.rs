//! A site, its uplink and a server, each host a network namespace:
//!
//! ```text
//! client ─┬─ switch ─┬─ terminal ─── hub ─── server
//!         └─ router ─┘      └─ neighbour
//! ```
//!
//! | host | addresses |
//! |---|---|
//! | client, router, terminal on `lan0` | 10.1.0.2, 10.1.0.254, 10.1.0.1; fd00:1::2, –, fd00:1::1 |
//! | behind the router | 10.4.0.2 |
//! | neighbour, terminal on `lan1` | 10.3.0.2, 10.3.0.1 |
//! | terminal, hub on `wan0` | 10.9.0.1, 10.9.0.2; fd00:9::1, fd00:9::2 |
//! | server | 10.2.0.2; fd00:2::2 |

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;

use os::namespace::NetNs;
use os::netlink::{RouteSocket, VethEnd};

/// Where every host but the terminal serves, and where the terminal does: a captive portal.
pub(crate) const PORT: u16 = 8000;
pub(crate) const PORTAL: u16 = 8080;

/// Two ends of a cable: a host and its device each.
type Cable = [(&'static str, &'static str); 2];

const CABLES: [Cable; 7] = [
    [("client", "lan0"), ("switch", "client")],
    [("router", "lan0"), ("switch", "router")],
    [("terminal", "lan0"), ("switch", "terminal")],
    // Only for a terminal with a single interface.
    [("hub", "lan0"), ("switch", "hub")],
    [("neighbour", "lan0"), ("terminal", "lan1")],
    [("terminal", "wan0"), ("hub", "wan0")],
    [("hub", "srv0"), ("server", "lan0")],
];

/// What each host is set to.
const HOSTS: [(&str, &str); 7] = [
    (
        "client",
        "sysctl -q net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.lan0.accept_redirects=0
         ip address add 10.1.0.2/24 dev lan0; ip address add fd00:1::2/64 dev lan0 nodad
         ip link set lan0 up
         ip route add default via 10.1.0.1; ip route add default via fd00:1::1",
    ),
    (
        "switch",
        "ip link add br0 type bridge
         sysctl -q net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 || true
         for port in client router terminal hub; do ip link set $port master br0 up; done
         ip link set br0 up",
    ),
    (
        "router",
        "ip address add 10.1.0.254/24 dev lan0; ip address add 10.4.0.2/32 dev lo
         ip link set lan0 up; ip route add default via 10.1.0.1",
    ),
    (
        "terminal",
        "sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
         ip address add 10.1.0.1/24 dev lan0; ip address add fd00:1::1/64 dev lan0 nodad
         ip address add 10.3.0.1/24 dev lan1
         ip address add 10.9.0.1/24 dev wan0; ip address add fd00:9::1/64 dev wan0 nodad
         for device in lan0 lan1 wan0; do ip link set $device up; done
         ip route add default via 10.9.0.2; ip route add default via fd00:9::2",
    ),
    (
        "neighbour",
        "ip address add 10.3.0.2/24 dev lan0; ip link set lan0 up; ip route add default via 10.3.0.1",
    ),
    (
        "hub",
        "sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
         ip address add 10.9.0.2/24 dev wan0; ip address add fd00:9::2/64 dev wan0 nodad
         ip address add 10.2.0.1/24 dev srv0; ip address add fd00:2::1/64 dev srv0 nodad
         for device in wan0 srv0; do ip link set $device up; done
         ip route add 10.1.0.0/24 via 10.9.0.1; ip route add 10.3.0.0/24 via 10.9.0.1
         ip route add fd00:1::/64 via fd00:9::1",
    ),
    (
        "server",
        "ip address add 10.2.0.2/24 dev lan0; ip address add fd00:2::2/64 dev lan0 nodad
         ip link set lan0 up
         ip route add default via 10.2.0.1; ip route add default via fd00:2::1",
    ),
];

/// The hosts, connected and set.
pub(crate) struct World(BTreeMap<&'static str, NetNs>);

impl World {
    /// Builds the hosts, their servers included.
    pub(crate) fn build() -> io::Result<Self> {
        let namespaces = HOSTS.map(|(host, _)| NetNs::create().map(|netns| (host, netns)));
        let world = Self(namespaces.into_iter().collect::<io::Result<_>>()?);
        for [one, other] in CABLES {
            let end =
                |(host, name)| VethEnd { netns: world.host(host).as_fd(), name, station: None };
            RouteSocket::open()?.add_veth([&end(one), &end(other)])?;
        }
        for (host, script) in HOSTS {
            world.set(host, "ip link set lo up");
            world.set(host, script);
        }
        for (host, port) in
            [("router", PORT), ("neighbour", PORT), ("server", PORT), ("terminal", PORTAL)]
        {
            world.serve(host, port)?;
        }
        Ok(world)
    }

    pub(crate) fn host(&self, name: &str) -> &NetNs {
        &self.0[name]
    }

    /// Runs a shell script on a host; it must succeed.
    pub(crate) fn set(&self, host: &str, script: &str) {
        self.said_by(host, script);
    }

    /// What a shell script on a host prints.
    pub(crate) fn said_by(&self, host: &str, script: &str) -> String {
        let mut command: Command = self.host(host).command("sh");
        let path = "/usr/sbin:/sbin:/usr/bin:/bin";
        let output = command.args(["-ec", script]).env("PATH", path).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{host}: {script}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A server that tells each client its own name, and the address that it sees.
    fn serve(&self, host: &'static str, port: u16) -> io::Result<()> {
        let listener = self.host(host).run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?;
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let Ok(peer) = client.peer_addr() else { continue };
                // The client may have gone.
                let _ = writeln!(client, "{host} {}", peer.ip().to_canonical());
            }
        });
        Ok(())
    }
}

/// The program that is missing to build it.
pub(crate) fn missing() -> Option<&'static str> {
    let is_there = |program: &&str| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        places.iter().any(|place| Path::new(place).join(program).exists())
    };
    let needed = ["ip", "nft", "sysctl", "sh"];
    let missing = needed.iter().find(|program| !is_there(program));
    missing.map(|_| "the networks need ip, nft, sysctl and sh")
}
