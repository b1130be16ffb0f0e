//! Configuration of both sides of a pair: terminals, and hubs with the terminals that they permit.

use core::fmt::Display;
use std::path::Path;

use config::{
    EtcdConfig, EtcdLogin, EtcdTls, HubAddress, HubConfig, KnownHub, PermitDefaults,
    PermittedTerminal, TcpAddress, TerminalConfig, TlsFiles,
};
use pep::keys::KEY_FORM;
use slacp::{IndexShare, KeyPair, MAX_PARTS, PublicKey};

use super::hop::HopKeys;
use super::links::LinkSide;
use super::operation::OperationKeys;
use super::permits::TerminalList;
use super::policies::PolicyActions;
use super::rate::RateKeys;
use super::raw::sections;
use super::raw::values::PublicKeyText;
use super::shared::{SharedKeys, SharedSettings, shared_keys};
use super::{
    ConfigFile, KeySource, RawHub, RawTerminal, bundles, dns, egress, entrances, http, limits,
    policies,
};
use crate::FileError;
use crate::place::{KeyContext, quoted};
use crate::text::Text;

/// Maximum number of hubs of a terminal. While no hub answers, all are asked, over a link that may be
/// slow.
const MOST_HUBS: usize = 8;

pub(super) fn terminal<E: Display>(
    place: &KeyContext<'_>,
    raw: RawTerminal,
    file: &ConfigFile<'_>,
    key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<TerminalConfig, FileError> {
    let mut shared = shared_keys!(raw, LinkSide::Terminal).read(place, file, key)?;
    // A terminal resolves no names, but its hub announces its next key on a stream to a name.
    shared.link.names = true;
    let first = hub_of_terminal(place, raw.hub, raw.hub_key, raw.hub_tcp)?;
    let hubs = known_hubs(place, &shared.identity.public(), first, raw.other_hub)?;
    let bypass = entrances::bypass(raw.intercept.as_ref());
    // With neither a proxy nor bundles, only interception can bring clients' traffic.
    let nothing_else = raw.proxy.is_none() && raw.bundles.is_none();
    let needs_interception = shared.tunnel.is_some() || nothing_else;
    let (intercept, proxy) = entrances::read(place, raw.intercept, raw.proxy, needs_interception)?;
    let choice = PolicyActions { split: intercept.is_some(), tunnel: shared.tunnel.is_some() };
    let dns = raw.dns.map(|raw| dns::terminal(place, raw, intercept.is_some())).transpose()?;
    let http = raw.http.map(|raw| http::terminal(place, raw, intercept.as_ref())).transpose()?;
    let bundles = raw.bundles.map(|raw| bundles::terminal(place, raw)).transpose()?;
    shared.link.bundles = bundles.is_some();
    Ok(TerminalConfig {
        identity: shared.identity,
        hubs,
        hub_order: raw.hub_order.unwrap_or_default().into(),
        listen: shared.listen,
        link: shared.link,
        links: shared.links,
        connect_timeout: shared.connect_timeout,
        transparent: raw.transparent.unwrap_or(false),
        intercept,
        proxy,
        accept: egress::accept(place, raw.accept)?,
        dns,
        http,
        bundles,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

/// Reads the hub of the keys `hub`, `hub_key` and `hub_tcp`.
fn hub_of_terminal(
    place: &KeyContext<'_>,
    address: Option<Text<HubAddress>>,
    key: Option<Text<PublicKeyText>>,
    tcp: Option<Text<TcpAddress>>,
) -> Result<KnownHub, FileError> {
    let address = address.ok_or_else(|| place.missing_key("hub", HubAddress::FORM))?.0;
    let key = public_key(place, "hub_key", key)?;
    Ok(KnownHub { name: "hub".to_owned(), address, tcp: tcp.map(|tcp| tcp.0), key })
}

/// Reads all hubs of a terminal: the first, and the sections `[[other_hub]]`.
fn known_hubs(
    place: &KeyContext<'_>,
    own: &PublicKey,
    first: KnownHub,
    raw: Vec<sections::OtherHub>,
) -> Result<Vec<KnownHub>, FileError> {
    expect_other_key(place, "hub_key", own, &first.key)?;
    let mut hubs = vec![first];
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("other_hub").within(index);
        let missing = || place.missing_key("address", HubAddress::FORM);
        let address = raw.address.ok_or_else(missing)?.0;
        let name = raw.name.unwrap_or_else(|| format!("hub-{}", index + 2));
        let is_new = hubs.iter().all(|other| other.name != name);
        place.check(is_new, "name", quoted(&name), "a name that no earlier hub has")?;
        let key = public_key(&place, "key", raw.key)?;
        expect_other_key(&place, "key", own, &key)?;
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

/// Checks that a hub's key is not the terminal's own, to which no hub would answer.
fn expect_other_key(
    place: &KeyContext<'_>,
    name: &str,
    own: &PublicKey,
    key: &PublicKey,
) -> Result<(), FileError> {
    if own == key {
        let problem = "this is the terminal's own public key: expected the hub's, which \
                       `skyhop keygen` printed there";
        return Err(place.unreadable(name, problem));
    }
    Ok(())
}

pub(super) fn hub<E: Display>(
    place: &KeyContext<'_>,
    raw: RawHub,
    file: &ConfigFile<'_>,
    key: impl Fn(KeySource) -> Result<KeyPair, E>,
) -> Result<HubConfig, FileError> {
    let identity_until = raw.key_until.map(|end| end.0);
    let next_key_file = raw.next_key_file.as_deref();
    let next_identity = next_identity(place, next_key_file, identity_until.is_some(), &key)?;
    let mut shared = shared_keys!(raw, LinkSide::Hub).read(place, file, &key)?;
    let dns = raw.dns.map(|raw| dns::hub(place, raw)).transpose()?;
    (shared.link.names, shared.link.questions) = (true, dns.is_some());
    let http = raw.http.map(|raw| http::hub(place, raw)).transpose()?;
    shared.link.exchanges = http.is_some();
    egress::no_allow_loopback(place, raw.allow_loopback)?;
    let defaults = permit_defaults(place, raw.limits, raw.egress, raw.carrier)?;
    let permits = raw.permits.map(|directory| place.folder().locate(Path::new(&directory)));
    let etcd = raw.etcd.map(|raw| etcd(&place.within("etcd"), raw)).transpose()?;
    let elsewhere = permits.is_some() || etcd.is_some();
    if raw.terminal.is_empty() && !elsewhere {
        return Err(place.missing_key("terminal", TERMINAL));
    }
    let terminals = terminals(place, raw.terminal, &defaults, &shared, next_identity.as_ref())?;
    let bundles = |raw| bundles::hub(place, raw, &terminals, elsewhere);
    let bundles = raw.bundles.map(bundles).transpose()?;
    shared.link.bundles = bundles.is_some();
    shared.link.index_share = raw.shared_address.map_or(IndexShare::WHOLE, |share| share.0);
    let transparent = raw.transparent.unwrap_or(false);
    // Terminals from permits or etcd may have the networks.
    let needs_networks = !elsewhere && (raw.intercept.is_some() || transparent);
    check_networks(place, &terminals, needs_networks)?;
    let bypass = entrances::bypass(raw.intercept.as_ref());
    let choice = PolicyActions { split: raw.intercept.is_some(), tunnel: shared.tunnel.is_some() };
    Ok(HubConfig {
        identity: shared.identity,
        next_identity,
        identity_until,
        listen: shared.listen,
        listen_tcp: raw.listen_tcp.map(|address| address.0.0),
        tls: tls(place, raw.listen_tcp.is_some(), raw.listen_tcp_certificate, raw.listen_tcp_key)?,
        workers: workers(place, raw.workers)?,
        link: shared.link,
        links: shared.links,
        connect_timeout: shared.connect_timeout,
        transparent,
        mesh: raw.mesh.unwrap_or(false),
        dns,
        http,
        bundles,
        intercept: raw.intercept.map(|raw| entrances::intercept(place, raw)).transpose()?,
        terminals,
        permits,
        etcd,
        defaults,
        operation: shared.operation,
        tunnel: shared.tunnel,
        classes: shared.classes,
        policies: policies::read(place, bypass, raw.policy, choice)?,
    })
}

const TERMINAL: &str = "at least one section [[terminal]], `permits` or [etcd]";

/// Reads the settings of terminals that do not have their own.
fn permit_defaults(
    place: &KeyContext<'_>,
    limits: Option<sections::Limits>,
    egress: Option<sections::Egress>,
    name: Option<String>,
) -> Result<PermitDefaults, FileError> {
    Ok(PermitDefaults {
        volume: limits::usual_volume(place, limits.as_ref())?,
        egress: egress::usual(place, egress)?,
        quota: limits::usual(place, limits)?,
        carrier: carrier(place, name)?,
    })
}

/// Reads the sections `[[terminal]]`.
fn terminals(
    place: &KeyContext<'_>,
    raw: Vec<sections::PermittedTerminal>,
    defaults: &PermitDefaults,
    shared: &SharedSettings,
    next_identity: Option<&KeyPair>,
) -> Result<Vec<PermittedTerminal>, FileError> {
    let links = Some(&shared.links[..]);
    let tunnel = shared.tunnel.is_some();
    let mut list =
        TerminalList::new(defaults, &shared.link.rate, Some(&shared.classes), links, tunnel);
    // First, so that no terminal can be given a key of the hub.
    list.reserve_keys_of_hub(&shared.identity, next_identity);
    for (index, raw) in raw.into_iter().enumerate() {
        list.add(&place.within("terminal").within(index), raw)?;
    }
    Ok(list.terminals)
}

/// Reads the section `[etcd]`.
fn etcd(place: &KeyContext<'_>, raw: sections::Etcd) -> Result<EtcdConfig, FileError> {
    let members: Vec<HubAddress> = raw.members.into_iter().map(|member| member.0).collect();
    let expected = "the client addresses of its members, like [\"127.0.0.1:2379\"]";
    place.check((1..=MOST_MEMBERS).contains(&members.len()), "members", members.len(), expected)?;
    let prefix = raw.prefix.unwrap_or_else(|| EtcdConfig::PREFIX.to_owned());
    let good = prefix.ends_with('/') && prefix.bytes().all(|byte| byte.is_ascii_graphic());
    place.check(
        good,
        "prefix",
        quoted(&prefix),
        "the beginning of keys, like \"/skyhop/terminals/\"",
    )?;
    let at = |path: String| place.folder().locate(Path::new(&path));
    let needs = |given: bool, name: &str, why: &str| match given {
        true => Ok(()),
        false => Err(place.missing_key(name, why)),
    };
    let authorities = raw.authorities;
    let certificate = raw.certificate;
    let key = raw.key;
    let is_plain = authorities.is_none() && certificate.is_none() && key.is_none();
    needs(raw.tls || is_plain, "tls", "true, as there are certificates")?;
    needs(key.is_none() || certificate.is_some(), "certificate", "the certificate of the key")?;
    needs(certificate.is_none() || key.is_some(), "key", "the key of the certificate")?;
    let identity = certificate.zip(key);
    let identity =
        identity.map(|(certificate, key)| TlsFiles { certificate: at(certificate), key: at(key) });
    let tls = raw.tls.then(|| EtcdTls { authorities: authorities.map(at), identity });
    let user = raw.user;
    let file = raw.password_file;
    needs(file.is_none() || user.is_some(), "user", "whose password it is")?;
    needs(user.is_none() || file.is_some(), "password_file", "the file with the user's password")?;
    let login = user.zip(file).map(|(user, file)| EtcdLogin { user, password_file: at(file) });
    Ok(EtcdConfig { members, prefix, tls, login })
}

/// Maximum number of members of an etcd.
const MOST_MEMBERS: usize = 16;

/// Reads the private key that `next_key_file` names; it is needed if the present key has an end.
fn next_identity<E: Display>(
    place: &KeyContext<'_>,
    file: Option<&str>,
    has_end: bool,
    key: impl Fn(KeySource) -> Result<KeyPair, E>,
) -> Result<Option<KeyPair>, FileError> {
    const NAME: &str = "next_key_file";
    let file = match file {
        Some(file) => file,
        None if has_end => {
            return Err(place.missing_key(NAME, "the file with the key after `key_until`"));
        }
        None => return Ok(None),
    };
    let source = KeySource::File(place.folder().locate(Path::new(file)));
    key(source).map(Some).map_err(|error| place.unreadable(NAME, error))
}

pub(super) fn public_key(
    place: &KeyContext<'_>,
    name: &str,
    key: Option<Text<PublicKeyText>>,
) -> Result<PublicKey, FileError> {
    key.map(|key| key.0.0).ok_or_else(|| place.missing_key(name, KEY_FORM))
}

/// Reads the files of the keys `listen_tcp_certificate` and `listen_tcp_key`, which go together.
fn tls(
    place: &KeyContext<'_>,
    listens: bool,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<Option<TlsFiles>, FileError> {
    let at = |path: String| place.folder().locate(Path::new(&path));
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) if !listens => {
            Err(place.missing_key("listen_tcp", "as there is a certificate"))
        }
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: at(certificate), key: at(key) }))
        }
        (None, Some(_)) => {
            Err(place.missing_key("listen_tcp_certificate", "the certificate of the key"))
        }
        (Some(_), None) => Err(place.missing_key("listen_tcp_key", "the key of the certificate")),
    }
}

/// Checks the number of a hub's threads.
fn workers(place: &KeyContext<'_>, workers: Option<i64>) -> Result<u8, FileError> {
    let workers = workers.unwrap_or(1);
    let permitted = (1..=i64::from(MAX_PARTS)).contains(&workers);
    place.check(permitted, "workers", workers, format!("1 to {MAX_PARTS}"))?;
    Ok(workers as u8)
}

/// Checks the name of a forward link.
pub(super) fn carrier(
    place: &KeyContext<'_>,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    name_of(place, "carrier", "the name of a forward link, like \"ku-1\"", name)
}

/// Checks that a name which terminals share is not blank.
pub(super) fn name_of(
    place: &KeyContext<'_>,
    key: &str,
    expected: &'static str,
    name: Option<String>,
) -> Result<Option<String>, FileError> {
    let named = name.as_ref().is_none_or(|name| !name.trim().is_empty());
    let written = quoted(name.as_deref().unwrap_or_default());
    place.check(named, key, written, expected)?;
    Ok(name)
}

/// Checks that at least one terminal has networks, if `any` is set because other settings need them.
fn check_networks(
    place: &KeyContext<'_>,
    terminals: &[PermittedTerminal],
    any: bool,
) -> Result<(), FileError> {
    if any && terminals.iter().all(|terminal| terminal.networks.is_empty()) {
        const EXPECTED: &str = "the addresses behind a terminal, like [\"10.1.0.0/16\"], which \
                                [intercept] and `transparent` need";
        return Err(place.missing_key("terminal.0.networks", EXPECTED));
    }
    Ok(())
}
