//! A meter server on a host of a lab.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use lab::{Lab, Node};
use thiserror::Error;
use tokio::sync::oneshot;

/// The reason why a meter server cannot be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server cannot listen on its port.
    #[error("cannot listen on {address} of {node}: {cause}")]
    Listen {
        /// Address and port that it was to listen on.
        address: SocketAddr,
        /// The host in the lab.
        node: Node,
        /// The error of `bind(2)`.
        cause: io::Error,
    },
    /// The runtime or the thread cannot be created.
    #[error("cannot start the meter's server: {cause}")]
    Start {
        /// The error of creating it.
        cause: io::Error,
    },
}

/// A running server; it stops when dropped.
pub struct MeterServer {
    /// IPv4 address and port of the server. It also answers on its IPv6 address and by name.
    pub address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl MeterServer {
    /// Starts a server on `node` of `lab`.
    ///
    /// # Errors
    /// If the port is taken, or there is no thread for it.
    pub fn start(lab: &Lab, node: Node) -> Result<Self, ServerError> {
        let any = os::any_address(meter::DEFAULT_PORT);
        let listener = lab.node(node).run(|| TcpListener::bind(any));
        let listener =
            listener.map_err(|cause| ServerError::Listen { address: any, node, cause })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| ServerError::Start { cause })?;
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
            .map_err(|cause| ServerError::Start { cause })?;
        let address = SocketAddr::from((lab.address4(node), meter::DEFAULT_PORT));
        Ok(Self { address, _stop: stop })
    }
}
