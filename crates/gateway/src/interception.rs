//! Everything that brings clients' connections to us: listeners, the nftables
//! table, rules and routes. Dropping it leaves the machine as it was.

use std::io;

use crate::config::InterceptConfig;
use crate::error::RunError;
use crate::listener::{Accept, Listener};
use crate::netfilter::{Rules, Slot, Table};
use crate::routing::{self, Routing};
use crate::rule::Version;

/// The port in printed rules; a running gateway takes any free one.
const PRINTED_PORT: u16 = 5901;

/// The way of connections to us.
pub(crate) struct Interception {
    listeners: Vec<Listener>,
    rules: Rules,
    table: Table,
    /// Kept for what dropping it does.
    _routing: Routing,
    on: bool,
}

impl Interception {
    /// Installs everything; nothing is taken over until [`Self::start`].
    ///
    /// # Errors
    /// For want of an interface, of privilege, or of kernel features.
    pub(crate) fn install(config: &InterceptConfig) -> Result<Self, RunError> {
        for name in &config.interfaces {
            if nix::net::if_::if_nametoindex(name.as_str()).is_err() {
                return Err(RunError::Interface { name: name.clone() });
            }
        }
        let listeners = bind().map_err(RunError::interception)?;
        let versions: Vec<Version> = listeners.iter().map(|l| l.port().0).collect();
        let table = Table::claim().map_err(RunError::interception)?;
        let routing = Routing::install(table.slot(), &versions).map_err(RunError::routing)?;
        let rules = rules(config, listeners.iter().map(Listener::port).collect());
        Ok(Self { listeners, rules, table, _routing: routing, on: false })
    }

    /// Whether new connections are taken over.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Takes new connections over from now on.
    pub(crate) fn start(&mut self) -> Result<(), RunError> {
        self.table.start(&self.rules).map_err(RunError::interception)?;
        self.on = true;
        Ok(())
    }

    /// Lets new connections pass by; those that we hold stay with us.
    pub(crate) fn stop(&mut self) -> Result<(), RunError> {
        self.table.stop().map_err(RunError::interception)?;
        self.on = false;
        Ok(())
    }

    /// Waits for the next connection. May be cancelled without losing one.
    pub(crate) async fn accept(&self) -> Accept {
        match self.listeners.as_slice() {
            [first, second] => tokio::select! {
                accept = first.accept() => accept,
                accept = second.accept() => accept,
            },
            [only] => only.accept().await,
            _ => std::future::pending().await,
        }
    }
}

/// The rules, routes and table that interception with `config` sets, in the
/// syntax of nft and ip, for people to read.
pub fn print_rules(config: &InterceptConfig) -> String {
    let versions = [Version::V4, Version::V6];
    let rules = rules(config, versions.map(|version| (version, PRINTED_PORT)).to_vec());
    let slot = Slot(0);
    format!(
        "# A running gateway takes the first free table and any free port.\n{}{}\n",
        routing::display(slot, &versions),
        rules.display(slot)
    )
}

fn rules(config: &InterceptConfig, listeners: Vec<(Version, u16)>) -> Rules {
    Rules { interfaces: config.interfaces.clone(), bypass: config.bypass.clone(), listeners }
}

fn bind() -> io::Result<Vec<Listener>> {
    let listeners = [Listener::bind(Version::V4)?, Listener::bind(Version::V6)?];
    Ok(listeners.into_iter().flatten().collect())
}
