//! The meter's server on the host `server`.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result};
use lab::{Lab, Node};
use tokio::sync::oneshot;

/// A running server; it stops when dropped.
pub(crate) struct Server {
    /// Where clients find it.
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts a server in `lab`.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let address = SocketAddr::from((lab.address4(Node::Server), meter::DEFAULT_PORT));
        // The listener stays in the namespace that it was made in, and so do
        // the connections it accepts.
        let listener = lab.node(Node::Server).run(|| TcpListener::bind(address));
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the server's runtime")?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            tokio::select! {
                Err(error) = meter::serve(listener) => tracing::error!(%error, "server ended"),
                _ = stopped => {}
            }
        };
        thread::Builder::new()
            .name("meter-server".into())
            .spawn(move || runtime.block_on(serve))
            .context("cannot start the server's thread")?;
        Ok(Self { address, _stop: stop })
    }
}
