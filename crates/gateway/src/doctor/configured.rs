//! Checks of the machine against a configuration file.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use config::FileKind;
use config::{
    HttpConfig, HubConfig, InterceptConfig, LinkConfig, ModemLocation, OperationConfig, SecureDns,
    SoloConfig, TerminalConfig, TlsFiles,
};
use control::Role;
use control::status::{DlepStatus, GatewayStatus};
use nix::net::if_::InterfaceFlags;
use os::netlink::RouteSocket;
use slacp::Rate;

use super::machine::has_net_admin;
use super::running::RunningGateway;
use super::{CheckFinding, absent, bundles, intercepted, protocols, reach, refused, running};
use crate::config::{FileError, read_hub, read_solo, read_terminal};
use crate::hop::udp;
use crate::network::presence::absent_interfaces;
use crate::network::side_settings::SocketSettings;
use crate::process::error::RunError;

pub(super) fn examine(path: &Path) -> Vec<CheckFinding> {
    let config = match read(path) {
        Ok(config) => config,
        Err(error) => {
            let mend = "`skyhop schema hub`, `terminal` or `solo` prints the keys; `skyhop init` writes \
                        a working pair";
            return vec![CheckFinding::fail("configuration", error.to_string(), mend)];
        }
    };
    match config {
        RoleConfig::Terminal(config) => terminal(&config),
        RoleConfig::Hub(config) => hub(&config),
        RoleConfig::Solo(config) => solo(&config),
    }
}

enum RoleConfig {
    Terminal(Box<TerminalConfig>),
    Hub(Box<HubConfig>),
    Solo(Box<SoloConfig>),
}

/// Reads a configuration file of any role.
fn read(path: &Path) -> Result<RoleConfig, FileError> {
    // The reader of a hub's file reports why a file cannot be read.
    match fs::read_to_string(path).map_or(Role::Hub, |text| role(&text)) {
        Role::Terminal => read_terminal(path).map(|config| RoleConfig::Terminal(Box::new(config))),
        Role::Hub => read_hub(path).map(|config| RoleConfig::Hub(Box::new(config))),
        Role::Solo => read_solo(path).map(|config| RoleConfig::Solo(Box::new(config))),
    }
}

/// Guesses the role of a configuration by its keys; a hub if they are inconclusive.
fn role(text: &str) -> Role {
    match FileKind::find("", text).ok() {
        Some(FileKind::Terminal) => Role::Terminal,
        Some(FileKind::Solo) => Role::Solo,
        _ => Role::Hub,
    }
}

fn terminal(config: &TerminalConfig) -> Vec<CheckFinding> {
    let mut findings = vec![CheckFinding::ok("configuration", "of a terminal")];
    if let Some(intercept) = &config.intercept {
        findings.extend(interfaces(intercept));
        findings.extend(refused::interception(intercept, &config.policies));
        findings.extend(intercepted::examine(intercept));
    }
    findings.extend(config.tunnel.as_ref().map(refused::tunnel));
    findings.extend(transparent(config.transparent));
    findings.extend(config.http.as_ref().and_then(sites));
    findings.extend(config.dns.as_ref().and_then(|dns| dns.secure.as_ref()).map(names));
    findings.extend(reach::of_terminal(config));
    findings.extend(config.links.iter().map(link));
    let paths = config.hubs.iter().flat_map(|hub| path_to(hub.address.as_str(), config.link.mtu));
    findings.extend(paths);
    findings.extend(absent::of_terminal(config));
    findings.extend(protocols::of_policies(&config.policies));
    let identity = config.identity.public();
    let running = RunningGateway::find(&config.operation, Role::Terminal, Some(&identity));
    let of_bundles = |config| bundles::examine(config, running.own().is_some());
    findings.extend(config.bundles.iter().flat_map(of_bundles));
    findings.extend(removed_keys(&config.operation));
    findings.extend(metrics(&config.operation, running.own()));
    findings.extend(modem(&config.link.rate, &config.operation, running.own()));
    findings.extend(running.finding());
    findings.extend(with_running(config.intercept.as_ref(), &running));
    findings.extend(running.own().into_iter().flat_map(running::rates));
    findings.extend(running::hubs(config, &running));
    findings
}

fn hub(config: &HubConfig) -> Vec<CheckFinding> {
    let mut findings = vec![CheckFinding::ok(
        "configuration",
        format!("of a hub with {} terminals", config.terminals.len()),
    )];
    if let Some(intercept) = &config.intercept {
        findings.extend(interfaces(intercept));
        findings.extend(refused::interception(intercept, &config.policies));
        findings.extend(intercepted::examine(intercept));
    }
    findings.extend(config.tunnel.as_ref().map(refused::tunnel));
    findings.extend(refused::pool(config));
    findings.extend(transparent(config.transparent));
    findings.extend(config.tls.as_ref().map(certificate));
    findings.extend(reach::of_hub(config));
    findings.extend(absent::of_hub(config));
    findings.extend(protocols::of_dialler(config.transparent));
    findings.extend(protocols::of_policies(&config.policies));
    let identity = config.identity.public();
    let running = RunningGateway::find(&config.operation, Role::Hub, Some(&identity));
    let of_bundles = |config| bundles::examine(config, running.own().is_some());
    findings.extend(config.bundles.iter().flat_map(of_bundles));
    findings.extend(removed_keys(&config.operation));
    findings.extend(metrics(&config.operation, running.own()));
    findings.extend(modem(&config.link.rate, &config.operation, running.own()));
    findings.extend(running.finding());
    findings.extend(with_running(config.intercept.as_ref(), &running));
    findings.extend(running.own().into_iter().flat_map(running::rates));
    // A running gateway with this file occupies the port.
    if running.own().is_none() {
        findings.push(port(config.listen));
    }
    findings
}

fn solo(config: &SoloConfig) -> Vec<CheckFinding> {
    let mut findings = vec![CheckFinding::ok("configuration", "of a solo gateway")];
    if let Some(intercept) = &config.intercept {
        findings.extend(interfaces(intercept));
        findings.extend(refused::interception(intercept, &config.policies));
        findings.extend(intercepted::examine(intercept));
    }
    findings.extend(transparent(config.transparent));
    for (section, side) in [("lan", &config.lan), ("wan", &config.wan)] {
        findings.push(match side.check(section) {
            Ok(()) => CheckFinding::ok(section, "the kernel accepts these settings"),
            Err(error) => {
                CheckFinding::fail(section, error.to_string(), "remove the key, or run it as root")
            }
        });
    }
    if let Some(stack) = &config.stack {
        findings.push(refused::tunnel(&stack.device));
        findings.extend(wan_interfaces(&stack.interfaces));
        let lack = |lack: String| {
            CheckFinding::warn(
                "stack",
                lack,
                "the stack's packets pass through this machine's routing",
            )
        };
        findings.extend(crate::stack::missing_settings().into_iter().map(lack));
    }
    findings.extend(absent::of_solo(config));
    findings.extend(protocols::of_policies(&config.policies));
    let running = RunningGateway::find(&config.operation, Role::Solo, None);
    findings.extend(removed_keys(&config.operation));
    findings.extend(metrics(&config.operation, running.own()));
    findings.extend(running.finding());
    findings.extend(with_running(config.intercept.as_ref(), &running));
    findings
}

/// Checks the interception of the running gateway; nothing if the file configures none.
fn with_running(config: Option<&InterceptConfig>, running: &RunningGateway) -> Vec<CheckFinding> {
    config.map_or(Vec::new(), |config| intercepted::examine_running(config, running.own()))
}

/// Warns of interfaces of the stack that do not exist.
fn wan_interfaces(names: &[String]) -> Vec<CheckFinding> {
    let finding = |name: &String| {
        let what = format!("there is no interface {name:?}; it is used once it exists");
        CheckFinding::warn("stack", what, "correct `wan.interfaces`, unless it comes later")
    };
    absent_interfaces(names).map(finding).collect()
}

fn transparent(wanted: bool) -> Option<CheckFinding> {
    let finding = || CheckFinding::fail("transparent", "needs CAP_NET_ADMIN", "run it as root");
    (wanted && !has_net_admin()).then(finding)
}

/// Checks that packets can be sent over a link: its interface is up, and its address is this machine's.
fn link(link: &LinkConfig) -> CheckFinding {
    const CHECK: &str = "link";
    let name = &link.name;
    let local = match (link.source, &link.interface) {
        (_, Some(interface)) if is_running(interface) != Some(true) => {
            let mend = format!("connect it, or correct `interface`; there are: {}", devices());
            let text = format!("{name}: {interface} does not exist or is down; it is used once up");
            return CheckFinding::warn(CHECK, text, mend);
        }
        (source, _) => source.unwrap_or_else(|| Ipv4Addr::UNSPECIFIED.into()),
    };
    match udp::try_bind((local, 0).into(), link.interface.as_deref()) {
        Ok(()) => CheckFinding::ok(CHECK, format!("{name} can be used")),
        Err(error) => {
            let mend = "another program may have the port; `interface` may need CAP_NET_RAW";
            CheckFinding::fail(CHECK, format!("{name} cannot be used: {error}"), mend)
        }
    }
}

const MODEM: &str = "modem";

/// Reports the modem of the running gateway. `otherwise`: the rate without a modem.
fn running_modem(dlep: &DlepStatus, otherwise: &str) -> CheckFinding {
    let trouble = dlep.trouble.clone().unwrap_or_else(|| "none has answered".to_owned());
    let peer = dlep.peer_type.clone().unwrap_or_default();
    match dlep.state.as_str() {
        "up" => CheckFinding::ok(MODEM, format!("{peer:?} reports its rate by DLEP")),
        state => CheckFinding::warn(
            MODEM,
            format!("reports no rate ({state}: {trouble}); {otherwise}"),
            "check that the modem has DLEP enabled; one that does not send with TTL 255 needs \
             `gtsm = false`",
        ),
    }
}

/// Checks, with `rate = "modem"`, that a modem or an operator provides the rate.
fn modem(
    rate: &Rate,
    operation: &OperationConfig,
    running: Option<&GatewayStatus>,
) -> Option<CheckFinding> {
    let otherwise = match rate {
        Rate::Modem { initial } => format!("{initial} is used"),
        Rate::ModemOrAuto { .. } => "the rate is measured".to_owned(),
        _ => return None,
    };
    let Some(dlep) = &operation.dlep else {
        let who = "set by `skyhop rate`, as there is no [dlep]";
        return Some(CheckFinding::ok(MODEM, format!("the rate is {who}; otherwise {otherwise}")));
    };
    if let Some(dlep) = running.and_then(|status| status.dlep.as_ref()) {
        return Some(running_modem(dlep, &otherwise));
    }
    let looked_for = match &dlep.modem {
        ModemLocation::At(modem) => format!("asked at {modem}"),
        ModemLocation::Discover(name) if is_running(name) == Some(true) => {
            format!("looked for on {name}")
        }
        ModemLocation::Discover(name) => {
            let mend =
                format!("set `dlep.interface` to an interface of this machine: {}", devices());
            let text = format!("{name} does not exist or is down; {otherwise}");
            return Some(CheckFinding::warn(MODEM, text, mend));
        }
    };
    Some(CheckFinding::ok(MODEM, format!("{looked_for}, by DLEP; until it answers, {otherwise}")))
}

/// Checks the certificate of the hub's TCP port.
fn certificate(files: &TlsFiles) -> CheckFinding {
    const CHECK: &str = "certificate";
    match crate::network::tls::acceptor(files) {
        Ok(_) => CheckFinding::ok(CHECK, format!("{} can be used", files.certificate.display())),
        Err(error) => {
            let mend = "give `listen_tcp_certificate` and `listen_tcp_key` PEM files of one pair";
            CheckFinding::fail(CHECK, error, mend)
        }
    }
}

/// Checks the certificates of `[[http.site]]`; `None` without sites.
fn sites(http: &HttpConfig) -> Option<CheckFinding> {
    const CHECK: &str = "sites";
    let hosts: Vec<&str> =
        http.sites.iter().flat_map(|site| &site.hosts).map(String::as_str).collect();
    (!hosts.is_empty()).then(|| match crate::services::http::check_sites(http) {
        Ok(()) => CheckFinding::ok(CHECK, format!("TLS is ended here for {}", hosts.join(", "))),
        Err(error) => {
            let mend = "give `certificate` and `key` of [[http.site]] PEM files of one pair, and \
                        `authorities` a PEM file if the system has none";
            CheckFinding::fail(CHECK, error, mend)
        }
    })
}

/// Checks the certificate for DNS over TLS and HTTPS.
fn names(secure: &SecureDns) -> CheckFinding {
    const CHECK: &str = "names";
    match crate::services::names::secure::check(secure) {
        Ok(()) => {
            let shown = secure.files.certificate.display();
            CheckFinding::ok(CHECK, format!("{shown} can be used for DNS over TLS and HTTPS"))
        }
        Err(error) => {
            let mend = "give `certificate` and `key` of [dns] PEM files of one pair";
            CheckFinding::fail(CHECK, error, mend)
        }
    }
}

/// Warns of keys in the file that no longer have an effect.
fn removed_keys(operation: &OperationConfig) -> impl Iterator<Item = CheckFinding> {
    let finding = |warning: &String| CheckFinding::warn("configuration", warning, "remove the key");
    operation.warnings.iter().map(finding)
}

/// Checks that metrics and dashboard can be served as configured; `None` while the gateway runs and serves
/// them.
fn metrics(operation: &OperationConfig, running: Option<&GatewayStatus>) -> Option<CheckFinding> {
    const CHECK: &str = "metrics";
    let config = operation.metrics.as_ref().filter(|_| running.is_none())?;
    Some(match crate::operate::metrics::check(config) {
        Ok(()) => CheckFinding::ok(CHECK, format!("can be served on {}", config.listen)),
        Err(error @ RunError::Metrics { .. }) => {
            CheckFinding::fail(CHECK, error.to_string(), "choose another `metrics.listen`")
        }
        Err(error) => CheckFinding::fail(CHECK, error.to_string(), "mend the file of the token"),
    })
}

fn port(listen: Option<SocketAddr>) -> CheckFinding {
    let address =
        listen.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], crate::config::pair::PORT)));
    match udp::try_bind(address, None) {
        Ok(_) => {
            CheckFinding::ok("port", format!("UDP {address} is free; firewalls must admit it"))
        }
        Err(error) => CheckFinding::fail(
            "port",
            format!("cannot bind UDP {address}: {error}"),
            "another program uses it: stop it, or change `listen`",
        ),
    }
}

fn interfaces(intercept: &InterceptConfig) -> Vec<CheckFinding> {
    const CHECK: &str = "interface";
    let mut findings = Vec::new();
    if !has_net_admin() {
        let mend = "run it as root, or once `setcap cap_net_admin+ep` on the program";
        findings.push(CheckFinding::warn(
            "interception",
            "intercepting connections needs CAP_NET_ADMIN",
            mend,
        ));
    }
    for name in &intercept.interfaces {
        findings.push(match is_running(name) {
            None => {
                let mend = format!(
                    "correct `intercept.interfaces`, unless it comes later; there are: {}",
                    devices()
                );
                let text = format!("there is no {name}; its clients are served once it exists");
                CheckFinding::warn(CHECK, text, mend)
            }
            Some(false) => {
                let mend = format!("`ip link set {name} up`, or connect its cable");
                CheckFinding::warn(CHECK, format!("{name} is down"), mend)
            }
            Some(true) => CheckFinding::ok(CHECK, format!("{name} is up")),
        });
    }
    findings
}

/// Returns whether a device is up and has a carrier; `None` if it does not exist.
fn is_running(name: &str) -> Option<bool> {
    let mut devices = nix::ifaddrs::getifaddrs().ok()?;
    let device = devices.find(|device| device.interface_name == name)?;
    Some(device.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING))
}

fn devices() -> String {
    interface_names().join(", ")
}

/// Returns the names of this machine's interfaces in alphabetical order.
pub fn interface_names() -> Vec<String> {
    let devices = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let names: BTreeSet<String> = devices.map(|device| device.interface_name).collect();
    names.into_iter().collect()
}

/// Checks the route and the path MTU to the hub.
fn path_to(hub: &str, mtu: u16) -> Vec<CheckFinding> {
    let Some(address) = hub.to_socket_addrs().ok().and_then(|mut found| found.next()) else {
        // The check of the hub reports the reason.
        return Vec::new();
    };
    let Some((device, local)) = device_to(address) else {
        let mend = format!("`ip route get {}`", address.ip());
        return vec![CheckFinding::fail("route", format!("no route to {}", address.ip()), mend)];
    };
    let mut findings =
        vec![CheckFinding::ok("route", format!("to {address} from {local} over {device}"))];
    let size = RouteSocket::open().and_then(|mut kernel| kernel.mtu(&device));
    findings.push(match size {
        Ok(size) if size < u32::from(mtu) => CheckFinding::warn(
            "mtu",
            format!("{device} has an MTU of {size} bytes, the configuration {mtu}"),
            format!("harmless, since path MTU discovery finds it; `mtu = {size}` saves the search"),
        ),
        Ok(size) => {
            CheckFinding::ok("mtu", format!("{device} has an MTU of {size} bytes, {mtu} are used"))
        }
        Err(_) => {
            CheckFinding::warn("mtu", format!("the MTU of {device} is unknown"), "see `ip link`")
        }
    });
    findings
}

/// Returns the outgoing device and the source address for packets to `address`.
fn device_to(address: SocketAddr) -> Option<(String, std::net::IpAddr)> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    // Connecting a UDP socket sends nothing.
    socket.connect(address).ok()?;
    let local = socket.local_addr().ok()?.ip();
    let mut devices = nix::ifaddrs::getifaddrs().ok()?;
    let device = devices.find(|device| {
        let own = device.address.as_ref();
        let v4 = own.and_then(|own| own.as_sockaddr_in()).map(|own| std::net::IpAddr::V4(own.ip()));
        let v6 =
            own.and_then(|own| own.as_sockaddr_in6()).map(|own| std::net::IpAddr::V6(own.ip()));
        v4.or(v6) == Some(local)
    })?;
    Some((device.interface_name, local))
}

#[cfg(test)]
mod tests {
    use config::{DlepConfig, MetricsConfig};
    use control::status::DlepStatus;

    use super::super::FindingSeverity;
    use super::*;
    use crate::config::keys::{PrivateKey, format_public_key};
    use crate::config::whole_file::{self, PRIVATE};
    use crate::testkit::in_namespace;

    #[test]
    fn each_role_has_its_keys() {
        assert_eq!(role("rate = \"auto\"\nhub = \"x:1\"\n"), Role::Terminal);
        assert_eq!(role("  hub_key=\"…\""), Role::Terminal);
        assert_eq!(role("rate = \"auto\"\n[[terminal]]\nname = \"hub\"\n# hub\n"), Role::Hub);
        assert_eq!(role("[proxy]\nlisten = \"[::1]:1080\"\n"), Role::Solo);
    }

    #[test]
    fn a_stack_needs_forwarding_and_its_interfaces() {
        in_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("solo.toml");
            let text =
                "control = \"none\"\n[wan]\nstack = \"skyhop\"\ninterfaces = [\"lo\", \"wan0\"]\n";
            fs::write(&path, text).unwrap();
            let found = examine(&path);
            let of_stack = found.iter().filter(|finding| finding.check == "stack");
            let told: Vec<(&str, &str)> =
                of_stack.map(|it| (it.verdict.as_str(), it.text.as_str())).collect();
            assert!(told[0].0 == "warn" && told[0].1.contains("wan0"), "{told:?}");
            let forwarding = |what: &&(&str, &str)| what.1.contains("net.ipv4.ip_forward=1");
            assert_eq!(told.iter().find(forwarding).map(|told| told.0), Some("warn"), "{told:?}");
        });
    }

    /// What is found in a file about protocols that carry addresses.
    fn about_protocols(text: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.toml");
        whole_file::replace(&path, text.as_bytes(), PRIVATE).unwrap();
        let found = examine(&path);
        assert_eq!(found[0].verdict, FindingSeverity::Ok, "{}", found[0]);
        let about = found.into_iter().filter(|finding| finding.check == "protocols");
        about.map(|finding| finding.text).collect()
    }

    #[test]
    fn protocols_that_carry_addresses_are_looked_at_in_every_role() {
        in_namespace(|| {
            let [own, peer] = [(); 2].map(|()| PrivateKey::generate().unwrap());
            let peer = format_public_key(&peer.public());
            let pair = format!("private_key = \"{}\"\nrate = \"10 Mbit/s\"\n", own.to_base64());
            // The name of no hub: its check would wait for an answer.
            let terminal = format!("{pair}hub = \"hub.invalid:5900\"\nhub_key = \"{peer}\"\n");
            let hub = format!(
                "{pair}[[terminal]]\nname = \"ship\"\nkey = \"{peer}\"\n\
                 networks = [\"10.1.0.0/16\"]\n"
            );
            let rest = "[intercept]\ninterfaces = [\"lo\"]\n\
                        [[policy]]\nports = [21]\naction = \"bypass\"\n";
            for (role, keys, dials) in
                [("terminal", &*terminal, 0), ("hub", &*hub, 1), ("solo", "[wan]\n", 0)]
            {
                let found = about_protocols(&format!("control = \"none\"\n{keys}{rest}"));
                let count = |what: &str| found.iter().filter(|text| text.contains(what)).count();
                let counts = (count("port 21 alone"), count("500 Illegal PORT"));
                assert_eq!(counts, (1, dials), "{role}: {found:?}");
            }
        });
    }

    #[test]
    fn the_way_to_this_machine_is_its_loopback() {
        let (device, local) = device_to("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!((device.as_str(), local.to_string().as_str()), ("lo", "127.0.0.1"));
        assert_eq!((is_running("lo"), is_running("no-such")), (Some(true), None));
        assert!(devices().contains("lo"));
    }

    #[test]
    fn the_source_of_the_rate_is_reported() {
        let rate = Rate::Modem { initial: units::BitRate::from_mbit(9) };
        let verdict = |found, status: Option<&GatewayStatus>| {
            let heartbeat = std::time::Duration::from_secs(5);
            let dlep = Some(DlepConfig { modem: found, heartbeat, gtsm: true, on_demand: false });
            let operation = OperationConfig { dlep, ..OperationConfig::default() };
            let finding = modem(&rate, &operation, status).unwrap();
            (finding.verdict.as_str(), finding.text)
        };
        let lo = || ModemLocation::Discover("lo".to_owned());
        assert!(verdict(lo(), None).1.contains("looked for on lo"));
        assert_eq!(verdict(ModemLocation::Discover("no-such".to_owned()), None).0, "warn");
        for (state, expected) in [("up", "ok"), ("connecting", "warn")] {
            let dlep = Some(DlepStatus { state: state.to_owned(), ..DlepStatus::default() });
            let status = GatewayStatus { dlep, ..GatewayStatus::default() };
            assert_eq!(verdict(lo(), Some(&status)).0, expected);
        }
        for (rate, otherwise) in [
            (rate.clone(), "otherwise 9 Mbit/s is used"),
            (Rate::ModemOrAuto { ceiling: None, probe: true }, "otherwise the rate is measured"),
        ] {
            let nobody = modem(&rate, &OperationConfig::default(), None).unwrap();
            assert!(nobody.text.contains("skyhop rate") && nobody.text.contains(otherwise));
        }
        assert_eq!(modem(&Rate::auto(), &OperationConfig::default(), None), None);
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_reported() {
        let made = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["hub".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            whole_file::replace(&path, text.as_bytes(), PRIVATE).unwrap();
            path
        };
        let pem = write("certificate", &made.cert.pem());
        let found = |key: &Path, of: &Path| {
            certificate(&TlsFiles { certificate: of.to_owned(), key: key.to_owned() })
        };
        let key = write("key", &made.signing_key.serialize_pem());
        assert_eq!(found(&key, &pem).verdict, FindingSeverity::Ok);
        let none = write("none", "no PEM\n");
        for (key, of, why) in [
            (&write("other", &other.signing_key.serialize_pem()), &pem, "other: "),
            (&none, &pem, "none: it holds no private key"),
            (&key, &none, "none: it holds no certificate"),
            (&key, &folder.path().join("missing"), "missing: cannot read it"),
        ] {
            let finding = found(key, of);
            assert_eq!(finding.verdict, FindingSeverity::Fail);
            assert!(finding.text.contains(why), "{finding:?}");
        }
    }

    #[test]
    fn metrics_that_cannot_be_served_are_reported() {
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let listen = taken.local_addr().unwrap();
        let with = |token_file: Option<&str>| OperationConfig {
            metrics: Some(MetricsConfig {
                listen,
                token_file: token_file.map(Into::into),
                allow: Vec::new(),
                hosts: Vec::new(),
                hide_destinations: false,
            }),
            ..OperationConfig::default()
        };
        let found = |operation: &OperationConfig| metrics(operation, None).unwrap();
        let mend = found(&with(None)).mend;
        assert_eq!(mend.as_deref(), Some("choose another `metrics.listen`"));
        let token = found(&with(Some("/nonexistent/token")));
        assert!(token.text.contains("/nonexistent/token: cannot read it"), "{token:?}");
        assert_eq!(
            metrics(&with(None), Some(&GatewayStatus::default())),
            None,
            "it serves them itself"
        );
        drop(taken);
        assert_eq!(found(&with(None)).verdict, FindingSeverity::Ok);
    }

    #[test]
    fn a_port_in_use_is_reported() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let finding = port(Some(taken.local_addr().unwrap()));
        assert_eq!(finding.verdict, FindingSeverity::Fail);
        assert!(finding.text.contains("cannot bind"), "{finding:?}");
    }
}
