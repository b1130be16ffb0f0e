//! Addresses and interfaces that this machine may not have yet. Modems boot later, point-to-point devices
//! exist only while they are connected, and IPv6 addresses are checked for duplicates first. A gateway
//! starts without them.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Accept queue of a listener, the same as Tokio's.
const BACKLOG: i32 = 1024;

/// Binds a socket to `address`. If no interface has the address yet, the socket works once one has it
/// (`IP_FREEBIND`, ip(7)).
///
/// # Errors
/// The system's, such as `AddrInUse`.
pub(crate) fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match socket.bind(&address.into()) {
        // A refused wildcard address has another reason, such as a kernel without IPv6.
        Err(error) if is_absence(&error) && !address.ip().is_unspecified() => {
            match address {
                SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
                SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
            }
            socket.bind(&address.into())
        }
        bound => bound,
    }
}

/// Listens on TCP `address`, now or once an interface has it. Logs if it is absent.
///
/// # Errors
/// The system's, such as `AddrInUse`.
///
/// # Panics
/// Outside a Tokio runtime.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    warn_of_address(address);
    TcpListener::from_std(try_listen(address)?)
}

/// Like [`listen`], without a runtime and without logging.
///
/// # Errors
/// The system's, such as `AddrInUse`.
pub(crate) fn try_listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Like Tokio's listeners: a restart must not wait for earlier connections in TIME-WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    bind(&socket, address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Returns whether no interface of this machine has the address.
pub(crate) fn is_absent(address: IpAddr) -> bool {
    !address.is_unspecified()
        && UdpSocket::bind((address, 0)).is_err_and(|error| is_absence(&error))
}

/// Logs a warning if no interface has the address yet.
pub(crate) fn warn_of_address(address: SocketAddr) {
    if is_absent(address.ip()) {
        tracing::warn!(
            "no interface has the address {}: {address} is served once one has it",
            address.ip()
        );
    }
}

/// Returns the interfaces that do not exist.
pub(crate) fn absent_interfaces(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| if_nametoindex(name.as_str()).is_err())
}

/// Logs the interfaces of the configuration key `key` that do not exist yet. Rules match interfaces by name,
/// so they take effect once the interface exists.
pub(crate) fn warn_of_interfaces(key: &str, names: &[String]) {
    for name in absent_interfaces(names) {
        tracing::warn!("{key}: there is no interface {name:?} yet; it is used once it exists");
    }
}

fn is_absence(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EADDRNOTAVAIL)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use os::netlink::RouteSocket;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::testkit::in_namespace;

    fn with_runtime(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work);
    }

    #[test]
    fn what_listens_at_an_address_is_reached_once_an_interface_has_it() {
        in_namespace(|| {
            with_runtime(async {
                for (address, length) in [("192.0.2.7", 24), ("2001:db8::7", 64)] {
                    let ip: IpAddr = address.parse().unwrap();
                    assert!(is_absent(ip));
                    let listener = listen(SocketAddr::new(ip, 4000)).unwrap();
                    RouteSocket::open().unwrap().add_address("lo", ip, length).unwrap();
                    assert!(!is_absent(ip));
                    // The kernel adds the route to an IPv6 address a moment later.
                    let mut client = loop {
                        match TcpStream::connect((ip, 4000)).await {
                            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => {
                                tokio::task::yield_now().await;
                            }
                            connected => break connected.unwrap(),
                        }
                    };
                    let (mut served, _) = listener.accept().await.unwrap();
                    served.write_all(b"here").await.unwrap();
                    let mut said = [0; 4];
                    client.read_exact(&mut said).await.unwrap();
                    assert_eq!(&said, b"here");
                }
            });
        });
    }

    #[test]
    fn a_port_in_use_is_an_error_also_at_an_address_that_is_absent() {
        in_namespace(|| {
            with_runtime(async {
                let address = SocketAddr::from(([192, 0, 2, 7], 4000));
                let _first = listen(address).unwrap();
                assert_eq!(listen(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            });
        });
    }

    #[test]
    fn wildcard_and_own_addresses_are_never_absent() {
        assert!(!is_absent(Ipv4Addr::UNSPECIFIED.into()) && !is_absent(Ipv4Addr::LOCALHOST.into()));
        let names = ["lo", "no-such"].map(str::to_owned);
        assert_eq!(absent_interfaces(&names).collect::<Vec<_>>(), ["no-such"]);
    }
}
