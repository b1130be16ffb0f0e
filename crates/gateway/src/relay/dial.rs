//! Connecting to the destinations of streams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::SideConfig;
use pep::egress::EgressRules;
use slacp::ResetReason;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::intercept::own::OwnAddresses;
use crate::network::side_settings::SocketSettings;
use crate::network::socket_options;
use crate::relay::RelayEnd;
use crate::relay::leg::TcpLeg;
use crate::stack::{self, StackFlow};

/// Source address and packet marks of an outgoing connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DialSource {
    /// Address and port of another host to bind to; needs CAP_NET_ADMIN.
    pub(crate) source: Option<SocketAddr>,
    /// Firewall mark of the packets; needs CAP_NET_ADMIN.
    pub(crate) mark: Option<u32>,
    /// DSCP of the packets, instead of the system's default.
    pub(crate) dscp: Option<u8>,
}

/// Connects to `destination` as `caller`, within `timeout`.
///
/// # Errors
/// The system's; `TimedOut` after `timeout`.
pub(crate) async fn connect(
    destination: SocketAddr,
    caller: DialSource,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let prepare = |socket: &SockRef<'_>| {
        socket_options::choose_congestion_control(SockRef::from(&**socket));
        Ok(())
    };
    connect_prepared(destination, caller, timeout, prepare).await
}

/// Settings for connections that do not cross the hop.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) side: Arc<SideConfig>,
    /// Time limit for connecting, with all retries.
    pub(crate) timeout: Duration,
    /// Permitted destinations, by address and port.
    pub(crate) egress: EgressRules,
    /// Look-up of this machine's addresses. Without it, only loopback addresses count as its own.
    pub(crate) own: Option<OwnAddresses>,
    /// Firewall mark of the packets.
    pub(crate) mark: Option<u32>,
    /// skyhop's own TCP stack towards other machines, instead of the kernel's.
    pub(crate) stack: Option<StackDialer>,
}

/// skyhop's own TCP stack, with the look-up of this machine's addresses, which it cannot reach.
#[derive(Clone)]
pub(crate) struct StackDialer {
    pub(crate) caller: stack::StackCaller,
    pub(crate) own: OwnAddresses,
}

/// A TCP connection to a destination.
pub(crate) enum Dialled {
    Socket(TcpStream),
    Flow(StackFlow),
}

impl Dialled {
    /// Converts into a leg of a relay. `quick_ack`: disable delayed ACKs of a socket.
    pub(crate) fn into_end(self, quick_ack: bool) -> RelayEnd {
        match self {
            Self::Socket(socket) => TcpLeg::new(socket).with_quick_ack(quick_ack).into(),
            Self::Flow(flow) => flow.into(),
        }
    }
}

impl Dialer {
    /// Like [`Self::connect`], but uses skyhop's own stack if that is configured. This machine's own
    /// addresses are still reached by the kernel's TCP: packets of the stack would come from outside.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn reach(
        &self,
        destination: SocketAddr,
        source: Option<SocketAddr>,
        dscp: Option<u8>,
    ) -> io::Result<Dialled> {
        // The stack cannot reach this machine: its packets come in like those of another host.
        let stack = self.stack.as_ref().filter(|stack| {
            let address = destination.ip().to_canonical();
            !address.is_loopback() && stack.own.is_own(address) == Some(false)
        });
        let Some(stack) = stack else {
            return self.connect(destination, source, dscp).await.map(Dialled::Socket);
        };
        self.check(destination)?;
        let source = source.map(|source| source.ip());
        let flow = stack.caller.connect(destination, source, dscp, self.timeout).await;
        flow.map(Dialled::Flow)
    }

    /// Connects to `destination`, from `source` if given, with the DSCP of the client's SYN.
    ///
    /// # Errors
    /// The system's; EACCES for a prohibited destination; `TimedOut` after the time limit.
    pub(crate) async fn connect(
        &self,
        destination: SocketAddr,
        source: Option<SocketAddr>,
        dscp: Option<u8>,
    ) -> io::Result<TcpStream> {
        self.check(destination)?;
        let caller = DialSource { source, mark: self.mark, dscp };
        let prepare = |socket: &SockRef<'_>| self.side.apply(socket).map_err(|(_, error)| error);
        connect_prepared(destination, caller, self.timeout, prepare).await
    }

    /// Returns whether a destination may be this machine, by an address other than loopback. Loopback
    /// addresses are excluded, since a hub may let its terminals reach its own.
    pub(crate) fn is_own(&self, destination: IpAddr) -> bool {
        let address = destination.to_canonical();
        let own = self.own.as_ref().filter(|_| !address.is_loopback());
        own.is_some_and(|own| own.is_own(address) != Some(false))
    }

    /// Checks a destination against the egress rules; EACCES if it is prohibited.
    fn check(&self, destination: SocketAddr) -> io::Result<()> {
        let is_own = |address| self.own.as_ref().map_or(Some(false), |own| own.is_own(address));
        self.egress.check(destination, is_own).map_err(|why| {
            tracing::debug!(%destination, "refused: {why}");
            io::Error::from_raw_os_error(libc::EACCES)
        })
    }
}

async fn connect_prepared(
    destination: SocketAddr,
    caller: DialSource,
    timeout: Duration,
    prepare: impl Fn(&SockRef<'_>) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let connecting = async {
        match attempt(destination, caller, &prepare).await {
            // The kernel still holds an earlier connection with the same addresses and ports.
            // Keeping the client's address matters more than keeping its port.
            Err(error) if is_taken(&error) && caller.source.is_some() => {
                let source = caller.source.map(|source| SocketAddr::new(source.ip(), 0));
                attempt(destination, DialSource { source, ..caller }, &prepare).await
            }
            result => result,
        }
    };
    match tokio::time::timeout(timeout, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn attempt(
    destination: SocketAddr,
    caller: DialSource,
    prepare: impl Fn(&SockRef<'_>) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let socket = match destination {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    prepare(&SockRef::from(&socket))?;
    // The mark lets the connection pass the gateway's own interception.
    if let Some(mark) = caller.mark {
        SockRef::from(&socket).set_mark(mark)?;
    }
    if let Some(dscp) = caller.dscp {
        // A connection without its code point is better than no connection.
        let _ = socket_options::set_dscp(&SockRef::from(&socket), destination.is_ipv6(), dscp);
    }
    if let Some(source) = caller.source {
        socket_options::set_transparent(&SockRef::from(&socket), destination.is_ipv6())?;
        // A client may use one port for several connections.
        socket.set_reuseaddr(true)?;
        socket.bind(source)?;
    }
    // If this is cancelled just after the server has accepted, the kernel must send a RST, not a FIN.
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    let connected = socket.connect(destination).await?;
    socket_options::reset_when_closed(&connected, false);
    Ok(connected)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL))
}

/// Translates the error of a failed connection to the reset reason for the peer.
pub(crate) fn reset_reason(error: &io::Error) -> ResetReason {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => ResetReason::Refused,
        // EINVAL: a route of type blackhole. EAFNOSUPPORT: a kernel without this IP version.
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::EINVAL
            | libc::EAFNOSUPPORT,
        ) => ResetReason::Unreachable,
        Some(libc::ETIMEDOUT) => ResetReason::TimedOut,
        // bind(2) reports EADDRINUSE when no port is left, connect(2) EADDRNOTAVAIL.
        Some(
            libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EADDRNOTAVAIL
            | libc::EADDRINUSE,
        ) => ResetReason::Limit,
        Some(libc::EACCES | libc::EPERM) => ResetReason::Prohibited,
        None if error.kind() == io::ErrorKind::TimedOut => ResetReason::TimedOut,
        _ => ResetReason::Reset,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
    use os::netlink::RouteSocket;
    use pep::traffic::IpFamily;
    use tokio::net::TcpListener;

    use super::*;
    use crate::network::routing;
    use crate::testkit::{assert_reset, give_address, in_namespace, read_all};

    #[tokio::test]
    async fn a_connection_given_up_as_it_is_accepted_is_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut connecting = pin!(connect(at, DialSource::default(), Duration::from_secs(10)));
        let first = poll_fn(|context| Poll::Ready(connecting.as_mut().poll(context).is_pending()));
        assert!(first.await);
        let (mut server, _) = listener.accept().await.unwrap();
        connecting.set(connect(at, DialSource::default(), Duration::ZERO));
        assert_reset(read_all(&mut server).await);
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_ends_cleanly() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let connect = connect(at, DialSource::default(), Duration::from_secs(10));
        let (connected, accepted) = tokio::join!(connect, listener.accept());
        drop(connected.unwrap());
        assert!(read_all(&mut accepted.unwrap().0).await.unwrap().is_empty());
    }

    #[test]
    fn every_failure_has_its_reason() {
        for (code, expected) in [
            (libc::ECONNREFUSED, ResetReason::Refused),
            (libc::EHOSTUNREACH, ResetReason::Unreachable),
            (libc::ENETUNREACH, ResetReason::Unreachable),
            (libc::EINVAL, ResetReason::Unreachable),
            (libc::EAFNOSUPPORT, ResetReason::Unreachable),
            (libc::ETIMEDOUT, ResetReason::TimedOut),
            (libc::EMFILE, ResetReason::Limit),
            (libc::EADDRNOTAVAIL, ResetReason::Limit),
            (libc::EADDRINUSE, ResetReason::Limit),
            (libc::EACCES, ResetReason::Prohibited),
            (libc::ECONNRESET, ResetReason::Reset),
            (libc::EPIPE, ResetReason::Reset),
        ] {
            assert_eq!(reset_reason(&io::Error::from_raw_os_error(code)), expected);
        }
        assert_eq!(reset_reason(&io::ErrorKind::TimedOut.into()), ResetReason::TimedOut);
    }

    fn dialer(reach: &[&str]) -> Dialer {
        let reach = reach.iter().map(|text| text.parse().unwrap()).collect();
        crate::testkit::dialer(EgressRules { reach, ..EgressRules::nowhere() })
    }

    #[tokio::test]
    async fn a_destination_out_of_reach_is_prohibited_and_not_connected_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let error = dialer(&[]).connect(address, None, None).await.unwrap_err();
        assert_eq!(reset_reason(&error), ResetReason::Prohibited);
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let socket = dialer(&["127.0.0.0/8"]).connect(address, None, None).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), address);
    }

    #[test]
    fn an_address_of_this_machine_is_prohibited_unless_it_is_listed() {
        in_namespace(|| {
            give_address("lo", [192, 0, 2, 7].into());
            let own = OwnAddresses::open().unwrap();
            let check = |reach: &str, to: &str| {
                let dialer = Dialer { own: Some(own.clone()), ..dialer(&[reach]) };
                dialer.check(to.parse().unwrap()).map_err(|error| reset_reason(&error))
            };
            assert_eq!(check("0.0.0.0/0", "192.0.2.7:80"), Err(ResetReason::Prohibited));
            assert_eq!(check("0.0.0.0/0", "198.51.100.1:80"), Ok(()));
            assert_eq!(check("192.0.2.7/32", "192.0.2.7:80"), Ok(()));
        });
    }

    #[tokio::test]
    async fn a_connection_has_the_code_point_of_its_client() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = DialSource { dscp: Some(46), ..DialSource::default() };
        let address = listener.local_addr().unwrap();
        let socket = connect(address, caller, Duration::from_secs(5)).await.unwrap();
        assert_eq!(SockRef::from(&socket).tos_v4().unwrap(), 46 << 2);
    }

    /// The error of `connect` for each kind of route, and thus the reason for the client's side.
    #[test]
    fn a_route_that_leads_nowhere_makes_its_destination_unreachable() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                for (kind, expected) in [
                    (RouteType::BlackHole, ResetReason::Unreachable),
                    (RouteType::Unreachable, ResetReason::Unreachable),
                    (RouteType::Prohibit, ResetReason::Prohibited),
                ] {
                    for to in ["192.0.2.1:80", "[2001:db8::1]:80"].map(|to| to.parse().unwrap()) {
                        let _route = route_nowhere(kind, to);
                        let error =
                            connect(to, DialSource::default(), Duration::from_secs(5)).await;
                        let error = error.unwrap_err();
                        assert_eq!(reset_reason(&error), expected, "{kind:?} {to}: {error}");
                    }
                }
            });
        });
    }

    /// A route to a host, until it is dropped.
    fn route_nowhere(kind: RouteType, to: SocketAddr) -> impl Drop {
        struct Added(RouteMessage);
        impl Drop for Added {
            fn drop(&mut self) {
                let route = RouteNetlinkMessage::DelRoute(self.0.clone());
                assert!(RouteSocket::open().unwrap().remove(route).unwrap());
            }
        }
        let mut route = RouteMessage::default();
        route.header.address_family = routing::family(IpFamily::of(to.ip()));
        route.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        route.header.table = libc::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.kind = kind;
        route.attributes = vec![RouteAttribute::Destination(to.ip().into())];
        RouteSocket::open().unwrap().create(RouteNetlinkMessage::NewRoute(route.clone())).unwrap();
        Added(route)
    }

    #[tokio::test]
    async fn a_closed_port_refuses() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error =
            connect(closed, DialSource::default(), Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(reset_reason(&error), ResetReason::Refused);
    }
}
