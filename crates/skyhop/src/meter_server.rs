//! A meter server on a host of a lab.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result};
use lab::{Lab, Node};
use tokio::sync::oneshot;

/// A running server; it stops when dropped.
pub(crate) struct Server {
    /// Its IPv4 address. It also answers on its IPv6 address and by name.
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts a server on `node` of `lab`.
    pub(crate) fn start(lab: &Lab, node: Node) -> Result<Self> {
        let any = os::any_address(meter::DEFAULT_PORT);
        let listener = lab.node(node).run(|| TcpListener::bind(any));
        let listener = listener.with_context(|| format!("cannot listen on {any} of {node}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the server's runtime")?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            tokio::select! {
                Err(error) = meter::serve(listener) => tracing::error!(%error, "server ended"),
                _ = stopped => {}
            }
        };
        let place = lab.node(node).clone();
        // The sockets it opens for clients must be on the same node.
        let body = move || match place.enter() {
            Ok(()) => runtime.block_on(serve),
            Err(error) => tracing::error!(%error, "the meter's server cannot enter its host"),
        };
        thread::Builder::new()
            .name("meter-server".into())
            .spawn(body)
            .context("cannot start the server's thread")?;
        let address = SocketAddr::from((lab.address4(node), meter::DEFAULT_PORT));
        Ok(Self { address, _stop: stop })
    }
}
