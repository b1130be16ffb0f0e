//! Checks for configurations that rely on the access defaults of earlier versions: to services of the hub's
//! own machine, and from the hub's side to networks behind a terminal.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::{HubConfig, TerminalConfig};
use pep::egress::EgressRules;
use pep::traffic::Prefix;

use super::CheckFinding;

const DNS: u16 = 53;
const CHECK: &str = "reach";

pub(super) fn of_hub(config: &HubConfig) -> Vec<CheckFinding> {
    let egresses = config.terminals.iter().map(|terminal| &terminal.egress);
    let egresses: Vec<&EgressRules> = egresses.collect();
    let resolver = resolver(&egresses, &resolvers());
    let opens = config.intercept.is_some() || config.tunnel.is_some() || config.mesh;
    resolver.into_iter().chain(opens.then(must_accept)).collect()
}

pub(super) fn of_terminal(config: &TerminalConfig) -> Vec<CheckFinding> {
    const CHECK: &str = "accept";
    let opened = !config.accept.reach.is_empty();
    vec![match (opened, config.transparent) {
        (true, _) => CheckFinding::ok(CHECK, "some connections from the hub's side are accepted"),
        (false, false) => CheckFinding::ok(CHECK, "nothing from the hub's side is accepted"),
        (false, true) => CheckFinding::warn(
            CHECK,
            "`transparent` applies to connections from the hub's side, and none is accepted",
            "add `[accept]` with `to = [\"10.1.0.0/16\"]`, the addresses that it may reach",
        ),
    }]
}

fn must_accept() -> CheckFinding {
    CheckFinding::warn(
        CHECK,
        "each terminal decides which connections from this side it accepts; by default none",
        "add `[accept]` with `to = [\"10.1.0.0/16\"]` to each terminal's file; `skyhop doctor` \
         there checks it",
    )
}

/// Warns of a resolver on this machine that terminals may not reach.
fn resolver(egresses: &[&EgressRules], own: &[IpAddr]) -> Option<CheckFinding> {
    let lists = |address: &IpAddr| {
        let mut lines = egresses.iter().flat_map(|egress| &egress.reach);
        lines.any(|line| line.prefix == Prefix::host(*address))
    };
    let first = own.first().filter(|_| !own.iter().any(lists))?;
    Some(CheckFinding::warn(
        CHECK,
        format!(
            "this machine resolves names (port {DNS} of {first}), but terminals cannot reach \
                 it"
        ),
        format!(
            "if their clients should use it: `[egress]` with `reach = [\"0.0.0.0/0\", \"::/0\", \
             \"{}\"]`",
            if first.is_ipv4() { format!("{first}:{DNS}") } else { format!("[{first}]:{DNS}") }
        ),
    ))
}

/// Returns the addresses of this machine on which a resolver listens, without loopback and link-local ones.
fn resolvers() -> Vec<IpAddr> {
    let bound: Vec<IpAddr> = ["udp", "udp6"]
        .iter()
        .filter_map(|file| fs::read_to_string(format!("/proc/net/{file}")).ok())
        .flat_map(|table| bound(&table))
        .collect();
    let takes = |own: &IpAddr| bound.iter().any(|at| at == own || at.is_unspecified());
    let devices = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = devices.filter_map(|device| {
        let address = device.address?;
        let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|socket| IpAddr::V6(socket.ip())))
    });
    let usual = |own: &IpAddr| match own {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    addresses.filter(usual).filter(takes).collect()
}

/// Parses the local addresses bound to the DNS port from a `/proc/net` table. Its second column holds the
/// address, as words in the machine's byte order, and the port.
fn bound(table: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let (address, port) = line.split_whitespace().nth(1)?.split_once(':')?;
        if u16::from_str_radix(port, 16).ok()? != DNS {
            return None;
        }
        let word = |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok();
        let bytes = |at: usize| word(at).map(u32::to_ne_bytes);
        match address.len() {
            8 => Some(Ipv4Addr::from(bytes(0)?).into()),
            32 => {
                let words = [bytes(0)?, bytes(1)?, bytes(2)?, bytes(3)?].concat();
                let octets: [u8; 16] = words.try_into().ok()?;
                Some(Ipv6Addr::from(octets).into())
            }
            _ => None,
        }
    };
    table.lines().skip(1).filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> [IpAddr; 1] {
        ["10.0.0.1".parse().unwrap()]
    }

    #[test]
    fn a_resolver_on_the_hub_is_named_until_a_terminal_reaches_it() {
        let usual = EgressRules::everywhere();
        let found = resolver(&[&usual], &own()).unwrap();
        assert!(found.mend.unwrap().contains("\"10.0.0.1:53\""), "what to list");
        let mut listed = EgressRules::everywhere();
        listed.reach.push("10.0.0.1:53".parse().unwrap());
        assert_eq!(resolver(&[&usual, &listed], &own()), None);
        assert_eq!(resolver(&[&usual], &[]), None);
    }

    #[test]
    fn sockets_that_are_bound_to_the_port_of_dns_are_found() {
        let words = |octets: &[u8]| -> String {
            let word = |four: &[u8]| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
            octets.chunks(4).map(|four| format!("{:08X}", word(four))).collect()
        };
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let table = format!(
            "  sl  local_address rem_address\n 1: {}:0035 0:0 07\n 2: {}:0043 0:0 07\n 3: {}:0035 \
             0:0\n",
            words(&[10, 0, 0, 1]),
            words(&[10, 0, 0, 2]),
            words(&v6.octets()),
        );
        assert_eq!(bound(&table), [own()[0], v6.into()]);
        assert_eq!(bound("head\nx\n1: Z:0035\n1: 0A:0035\n"), Vec::<IpAddr>::new());
    }
}
