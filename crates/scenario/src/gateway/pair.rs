//! Both sides of a pair: terminals, and hubs with the terminals that they permit.

use core::fmt::Display;
use std::collections::{BTreeMap, BTreeSet};

use pep::admission::Quota;
use pep::config::{HubAddress, HubConfig, KnownHub, PermittedTerminal, TerminalConfig};
use pep::egress::Egress;
use pep::keys::KEY_FORM;
use pep::traffic::{Prefix, PrefixMap};
use slacp::{KeyPair, PublicKey};

use super::hop::Hop;
use super::operation::Operation;
use super::policies::Choice;
use super::rate::Rates;
use super::raw::sections;
use super::raw::values::Key;
use super::shared::{SharedKeys, shared_keys};
use super::{
    ConfigFile, KeySource, RawHub, RawTerminal, egress, entrances, guarantees, limits, policies,
};
use crate::FileError;
use crate::place::{Place, quoted};
use crate::text::Text;

/// The most hubs of a terminal. While none answers, all are asked, over a link that may be slow.
const MOST_HUBS: usize = 8;

pub(super) fn terminal<E: Display>(
    place: &Place<'_>,
    raw: RawTerminal,
    file: &ConfigFile<'_>,
    key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<TerminalConfig, FileError> {
    let shared = shared_keys!(raw).read(place, file, key)?;
    let first = hub_of_terminal(place, raw.hub, raw.hub_key, raw.hub_tcp)?;
    let hubs = known_hubs(place, first, raw.other_hub)?;
    let bypass = entrances::bypass(raw.intercept.as_ref());
    let needs_interception = shared.tunnel.is_some() || raw.proxy.is_none();
    let (intercept, proxy) = entrances::read(place, raw.intercept, raw.proxy, needs_interception)?;
    let choice = Choice { split: intercept.is_some(), tunnel: shared.tunnel.is_some() };
    Ok(TerminalConfig {
        identity: shared.identity,
        hubs,
        hub_order: raw.hub_order.unwrap_or_default().into(),
        listen: shared.listen,
        link: shared.link,
        connect_timeout: shared.connect_timeout,
        transparent: raw.transparent.unwrap_or(false),
        intercept,
        proxy,
        accept: egress::accept(place, raw.accept)?,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

/// The hub of the keys `hub`, `hub_key` and `hub_tcp`.
fn hub_of_terminal(
    place: &Place<'_>,
    address: Option<Text<HubAddress>>,
    key: Option<Text<Key>>,
    tcp: Option<Text<HubAddress>>,
) -> Result<KnownHub, FileError> {
    let address = address.ok_or_else(|| place.missing("hub", HubAddress::FORM))?.0;
    let key = public_key(place, "hub_key", key)?;
    Ok(KnownHub { name: "hub".to_owned(), address, tcp: tcp.map(|tcp| tcp.0), key })
}

/// All hubs of a terminal: the first, and the sections `[[other_hub]]`.
fn known_hubs(
    place: &Place<'_>,
    first: KnownHub,
    raw: Vec<sections::OtherHub>,
) -> Result<Vec<KnownHub>, FileError> {
    let mut hubs = vec![first];
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("other_hub").within(index);
        let missing = || place.missing("address", HubAddress::FORM);
        let address = raw.address.ok_or_else(missing)?.0;
        let name = raw.name.unwrap_or_else(|| format!("hub-{}", index + 2));
        let is_new = hubs.iter().all(|other| other.name != name);
        place.check(is_new, "name", quoted(&name), "a name that no earlier hub has")?;
        let key = public_key(&place, "key", raw.key)?;
        if let Some(other) = hubs.iter().find(|other| other.key == key) {
            let problem = format!("{} has the same key: expected that of another hub", other.name);
            return Err(place.unreadable("key", problem));
        }
        hubs.push(KnownHub { name, address, tcp: raw.tcp.map(|tcp| tcp.0), key });
    }
    let count = hubs.len();
    let expected = format!("at most {MOST_HUBS} hubs");
    place.check(count <= MOST_HUBS, "other_hub", format!("{count} hubs"), &expected)?;
    Ok(hubs)
}

pub(super) fn hub<E: Display>(
    place: &Place<'_>,
    raw: RawHub,
    file: &ConfigFile<'_>,
    key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<HubConfig, FileError> {
    let mut shared = shared_keys!(raw).read(place, file, key)?;
    shared.link.names = true;
    egress::no_allow_loopback(place, raw.allow_loopback)?;
    let usual = egress::usual(place, raw.egress)?;
    let limits = limits::usual(place, raw.limits)?;
    let usual_carrier = carrier(place, raw.carrier)?;
    let terminals = permitted(place, raw.terminal, &usual, limits, usual_carrier.as_ref())?;
    check_guarantees(place, &shared.link.rate, &terminals)?;
    let transparent = raw.transparent.unwrap_or(false);
    let needs_networks = raw.intercept.is_some() || transparent;
    check_networks(place, &terminals, shared.tunnel.is_some(), needs_networks)?;
    let bypass = entrances::bypass(raw.intercept.as_ref());
    let choice = Choice { split: raw.intercept.is_some(), tunnel: shared.tunnel.is_some() };
    Ok(HubConfig {
        identity: shared.identity,
        listen: shared.listen,
        listen_tcp: raw.listen_tcp.map(|address| address.0.0),
        link: shared.link,
        connect_timeout: shared.connect_timeout,
        transparent,
        mesh: raw.mesh.unwrap_or(false),
        intercept: raw.intercept.map(|raw| entrances::intercept(place, raw)).transpose()?,
        terminals,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

fn public_key(
    place: &Place<'_>,
    name: &str,
    key: Option<Text<Key>>,
) -> Result<PublicKey, FileError> {
    key.map(|key| key.0.0).ok_or_else(|| place.missing(name, KEY_FORM))
}

/// The sections `[[terminal]]`.
fn permitted(
    place: &Place<'_>,
    raw: Vec<sections::PermittedTerminal>,
    usual: &Egress,
    limits: Quota,
    usual_carrier: Option<&String>,
) -> Result<Vec<PermittedTerminal>, FileError> {
    if raw.is_empty() {
        return Err(place.missing("terminal", "at least one section [[terminal]]"));
    }
    let mut terminals: Vec<PermittedTerminal> = Vec::with_capacity(raw.len());
    let (mut names, mut keys, mut taken) = (BTreeSet::new(), BTreeMap::new(), Taken::default());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("terminal").within(index);
        let quota = limits::of_terminal(&place, limits, &raw)?;
        let name = raw.name;
        place.check(
            names.insert(name.clone()),
            "name",
            quoted(&name),
            "a name that no earlier terminal has",
        )?;
        let key = public_key(&place, "key", raw.key)?;
        if let Some(other) = keys.insert(key, name.clone()) {
            let problem = format!("{other} has the same key: expected another");
            return Err(place.unreadable("key", problem));
        }
        let networks = networks(&place, &name, raw.networks, &mut taken)?;
        let egress = egress::of_terminal(&place, usual, raw.reach, raw.deny)?;
        let carrier = carrier(&place, raw.carrier)?.or_else(|| usual_carrier.cloned());
        terminals.push(PermittedTerminal { name, key, networks, egress, carrier, quota });
    }
    Ok(terminals)
}

/// Checks that the hub's rate carries the guarantees of its terminals. Where each session has a
/// measured rate of its own, nothing can be guaranteed.
fn check_guarantees(
    place: &Place<'_>,
    rate: &slacp::Rate,
    terminals: &[PermittedTerminal],
) -> Result<(), FileError> {
    let guaranteed = |terminal: &PermittedTerminal| terminal.quota.share.guaranteed;
    let first = terminals.iter().position(|terminal| guaranteed(terminal).is_some());
    if let (slacp::Rate::Auto { .. }, Some(index)) = (rate, first) {
        let place = place.within("terminal").within(index);
        let rate = guaranteed(&terminals[index]).unwrap_or_default();
        let expected = "no such key, or a `rate` of the hub other than \"auto\"";
        return Err(place.wrong("guaranteed", quoted(rate), expected));
    }
    let guarantees = terminals.iter().map(|terminal| (&terminal.name, guaranteed(terminal)));
    guarantees::carried(place, rate, "terminal", guarantees)
}

/// The name of a forward link.
fn carrier(place: &Place<'_>, name: Option<String>) -> Result<Option<String>, FileError> {
    let named = name.as_ref().is_none_or(|name| !name.trim().is_empty());
    let written = quoted(name.as_deref().unwrap_or_default());
    place.check(named, "carrier", written, "the name of a forward link, like \"ku-1\"")?;
    Ok(name)
}

/// Networks of earlier terminals, and whose they are.
type Taken = PrefixMap<String>;

/// Networks of the clients of the terminal `name`. Fails if they overlap those that are `taken`,
/// which then include them.
fn networks(
    place: &Place<'_>,
    name: &str,
    networks: Vec<Text<Prefix>>,
    taken: &mut Taken,
) -> Result<Vec<Prefix>, FileError> {
    for (index, Text(network)) in networks.iter().enumerate() {
        if let Some((theirs, other)) = taken.overlapping(*network) {
            let expected = format!("networks that do not overlap: {other} already has {theirs}");
            return Err(place.wrong(&format!("networks.{index}"), quoted(network), expected));
        }
    }
    let networks: Vec<Prefix> = networks.into_iter().map(|network| network.0).collect();
    for network in &networks {
        taken.insert(*network, name.to_owned());
    }
    Ok(networks)
}

/// Checks that terminals have the `networks` that other settings need. The tunnel drops packets of
/// a terminal without networks, so it needs those of every terminal.
fn check_networks(
    place: &Place<'_>,
    terminals: &[PermittedTerminal],
    tunnel: bool,
    any: bool,
) -> Result<(), FileError> {
    let bare = terminals.iter().position(|terminal| terminal.networks.is_empty());
    if let Some(index) = bare.filter(|_| tunnel) {
        let name = &terminals[index].name;
        let expected =
            format!("the addresses behind {name}, like [\"10.1.0.0/16\"], which [tunnel] needs");
        return Err(place.missing(&format!("terminal.{index}.networks"), &expected));
    }
    if any && terminals.iter().all(|terminal| terminal.networks.is_empty()) {
        const EXPECTED: &str = "the addresses behind a terminal, like [\"10.1.0.0/16\"], which \
                                [intercept] and `transparent` need";
        return Err(place.missing("terminal.0.networks", EXPECTED));
    }
    Ok(())
}
