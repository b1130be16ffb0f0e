//! The proxy as a service.

use std::future::Future;
use std::pin::Pin;

use super::{ProxyClient, ProxyListener, ProxyUpstream, carry, reject};
use crate::figures::connections::ArrivingConnection;
use crate::process::error::RunError;
use crate::services::{Config, Service, Surroundings};

/// Treatment of clients while new connections are not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UncarriedAction {
    Direct,
    Refused,
}

/// The proxy with its upstream, and the client accepted last.
pub(crate) struct ProxyService {
    proxy: ProxyListener,
    upstream: ProxyUpstream,
    otherwise: UncarriedAction,
    client: Option<ProxyClient>,
}

impl ProxyService {
    pub(crate) fn new(
        proxy: ProxyListener,
        upstream: ProxyUpstream,
        otherwise: UncarriedAction,
    ) -> Self {
        Self { proxy, upstream, otherwise, client: None }
    }
}

impl Service for ProxyService {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.client = Some(self.proxy.next().await) })
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        let Some(client) = self.client.take() else { return };
        let upstream = self.upstream.clone();
        let is_admitted = role.counters.live.admits(role.now, client.address());
        let is_carried = is_admitted && role.uplink.is_open;
        if !is_carried && self.otherwise == UncarriedAction::Refused {
            role.relays.spawn(reject(client, upstream));
            return;
        }
        let session = role.uplink.session.filter(|_| is_carried);
        let hop = role.hop.cloned().zip(session);
        let arriving = ArrivingConnection::new(role.counters.clone(), client.address());
        role.relays.spawn(carry(client, hop, upstream, arriving));
    }

    fn configure(&mut self, _: &mut Surroundings<'_>, config: Config<'_>) -> Result<(), RunError> {
        if let Config::Solo { config, dialer } = config {
            self.proxy.prepare(&config.lan);
            self.upstream = self.upstream.with_dialer(dialer.clone(), config.lan.quick_ack);
        }
        Ok(())
    }
}
