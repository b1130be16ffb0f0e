//! DNS over UDP (RFC 1035 §4.2.1).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use pep::traffic::IpFamily;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::hop::udp::{DatagramBatch, DatagramLabel, ReceiveMemory, TrafficClass, UdpLink};
use crate::network::presence;
use crate::network::socket_options::set_transparent;

/// The port of DNS (RFC 1035 §4.2), from which answers must come.
pub(crate) const PORT: u16 = 53;
/// Number of gateways on one machine that may redirect questions: each binds an address of its own.
const MAX_GATEWAYS: u8 = 15;

/// A UDP socket that receives questions.
pub(super) struct DnsSocket {
    link: UdpLink,
    address: SocketAddr,
}

impl DnsSocket {
    /// Binds a socket at an address of this machine.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::bind(address, false)
    }

    /// Binds a socket for intercepted questions to any address. Its own address is used by no other
    /// program, and its port is that of DNS: answers leave from the address and port that were
    /// asked.
    ///
    /// # Errors
    /// The system's error; `AddrInUse` if another program has the port on all addresses to itself.
    pub(super) fn redirected(version: IpFamily) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in 1..=MAX_GATEWAYS {
            match Self::bind(SocketAddr::new(Self::redirect_address(version, number), PORT), true) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                bound => return bound,
            }
        }
        Err(last)
    }

    /// The address of a socket for intercepted questions.
    pub(super) fn redirect_address(version: IpFamily, number: u8) -> IpAddr {
        match version {
            IpFamily::V4 => Ipv4Addr::new(127, 59, 0, number).into(),
            // From the project's own prefix of unique local addresses (`docs/names.md`).
            IpFamily::V6 => {
                Ipv6Addr::new(0xfd7a, 0x5be2, 0x91c4, 0x35, 0, 0, 0, number.into()).into()
            }
        }
    }

    fn bind(address: SocketAddr, transparent: bool) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            // IPv4 has a socket of its own.
            socket.set_only_v6(true)?;
        }
        if transparent {
            // Answers are sent from the address that was asked.
            set_transparent(&SockRef::from(&socket), address.is_ipv6())?;
        }
        socket.set_nonblocking(true)?;
        presence::bind(&socket, address)?;
        let link = UdpLink::from_socket(socket, address.is_ipv6())?;
        Ok(Self { address: link.local_addr()?, link })
    }

    /// The address that the socket is bound to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for messages, and hands each to `take` with its sender and the address that it was
    /// sent to.
    ///
    /// # Errors
    /// The socket has failed.
    pub(super) async fn receive(
        &self,
        buffers: &mut ReceiveMemory,
        mut take: impl FnMut(SocketAddr, Option<IpAddr>, &[u8]),
    ) -> io::Result<()> {
        self.link.readable().await?;
        match self.link.receive(buffers, |from, to, _, message| take(from, to, message)) {
            // An ICMP error about an earlier answer: its client is gone.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::debug!("a question over UDP: {error}");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends an answer from the address that was asked. If the kernel refuses it, it is lost, and
    /// the client repeats its question.
    pub(super) fn answer(self: &Arc<Self>, to: SocketAddr, from: Option<IpAddr>, message: &[u8]) {
        let mut batch = DatagramBatch::default();
        batch.join(
            DatagramLabel { to, traffic_class: TrafficClass::default(), link: 0, session: None },
            message,
            1,
        );
        if let Err(error) = self.link.send(&batch, from) {
            tracing::debug!("an answer to {to}: {error}");
        }
    }
}
