//! Features of a gateway, a folder each. Each implements [`Service`]; [`of_hub`] and [`of_terminal`] list
//! those of a pair; a solo gateway has the proxy only.

pub(crate) mod bundles;
pub(crate) mod dlep;
pub mod enrolment;
pub(crate) mod http;
pub(crate) mod key_message;
pub(crate) mod names;
pub(crate) mod proxy;
pub(crate) mod rotation;
mod service;
pub(crate) mod tunnel;

use config::{BundlesConfig, DnsConfig, HubConfig, ProxyConfig, TerminalConfig};
use units::Instant;

use self::bundles::BundleService;
use self::dlep::DlepService;
use self::enrolment::Enrolments;
use self::http::TerminalHttp;
use self::http::hub::HubHttp;
use self::names::hub::HubResolver;
use self::names::{NameService, ResolverSockets};
use self::proxy::{ProxyListener, ProxyService, ProxyUpstream, UncarriedAction};
use self::rotation::{KeyAnnouncer, KeyListener};
pub(crate) use self::service::{
    Admitted, Config, HubSide, LearnKeys, Ready, Service, Services, SharedDevice, Surroundings,
    Uplink,
};
use self::tunnel::{HubTunnel, TerminalTunnel, Tunnel};
use crate::process::error::RunError;
use crate::relay::route::Upstreams;

/// The services of a hub.
///
/// # Errors
/// If one cannot start.
pub(crate) async fn of_hub(
    now: Instant,
    config: &HubConfig,
    names: Option<HubResolver>,
    tunnel: Option<HubTunnel>,
) -> Result<Services, RunError> {
    let http = config.http.clone().map(HubHttp::new).transpose();
    let mut services = Services::default();
    services.add(tunnel);
    services.add(config.operation.dlep.clone().map(DlepService::start).transpose()?);
    services.add(Some(Enrolments::default()));
    services.add(Some(KeyAnnouncer::new(now, config)));
    services.add(names);
    services.add(http.map_err(RunError::Certificate)?);
    services.add(start_bundles(&config.bundles).await?);
    Ok(services)
}

/// The services of a terminal. Its proxy listens already, and so does its resolver.
///
/// # Errors
/// If one cannot start.
pub(crate) async fn of_terminal(
    config: &TerminalConfig,
    proxy: Option<ProxyListener>,
    dns: Option<(ResolverSockets, DnsConfig)>,
    tunnel: Option<Tunnel>,
    upstreams: impl Fn() -> Upstreams,
) -> Result<Services, RunError> {
    let http = config.http.clone().map(|http| TerminalHttp::start(http, upstreams())).transpose();
    let http = http.map_err(RunError::Certificate)?;
    let names = dns.map(|(sockets, dns)| {
        // Connections to names may be cleartext HTTP, which the cache serves.
        NameService::start(dns, sockets, upstreams(), http.as_ref().map(TerminalHttp::shared))
    });
    let proxy = proxy.map(|proxy| {
        let Upstreams { dialer, counters, .. } = upstreams();
        let upstream = ProxyUpstream::new(proxy.settings(), dialer, counters);
        ProxyService::new(proxy, upstream, UncarriedAction::Direct)
    });
    let mut services = Services::default();
    services.add(tunnel.map(TerminalTunnel::new));
    services.add(config.operation.dlep.clone().map(DlepService::start).transpose()?);
    services.add(Some(KeyListener::default()));
    services.add(proxy);
    services.add(names);
    services.add(http);
    services.add(start_bundles(&config.bundles).await?);
    Ok(services)
}

async fn start_bundles(config: &Option<BundlesConfig>) -> Result<Option<BundleService>, RunError> {
    match config.clone() {
        Some(config) => BundleService::start(config).await,
        None => Ok(None),
    }
}

/// The proxy's listener, if one is configured.
///
/// # Errors
/// If it cannot listen.
pub(crate) async fn listen_as_proxy(
    config: &Option<ProxyConfig>,
) -> Result<Option<ProxyListener>, RunError> {
    match config.clone() {
        Some(config) => ProxyListener::listen(config).await.map(Some),
        None => Ok(None),
    }
}

/// The sockets of the resolver, and its settings with what these can do.
///
/// # Errors
/// If it cannot listen.
pub(crate) async fn open_resolver_sockets(
    dns: Option<DnsConfig>,
) -> Result<Option<(ResolverSockets, DnsConfig)>, RunError> {
    let Some(mut dns) = dns else { return Ok(None) };
    let sockets = ResolverSockets::open(&dns).await?;
    sockets.restrict_pool(&mut dns);
    Ok(Some((sockets, dns)))
}
