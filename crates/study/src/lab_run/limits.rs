//! The cases that the lab can run, and the reasons why it cannot run others.

use link::Rate;
use scenario::{
    CacheSpec, CompressionSpec, Direction, FetchMethod, FlowTraffic, GatewaysSpec, IpVersion,
    LinkSpec, Overhead, RateSpec, ScenarioCase, ScenarioFlow, SplitMode,
};
use tcp::{Config, SynData};
use thiserror::Error;
use units::BitRate;

use super::datagrams::HEAD;
use super::hosts::{HostTcp, kernel_control};

/// A part of a case that the lab cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {why}")]
#[non_exhaustive]
pub struct NotInLab {
    /// The key of the scenario file, such as `gateways.hop`.
    pub key: String,
    /// The lab's own behaviour, or what it lacks.
    pub why: String,
}

type Checked = Result<(), NotInLab>;

/// The highest rate of a hop: what the links' driver is measured to carry on one core
/// (docs/performance.md).
const GREATEST_RATE: BitRate = BitRate::from_mbit(300);
/// Maximum number of applications of a case. Each has a thread of its own.
const MOST_APPLICATIONS: u32 = 64;
/// Headers of IPv4 and TCP, without options, in bytes.
const HEADERS: u16 = 40;
/// MTU of the links beside the hop, in bytes.
const MTU: u16 = 1500;
/// The window of the gateways' TCP towards hosts must allow this many times the hop's rate. Then it
/// never limits, and its settings make no difference.
const LAN_MARGIN: f64 = 2.0;

/// Checks whether the lab can run a case. It does not ask the machine: whether this kernel has a
/// congestion control, and lets this user start a lab, shows when it runs.
///
/// # Errors
/// The first key of the scenario that the lab cannot run, and the reason.
pub fn can_run(case: &ScenarioCase) -> Result<(), NotInLab> {
    check_network(case)?;
    check_links(case)?;
    forbid(!case.next_hops.is_empty(), "next-hop", "the lab has one hop")?;
    case.cache.as_ref().map_or(Ok(()), |cache| check_cache(case, cache))?;
    forbid(case.names.is_some(), "names", "clients of the lab know all addresses")?;
    case.gateways.as_ref().map_or(Ok(()), |gateways| check_gateways(case, gateways))?;
    let all: u64 = case.flows.iter().map(|flow| u64::from(flow.count)).sum();
    let why = || format!("the lab runs {MOST_APPLICATIONS} applications at most, here are {all}");
    check(all <= MOST_APPLICATIONS.into(), "flow.count", why)?;
    case.flows.iter().try_for_each(|flow| check_flow(case, flow))
}

fn check(good: bool, key: impl Into<String>, why: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(NotInLab { key: key.into(), why: why() }) }
}

/// Like [`check`], with a reason that does not depend on the case.
fn forbid(bad: bool, key: impl Into<String>, why: &str) -> Checked {
    check(!bad, key, || why.to_owned())
}

fn check_network(case: &ScenarioCase) -> Checked {
    let network = &case.network;
    let most = u32::from(lab::Preset::MOST_TERMINALS);
    forbid(network.platforms.len() > 1, "network.platforms", "the lab has one hub")?;
    forbid(network.mesh, "network.mesh", "terminals of the lab reach each other through the hub")?;
    let why = || format!("the lab has {most} terminals at most");
    check(network.terminals <= most, "network.terminals", why)?;
    let why = "terminals of the lab have a return link each, or share it with [hop.dama]";
    forbid(network.return_channels > 0, "network.return-channels", why)?;
    let why = "all terminals of the lab have the same return link";
    forbid(!network.carrier_rates.is_empty(), "network.carrier-rates", why)?;
    let hop = case.hop.forward.rate.greatest().max(case.hop.ret.rate.greatest());
    let sides = [
        ("network.servers", network.servers, &case.server_side),
        ("network.clients", network.clients, &case.client_side),
    ];
    sides.into_iter().try_for_each(|(key, hosts, side)| check_shared(key, hosts, side, hop))
}

/// Several hosts are one in the lab, on a link with the rate of all of theirs. That makes no
/// difference while the hop is slower than each.
fn check_shared(key: &str, hosts: u32, side: &Option<LinkSpec>, hop: BitRate) -> Checked {
    let Some(side) = side.as_ref().filter(|_| hosts > 1) else { return Ok(()) };
    let is_constant = matches!(side.rate, RateSpec::Given(Rate::Constant(_)));
    let why = "several hosts are one in the lab, so their links must be faster than the hop";
    forbid(!is_constant || side.rate.least() < hop, key, why)
}

fn check_links(case: &ScenarioCase) -> Checked {
    forbid(case.shaper.is_some(), "shaper", "the lab's hub does not shape traffic")?;
    for (key, link) in [("hop.forward.rate", &case.hop.forward), ("hop.return.rate", &case.hop.ret)]
    {
        let why = || format!("the lab carries {GREATEST_RATE} at most");
        check(link.rate.greatest() <= GREATEST_RATE, key, why)?;
    }
    Ok(())
}

fn check_gateways(case: &ScenarioCase, gateways: &GatewaysSpec) -> Checked {
    let key = |name: &str| format!("gateways.{name}");
    match gateways.split {
        SplitMode::ThreeSlacp | SplitMode::Packets => {}
        SplitMode::ThreeTcp => return forbid(true, key("hop"), "the lab's pair speaks SLACP"),
        SplitMode::Two => return forbid(true, key("split"), "the lab has a gateway on each side"),
        SplitMode::Spacing => {
            return forbid(true, key("split"), "the lab's gateways space nothing");
        }
        SplitMode::Window => {
            return forbid(true, key("split"), "the lab's gateways lower no windows");
        }
    }
    let why = "the lab's pair is a tunnel over UDP";
    forbid(gateways.overhead == Overhead::LinkLayer, key("overhead"), why)?;
    let why = "without [hop.dama] the lab's pair sends at its rate";
    forbid(gateways.mac_buffer.is_some() && case.hop.dama.is_none(), key("mac-buffer"), why)?;
    let why = "the lab's pair has the rates that the links leave to IP packets";
    forbid(gateways.forward_rate.is_some(), key("forward-rate"), why)?;
    forbid(gateways.return_rate.is_some(), key("return-rate"), why)?;
    let why = "the lab's pair neither compresses nor gathers";
    forbid(gateways.compression != CompressionSpec::default(), "gateways", why)?;
    // Whole packets cross, so the gateways have no TCP towards hosts.
    if gateways.split == SplitMode::Packets {
        return Ok(());
    }
    let hop = case.hop.forward.rate.greatest().max(case.hop.ret.rate.greatest());
    // The kernel's window does not limit there, so that of the case must not either.
    let window = case.tcp[&gateways.lan_tcp].receive_buffer.get() as f64 * 8.0;
    let sides = [&case.server_side, &case.client_side].into_iter().flatten();
    let rtt = sides.map(|side| 2.0 * side.delay.greatest().as_secs_f64()).fold(0.0, f64::max);
    let good = window >= LAN_MARGIN * hop.bits_per_second() as f64 * rtt;
    let why =
        "towards hosts the lab's gateways have the kernel's TCP, and this one's window limits";
    forbid(!good, key("lan-tcp"), why)
}

/// The lab's cache is filled by loading each page once, and has what may be stored. It is the gateways': it
/// splits connections at the hub also without the pair.
fn check_cache(case: &ScenarioCase, cache: &CacheSpec) -> Checked {
    let all = cache.hit_ratio.get() == 1.0 && cache.largest.is_none();
    forbid(!all, "cache", "the lab's cache has everything")?;
    forbid(!cache.delay.is_zero(), "cache.delay", "the lab's cache takes the time that it takes")?;
    let why = "the lab's pair caches what it splits";
    let packets =
        case.gateways.as_ref().is_some_and(|gateways| gateways.split == SplitMode::Packets);
    forbid(packets, "cache", why)?;
    case.flows.iter().try_for_each(|flow| {
        let key = |name: &str| format!("flow.{}.{name}", flow.name);
        let FlowTraffic::Page { repeat, .. } = &flow.traffic else {
            return forbid(true, key("kind"), "beside a cache the lab has pages only");
        };
        let why = "a terminal of the lab would have a page the second time";
        let once = *repeat == 1 && flow.count == 1 && case.network.terminals == 1;
        forbid(!once, key("count"), why)
    })
}

fn check_flow(case: &ScenarioCase, flow: &ScenarioFlow) -> Checked {
    let key = |name: &str| format!("flow.{}.{name}", flow.name);
    let controls = flow.tcp.each_ref().map(|name| kernel_control(&case.tcp[name]));
    let is_kernel = controls.iter().all(Option::is_some);
    let own = |kind: &str| {
        let why = "the kernel's TCP cannot do it, and this project's moves only bulk in the lab";
        let name = flow.tcp.iter().zip(&controls).find(|(_, control)| control.is_none());
        forbid(name.is_some(), format!("tcp.{}", name.map_or("", |(name, _)| name)), why)
            .map_err(|error| NotInLab { why: format!("{} ({kind})", error.why), ..error })
    };
    forbid(flow.ip != IpVersion::Ipv4, key("ip"), "the lab's flows are over IPv4")?;
    match &flow.traffic {
        FlowTraffic::Users { .. } => forbid(true, key("kind"), "the lab has no random users"),
        FlowTraffic::Ftp { .. } | FlowTraffic::Mail { .. } => {
            forbid(true, key("kind"), "the lab has no FTP and no SMTP")
        }
        FlowTraffic::Bundles { .. } => {
            forbid(true, key("kind"), "bundles of the lab's pair cross by SLACP, not by TCP")
        }
        FlowTraffic::Udp { size, .. } => {
            let why = || format!("datagrams in the lab have a head of {HEAD} bytes");
            check(*size as usize >= HEAD, key("size"), why)
        }
        FlowTraffic::Bulk { .. } if is_kernel => Ok(()),
        FlowTraffic::Bulk { .. } => flow.tcp.iter().try_for_each(|name| check_own(case, name)),
        FlowTraffic::Request { think, repeat, .. } => {
            own("request")?;
            forbid(!think.is_zero(), key("think"), "requests in the lab follow at once")?;
            check(u32::try_from(*repeat).is_ok(), key("repeat"), || "too many".to_owned())?;
            let why = "both ends of requests have one congestion control in the lab";
            forbid(controls[0] != controls[1], key("server-tcp"), why)
        }
        FlowTraffic::Page { method, objects, .. } => {
            own("page")?;
            let one = objects.len() == 1;
            let good = one || matches!(method, FetchMethod::Http10(_) | FetchMethod::KeepAlive(1));
            let why = "in the lab all objects are known from the start, so only http/1.0 and one \
                       keep-alive connection load the document first";
            forbid(!good, key("method"), why)
        }
    }
}

/// Checks that our endpoint can be that TCP on a device.
fn check_own(case: &ScenarioCase, name: &str) -> Checked {
    let config: &Config = &case.tcp[name];
    let key = |option: &str| format!("tcp.{name}.{option}");
    let mtu = case.hop.mtu.min(MTU);
    let why = || format!("with {HEADERS} bytes of headers it exceeds the MTU of {mtu} bytes");
    check(config.mss.saturating_add(HEADERS) <= mtu, key("mss"), why)?;
    let why = "connections in the lab begin without data on the SYN";
    forbid(config.syn_data != SynData::Off, key("syn-data"), why)?;
    let why = "connections in the lab know nothing of each other";
    forbid(config.sharing != tcp::TcbSharing::None, key("tcb-sharing"), why)
}

/// Returns true if the flow's payload goes up, from client to server.
pub(super) fn is_up(direction: Direction) -> bool {
    direction == Direction::Up
}

/// Returns the TCP implementation of a flow's hosts in the lab.
pub(super) fn hosts_of(case: &ScenarioCase, flow: &ScenarioFlow) -> HostTcp {
    let controls = flow.tcp.each_ref().map(|name| kernel_control(&case.tcp[name]));
    match controls {
        [Some(client), Some(server)] => HostTcp::Kernel([client, server]),
        _ => HostTcp::Own,
    }
}
