//! The UDP sockets of an endpoint: one, or one for each link of a terminal.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::task::Poll;

use pep::config::LinkConfig;
use slacp::Ecn;
use socket2::SockRef;
use tokio::net::TcpSocket;

use super::udp::{Batch, Reception, UdpLink, bind_device};

/// The local end of one of a terminal's links; by default, of its only one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalEnd {
    /// Its number.
    pub(crate) link: u8,
    /// Its name, if there are several.
    pub(crate) name: Option<String>,
    interface: Option<String>,
    source: Option<IpAddr>,
}

impl LocalEnd {
    /// The ends of all links; the usual one if there is but one.
    pub(crate) fn all(links: &[LinkConfig]) -> Vec<Self> {
        let end = |(number, link): (u8, &LinkConfig)| Self {
            link: number,
            name: Some(link.name.clone()),
            interface: link.interface.clone(),
            source: link.source,
        };
        let ends: Vec<Self> = (0..).zip(links).map(end).collect();
        if ends.is_empty() { vec![Self::default()] } else { ends }
    }

    /// The local address, if one is given.
    #[cfg(test)]
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Makes a TCP socket that is not connected yet take this link.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bind(&self, socket: &TcpSocket) -> io::Result<()> {
        if let Some(interface) = &self.interface {
            SockRef::from(socket).bind_device(Some(interface.as_bytes()))?;
        }
        self.source.map_or(Ok(()), |source| socket.bind((source, 0).into()))
    }

    /// A UDP socket on a free port that takes this link.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn udp_socket(&self, v6: bool) -> io::Result<UdpSocket> {
        let usual = if v6 { os::any_address(0) } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
        let local = self.source.map_or(usual, |source| (source, 0).into());
        Ok(bind_device(local, self.interface.as_deref())?.into())
    }
}

/// Sockets by the number of their link.
pub(crate) struct Sockets {
    links: Vec<UdpLink>,
    /// Where to look first for what has arrived, so that a busy link does not starve another.
    turn: usize,
}

impl From<UdpLink> for Sockets {
    fn from(link: UdpLink) -> Self {
        Self { links: vec![link], turn: 0 }
    }
}

impl Sockets {
    /// A socket for each of a terminal's links, which send from `usual` if a link has no address of
    /// its own.
    ///
    /// # Errors
    /// The system's, with the link.
    pub(crate) fn bind(
        links: &[LinkConfig],
        usual: SocketAddr,
    ) -> Result<Self, (String, io::Error)> {
        let bind = |link: &LinkConfig| {
            let bound = UdpLink::bind_to(local(link, usual), link.interface.as_deref());
            bound.map_err(|cause| (link.name.clone(), cause))
        };
        Ok(Self { links: links.iter().map(bind).collect::<Result<_, _>>()?, turn: 0 })
    }

    /// Waits until a socket may be readable.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| {
            // All are asked, so that each wakes this task.
            self.links.iter().fold(Poll::Pending, |found, link| {
                let ready = link.poll_readable(context);
                if found.is_ready() { found } else { ready }
            })
        })
        .await
    }

    /// Waits until the only socket may be writable. With several, none is waited for.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.links[0].writable().await
    }

    /// Maximum datagrams per [`Batch`].
    pub(crate) fn most_segments(&self) -> usize {
        self.links.iter().map(UdpLink::most_segments).min().unwrap_or(1)
    }

    /// Sends a batch over its link; `WouldBlock` if the kernel has no room now. With several links, the
    /// batch is then lost: one that takes nothing, because its modem is off, must not hold up the
    /// others.
    pub(crate) fn send(&self, batch: &Batch, from: Option<IpAddr>) -> io::Result<()> {
        // A hub reaches its terminals over all links from one socket.
        if let [only] = &self.links[..] {
            return only.send(batch, from);
        }
        let Some(socket) = self.links.get(usize::from(batch.link())) else { return Ok(()) };
        match socket.send_at_once(batch, from) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::other("a link takes no more"))
            }
            result => result,
        }
    }

    /// Receives what has arrived on a socket; `WouldBlock` if nothing has on any. Returns whether more may
    /// wait.
    pub(crate) fn receive(
        &mut self,
        buffers: &mut Reception,
        mut datagram: impl FnMut(SocketAddr, Option<IpAddr>, Ecn, &mut [u8]),
    ) -> io::Result<bool> {
        let count = self.links.len();
        for step in 0..count {
            let number = (self.turn + step) % count;
            match self.links[number].receive(buffers, &mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    self.turn = (number + 1) % count;
                    return result.map(|more| more || count > 1);
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The local address of a link.
fn local(link: &LinkConfig, usual: SocketAddr) -> SocketAddr {
    match (link.source, usual) {
        (Some(source), _) => (source, usual.port()).into(),
        (None, SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, usual.port()).into(),
        (None, SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, usual.port()).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::hop::udp::{Label, TrafficClass};

    fn link(name: &str, last: u8) -> LinkConfig {
        let source = Some(Ipv4Addr::new(127, 0, 0, last).into());
        let rate = slacp::Rate::auto();
        LinkConfig { name: name.to_owned(), rate, interface: None, source }
    }

    fn label(to: SocketAddr, link: u8) -> Label {
        Label { to, traffic_class: TrafficClass::default(), link, session: None }
    }

    #[tokio::test]
    async fn each_link_sends_from_its_address_and_all_receive() {
        let hub = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = hub.local_addr().unwrap();
        let mut hub = Sockets::from(hub);
        let links = [link("geo", 2), link("leo", 3)];
        let mut sockets = Sockets::bind(&links, "0.0.0.0:0".parse().unwrap()).unwrap();
        let (mut reception, mut batch) = (Reception::new(), Batch::default());
        for (number, last) in [(1, 3), (0, 2), (1, 3)] {
            batch.clear();
            batch.join(label(to, number), &[number; 9], 1);
            sockets.writable().await.unwrap();
            sockets.send(&batch, None).unwrap();
            let mut came = None;
            while came.is_none() {
                hub.readable().await.unwrap();
                let _ = hub.receive(&mut reception, |from, _, _, _| came = Some(from));
            }
            let from = came.unwrap();
            assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, last));
            batch.clear();
            batch.join(label(from, number), &[number; 7], 1);
            hub.send(&batch, None).unwrap();
            let mut answer = None;
            while answer.is_none() {
                sockets.readable().await.unwrap();
                let _ = sockets.receive(&mut reception, |_, _, _, bytes| answer = Some(bytes[0]));
            }
            assert_eq!(answer, Some(number));
        }
    }

    /// Nothing waits for these sockets, so what the runtime has not seen yet must not matter: the first
    /// handshake message of each link would be lost.
    #[tokio::test]
    async fn the_first_packet_of_each_link_leaves_at_once() {
        let hub = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = hub.local_addr().unwrap();
        let sockets =
            Sockets::bind(&[link("geo", 2), link("leo", 3)], "0.0.0.0:0".parse().unwrap()).unwrap();
        for number in [0, 1] {
            let mut batch = Batch::default();
            batch.join(label(to, number), &[number; 9], 1);
            sockets.send(&batch, None).unwrap();
        }
    }

    #[tokio::test]
    async fn a_link_without_its_address_is_named() {
        let links =
            [link("geo", 2), LinkConfig { source: Some([192, 0, 2, 9].into()), ..link("leo", 3) }];
        let error = Sockets::bind(&links, "0.0.0.0:0".parse().unwrap()).err().unwrap();
        assert_eq!(error.0, "leo");
    }
}
