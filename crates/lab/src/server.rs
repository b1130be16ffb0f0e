//! Services on `server`: an HTTP server with test objects (port 80) and an echo service (port 7),
//! in one thread of the lab.

mod echo;
mod http;
mod object;

pub use object::TestObject;

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::NetNs;
use crate::start_error::StartError;

const HTTP_PORT: u16 = 80;
const ECHO_PORT: u16 = 7;

/// The running services. Dropping it stops them.
pub(crate) struct Services {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Services {
    /// Starts the services in the namespace `server`. They accept connections once this returns.
    pub(crate) fn start(server: &NetNs) -> Result<Self, StartError> {
        let (stop, stopped) = oneshot::channel();
        // Has room for the only message, so the thread never waits for its reader.
        let (ready, started) = mpsc::sync_channel(1);
        let server = server.clone();
        let body = move || match listen(&server) {
            Ok((runtime, http, echo)) => {
                let _ = ready.send(Ok(()));
                // No message comes: dropping the sender ends the wait.
                runtime.block_on(serve(http, echo, async { drop(stopped.await) }));
                // Does not wait for the digest of a huge object.
                runtime.shutdown_background();
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let refused = |cause| StartError::Service { port: HTTP_PORT, cause };
        let thread =
            thread::Builder::new().name("skyhop-server".into()).spawn(body).map_err(refused)?;
        started.recv().unwrap_or_else(|_| Err(refused(io::ErrorKind::Other.into())))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves the thread to `server` for good and listens there.
fn listen(server: &NetNs) -> Result<(Runtime, TcpListener, TcpListener), StartError> {
    let refused = |port| move |cause| StartError::Service { port, cause };
    // Sockets belong to the namespace of the thread that opens them.
    server.enter().map_err(refused(HTTP_PORT))?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(refused(HTTP_PORT))?;
    let bind = |port| TcpListener::bind(os::any_address(port));
    let http = runtime.block_on(bind(HTTP_PORT)).map_err(refused(HTTP_PORT))?;
    let echo = runtime.block_on(bind(ECHO_PORT)).map_err(refused(ECHO_PORT))?;
    Ok((runtime, http, echo))
}

async fn serve(http: TcpListener, echo: TcpListener, stopped: impl Future<Output = ()>) {
    tokio::spawn(http::serve(http));
    tokio::spawn(echo::serve(echo));
    stopped.await;
}
