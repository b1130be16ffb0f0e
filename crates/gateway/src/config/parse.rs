//! Converts the raw files to validated types.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use pep::admission::Quota;
use pep::config::{
    HubAddress, HubConfig, InterceptConfig, PermittedTerminal, ProxyConfig, TerminalConfig,
};
use pep::egress::Egress;
use pep::traffic::Prefix;
use slacp::{KeyPair, PublicKey};
use units::ByteCount;
use zeroize::Zeroizing;

use super::operation;
use super::policy::Choice;
use super::rate::Written;
use super::{ConfigError, Source, raw};
use crate::cpu;
use crate::keys::{KEY_FORM, PrivateKey, parse_public_key};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// The minimum that every IPv4 host accepts (RFC 1122 §3.3.2), up to a jumbo frame.
const MTU: std::ops::RangeInclusive<i64> = 576..=9216;
/// IFNAMSIZ without the terminating zero.
pub(super) const LONGEST_INTERFACE_NAME: usize = 15;

pub(super) fn terminal(source: &Source, text: &str) -> Result<TerminalConfig, ConfigError> {
    let raw: raw::Terminal = raw::read(source, text)?;
    let (rate, maximum_rate) = source.rate(Written {
        rate: raw.rate,
        initial: raw.initial_rate,
        maximum: raw.maximum_rate,
    })?;
    let operation = operation::Written {
        control: raw.control,
        state: raw.state,
        metrics: raw.metrics,
        total_memory: raw.total_memory,
        max_connections: raw.max_connections,
        keepalive: raw.keepalive,
        log: raw.log,
        maximum_rate,
        dlep: raw.dlep.map(|raw| source.dlep(raw, &rate)).transpose()?,
    };
    let mut link = source.link(rate, raw.mtu, raw.memory, raw.stream_window)?;
    let tunnel = source.tunnel(raw.tunnel, &link)?;
    let classes = source.classes(raw.class, tunnel.is_some(), &mut link)?;
    let bypass = source.bypass(raw.intercept.as_ref())?;
    let (intercept, proxy) = source.entrances(raw.intercept, raw.proxy)?;
    if tunnel.is_some() && intercept.is_none() {
        source.intercept(None)?;
    }
    let choice = Choice { split: intercept.is_some(), tunnel: tunnel.is_some() };
    Ok(TerminalConfig {
        operation: source.operation(operation)?,
        identity: source.identity(raw.private_key, raw.private_key_file)?,
        hub: source.hub_address(raw.hub)?,
        hub_key: source.public_key("hub_key", raw.hub_key)?,
        listen: raw.listen.as_deref().map(|text| source.socket_address(text)).transpose()?,
        link,
        connect_timeout: source.connect_timeout(raw.connect_timeout)?,
        transparent: raw.transparent.unwrap_or(false),
        intercept,
        proxy,
        accept: source.accept(raw.accept)?,
        tunnel,
        classes,
        policies: source.policies(bypass, raw.policy, choice)?,
    })
}

pub(super) fn hub(source: &Source, text: &str) -> Result<HubConfig, ConfigError> {
    let raw: raw::Hub = raw::read(source, text)?;
    let (rate, maximum_rate) = source.rate(Written {
        rate: raw.rate,
        initial: raw.initial_rate,
        maximum: raw.maximum_rate,
    })?;
    let operation = operation::Written {
        control: raw.control,
        state: raw.state,
        metrics: raw.metrics,
        total_memory: raw.total_memory,
        max_connections: raw.max_connections,
        keepalive: raw.keepalive,
        log: raw.log,
        maximum_rate,
        dlep: raw.dlep.map(|raw| source.dlep(raw, &rate)).transpose()?,
    };
    let mut link = source.link(rate, raw.mtu, raw.memory, raw.stream_window)?;
    link.names = true;
    let tunnel = source.tunnel(raw.tunnel, &link)?;
    let classes = source.classes(raw.class, tunnel.is_some(), &mut link)?;
    source.no_allow_loopback(raw.allow_loopback)?;
    let egress = source.egress(raw.egress)?;
    let terminals = source.terminals(raw.terminal, &egress, source.limits(raw.limits)?)?;
    if tunnel.is_some() {
        source.require_networks(&terminals)?;
    }
    let transparent = raw.transparent.unwrap_or(false);
    let needs_networks = raw.intercept.is_some() || transparent;
    if needs_networks && terminals.iter().all(|terminal| terminal.networks.is_empty()) {
        const ACCEPTED: &str = "the addresses behind a terminal, like [\"10.1.0.0/16\"], which \
                                [intercept] and `transparent` need";
        return Err(source.missing("terminal.networks", ACCEPTED));
    }
    let bypass = source.bypass(raw.intercept.as_ref())?;
    let choice = Choice { split: raw.intercept.is_some(), tunnel: tunnel.is_some() };
    Ok(HubConfig {
        operation: source.operation(operation)?,
        identity: source.identity(raw.private_key, raw.private_key_file)?,
        listen: raw.listen.as_deref().map(|text| source.socket_address(text)).transpose()?,
        link,
        connect_timeout: source.connect_timeout(raw.connect_timeout)?,
        mesh: raw.mesh.unwrap_or(false),
        transparent,
        intercept: raw.intercept.map(|raw| source.intercept(Some(raw))).transpose()?,
        terminals,
        tunnel,
        classes,
        policies: source.policies(bypass, raw.policy, choice)?,
    })
}

impl Source {
    pub(super) fn missing(&self, key: &'static str, accepted: &'static str) -> ConfigError {
        ConfigError::Missing { file: self.file.clone(), key, accepted }
    }

    pub(super) fn value(
        &self,
        key: &str,
        value: impl Display,
        problem: impl Display,
    ) -> ConfigError {
        ConfigError::Value {
            file: self.file.clone(),
            key: key.to_owned(),
            value: value.to_string(),
            problem: problem.to_string(),
        }
    }

    fn identity(
        &self,
        inline: Option<String>,
        file: Option<String>,
    ) -> Result<KeyPair, ConfigError> {
        let key = match (inline, file) {
            (Some(_), Some(file)) => {
                let problem = "`private_key` is set too: expected one of the two";
                return Err(self.value("private_key_file", quoted(&file), problem));
            }
            (None, None) => {
                return Err(self.missing("private_key_file", "a file written by `skyhop keygen`"));
            }
            (Some(text), None) => self.inline_key(&Zeroizing::new(text)),
            (None, Some(file)) => PrivateKey::read_file(&self.relative(&file)),
        };
        key.map(|key| key.pair())
            .map_err(|cause| ConfigError::Key { file: self.file.clone(), cause })
    }

    fn public_key(
        &self,
        key: &'static str,
        text: Option<String>,
    ) -> Result<PublicKey, ConfigError> {
        let text = text.ok_or_else(|| self.missing(key, KEY_FORM))?;
        parse_public_key(&text).map_err(|error| self.value(key, quoted(&text), error))
    }

    fn hub_address(&self, text: Option<String>) -> Result<HubAddress, ConfigError> {
        const ACCEPTED: &str = "an address and a UDP port, like \"hub.example.net:5900\"";
        let text = text.ok_or_else(|| self.missing("hub", ACCEPTED))?;
        let hub = HubAddress::new(text.clone());
        hub.ok_or_else(|| self.value("hub", quoted(&text), format!("expected {ACCEPTED}")))
    }

    fn socket_address(&self, text: &str) -> Result<SocketAddr, ConfigError> {
        let problem = "expected an address and a port, like \"[::]:5900\"";
        text.parse().map_err(|_| self.value("listen", quoted(text), problem))
    }

    fn link(
        &self,
        rate: slacp::Rate,
        mtu: Option<i64>,
        memory: Option<String>,
        stream_window: Option<String>,
    ) -> Result<slacp::Config, ConfigError> {
        let mut link = slacp::Config::new(rate);
        link.aes = cpu::has_aes();
        if let Some(mtu) = mtu {
            link.mtu = self.mtu(mtu)?;
        }
        link.memory = self.size("memory", memory, link.memory)?;
        let window = link.stream_window.min(link.memory);
        let text = stream_window.clone().unwrap_or_default();
        link.stream_window = self.size("stream_window", stream_window, window)?;
        if link.stream_window > link.memory {
            let problem = format!("expected at most the memory, {}", link.memory);
            return Err(self.value("stream_window", quoted(&text), problem));
        }
        Ok(link)
    }

    fn mtu(&self, mtu: i64) -> Result<u16, ConfigError> {
        let problem = format!("expected {} to {} bytes", MTU.start(), MTU.end());
        let fitting = MTU.contains(&mtu).then_some(mtu);
        fitting.and_then(|mtu| mtu.try_into().ok()).ok_or_else(|| self.value("mtu", mtu, problem))
    }

    fn size(
        &self,
        key: &'static str,
        text: Option<String>,
        default: ByteCount,
    ) -> Result<ByteCount, ConfigError> {
        Ok(self.optional_size(key, text)?.unwrap_or(default))
    }

    pub(super) fn optional_size(
        &self,
        key: &'static str,
        text: Option<String>,
    ) -> Result<Option<ByteCount>, ConfigError> {
        const LEAST: ByteCount = ByteCount::new(64_000);
        let Some(text) = text else { return Ok(None) };
        let size: ByteCount = text.parse().map_err(|e| self.value(key, quoted(&text), e))?;
        if size < LEAST {
            return Err(self.value(key, quoted(&text), format!("expected at least {LEAST}")));
        }
        Ok(Some(size))
    }

    pub(super) fn connect_timeout(&self, text: Option<String>) -> Result<Duration, ConfigError> {
        const KEY: &str = "connect_timeout";
        let Some(text) = text else { return Ok(CONNECT_TIMEOUT) };
        let timeout =
            units::parse_duration(&text).map_err(|e| self.value(KEY, quoted(&text), e))?;
        if timeout.is_zero() || timeout > LONGEST_CONNECT_TIMEOUT {
            return Err(self.value(KEY, quoted(&text), "expected more than 0 s, at most 10 min"));
        }
        Ok(timeout)
    }

    /// Interception and proxy; at least one must be configured.
    pub(super) fn entrances(
        &self,
        intercept: Option<raw::Intercept>,
        proxy: Option<raw::Proxy>,
    ) -> Result<(Option<InterceptConfig>, Option<ProxyConfig>), ConfigError> {
        let proxy = proxy.map(|raw| self.proxy(raw)).transpose()?;
        let intercept = match (intercept, &proxy) {
            (None, Some(_)) => None,
            (raw, _) => Some(self.intercept(raw)?),
        };
        Ok((intercept, proxy))
    }

    fn intercept(&self, raw: Option<raw::Intercept>) -> Result<InterceptConfig, ConfigError> {
        const KEY: &str = "intercept.interfaces";
        const ACCEPTED: &str = "the interfaces to the clients, like [\"lan0\"]";
        let raw = raw.ok_or_else(|| self.missing(KEY, ACCEPTED))?;
        let interfaces = raw.interfaces.ok_or_else(|| self.missing(KEY, ACCEPTED))?;
        if interfaces.is_empty() {
            return Err(self.value(KEY, "[]", format!("expected {ACCEPTED}")));
        }
        for name in &interfaces {
            if name.is_empty() || name.len() > LONGEST_INTERFACE_NAME || !name.is_ascii() {
                let problem = "expected the name of an interface, 1 to 15 characters";
                return Err(self.value(KEY, quoted(name), problem));
            }
        }
        let answer = self.answer("intercept.answer", raw.answer.as_deref())?;
        let own_traffic = raw.own_traffic.unwrap_or(false);
        Ok(InterceptConfig { interfaces, answer, own_traffic })
    }

    /// Destinations that pass unaccelerated.
    pub(super) fn bypass(&self, raw: Option<&raw::Intercept>) -> Result<Vec<Prefix>, ConfigError> {
        self.prefixes("intercept.bypass", raw.map_or_else(Vec::new, |raw| raw.bypass.clone()))
    }

    pub(super) fn prefixes(
        &self,
        key: &'static str,
        texts: Vec<String>,
    ) -> Result<Vec<Prefix>, ConfigError> {
        let prefix = |text: String| text.parse().map_err(|e| self.value(key, quoted(&text), e));
        texts.into_iter().map(prefix).collect()
    }

    fn terminals(
        &self,
        raw: Vec<raw::PermittedTerminal>,
        usual: &Egress,
        limits: Quota,
    ) -> Result<Vec<PermittedTerminal>, ConfigError> {
        if raw.is_empty() {
            return Err(self.missing("terminal", "at least one section [[terminal]]"));
        }
        let mut terminals: Vec<PermittedTerminal> = Vec::with_capacity(raw.len());
        for entry in raw {
            let name = entry.name.ok_or_else(|| self.missing("terminal.name", "its name"))?;
            let text = entry.key.clone().unwrap_or_default();
            let key = self.public_key("terminal.key", entry.key)?;
            if terminals.iter().any(|other| other.name == name) {
                let problem = "this name is used twice: expected another";
                return Err(self.value("terminal.name", quoted(&name), problem));
            }
            if let Some(other) = terminals.iter().find(|other| other.key == key) {
                let problem = format!("{} has the same key: expected another", other.name);
                return Err(self.value("terminal.key", quoted(&text), problem));
            }
            let networks = self.networks(entry.networks, &terminals)?;
            let own = raw::Egress { reach: entry.reach, deny: entry.deny };
            let egress = self.egress_of(usual, own)?;
            let quota = raw::Limits {
                weight: entry.weight,
                memory: entry.memory,
                max_connections: entry.max_connections,
                connections_per_second: entry.connections_per_second,
                lookups: entry.lookups,
            };
            let quota = self.quota("terminal", limits, &quota)?;
            terminals.push(PermittedTerminal { name, key, networks, egress, quota });
        }
        Ok(terminals)
    }

    /// Networks of a terminal's clients. Fails if they overlap those of `others`.
    fn networks(
        &self,
        texts: Vec<String>,
        others: &[PermittedTerminal],
    ) -> Result<Vec<Prefix>, ConfigError> {
        const KEY: &str = "terminal.networks";
        let network = |text: String| {
            let network: Prefix = text.parse().map_err(|e| self.value(KEY, quoted(&text), e))?;
            let shared = others.iter().find_map(|other| {
                let theirs = other.networks.iter().find(|theirs| theirs.overlaps(network))?;
                Some(format!(
                    "{} already has {theirs}: expected networks that do not overlap",
                    other.name
                ))
            });
            shared.map_or(Ok(network), |problem| Err(self.value(KEY, quoted(&text), problem)))
        };
        texts.into_iter().map(network).collect()
    }
}

pub(super) fn quoted(text: impl Display) -> String {
    format!("{:?}", text.to_string())
}
