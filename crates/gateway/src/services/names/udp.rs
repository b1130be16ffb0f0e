//! Questions over UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use pep::traffic::Version;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::hop::udp::{Batch, Label, Reception, TrafficClass, UdpLink};
use crate::presence;
use crate::socket_options::set_transparent;

/// The port of DNS (RFC 1035 §4.2), from which answers must come.
pub(crate) const PORT: u16 = 53;
/// How many gateways may redirect questions on one machine.
const PLACES: u8 = 15;

/// A socket at which questions arrive.
pub(super) struct UdpDoor {
    link: UdpLink,
    address: SocketAddr,
}

impl UdpDoor {
    /// A door at an address of this machine.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::bind(address, false)
    }

    /// A door for questions to any address, which interception redirects. It has an address that
    /// nobody else uses: answers leave from the one that was asked, and from the port of DNS.
    ///
    /// # Errors
    /// The system's; `AddrInUse` if another program has the port on all addresses to itself.
    pub(super) fn redirected(version: Version) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in 1..=PLACES {
            match Self::bind(SocketAddr::new(Self::place(version, number), PORT), true) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                bound => return bound,
            }
        }
        Err(last)
    }

    /// An address for redirected questions.
    pub(super) fn place(version: Version, number: u8) -> IpAddr {
        match version {
            Version::V4 => Ipv4Addr::new(127, 59, 0, number).into(),
            // Of our own local network (`docs/names.md`).
            Version::V6 => {
                Ipv6Addr::new(0xfd7a, 0x5be2, 0x91c4, 0x35, 0, 0, 0, number.into()).into()
            }
        }
    }

    fn bind(address: SocketAddr, transparent: bool) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if transparent {
            set_transparent(&SockRef::from(&socket), address.is_ipv6())?;
        }
        socket.set_nonblocking(true)?;
        presence::bind(&socket, address)?;
        let link = UdpLink::of(socket, address.is_ipv6())?;
        Ok(Self { address: link.local_addr()?, link })
    }

    /// The address it is bound to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for messages, and hands over what has come: from where, to which address, and the
    /// message.
    ///
    /// # Errors
    /// If the socket fails.
    pub(super) async fn receive(
        &self,
        buffers: &mut Reception,
        mut take: impl FnMut(SocketAddr, Option<IpAddr>, &[u8]),
    ) -> io::Result<()> {
        self.link.readable().await?;
        match self.link.receive(buffers, |from, to, _, message| take(from, to, message)) {
            // An ICMP error about an answer that nobody waited for.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::debug!("a question over UDP: {error}");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends an answer, from the address that was asked. One that the kernel does not take is lost,
    /// and asked for again.
    pub(super) fn answer(self: &Arc<Self>, to: SocketAddr, from: Option<IpAddr>, message: &[u8]) {
        let mut batch = Batch::default();
        batch.join(
            Label { to, traffic_class: TrafficClass::default(), link: 0, session: None },
            message,
            1,
        );
        if let Err(error) = self.link.send(&batch, from) {
            tracing::debug!("an answer to {to}: {error}");
        }
    }
}
