//! The lab's links for a case.

use link::{DisciplineChoice, QueueLimit, QueueSize, Rate};
use scenario::{LinkSpec, Preset, RateSpec, ScenarioCase};
use units::{BitRate, ByteCount};

/// MTU of links beside the hop.
const MTU: u16 = 1500;

/// The lab's links for a case that [`super::can_run`] accepts. Several hosts of a side are one, on a
/// link with the rate and the queue of all of theirs.
pub(super) fn preset(case: &ScenarioCase) -> Preset {
    let hop = |link: &LinkSpec| absolute(case, link, case.hop.mtu);
    let side = |link: &Option<LinkSpec>, hosts: u32| {
        link.as_ref().map(|link| together(absolute(case, link, MTU), hosts))
    };
    Preset {
        name: "scenario".to_owned(),
        description: case.description.clone(),
        forward: hop(&case.hop.forward),
        ret: hop(&case.hop.ret),
        mtu: case.hop.mtu,
        // Never the default, because `can_run` has refused more.
        terminals: u8::try_from(case.network.terminals).unwrap_or(Preset::MOST_TERMINALS),
        dama: case.hop.dama.clone(),
        terrestrial: side(&case.server_side, case.network.servers),
        client_side: side(&case.client_side, case.network.clients),
    }
}

/// Returns a link whose sizes do not depend on its place: a case's refer to the whole path, a
/// preset's to the hop.
fn absolute(case: &ScenarioCase, link: &LinkSpec, mtu: u16) -> LinkSpec {
    let rtt = case.round_trip();
    let queue = match link.config(rtt, mtu).queue {
        QueueLimit::Bytes(bytes) => QueueSize::Bytes(bytes),
        QueueLimit::Packets(packets) => QueueSize::Packets(packets),
    };
    let discipline = match link.discipline {
        // The default interval is a round trip of the whole path.
        DisciplineChoice::CoDel { target, interval: None } => {
            DisciplineChoice::CoDel { target, interval: Some(rtt) }
        }
        other => other,
    };
    LinkSpec { queue, discipline, ..link.clone() }
}

/// Returns a link that stands for several, with the rate and the queue of all.
fn together(link: LinkSpec, count: u32) -> LinkSpec {
    let RateSpec::Given(Rate::Constant(rate)) = &link.rate else { return link };
    let rate = BitRate::from_bits_per_second(rate.bits_per_second().saturating_mul(count.into()));
    let queue = match link.queue {
        QueueSize::Bytes(bytes) => {
            QueueSize::Bytes(ByteCount::new(bytes.get().saturating_mul(count.into())))
        }
        QueueSize::Packets(packets) => QueueSize::Packets(packets.saturating_mul(count as usize)),
        other => other,
    };
    LinkSpec { rate: rate.into(), queue, ..link }
}
