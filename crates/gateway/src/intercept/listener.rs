//! Listeners for intercepted connections (TPROXY).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use config::SideConfig;
use pep::traffic::IpFamily;
use slacp::StreamOpening;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::network::side_settings::SocketSettings;
use crate::network::socket_options;

/// Accept queue of a listener. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A listener for one IP version on a loopback port, which only `tproxy` can reach.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A client's connection with its original destination.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) socket: TcpStream,
    pub(crate) open: StreamOpening,
}

/// Result of [`Listener::accept`], once a connection has arrived.
#[derive(Debug)]
pub(crate) enum AcceptOutcome {
    Connection(AcceptedConnection),
    /// The connection has already ended, or was not redirected here.
    Nothing,
    /// The process or the system is out of descriptors or memory: retry later.
    Exhausted(io::Error),
}

impl Listener {
    /// Binds a listener to a free port.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; EAFNOSUPPORT or EADDRNOTAVAIL if the machine lacks
    /// this IP version.
    pub(crate) fn bind(version: IpFamily) -> io::Result<Self> {
        let (domain, address) = match version {
            IpFamily::V4 => (Domain::IPV4, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            IpFamily::V6 => (Domain::IPV6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
        };
        let socket = listen(domain, SocketAddr::new(address, 0))?;
        let socket = TcpListener::from_std(socket.into())?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Applies a side's TCP settings, which accepted connections inherit.
    pub(crate) fn prepare(&self, side: &SideConfig) {
        // Cannot fail: the settings were tried on another socket.
        let _ = side.apply(&SockRef::from(&self.socket));
    }

    /// IP version and loopback port of the listener.
    pub(crate) fn port(&self) -> (IpFamily, u16) {
        (IpFamily::of(self.address.ip()), self.address.port())
    }

    /// Waits for the next connection. Errors do not end the listener.
    pub(crate) async fn accept(&self) -> AcceptOutcome {
        let (socket, source) = match self.socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_exhaustion(&error) => return AcceptOutcome::Exhausted(error),
            Err(_) => return AcceptOutcome::Nothing,
        };
        match socket.local_addr() {
            // A connection to the listener's own address was not redirected. Carrying it would make the
            // far side connect to itself.
            Ok(destination) if destination != self.address => {
                let open = StreamOpening {
                    destination,
                    source,
                    dscp: socket_options::dscp_of_syn(&socket),
                };
                AcceptOutcome::Connection(AcceptedConnection { socket, open })
            }
            _ => {
                socket_options::reset(socket);
                AcceptOutcome::Nothing
            }
        }
    }
}

fn listen(domain: Domain, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if domain == Domain::IPV6 {
        // IPv4 has a listener of its own.
        socket.set_only_v6(true)?;
    }
    socket_options::set_transparent(&SockRef::from(&socket), domain == Domain::IPV6)?;
    socket_options::choose_congestion_control(SockRef::from(&socket));
    // For the code point of the SYN, with which the far side connects.
    os::socket::save_syns(&socket)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Returns whether descriptors or memory have run out.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::testkit::in_namespace;

    #[test]
    fn only_a_shortage_is_a_reason_to_wait() {
        let is = |code| is_exhaustion(&io::Error::from_raw_os_error(code));
        assert!([libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].into_iter().all(is));
        assert!(![libc::ECONNABORTED, libc::EPERM, libc::EAGAIN].into_iter().any(is));
        assert!(!is_exhaustion(&io::ErrorKind::OutOfMemory.into()));
    }

    #[test]
    fn a_connection_to_the_listener_itself_is_reset() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                for version in IpFamily::BOTH {
                    let listener = Listener::bind(version).unwrap();
                    assert_eq!(listener.port(), (version, listener.address.port()));
                    let mut client = TcpStream::connect(listener.address).await.unwrap();
                    assert!(matches!(listener.accept().await, AcceptOutcome::Nothing));
                    let end = client.read(&mut [0]).await.unwrap_err();
                    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
                }
            });
        });
    }
}
