//! Sockets on the modem's link: multicast datagrams for DLEP signals (RFC 8175 §7.1), and the TCP
//! connection.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use pep::dlep::PORT;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::network::nft::rule::PASS_MARK;
use crate::network::socket_options;

/// Multicast group of modems (§15.15, §15.16).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 117);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 7);
/// TTL of packets that no router has forwarded (RFC 5082).
const GTSM_TTL: u8 = 255;
/// Maximum length of an offer, in bytes.
const MAX_OFFER: usize = 1500;
/// The connection fails when data stay unacknowledged for this many heartbeat intervals.
const UNACKNOWLEDGED_HEARTBEATS: u32 = 4;

/// Sockets for signals on one interface: IPv4, IPv6, or both.
#[derive(Debug)]
pub(super) struct SignalSockets {
    v4: Option<UdpSocket>,
    v6: Option<(UdpSocket, u32)>,
    gtsm: bool,
}

impl SignalSockets {
    /// Opens the sockets.
    ///
    /// # Errors
    /// If the interface does not exist, or has neither version of IP.
    pub(super) fn open(interface: &str, gtsm: bool) -> io::Result<Self> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        match (open_v4(interface), open_v6(interface, index)) {
            (Err(error), Err(_)) => Err(error),
            // A link may have one version of IP only.
            (v4, v6) => Ok(Self { v4: v4.ok(), v6: v6.ok().map(|socket| (socket, index)), gtsm }),
        }
    }

    /// Sends a signal to all modems.
    ///
    /// # Errors
    /// If neither IP version can send it.
    pub(super) fn send(&self, signal: &[u8]) -> io::Result<()> {
        let v4 = self.v4.iter().map(|socket| (socket, SocketAddr::from((GROUP_V4, PORT))));
        let v6 = self.v6.iter().map(|(socket, index)| {
            (socket, SocketAddr::from(SocketAddrV6::new(GROUP_V6, PORT, 0, *index)))
        });
        // Bypasses Tokio's readiness: a new socket is writable at once, but Tokio would first wait
        // for the event.
        let send = |(socket, to): (&UdpSocket, SocketAddr)| {
            SockRef::from(socket).send_to(signal, &to.into())
        };
        let mut sent = v4.chain(v6).map(send);
        let first = sent.next().unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()));
        let second = sent.next();
        match (first, second) {
            (Err(error), None | Some(Err(_))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for the next datagram for us, and returns its source. Cancel-safe.
    pub(super) async fn next(&self) -> io::Result<(SocketAddr, Vec<u8>)> {
        loop {
            let v6 = self.v6.as_ref().map(|(socket, _)| socket);
            let socket = tokio::select! {
                socket = ready(self.v4.as_ref()) => socket?,
                socket = ready(v6) => socket?,
            };
            match receive(socket) {
                Ok((from, hops, datagram)) => {
                    // GTSM (RFC 8175 §12.1): a lower value was forwarded by a router.
                    if !self.gtsm || hops == Some(GTSM_TTL.into()) {
                        return Ok((from, datagram));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn ready(socket: Option<&UdpSocket>) -> io::Result<&UdpSocket> {
    match socket {
        Some(socket) => socket.readable().await.map(|()| socket),
        None => std::future::pending().await,
    }
}

/// Receives a datagram: source, TTL, contents.
fn receive(socket: &UdpSocket) -> io::Result<(SocketAddr, Option<i32>, Vec<u8>)> {
    let mut bytes = vec![0; MAX_OFFER];
    let mut control = nix::cmsg_space!(i32);
    let taken = socket.try_io(Interest::READABLE, || {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags)?;
        let hops = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                Some(hops)
            }
            _ => None,
        });
        Ok((message.address.and_then(address), hops, message.bytes))
    });
    let (from, hops, length) = taken?;
    bytes.truncate(length);
    from.map(|from| (from, hops, bytes)).ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

fn address(storage: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

fn open_v4(interface: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_multicast_ttl_v4(GTSM_TTL.into())?;
    // For GTSM, by which offers are checked.
    setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
    bind(socket, |port| (Ipv4Addr::UNSPECIFIED, port).into())
}

fn open_v6(interface: &str, index: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.set_only_v6(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_hops_v6(GTSM_TTL.into())?;
    // As for IPv4.
    setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    bind(socket, |port| (Ipv6Addr::UNSPECIFIED, port).into())
}

/// Binds DLEP's own port, because some modems answer to it instead of the source port. Falls back
/// to any port if it is privileged or taken.
fn bind(socket: Socket, at: impl Fn(u16) -> SocketAddr) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    socket.bind(&at(PORT).into()).or_else(|_| socket.bind(&at(0).into()))?;
    UdpSocket::from_std(socket.into())
}

/// Connects to a modem, on `interface` if known.
pub(super) async fn connect(
    modem: SocketAddr,
    interface: Option<String>,
    gtsm: bool,
    heartbeat: Duration,
) -> io::Result<TcpStream> {
    let socket = match modem {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    {
        let socket = SockRef::from(&socket);
        if let Some(interface) = &interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if gtsm {
            // The kernel then drops what a router has forwarded (RFC 5082).
            socket_options::stay_on_link(&socket, modem.is_ipv6())?;
        }
        // Keeps us from intercepting the connection. Fails without privilege, but then nothing is
        // intercepted.
        let _ = socket.set_mark(PASS_MARK.value);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(heartbeat * UNACKNOWLEDGED_HEARTBEATS))?;
    }
    socket.connect(modem).await
}
